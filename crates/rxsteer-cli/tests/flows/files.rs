//! The files: formats, data sets, masks, and refused arguments.

use super::reading::{self, Record};
use super::traffic::Traffic;
use super::{errors, number, replay, rxsteer, status, text};
use crate::program::running::{INT, ended, send, wait_until, waits_for};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output, Stdio};

const FIXED: [&str; 2] = ["--cpus", "0-1"];

fn sorted(mut records: Vec<Record>) -> Vec<Record> {
    records.sort();
    records
}

fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).expect("a directory");
    let name = |entry: std::fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
    let mut names: Vec<String> = entries.map(|entry| name(entry.expect("an entry"))).collect();
    names.sort();
    names
}

#[test]
fn all_formats_have_the_same_columns() {
    let dir = tempfile::tempdir().expect("a directory");
    let capture = Traffic::mixed(5000, 200).write(dir.path(), "mixed.pcap");
    let written = |name: &str| {
        let file = dir.path().join(name);
        // All packets go to one CPU, so that it is the same CPU in each run.
        let bound = ["--policy", "bound:0=1", text(&capture)];
        replay(&file, &[&FIXED[..], &bound].concat());
        file
    };
    let csv = sorted(reading::csv(&written("a.csv")));
    assert!(csv.len() > 200);
    assert_eq!(sorted(reading::json_lines(&written("a.jsonl"))), csv);
    assert_eq!(sorted(reading::json_lines(&written("a.NDJSON"))), csv);
    #[cfg(feature = "parquet")]
    assert_eq!(sorted(reading::parquet(&written("a.parquet"))), csv);
    assert!(names(dir.path()).iter().all(|name| !name.contains(".part")), "nothing is left over");
}

#[test]
fn file_replaces_the_one_before() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("flows.csv");
    std::fs::write(&file, "old").expect("a file can be written");
    let report = replay(&file, &["--synthetic", "packets=1000,flows=20"]);
    assert_eq!(number(&report["flow_statistics"]["records"]), 20);
    assert_eq!(reading::csv(&file).len(), 20);
    assert_eq!(report["flow_statistics"]["file"], text(&file));
}

#[test]
fn capture_without_flows_gives_an_empty_table() {
    let dir = tempfile::tempdir().expect("a directory");
    let capture = Traffic::new().write(dir.path(), "empty.pcap");
    let file = dir.path().join("flows.csv");
    replay(&file, &[text(&capture)]);
    assert!(reading::csv(&file).is_empty());
    #[cfg(feature = "parquet")]
    {
        let file = dir.path().join("flows.parquet");
        replay(&file, &[text(&capture)]);
        assert!(reading::parquet(&file).is_empty());
    }
}

#[test]
fn addresses_are_masked_and_the_hash_with_them() {
    let dir = tempfile::tempdir().expect("a directory");
    let capture = Traffic::mixed(3000, 100).write(dir.path(), "mixed.pcap");
    let records = |name: &str, arguments: &[&str]| {
        let file = dir.path().join(name);
        replay(&file, &[&FIXED[..], arguments, &[text(&capture)]].concat());
        reading::csv(&file)
    };
    let plain = records("plain.csv", &[]);
    let masked = records("masked.csv", &["--anonymize"]);
    assert_eq!(plain.len(), masked.len(), "masked records are not put together");
    for record in &masked {
        for address in [record.key.0.to_string(), record.key.1.to_string()] {
            let kept = ["10.0.0.0", "192.0.2.0", "2001:db8::"].contains(&address.as_str());
            assert!(kept, "{address}");
        }
    }
    assert!(masked.iter().all(|m| plain.iter().all(|p| p.hash != m.hash)), "hashes give it away");

    let wide = records("wide.csv", &["--anonymize=0/128"]);
    assert!(wide.iter().any(|record| record.key.0.to_string() == "0.0.0.0"));
    assert!(wide.iter().any(|record| record.key.0.to_string().starts_with("2001:db8::a00:")));

    let secret = "0f".repeat(16) + &"f0".repeat(16);
    let key = ["--anonymize=pseudonym", "--anonymize-key", &secret];
    let (one, two) = (records("one.csv", &key), records("two.csv", &key));
    let keys = |of: &[Record]| {
        let mut keys: Vec<_> = of.iter().map(|record| (record.key, record.hash.clone())).collect();
        keys.sort();
        keys
    };
    assert_eq!(keys(&one), keys(&two), "the same key, the same pseudonyms");
    let of_environment = dir.path().join("environment.csv");
    let output = Command::new(env!("CARGO_BIN_EXE_rxsteer"))
        .args(["replay", "--anonymize=pseudonym", "--flows", text(&of_environment), text(&capture)])
        .env("RXSTEER_ANONYMIZE_KEY", &secret)
        .output()
        .expect("rxsteer can be started");
    assert_eq!(status(&output), 0, "{}", errors(&output));
    assert_eq!(keys(&reading::csv(&of_environment)), keys(&one));
    let random = records("random.csv", &["--anonymize=pseudonym"]);
    assert_ne!(keys(&random), keys(&one));
    let distinct = |of: &[Record]| {
        let mut keys: Vec<_> = of.iter().map(|record| record.key).collect();
        keys.sort_unstable();
        keys.dedup();
        keys.len()
    };
    assert_eq!(distinct(&random), distinct(&plain), "pseudonyms distinguish flows");
    assert!(plain.iter().all(|p| one.iter().all(|o| o.key.0 != p.key.0)));
}

