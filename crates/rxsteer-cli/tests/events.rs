//! Events of a replay: as JSON lines to standard output, a file and the journal.

use serde_json::Value;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

/// A replay of 20 000 frames of 64 flows.
fn replay(options: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rxsteer"));
    command.args(["replay", "--synthetic", "packets=20000,flows=64", "--cpus", "0-0", "--no-pin"]);
    command.args(options).env_remove("JOURNAL_STREAM");
    command
}

fn lines(text: &str) -> Vec<Value> {
    let line =
        |line: &str| serde_json::from_str(line).unwrap_or_else(|why| panic!("{why}: {line}"));
    text.lines().map(line).collect()
}

fn of_kind<'a>(events: &'a [Value], kind: &str) -> Vec<&'a Value> {
    events.iter().filter(|event| event["kind"] == kind).collect()
}

#[test]
fn change_is_an_event_and_the_report_goes_to_standard_error() {
    let options = ["--policy", "rps", "--change-at", "1000p:policy=sparse", "--events", "-"];
    let output = replay(&options).output().unwrap();
    let (stdout, stderr) =
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert!(output.status.success(), "{stderr}");
    let events = lines(&stdout);
    let done = of_kind(&events, "change_done");
    assert_eq!(done.len(), 1, "{stdout}");
    let text = done[0]["text"].as_str().unwrap();
    assert!(text.contains("policy=sparse") && text.contains("(was rps)"), "{text}");
    assert_eq!(&done[0]["fields"]["changes"], text);
    assert!(done[0]["time_ns"].as_u64().unwrap() > 1_700_000_000_000_000_000);
    assert!(stderr.contains("20 000"), "the report: {stderr}");
}

#[test]
fn drops_are_events_with_their_reason_in_a_file_that_is_continued() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("events.jsonl");
    for times in 1..=2 {
        let mut replay =
            replay(&["--on-full", "drop", "--max-backlog", "1", "--work-ns", "1000000"]);
        let output = replay.arg("--events").arg(&file).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(String::from_utf8_lossy(&output.stdout).contains("20 000"), "the report");
        let events = lines(&std::fs::read_to_string(&file).unwrap());
        let drops = of_kind(&events, "drops");
        assert!(drops.len() >= times, "{events:?}");
        assert!(drops.iter().all(|event| event["fields"]["queue_full"].as_u64() > Some(0)));
    }
}

/// Under systemd, standard error is a stream to the journal, which removes the level from each line.
#[test]
fn journal_gets_lines_with_levels_and_no_messages() {
    let (mut journal, stderr) = UnixStream::pair().unwrap();
    let stat = nix::sys::stat::fstat(stderr.as_fd()).unwrap();
    let mut replay = replay(&["--policy", "rps", "--change-at", "1000p:policy=sparse", "--json"]);
    replay.env("JOURNAL_STREAM", format!("{}:{}", stat.st_dev, stat.st_ino));
    replay.stdout(Stdio::piped()).stderr(OwnedFd::from(stderr));
    let child = replay.spawn().unwrap();
    // The command holds the other end of the socket as well; this closes it.
    drop(replay);
    let mut message = String::new();
    journal.read_to_string(&mut message).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{message}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["packets"], 20_000);
    let events: String = message
        .lines()
        .filter_map(|line| line.strip_prefix("<6>"))
        .map(|l| format!("{l}\n"))
        .collect();
    let events = lines(&events);
    assert_eq!(of_kind(&events, "change_done").len(), 1, "{message}");
}

#[test]
fn standard_output_is_for_one_of_them() {
    for (options, part) in [
        (&["--events", "-", "--json"][..], "--events - and --json both take standard output"),
        (&["--events", "-", "--seeds", "3"], "--events belongs to one replay"),
    ] {
        let output = replay(options).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{options:?}");
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(stderr.contains(part), "{stderr}");
    }
}
