//! The program as users see it: output, exit status, messages.

use crate::program::pcap::{pcap, written};
use crate::program::{errors, rxsteer};
use serde_json::Value;
use std::fs;
use std::process::{Command, Output};

fn status(output: &Output) -> i32 {
    output.status.code().expect("it exits by itself")
}

fn json(arguments: &[&str]) -> Value {
    let output = rxsteer(&[arguments, &["--json"]].concat());
    assert_eq!(status(&output), 0, "{}", errors(&output));
    serde_json::from_slice(&output.stdout).expect("one JSON object")
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no count"))
}

const SYNTHETIC: [&str; 3] = ["replay", "--synthetic", "packets=20000,flows=500,ip=mixed"];

#[test]
fn report_adds_up() {
    let report = json(&[&SYNTHETIC[..], &["--cpus", "4"]].concat());
    assert_eq!(number(&report["packets"]), 20_000);
    assert_eq!(number(&report["delivered"]), 20_000);
    assert_eq!(number(&report["flows_bidirectional"]), 500);
    assert_eq!(number(&report["flows_unidirectional"]), 500);
    for zero in ["reordered", "moves", "frames_not_ip", "malformed", "transport_truncated"] {
        assert_eq!(number(&report[zero]), 0, "{zero}");
    }
    for (reason, count) in report["dropped"].as_object().expect("an object by reason") {
        assert_eq!(number(count), 0, "{reason}");
    }
    let per_cpu = report["cpus"].as_array().expect("an array");
    assert_eq!(per_cpu.len(), 4);
    for field in ["delivered", "bytes", "flows"] {
        let sum: u64 = per_cpu.iter().map(|cpu| number(&cpu[field])).sum();
        let whole = match field {
            "flows" => &report["flows_bidirectional"],
            _ => &report[field],
        };
        assert_eq!(sum, number(whole), "{field}");
    }
    for field in ["cpu", "kicks", "lists"] {
        assert!(per_cpu.iter().all(|cpu| cpu[field].is_u64()), "{field}");
    }
    let reasons = |of: &Value| of["dropped"].as_object().expect("by reason").len();
    assert!(per_cpu.iter().all(|cpu| reasons(cpu) == reasons(&report)), "{report}");
    assert_eq!(report["errors"], Value::Array(vec![]));
    assert!(number(&report["elapsed_ns"]) > 0);
}

#[test]
fn buckets_move_by_load_the_same_way_each_time() {
    let policy = "rps+balance:buckets=256,interval=10ms";
    // A full backlog splits a batch, and an interval ends between two batches. With room for all packets, it ends at
    // the same packet each time.
    let more = ["--cpus", "4", "--policy", policy, "--hash-seed", "2a", "--max-backlog", "32768"];
    let source = ["replay", "--synthetic", "packets=100000,flows=300"];
    let report = || json(&[&source[..], &more[..]].concat());
    let first = report();
    let moved = &first["moved_by_load"];
    assert!(number(&moved["buckets"]) > 0 && number(&moved["intervals"]) > 3, "{moved}");
    assert_eq!(number(&moved["buckets"]) as usize, moved["moves"].as_array().unwrap().len());
    for one in moved["moves"].as_array().unwrap() {
        assert_ne!(one["from"], one["to"], "{one}");
        assert!(one["why"].as_str().unwrap().contains("% of its share"), "{one}");
    }
    assert_eq!(number(&first["reordered"]), 0);
    assert_eq!(moved, &report()["moved_by_load"]);
    let text = rxsteer(&[&source[..], &more[..]].concat());
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    assert!(text.contains("buckets moved by load in"), "{text}");
    for bad in ["rps+balance:buckets=100", "balance:interval=1ms", "rps+balance:loops=2"] {
        let refused = rxsteer(&[&source[..], &["--policy", bad]].concat());
        assert_eq!(status(&refused), 2, "{bad}");
        assert!(errors(&refused).contains("balance"), "{}", errors(&refused));
    }
}

#[test]
fn same_seed_gives_the_same_spread() {
    let spread = |seed: &str| {
        let report = json(&[&SYNTHETIC[..], &["--cpus", "8", "--hash-seed", seed]].concat());
        let per_cpu = report["cpus"].as_array().expect("an array");
        per_cpu.iter().map(|cpu| number(&cpu["delivered"])).collect::<Vec<_>>()
    };
    assert_eq!(spread("2a"), spread("2a"));
    assert_ne!(spread("2a"), spread("2b"));
}

