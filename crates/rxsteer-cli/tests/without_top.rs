//! A build without the view in the terminal still has its command, which prints how to get the view.
#![cfg(not(feature = "top"))]

use std::process::Command;

#[test]
fn top_says_how_to_get_it() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rxsteer"));
    let output = command.args(["top", "--once"]).output().expect("it can be started");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("without the feature 'top'"), "{stderr}");
}