#[cfg(feature = "parquet")]
#[test]
fn runs_share_a_data_set() {
    let dir = tempfile::tempdir().expect("a directory");
    let set = dir.path().join("made/for/it");
    let capture = Traffic::mixed(5000, 200).write(dir.path(), "eth 0.pcap");
    let csv = dir.path().join("flows.csv");
    replay(&csv, &["--cpus", "2", text(&capture)]);
    let one_run = reading::csv(&csv).len();
    let partitioned = ["--partition-by", "hash-prefix", "--cpus", "2", text(&capture)];
    let report = replay(&set, &partitioned);
    let pattern = report["flow_statistics"]["file"].as_str().expect("text").to_owned();
    assert!(pattern.contains("/made/for/it/*/eth-0-20"), "{pattern}");
    let all = || {
        let mut records = Vec::new();
        for partition in names(&set) {
            let prefix = partition.strip_prefix("hash_prefix=").expect("as Hive names it");
            assert_eq!(prefix.len(), 2);
            for file in names(&set.join(&partition)) {
                assert!(file.starts_with("eth-0-") && file.ends_with(".parquet"), "{file}");
                let part = reading::parquet(&set.join(&partition).join(file));
                assert!(part.iter().all(|record| record.hash.starts_with(prefix)));
                records.extend(part);
            }
        }
        records.len()
    };
    assert_eq!(all(), one_run);
    // Another run adds its records, and reports that there are already some.
    let to = ["replay", "--flows", text(&set)];
    let again = rxsteer(&[&to[..], &partitioned].concat());
    assert_eq!(status(&again), 0);
    assert!(errors(&again).contains("an earlier run of 'eth-0'"), "{}", errors(&again));
    assert_eq!(all(), 2 * one_run);
    // The command that the third run suggests removes the records of both earlier runs, but not its own.
    let third = rxsteer(&[&to[..], &partitioned].concat());
    let stderr = errors(&third);
    assert!(stderr.contains("2 earlier runs of 'eth-0'"), "{stderr}");
    assert_eq!(all(), 3 * one_run);
    let remove = stderr.split(": ").find(|part| part.starts_with("find ")).expect("an advice");
    let remove = remove.lines().next().expect("a line");
    assert!(Command::new("sh").args(["-c", remove]).status().expect("a shell").success());
    assert_eq!(all(), one_run);

    let few = dir.path().join("few");
    replay(&few, &["--partition-by", "hash-prefix:1", text(&capture)]);
    assert_eq!(names(&few).len(), 16);
    assert_eq!(names(&few)[10], "hash_prefix=a");
}

#[cfg(not(feature = "parquet"))]
#[test]
fn without_parquet_it_says_how_to_get_it() {
    for arguments in [&["a.parquet"][..], &["set", "--partition-by", "hash-prefix"]] {
        let output = rxsteer(&[&["replay", "--synthetic", "", "--flows"], arguments].concat());
        assert_eq!(status(&output), 2);
        assert!(errors(&output).contains("feature 'parquet'"), "{}", errors(&output));
    }
}