#[test]
fn table_is_printed_for_people() {
    let output = rxsteer(&[&SYNTHETIC[..], &["--cpus", "2"]].concat());
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(status(&output), 0, "{}", errors(&output));
    for word in ["CPU", "imbalance", "0 reordered", "delivered", "mean list"] {
        assert!(text.contains(word), "{word} in\n{text}");
    }
}

#[test]
fn the_demo_runs() {
    let output = rxsteer(&["demo"]);
    assert_eq!(status(&output), 0, "{}", errors(&output));
    assert!(String::from_utf8_lossy(&output.stdout).contains("rps"));
    let demo = json(&["demo"]);
    let runs = demo["runs"].as_array().expect("runs");
    assert_eq!(runs.len(), 7);
    for run in runs {
        // There are four CPUs; the expected value follows from the imbalance of the same report.
        let fits = 4.0 / run["imbalance"].as_f64().expect("a number");
        assert!((run["fits"].as_f64().expect("a number") - fits).abs() < 1e-9, "{run:#}");
        let has_apps = run["scene"] == "applications";
        assert_eq!(run["app_packets_at_home"].is_u64(), has_apps, "{run:#}");
    }
    let sparse = runs.iter().find(|run| run["policy"] == "sparse").expect("a run under sparse");
    assert_eq!(sparse["cpus"], json(&["demo"])["runs"][4]["cpus"], "the same each time");
}

#[test]
fn policies_do_what_they_say() {
    let packets = |arguments: &[&str]| {
        let report = json(&[&SYNTHETIC[..], arguments].concat());
        let per_cpu = report["cpus"].as_array().expect("an array").clone();
        per_cpu.iter().map(|cpu| number(&cpu["delivered"])).collect::<Vec<_>>()
    };
    assert_eq!(packets(&["--cpus", "2", "--policy", "none"]), [20_000, 0]);
    let bound = packets(&["--cpus", "3", "--rx-queues", "2", "--policy", "bound:0=1,1=2"]);
    assert!(bound[0] == 0 && bound[1] > 5000 && bound[2] > 5000, "{bound:?}");
    let mapped = packets(&["--cpus", "0-0", "--rps-map", "0=1"]);
    assert_eq!(mapped, [0, 20_000]);
}

#[test]
fn overload_is_counted() {
    // A packet takes a millisecond, so the workers cannot process all of the 20 000 packets while they are received.
    let overload =
        ["--cpus", "2", "--max-backlog", "16", "--on-full", "drop", "--work-ns", "1000000"];
    let report = json(&[&SYNTHETIC[..], &overload].concat());
    let dropped = number(&report["dropped"]["backlog_full"]);
    assert!(dropped > 0);
    assert_eq!(number(&report["delivered"]) + dropped, 20_000);
    assert_eq!(number(&report["reordered"]), 0);
}

#[test]
fn damage_is_named_and_what_precedes_it_is_used() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut file = pcap(1, &[&[0; 60], &[0; 60]]);
    file.truncate(file.len() - 10);
    let path = written(dir.path(), "cut.pcap", &file);
    let output = rxsteer(&["replay", path.to_str().expect("UTF-8"), "--cpus", "2", "--json"]);
    assert_eq!(status(&output), 1);
    let report: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    assert_eq!(number(&report["packets"]), 1);
    assert_eq!(number(&report["frames_not_ip"]), 1);
    let error = &report["errors"][0];
    assert_eq!(error["file"], path.to_str().expect("UTF-8"));
    assert_eq!(number(&error["offset"]), 24 + 16 + 60);
    assert!(errors(&output).contains("cut.pcap"));
}

