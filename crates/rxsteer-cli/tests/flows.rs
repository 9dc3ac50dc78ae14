//! Flow records as users get them: the files that `rxsteer replay --flows` writes, and the table of `rxsteer flows`,
//! compared with sums that a separate parser computes here without code of rxsteer.

mod captures;
mod files;
mod keys;
mod reading;
mod sums;
mod talkers;
mod traffic;
mod walk;

use crate::program::{errors, rxsteer};
use serde_json::Value;
use std::path::Path;
use std::process::Output;

fn status(output: &Output) -> i32 {
    output.status.code().expect("it exits by itself")
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a plain path")
}

/// The report of a replay that writes its records to `file`.
fn replay(file: &Path, arguments: &[&str]) -> Value {
    let to = ["replay", "--json", "--no-pin", "--flows", text(file)];
    let output = rxsteer(&[&to[..], arguments].concat());
    assert!(status(&output) < 2, "{arguments:?}: {}", errors(&output));
    serde_json::from_slice(&output.stdout).expect("one JSON object")
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no count"))
}