#[test]
fn mistakes_are_refused_before_the_run() {
    let dir = tempfile::tempdir().expect("a directory");
    let there = dir.path().join("there");
    std::fs::write(&there, "old").expect("a file can be written");
    let folder = text(dir.path());
    let folder_csv = dir.path().join("folder.csv");
    std::fs::create_dir(&folder_csv).expect("a folder can be made");
    for (arguments, part) in [
        (&["--flows", "flows.txt"][..], ".csv, .jsonl (or .ndjson) or .parquet"),
        (&["--flows", "/dev/null"], ".csv, .jsonl (or .ndjson) or .parquet"),
        (&["--flows", "-"], "standard output"),
        (&["--flows", folder], "--partition-by"),
        (&["--flows", "flows.csv/"], "flows.csv/ is a folder"),
        (&["--flows", text(&folder_csv)], "folder.csv is a folder"),
        (&["--flows", "/no/such/folder/a.csv"], "there is no folder /no/such/folder"),
        (&["--flows", "a.csv", "--anonymize=24"], "24/48"),
        (&["--flows", "a.csv", "--anonymize-key", "00"], "64 hex digits"),
        (&["--flows", "a.csv", "--max-flows", "0"], "whole number from 1"),
        (&["--flows", "a.csv", "--flow-idle-timeout", "10"], "(ns, us, ms, s, m or h)"),
        (&["--flows", "a.csv", "--flow-idle-timeout", "-5s"], "(ns, us, ms, s, m or h)"),
        (&["--flows", "a.csv", "--flow-idle-timeout", "0s"], "longer than 0, e.g. 30s"),
        (&["--flows", "a.csv", "--flow-idle-timeout", "9999999999h"], "too long"),
        (&["--partition-by", "hash-prefix"], "--flows"),
        (&["--flows", "a", "--partition-by", "hash"], "hash-prefix:1"),
        (&["--anonymize"], "--flows FILE"),
        (&["--max-flows", "10"], "--flows FILE"),
        #[cfg(feature = "parquet")]
        (&["--flows", text(&there), "--partition-by", "hash-prefix"], "is a file"),
    ] {
        // If it were accepted, it would run for hours.
        let long = ["replay", "--synthetic", "packets=1000000000000"];
        let output = rxsteer(&[&long[..], arguments].concat());
        assert_eq!(status(&output), 2, "{arguments:?}");
        assert!(errors(&output).contains(part), "{arguments:?}: {}", errors(&output));
    }
    assert_eq!(names(dir.path()), ["folder.csv", "there"]);
}

/// A replay that writes its records with these arguments, under a limit that the shell sets.
fn limited(limit: &str, arguments: &[&str]) -> Output {
    let shell = format!("ulimit {limit}; exec \"$@\"");
    Command::new("sh")
        .args(["-c", &shell, "sh", env!("CARGO_BIN_EXE_rxsteer"), "replay", "--no-pin", "--json"])
        .args(["--synthetic", "packets=300000,flows=100000", "--max-flows", "1000"])
        .args(arguments)
        .output()
        .expect("a shell")
}

/// Checks the messages and the report of a run that could not write its records.
fn check_failed(output: &Output, because: &str) {
    let stderr = errors(output);
    assert_eq!(status(output), 1, "{stderr}");
    assert_eq!(stderr.matches(because).count(), 1, "said once: {stderr}");
    assert!(!stderr.contains("External"), "{stderr}");
    let report: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    assert_eq!(number(&report["packets"]), 300_000, "the run goes on");
    let statistics = &report["flow_statistics"];
    assert_eq!((&statistics["file"], number(&statistics["records"])), (&Value::Null, 0));
    assert!(statistics["error"].as_str().expect("text").contains(because), "{statistics}");
}

/// A limit on the size of files has the same effect as a full disk.
#[test]
fn failed_write_leaves_the_report_and_no_file() {
    let dir = tempfile::tempdir().expect("a directory");
    for name in [
        "flows.csv",
        "flows.jsonl",
        #[cfg(feature = "parquet")]
        "flows.parquet",
    ] {
        let output = limited("-f 1", &["--flows", text(&dir.path().join(name))]);
        check_failed(&output, "File too large");
        let stderr = errors(&output);
        assert!(
            stderr.contains("can't write flow records to") && stderr.contains(name),
            "{stderr}"
        );
        assert!(stderr.contains("ulimit -f"), "{stderr}");
        assert!(names(dir.path()).is_empty());
    }
}

#[cfg(feature = "parquet")]
#[test]
fn failed_data_set_leaves_no_folders_but_those_that_were_there() {
    let dir = tempfile::tempdir().expect("a directory");
    let set = dir.path().join("set");
    let to = ["--flows", text(&set), "--partition-by", "hash-prefix"];
    let output = limited("-n 60", &to);
    check_failed(&output, "Too many open files");
    assert!(errors(&output).contains("ulimit -n"), "{}", errors(&output));
    assert!(names(dir.path()).is_empty());
    std::fs::create_dir_all(set.join("hash_prefix=00")).expect("a folder");
    check_failed(&limited("-n 60", &to), "Too many open files");
    assert_eq!(names(&set), ["hash_prefix=00"]);
}