#[test]
fn what_is_no_capture_is_refused_in_one_line() {
    let dir = tempfile::tempdir().expect("a directory");
    let text = written(dir.path(), "notes.txt", b"these are no packets");
    let empty = written(dir.path(), "empty.pcap", b"");
    let missing = dir.path().join("missing.pcap");
    for path in [&text, &empty, &missing, &dir.path().to_path_buf()] {
        let output = rxsteer(&["replay", path.to_str().expect("UTF-8")]);
        assert_eq!(status(&output), 2, "{}", path.display());
        assert_eq!(errors(&output).lines().count(), 1, "{}", errors(&output));
        assert!(errors(&output).contains(path.to_str().expect("UTF-8")));
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn unknown_link_type_is_refused_by_number() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = written(dir.path(), "odd.pcap", &pcap(281, &[&[0; 60]]));
    let output = rxsteer(&["replay", path.to_str().expect("UTF-8"), "--cpus", "1"]);
    assert_eq!(status(&output), 1);
    assert!(errors(&output).contains("281"), "{}", errors(&output));
}

#[test]
fn misspelt_interface_of_live_is_refused_with_the_nearest() {
    let output = rxsteer(&["live", "loo", "--duration", "1s"]);
    assert_eq!(status(&output), 2);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("did you mean 'lo'?") || stderr.contains("there are"), "{stderr}");
    let output = rxsteer(&["live", "lo", "lo", "--duration", "1s"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("lo is named twice"));
}

#[test]
fn wrong_arguments_are_refused_before_anything_starts() {
    for (arguments, expected) in [
        (&["--policy", "rsp"][..], "did you mean 'rps'?"),
        (&["--policy", "bound"], "at least one binding"),
        (&["--policy", "bound:7=0"], "RX queue 7"),
        (&["--cpus", ""], "empty"),
        (&["--cpus", "0"], "0-0"),
        (&["--cpus", "3-1"], "backwards"),
        (&["--synthetic", "flow=3"], "flows"),
        (&["--on-full", "dorp"], "drop"),
        (&["--rps-map", "0=0", "--policy", "none"], "use none"),
        (&["--speed", "fast"], "is not a speed"),
        (&["--max-backlog", "0"], "max-backlog"),
        (&["--batch", "1000"], "batch"),
        (&["--hash", "crc"], "'symmetric', 'toeplitz'"),
        (&["--rx-queues", "file"], "give --rx-queues a count"),
        (&["--hash", "toeplitz", "--hash-seed", "1"], "toeplitz:HEXKEY"),
        (&["--cpus", "-1"], "neither a number nor a range"),
        (&["--speed", "10"], "did you mean '10x'"),
    ] {
        let synthetic: &[&str] =
            if arguments[0] == "--synthetic" { &[] } else { &["--synthetic", ""] };
        let output = rxsteer(&[&["replay"], synthetic, arguments].concat());
        assert_eq!(status(&output), 2, "{arguments:?}");
        assert!(errors(&output).contains(expected), "{arguments:?}: {}", errors(&output));
    }
}

#[test]
fn capture_in_the_place_of_the_command_is_explained() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = written(dir.path(), "some.pcap", &pcap(1, &[]));
    let output = rxsteer(&[path.to_str().expect("UTF-8")]);
    assert_eq!(status(&output), 2);
    assert!(errors(&output).contains("rxsteer replay"), "{}", errors(&output));
}

#[test]
fn closed_output_ends_it_quietly() {
    for arguments in [&SYNTHETIC[..], &["completions", "bash"]] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let output = Command::new(env!("CARGO_BIN_EXE_rxsteer"))
            .args(arguments)
            .args(if arguments[0] == "replay" { &["--cpus", "1", "--no-pin"][..] } else { &[] })
            .stdout(writer)
            .output()
            .expect("rxsteer can be started");
        assert_eq!((status(&output), errors(&output)), (0, String::new()));
    }
}

/// The commands in the help of the program.
fn commands() -> Vec<String> {
    let help = rxsteer(&["--help"]);
    let help = String::from_utf8_lossy(&help.stdout).into_owned();
    let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let names = lines.take_while(|line| !line.is_empty()).filter_map(|line| {
        let name = line.strip_prefix("  ")?;
        let is_name = name.starts_with(|c: char| c.is_ascii_lowercase());
        is_name.then(|| name.split_whitespace().next().expect("a word").to_owned())
    });
    names.filter(|name| name != "help").collect()
}

#[test]
fn every_command_has_an_example_in_its_help() {
    let commands = commands();
    for known in ["replay", "flows", "explain", "check", "run", "status", "set", "sim", "man"] {
        assert!(commands.iter().any(|name| name == known), "{known} in {commands:?}");
    }
    for command in commands.iter().map(String::as_str) {
        let output = rxsteer(&[command, "--help"]);
        let help = String::from_utf8_lossy(&output.stdout);
        assert_eq!(status(&output), 0);
        let example = format!("  rxsteer {command}");
        assert!(help.contains("Example") && help.contains(&example), "{command}: {help}");
    }
    assert!(String::from_utf8_lossy(&rxsteer(&["--help"]).stdout).contains("Examples:"));
}

#[test]
fn man_pages_are_written() {
    let dir = tempfile::tempdir().expect("a directory");
    let target = dir.path().join("man");
    assert_eq!(status(&rxsteer(&["man", target.to_str().expect("UTF-8")])), 0);
    for page in ["rxsteer.1", "rxsteer-replay.1", "rxsteer-flows.1", "rxsteer-sim.1"] {
        assert!(fs::read_to_string(target.join(page)).expect("a page").contains(".TH"), "{page}");
    }
}

// --- Policies that move flows ---

