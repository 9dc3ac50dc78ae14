//! A build without the simulator still has its command, which prints how to get the simulator.
#![cfg(not(feature = "sim"))]

use std::process::Command;

#[test]
fn sim_says_how_to_get_it() {
    for arguments in [&["sim"][..], &["sim", "--help"], &["sim", "router-2", "--seeds", "3"]] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rxsteer"));
        let output = command.args(arguments).output().expect("it can be started");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains("this build has no simulator"), "{stderr}");
    }
}
