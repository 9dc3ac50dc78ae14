//! Where packets go on to other programs: files, pipes and interfaces, one for each CPU, written by [`Sink`], a handler.

pub use rxsteer_user::sink::{
    Sink, SinkCounts, SinkDrop, SinkError, SinkKind, SinkReport, SinkSpec, SinkSpecError, Sinks,
};
