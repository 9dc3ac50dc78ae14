//! Outputs for other programs: files, pipes and interfaces, one for each CPU. The handler [`Sink`] writes them.

pub use rxsteer_user::sink::{
    Sink, SinkCounts, SinkDrop, SinkError, SinkKind, SinkReport, SinkSpec, SinkSpecError, Sinks,
};
