//! Starts the program as users start it.

pub(crate) mod pcap;
pub(crate) mod running;

use std::process::{Command, Output, Stdio};

/// Runs `rxsteer` with these arguments, and with empty standard input.
pub(crate) fn rxsteer(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_rxsteer"))
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .expect("rxsteer can be started")
}

/// The text on standard error.
pub(crate) fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}
