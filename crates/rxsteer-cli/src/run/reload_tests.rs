//! Reading the configuration file of an instance again.

use super::super::instance::tests::{Mock, instance, link};
use super::*;
use clap::Parser;
use rxsteer_user::core::Slots;
use std::path::Path;

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    run: RunArgs,
}

/// An instance that was started with `options` and a file that contains `text`, and its reload.
fn started(file: &Path, options: &[&str], text: &str) -> (Instance<Mock>, Reload) {
    std::fs::write(file, text).unwrap();
    let path = file.to_str().unwrap();
    let line = [&["rxsteer", "a", "--config", path], options].concat();
    let args = Cli::try_parse_from(line).unwrap().run;
    let begun = args.settings().unwrap();
    let defaults = Defaults {
        policy: Policy::RfsSparse(Slots::of(4)),
        cpus: "0-3".parse().ok(),
        threads: ThreadClass::DEFAULT,
    };
    let mut instance = instance(&["a"], &[link(1, "a")]);
    instance.settings = settings(&begun.live, &defaults, &instance.cpus).unwrap();
    let reload = Reload::new(args, begun.fixed, defaults).unwrap();
    (instance, reload)
}

#[test]
fn reload_applies_what_the_file_says_now() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("rxsteer.toml");
    let begin = "policy = 'rps'\ncpus = '0-1'\nqueue-size = 64\n";
    let (mut instance, reload) = started(&file, &["--else", "local"], begin);
    let lines = instance.reload(&reload).text;
    assert!(lines.ends_with("rxsteer.toml is reloaded: no setting changes"), "{lines}");
    assert!(instance.path.applied().is_empty());

    std::fs::write(&file, "policy = 'rfs'\nelse = 'hash'\nqueue-size = 64\nflow-limit = 8\n")
        .unwrap();
    let lines = instance.reload(&reload).text;
    let changes = "policy=rfs (was rps), cpus=0-3 (was 0-1), flow-limit=8 (was off)";
    assert!(lines.ends_with(&format!("is reloaded: {changes}")), "{lines}");
    let applied = instance.path.applied().last().unwrap();
    assert_eq!((&applied.policy, &applied.cpus), (&Policy::Rfs, &"0-3".parse().unwrap()));
    assert_eq!(applied.fallback.to_string(), "local", "an option beats the file");
    assert_eq!(*applied, instance.settings);
    assert!(!instance.is_change_done(), "the change goes on as one by set does");
}

/// No process writes to the pipe: opening it would wait.
#[test]
fn pipe_in_the_place_of_the_file_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("rxsteer.toml");
    let (mut instance, reload) = started(&file, &[], "policy = 'rps'\n");
    std::fs::remove_file(&file).unwrap();
    nix::unistd::mkfifo(&file, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let line = instance.reload(&reload).text;
    assert!(line.ends_with("it is not a regular file, so it is read only at the start"), "{line}");
}

#[test]
fn reload_is_refused_as_a_whole() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("rxsteer.toml");
    let (mut instance, reload) = started(&file, &[], "policy = 'rps'\nmode = 'native'\n");
    let before = instance.settings.clone();
    for (text, part) in [
        ("policy = 'rfs'\nmode = 'generic'\ninner = true", "mode, inner can't change while"),
        ("policy = 'rfs'\nmode = 'native'\nflow-cnt = 64", "flow-cnt can't change while"),
        ("policy = 'rfs'\nmode = 'native'\nhash-seed = '1'", "hash-seed can't change while"),
        ("policy = 'rsp'\nmode = 'native'", "did you mean 'rps'"),
        ("policy = 'rfs'\nmode = 'native'\ncpus = '0-9'", ":3:1: cpus: this host has no CPU 4-9"),
        ("mode = 'native'\npolicy = 'bound:7=1'", ":2:1: policy bound:7: there is no RX queue 7"),
        ("polciy = 'rfs'\nmode = 'native'\nflow-cnt = 'x'", "'policy'?; also "),
        ("polciy = 'rfs'\nmode = 'native'\nflow-cnt = 'x'", ":3:1: flow-cnt=x: expected"),
        ("policy = 'rfs'\nmode = 'native'\nthreads = 'fifo:99'", "threads=fifo:99: no limit"),
        ("policy = ", "this is not TOML"),
    ] {
        std::fs::write(&file, text).unwrap();
        let lines = instance.reload(&reload).text;
        assert!(lines.contains("is not reloaded, and all settings stay: "), "{lines}");
        assert!(lines.contains(part), "{text}: {lines}");
    }
    std::fs::remove_file(&file).unwrap();
    let lines = instance.reload(&reload).text;
    assert!(lines.contains("there is no file"), "{lines}");
    assert!(instance.path.applied().is_empty() && instance.settings == before);
}

/// Each setting that is fixed for the run is refused by its name, with everything else in the file.
#[test]
fn records_and_events_stay_as_they_began() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("rxsteer.toml");
    let (flows, events) = (dir.path().join("flows.csv"), dir.path().join("events.jsonl"));
    let begin = format!("flows = '{}'\nflow-idle-timeout = '10s'\n", flows.display());
    let (mut instance, reload) = started(&file, &[], &format!("policy = 'rps'\n{begin}"));
    let before = instance.settings.clone();
    for (key, value) in [
        ("ipfix", "192.0.2.1:4739"),
        ("flows-rotate", "1h"),
        ("flows-rotate-size", "1MiB"),
        ("flow-active-timeout", "1h"),
        ("anonymize", "24/48"),
        ("events", &events.display().to_string()),
        ("listen", "127.0.0.1:9817"),
    ] {
        let text = format!("policy = 'rfs'\n{begin}{key} = '{value}'\n");
        std::fs::write(&file, text).unwrap();
        let message = instance.reload(&reload).text;
        let part = format!("all settings stay: {key} can't change while rxsteer runs");
        assert!(message.contains(&part), "{key}: {message}");
    }
    let others = [
        ("flows", begin.replace("flows.csv", "other.csv")),
        ("flow-idle-timeout", begin.replace("10s", "11s")),
        ("flow-idle-timeout", begin.lines().next().unwrap_or_default().to_owned()),
    ];
    for (key, text) in others {
        std::fs::write(&file, format!("policy = 'rfs'\n{text}\n")).unwrap();
        let message = instance.reload(&reload).text;
        let part = format!("all settings stay: {key} can't change while rxsteer runs");
        assert!(message.contains(&part), "{key}: {message}");
    }
    assert!(instance.path.applied().is_empty() && instance.settings == before);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "no output was begun");
    // The same of records, and another policy.
    std::fs::write(&file, format!("policy = 'rfs'\n{begin}")).unwrap();
    let message = instance.reload(&reload).text;
    assert!(message.contains("is reloaded: policy=rfs (was rps)"), "{message}");
}

#[test]
fn without_a_file_nothing_is_reloaded() {
    let args = Cli::try_parse_from(["rxsteer", "a"]).unwrap().run;
    let defaults = Defaults { policy: Policy::Rps, cpus: None, threads: ThreadClass::DEFAULT };
    assert!(Reload::new(args.clone(), FixedSettings::default(), defaults.clone()).is_none());
    let host = instance(&["a"], &[]).cpus;
    assert!(settings(&args.options.live, &defaults, &host).unwrap_err().starts_with("cpus: "));
}