#[test]
fn every_policy_runs_and_keeps_order() {
    for policy in ["none", "rps", "bound:0=1", "sparse:loops=2", "rfs", "rfs+sparse"] {
        let arguments =
            ["--cpus", "4", "--policy", policy, "--app-cpus", "5", "--app-migrate", "1ms"];
        let report = json(&[&SYNTHETIC[..], &arguments].concat());
        assert_eq!(report["policy"], policy);
        assert_eq!((number(&report["delivered"]), number(&report["reordered"])), (20_000, 0));
        let rfs = number(&report["rfs"]) > 0;
        assert_eq!(rfs, policy.starts_with("rfs"), "{policy}: rfs counts under rfs only");
        let on_4 = number(&report["cpus"][4]["delivered"]);
        assert_eq!(on_4 > 0, policy.starts_with("rfs"), "{policy}: only applications are on CPU 4");
        assert_eq!(number(&report["in_slots"]) > 0, policy.contains("sparse"), "{policy}");
    }
}

#[test]
fn changes_are_made_on_the_way() {
    let changes = ["--change-at", "5000p:policy=none", "--change-at", "10ms:policy=rps;cpus=2-3"];
    let report = json(&[&SYNTHETIC[..], &["--cpus", "2"], &changes].concat());
    assert_eq!((number(&report["changes_made"]), number(&report["reordered"])), (2, 0));
    for cpu in 0..4 {
        assert!(number(&report["cpus"][cpu]["delivered"]) > 0, "CPU {cpu} had its time");
    }
    let late = ["--change-at", "1h:policy=none"];
    let output = rxsteer(&[&SYNTHETIC[..], &["--cpus", "2"], &late].concat());
    assert_eq!(status(&output), 0);
    assert!(errors(&output).contains("0 of 1 changes were made"), "{}", errors(&output));
}

#[test]
fn impossible_changes_are_refused_before_anything_starts() {
    for (change, part) in [
        ("5p:flow-cnt=0", "from 1 to 16777216"),
        ("5p:policy=bound:3=1", "RX queue 3"),
        ("5p:max-backlog=9999999", "from 1 to 1048576"),
        ("5p:rps-map=0=1-1;policy=none", "use none"),
    ] {
        let output = rxsteer(&[&SYNTHETIC[..], &["--change-at", change]].concat());
        assert_eq!(status(&output), 2, "{change}");
        assert!(errors(&output).contains(part), "{change}: {}", errors(&output));
    }
}

#[test]
fn settings_can_come_from_a_file() {
    let dir = tempfile::tempdir().expect("a directory can be made");
    let file =
        written(dir.path(), "s.toml", b"policy = 'sparse:loops=1'\ncpus = 3\nhash_seed = '7'\n");
    let file = file.to_str().expect("a plain path");
    let report = json(&[&SYNTHETIC[..], &["--config", file]].concat());
    assert_eq!(
        (&report["policy"], &report["settings"]["cpus"]),
        (&"sparse:loops=1".into(), &"0-2".into())
    );
    let report = json(&[&SYNTHETIC[..], &["--config", file, "--policy", "rps"]].concat());
    assert_eq!((&report["policy"], &report["settings"]["cpus"]), (&"rps".into(), &"0-2".into()));
    for (text, part) in [
        ("cpu = 3", "bad.toml:1:1: there is no setting 'cpu'; did you mean 'cpus'?"),
        ("\ncpus = '3-1'", "bad.toml:2:1: cpus=3-1: the range 3-1 runs backwards"),
        ("nonsense = {}", "bad.toml:1:1: there is no setting 'nonsense'"),
        ("policy = {}", "bad.toml:1:1: policy={}: "),
    ] {
        let file = written(dir.path(), "bad.toml", text.as_bytes());
        let output =
            rxsteer(&["replay", "--synthetic", "", "--config", file.to_str().expect("plain")]);
        assert_eq!(status(&output), 2);
        assert!(errors(&output).contains(part), "{text}: {}", errors(&output));
    }
}

