//! A build without the in-kernel path still has its commands, which print how to get it.
#![cfg(not(feature = "xdp"))]

use std::process::Command;

#[test]
fn its_commands_say_how_to_get_it() {
    let stderr = refused(&["run", "eth0"]);
    assert!(
        stderr.contains("this build has no in-kernel path") && stderr.contains("rebuild"),
        "{stderr}"
    );
}

/// Commands that query instances of other builds still work.
#[test]
fn instances_are_asked_all_the_same() {
    for arguments in [
        &["status"][..],
        &["set", "policy=rps"],
        &["peers", "veth*"],
        &["explain", "10.0.0.1:1-10.0.0.2:2/tcp", "--live"],
    ] {
        let stderr = refused(&[arguments, &["--socket", "/nosuch/socket"]].concat());
        assert!(stderr.contains("no instance can be reached at /nosuch/socket"), "{stderr}");
    }
}

/// The text on standard error when these arguments are refused.
fn refused(arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rxsteer"));
    let output = command.args(arguments).output().expect("it can be started");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    stderr
}
