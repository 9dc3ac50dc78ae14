#![doc = include_str!("../README.md")]
//!
//! # Files
//!
//! - `app.rs`: what the view shows
//! - `flows.rs`, `cpus.rs`: rows from two readings
//! - `keys.rs`: the effects of keys
//! - `watch.rs`: the thread that reads the instance
//! - `terminal.rs`: the live view; `once.rs`: one frame as text
//! - `replay.rs`: a replay to show
//! - `panels/`: a file per panel
#![forbid(unsafe_code)]

mod app;
mod cpus;
mod flows;
mod keys;
mod once;
mod panels;
mod replay;
mod style;
mod terminal;
mod text;
mod watch;

pub use app::{App, Position, Reading};
pub use cpus::{CpuRow, Time};
pub use flows::{FlowRow, Move, Sort};
pub use keys::Effect;
pub use once::{frame_text, once};
pub use panels::{MIN_SIZE, draw};
pub use ratatui;
pub use replay::Replay;
pub use style::Display;
pub use terminal::show;
pub use watch::{Command, Target, Update, Watcher, watch};