#[cfg(feature = "parquet")]
#[test]
fn masked_records_are_in_files_that_name_no_capture() {
    let dir = tempfile::tempdir().expect("a directory");
    let capture = Traffic::mixed(500, 20).write(dir.path(), "customer.pcap");
    let set = dir.path().join("set");
    let masked = ["--partition-by", "hash-prefix:1", "--anonymize", text(&capture)];
    replay(&set, &masked);
    for partition in names(&set) {
        let files = names(&set.join(partition));
        assert!(files.iter().all(|file| file.starts_with("flows-20")), "{files:?}");
    }
    let again = rxsteer(&[&["replay", "--flows", text(&set)], &masked[..]].concat());
    let stderr = errors(&again);
    assert!(stderr.contains("an earlier run with --anonymize"), "{stderr}");
    assert!(!stderr.contains("customer"), "{stderr}");
}

#[cfg(feature = "parquet")]
#[test]
fn data_set_without_records_has_no_file() {
    let dir = tempfile::tempdir().expect("a directory");
    let capture = Traffic::new().write(dir.path(), "empty.pcap");
    let to = ["--partition-by", "hash-prefix", text(&capture)];
    let report = replay(&dir.path().join("set"), &to);
    assert_eq!(report["flow_statistics"]["file"], Value::Null);
    assert_eq!(report["flow_statistics"]["error"], Value::Null);
    assert_eq!(names(dir.path()), ["empty.pcap"]);
}

#[test]
fn report_says_how_records_were_made() {
    let dir = tempfile::tempdir().expect("a directory");
    let synthetic = ["--synthetic", "packets=100,flows=5"];
    let options = ["--flow-idle-timeout", "30s", "--anonymize=pseudonym", "--max-flows", "1000"];
    let report = replay(&dir.path().join("a.csv"), &[&synthetic[..], &options].concat());
    let settings = &report["settings"];
    assert_eq!(number(&settings["max_flows"]), 1000);
    assert_eq!(number(&settings["flow_idle_timeout_ns"]), 30_000_000_000);
    assert_eq!(settings["anonymize"], "pseudonym");
    assert_eq!(settings["partition_by"], Value::Null);
}

#[test]
fn replaced_file_stays_where_and_whose_it_was() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().expect("a directory");
    let (file, link) = (dir.path().join("flows.csv"), dir.path().join("link.csv"));
    std::fs::write(&file, "old").expect("a file can be written");
    let private = std::fs::Permissions::from_mode(0o640);
    std::fs::set_permissions(&file, private).expect("it is ours");
    std::os::unix::fs::symlink(&file, &link).expect("a link can be made");
    let report = replay(&link, &["--synthetic", "packets=1000,flows=20"]);
    assert_eq!(report["flow_statistics"]["file"], text(&link), "as the user calls it");
    assert!(link.is_symlink());
    assert_eq!(reading::csv(&file).len(), 20);
    assert_eq!(file.metadata().expect("it is there").permissions().mode() & 0o777, 0o640);
}

/// An interrupt completes the file with the packets received so far: here the first of two packets that are an hour
/// apart.
#[test]
fn interrupted_run_leaves_a_complete_file() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut traffic = Traffic::new();
    traffic.udp(1, 0);
    traffic.udp(2, 3_600_000_000);
    let capture = traffic.write(dir.path(), "slow.pcap");
    let file = dir.path().join("flows.jsonl");
    let mut child = Command::new(env!("CARGO_BIN_EXE_rxsteer"))
        .args(["replay", "--speed", "recorded", "--cpus", "1", "--no-pin", "--flows"])
        .args([&file, &capture])
        .stdout(Stdio::null())
        .spawn()
        .expect("rxsteer can be started");
    // An incomplete file does not have its final name yet.
    let is_part = |name: &String| name.ends_with(".part");
    wait_until(&mut child, "write records", |it| {
        waits_for(it, INT) && names(dir.path()).iter().any(is_part)
    });
    assert!(!file.exists());
    send(&child, "-INT");
    assert_eq!(ended(child).status.code(), Some(130));
    assert_eq!(names(dir.path()), ["flows.jsonl", "slow.pcap"]);
    let records = reading::json_lines(&file);
    assert!(records.iter().all(|record| record.key.3 == 1), "{records:?}");
    assert!(records.len() <= 1);
}