#[test]
fn decision_is_explained_as_it_is_made() {
    let flow = "10.0.0.1:40000-192.0.2.7:443/tcp";
    let fixed = ["--cpus", "4", "--hash-seed", "2a"];
    let hash = json(&[&["explain", flow][..], &fixed].concat());
    assert_eq!((&hash["cpu"], &hash["reason"]["rule"]), (&2.into(), &"hash".into()));
    let back = json(&[&["explain", "192.0.2.7:443-10.0.0.1:40000/tcp"][..], &fixed].concat());
    assert_eq!(hash["flow_hash"], back["flow_hash"], "both directions hash alike");
    let rfs = ["--policy", "rfs+sparse"];
    let slot = json(&[&["explain", flow][..], &fixed, &rfs].concat());
    assert_eq!((&slot["cpu"], &slot["reason"]["rule"]), (&3.into(), &"slot".into()));
    let desired = json(&[&["explain", flow][..], &fixed, &rfs, &["--app-cpu", "1"]].concat());
    assert_eq!((&desired["cpu"], &desired["desired"]["state"]), (&1.into(), &"cpu".into()));

    let text = rxsteer(&[&["explain", flow][..], &fixed, &rfs].concat());
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    for part in ["sparse slot 0 of CPU 3", "It would move", "more than a second"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

/// `explain` reports for a frame the decision that `replay` makes for it.
#[test]
fn frame_of_a_capture_is_explained() {
    let frame = |port: u8| {
        let mut frame = vec![0; 60];
        frame[12..14].copy_from_slice(&[8, 0]);
        frame[14] = 0x45;
        frame[17] = 46;
        (frame[22], frame[23]) = (64, 17);
        frame[26..34].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
        (frame[35], frame[37], frame[39]) = (port, 9, 26);
        frame
    };
    let dir = tempfile::tempdir().expect("a directory can be made");
    let frames = [frame(1), frame(2), frame(1), frame(3)];
    let frames: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
    let capture = written(dir.path(), "four.pcap", &pcap(1, &frames));
    let capture = capture.to_str().expect("a plain path");
    let explain = |number: &str| {
        json(&["explain", capture, "--frame", number, "--policy", "sparse:loops=1", "--cpus", "2"])
    };
    let reasons: Vec<_> = ["1", "2", "3", "4"].map(explain).into();
    let (rules, cpus): (Vec<_>, Vec<_>) =
        reasons.iter().map(|decided| (&decided["reason"]["rule"], &decided["cpu"])).unzip();
    assert_eq!(rules, ["slot", "slot", "slot", "hash"]);
    assert_eq!((cpus[0], cpus[1], cpus[2]), (&1.into(), &0.into(), &1.into()));
    assert_eq!(
        (&reasons[0]["reason"]["held"], &reasons[2]["reason"]["held"]),
        (&false.into(), &true.into())
    );
    assert_eq!(reasons[3]["reason"]["no_slot"]["why"], "all_taken");

    for (arguments, part) in
        [(&["--frame", "5"][..], "there is no frame 5"), (&[][..], "which frame of it")]
    {
        let output = rxsteer(&[&["explain", capture][..], arguments].concat());
        assert_eq!(status(&output), 2);
        assert!(errors(&output).contains(part), "{}", errors(&output));
    }
    let output = rxsteer(&["explain", "nonsense"]);
    assert!(errors(&output).contains("SOURCE:PORT-DESTINATION"), "{}", errors(&output));
    // The name of a file need not be UTF-8.
    use std::os::unix::ffi::OsStrExt;
    let name = dir.path().join(std::ffi::OsStr::from_bytes(b"fo\xffur.pcap"));
    std::fs::copy(capture, &name).expect("a file can be copied");
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_rxsteer"))
        .args(["explain", "--frame", "1"])
        .arg(&name)
        .output()
        .expect("it can be started");
    assert_eq!(status(&output), 0, "{}", errors(&output));
}

#[test]
fn options_of_af_xdp_are_refused_with_packet_sockets() {
    for option in ["--zero-copy", "--busy-poll=50"] {
        let output = rxsteer(&["live", "lo", option]);
        assert_eq!(status(&output), 2, "{option}");
        assert!(errors(&output).contains("requires AF_XDP sockets"), "{}", errors(&output));
    }
}

#[test]
fn what_explain_leaves_out_of_account_is_reported() {
    let flow = "10.0.0.1:40000-192.0.2.7:443/tcp";
    let options = ["--inner", "--key-tunnels=esp", "--flow-limit", "--cpus", "2"];
    let rules = ["--rule=vlan 5 -> 1", "--rule=tcp dscp 0 -> 1", "--rule=dscp 46 -> 1"];
    let output = rxsteer(&[&["explain", flow][..], &options, &rules].concat());
    let notes = errors(&output);
    for part in [
        "--inner changes nothing here: a flow on the command line has no tunnel",
        "--key-tunnels changes nothing here",
        "--flow-limit changes nothing here",
        "rule 1 (vlan 5 → 1) changes nothing here: a flow on the command line has no VLAN",
        "rule 3 (dscp 46 → 1) changes nothing here",
    ] {
        assert!(notes.contains(part), "{part}: {notes}");
    }
    assert!(!notes.contains("rule 2"), "{notes}");
}
