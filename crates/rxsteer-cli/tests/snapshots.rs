//! What people read, as it is: help pages, man pages, reports and messages. A change of text shows as a difference, to be
//! accepted with
//!
//! ```text
//! INSTA_UPDATE=always cargo test -p rxsteer-cli snapshot
//! ```
//!
//! Nothing here depends on the terminal, the user, or the host: parts that do are removed from the text.

use crate::program::pcap::{pcap, written};
use rxsteer_user::core::Policy;
use serde_json::Value;
use std::panic::catch_unwind;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Columns of a line. Without a terminal, `COLUMNS` sets the number.
const COLUMNS: &str = "100";

fn rxsteer(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_rxsteer"))
        .args(arguments)
        .env("COLUMNS", COLUMNS)
        .env_remove("RXSTEER_ANONYMIZE_KEY")
        .current_dir(folder)
        .stdin(Stdio::null())
        .output()
        .expect("rxsteer can be started")
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Compares a text with the file of this name in a folder of `tests/snapshots`; returns whether it is the same.
fn is_as_before(folder: &str, name: &str, text: &str) -> bool {
    let text = text.replace(env!("CARGO_PKG_VERSION"), "[version]");
    let compare = || {
        let mut settings = insta::Settings::clone_current();
        settings.set_snapshot_path(format!("snapshots/{folder}"));
        settings.set_prepend_module_to_snapshot(false);
        settings.set_omit_expression(true);
        settings.bind(|| insta::assert_snapshot!(name, text));
    };
    catch_unwind(compare).is_ok()
}

/// Fails only after all texts were compared, so that one run shows all differences.
fn assert_none(changed: &[String]) {
    assert!(
        changed.is_empty(),
        "these texts changed: {}; if that is meant: INSTA_UPDATE=always cargo test -p rxsteer-cli snapshot",
        changed.join(", ")
    );
}

/// The commands below a command, each followed by its own commands.
fn commands(of: &[String]) -> Vec<Vec<String>> {
    let line: Vec<&str> = of.iter().map(String::as_str).chain(["--help"]).collect();
    let help = stdout(&rxsteer(Path::new("."), &line));
    let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let lines = lines.take_while(|line| !line.is_empty());
    let name = |line: &str| Some(line.strip_prefix("  ")?.split(' ').next()?.to_owned());
    let names = lines.filter_map(name).filter(|name| !name.is_empty() && name != "help");
    let paths = names.map(|name| [of, &[name]].concat());
    paths.flat_map(|path| [vec![path.clone()], commands(&path)].concat()).collect()
}

#[test]
fn snapshots_of_help_pages() {
    let pages = [vec![vec![]], commands(&[])].concat();
    assert!(pages.len() >= 14, "{pages:?}");
    let mut changed = Vec::new();
    for page in pages {
        for option in ["-h", "--help"] {
            let mut line: Vec<&str> = page.iter().map(String::as_str).collect();
            line.push(option);
            let name = [&["rxsteer"], line.as_slice()].concat().join(" ").replace(" -", " ");
            let name = name.replace(" -", " ").replace(' ', "-");
            let output = rxsteer(Path::new("."), &line);
            assert_eq!(output.status.code(), Some(0), "{line:?}");
            if !is_as_before("help", &name, &stdout(&output)) {
                changed.push(name);
            }
        }
    }
    assert_none(&changed);
}

#[test]
fn snapshots_of_man_pages() {
    let folder = tempfile::tempdir().expect("a folder");
    assert_eq!(rxsteer(folder.path(), &["man", "."]).status.code(), Some(0));
    let mut pages: Vec<_> = std::fs::read_dir(folder.path()).expect("a folder").collect();
    pages.sort_by_key(|page| page.as_ref().expect("a page").file_name());
    assert!(pages.len() >= 12, "{pages:?}");
    let mut changed = Vec::new();
    for page in pages {
        let page = page.expect("a page");
        let name = page.file_name().to_string_lossy().into_owned();
        let text = std::fs::read_to_string(page.path()).expect("a page");
        if !is_as_before("man", &name, &text) {
            changed.push(name);
        }
    }
    assert_none(&changed);
}

/// A capture with two packets of one flow, one packet of another flow, a frame that is not IP, and a frame whose header
/// is damaged; the capture ends in the middle of a packet.
fn damaged_capture(folder: &Path) {
    let udp = |host: u8, port: u8| {
        let mut frame = vec![0; 60];
        frame[12..14].copy_from_slice(&[8, 0]);
        (frame[14], frame[17], frame[22], frame[23]) = (0x45, 46, 64, 17);
        frame[26..34].copy_from_slice(&[10, 0, 0, host, 10, 0, 0, 9]);
        (frame[35], frame[37], frame[39]) = (port, 53, 26);
        frame
    };
    let mut damaged = udp(1, 1);
    damaged[14] = 0x41;
    let arp = vec![0; 60];
    let (one, other) = (udp(1, 1), udp(2, 1));
    let frames = [&one, &other, &one, &arp, &damaged, &arp].map(Vec::as_slice);
    let mut file = pcap(1, &frames);
    file.truncate(file.len() - 10);
    written(folder, "damaged.pcap", &file);
    written(folder, "wireless.pcap", &pcap(105, &[&[0; 60], &[0; 60]]));
}

/// The position of the first column of the table of CPUs whose figures depend on timing; the figures of all later
/// columns do, too.
fn timing_begins(line: &str) -> Option<usize> {
    line.starts_with(" CPU").then(|| line.find("wake-ups"))?
}

/// The text without the parts that depend on timing.
fn untimed(text: &str) -> String {
    let mut lines = Vec::new();
    let mut timed_from = None;
    for line in text.lines() {
        let mut line = line.to_owned();
        timed_from = timing_begins(&line).or(timed_from);
        match timed_from {
            Some(from) if !line.starts_with(" CPU") && line.len() > from => {
                line.replace_range(from.., "[timing]");
            }
            // The table ends with an empty line.
            Some(_) if line.is_empty() => timed_from = None,
            _ => {}
        }
        for begins_at in [") in ", "replays, which took ", "queueing     "] {
            if let Some(at) = line.find(begins_at) {
                line.truncate(at + begins_at.len());
                line.push_str("[timing]");
            }
        }
        lines.push(line);
    }
    lines.join("\n")
}

/// The object without the parts that depend on timing or on the host.
fn untimed_json(value: &mut Value) {
    const TIMED: [&str; 7] =
        ["elapsed_ns", "delay_p50_ns", "delay_p99_ns", "kicks", "lists", "queued", "pinned"];
    match value {
        Value::Object(object) => {
            for (key, value) in object {
                if TIMED.contains(&key.as_str()) {
                    *value = "[timing]".into();
                } else {
                    untimed_json(value);
                }
            }
        }
        Value::Array(values) => values.iter_mut().for_each(untimed_json),
        _ => {}
    }
}

/// A command line, its output, and its exit status.
fn transcript(folder: &Path, line: &str) -> String {
    let output = rxsteer(folder, &line.split(' ').collect::<Vec<_>>());
    let mut text = format!("$ rxsteer {line}\n");
    match serde_json::from_slice::<Value>(&output.stdout) {
        Ok(mut value) => {
            untimed_json(&mut value);
            text += &format!("{value:#}\n");
        }
        Err(_) if output.stdout.is_empty() => {}
        Err(_) => text += &format!("{}\n", untimed(&stdout(&output))),
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    if !errors.is_empty() {
        text += &format!("[standard error]\n{errors}");
    }
    text += &format!("[exit status {}]\n", output.status.code().expect("it exits by itself"));
    text
}

const FLOW: &str = "10.0.0.1:40000-192.0.2.7:443/tcp";
const TRAFFIC: &str = "--synthetic packets=20000,flows=200,share=zipf:1.1,ip=mixed,protocol=mixed";
const FIXED: &str = "--cpus 4 --hash-seed 2a";

#[test]
fn snapshots_of_reports() {
    let folder = tempfile::tempdir().expect("a folder");
    damaged_capture(folder.path());
    let mut changed = Vec::new();
    for (name, lines) in [
        (
            "replay",
            vec![
                format!("replay {TRAFFIC} {FIXED} --no-pin"),
                format!("replay {TRAFFIC} {FIXED} --no-pin --policy bound:0=2"),
                format!("replay damaged.pcap wireless.pcap {FIXED} --no-pin"),
            ],
        ),
        ("replay-json", vec![format!("replay {TRAFFIC} {FIXED} --no-pin --json")]),
        (
            "replay-seeds",
            vec![
                format!("replay {TRAFFIC} {FIXED} --no-pin --seeds 20"),
                format!("replay damaged.pcap wireless.pcap {FIXED} --no-pin --seeds 3"),
                format!("replay {TRAFFIC} {FIXED} --no-pin --seeds 2 --policy none"),
            ],
        ),
        ("replay-seeds-json", vec![format!("replay {TRAFFIC} {FIXED} --no-pin --seeds 3 --json")]),
        (
            "flows",
            vec![
                format!("flows {TRAFFIC} {FIXED} --top 3"),
                format!("flows {TRAFFIC} {FIXED} --top 3 --key src/24/56,protocol --anonymize"),
                format!("flows damaged.pcap wireless.pcap {FIXED}"),
            ],
        ),
        ("flows-json", vec![format!("flows {TRAFFIC} {FIXED} --top 1 --json")]),
        (
            "explain",
            vec![
                format!("explain {FLOW} {FIXED}"),
                format!("explain {FLOW} {FIXED} --policy rfs+sparse"),
                format!("explain {FLOW} {FIXED} --policy rfs+sparse --app-cpu 1"),
                format!("explain {FLOW} {FIXED} --policy bound:0=1"),
                format!("explain {FLOW} {FIXED} --policy rfs --else local"),
                format!("explain damaged.pcap --frame 3 {FIXED} --policy sparse:loops=1"),
                format!("explain damaged.pcap --frame 4 {FIXED}"),
                format!("explain damaged.pcap --frame 5 {FIXED}"),
                format!("explain damaged.pcap --frame 9 {FIXED}"),
            ],
        ),
        ("explain-json", vec![format!("explain {FLOW} {FIXED} --policy rfs+sparse --json")]),
        (
            "sim",
            vec![
                "sim --list".to_owned(),
                "sim router-one-queue --seconds 0.005".to_owned(),
                "sim router-one-queue --seconds 0.005 --sensitivity --seeds 2".to_owned(),
                "sim router-one-queue --seconds 0.005 --compare none,rps,sparse --seeds 3"
                    .to_owned(),
                "sim rpc-8 --seconds 0.002 --set steering.rule=tcp->1-3".to_owned(),
                "sim --from damaged.pcap --seconds 0.005".to_owned(),
            ],
        ),
    ] {
        let text: Vec<String> = lines.iter().map(|line| transcript(folder.path(), line)).collect();
        if !is_as_before("reports", name, &text.join("\n")) {
            changed.push(name.to_owned());
        }
    }
    assert_none(&changed);
}

/// Wrong command lines, each with its message.
#[test]
fn snapshots_of_messages() {
    let folder = tempfile::tempdir().expect("a folder");
    written(folder.path(), "notes.txt", b"not a capture");
    written(folder.path(), "bad.toml", b"polciy = 'rps'");
    let lines = [
        "notes.txt",
        "reply capture.pcap",
        "replay",
        "replay missing.pcap",
        "replay notes.txt",
        "replay --synthetic flow=3",
        "replay --synthetic flows=0",
        "replay notes.txt --policy rsp",
        "replay notes.txt --policy bound",
        "replay notes.txt --policy bound:7=0",
        "replay notes.txt --policy sparse:loops=9",
        "replay notes.txt --cpus 0",
        "replay notes.txt --cpus 3-1",
        "replay notes.txt --cpus 9999",
        "replay notes.txt --rps-map 4",
        "replay notes.txt --else here",
        "replay notes.txt --hash crc",
        "replay notes.txt --hash toeplitz:6d",
        "replay notes.txt --hash toeplitz --hash-seed 1",
        "replay --synthetic packets=9 --hash toeplitz --seeds 3",
        "replay notes.txt --hash-seed xyz",
        "replay notes.txt --seeds 1",
        "replay notes.txt --seeds 3 --flows flows.csv",
        "replay notes.txt --rx-queues files",
        "replay notes.txt --speed 10",
        "replay notes.txt --max-backlog 0",
        "replay notes.txt --on-full dorp",
        "replay notes.txt --app-migrate 1ms",
        "replay notes.txt --app-cpus 1 --app-migrate 0s",
        "replay notes.txt --change-at 2s",
        "replay notes.txt --change-at 2s:polcy=rps",
        "replay notes.txt --config bad.toml",
        "replay notes.txt --config missing.toml",
        "replay --synthetic packets=9 --flows flows.txt",
        "replay --synthetic packets=9 --flows -",
        "replay --synthetic packets=9 --key src",
        "replay --synthetic packets=9 --policy bound:7=0",
        "replay --synthetic packets=9 --rx-queues file",
        "replay 24/48",
        "replay notes.txt --flows f.csv --key sources",
        "replay notes.txt --flows f.csv --anonymize=half",
        "replay notes.txt --flows f.csv --anonymize-key 2a",
        "replay notes.txt --flows f.csv --flow-idle-timeout 0s",
        "replay notes.txt --flows f.csv --partition-by day",
        "flows notes.txt --speed max",
        "flows notes.txt --by size",
        "explain",
        "explain 10.0.0.1 10.0.0.2 tcp",
        "explain 10.0.0.1",
        "explain 10.0.0.1:1-10.0.0.2:2/tpc",
        "explain 10.0.0.1-10.0.0.2/tcp",
        "explain notes.txt",
        "check --duration 0s",
        "sim",
        "sim routr-one-queue",
        "sim rpc-8 --set flows",
        "sim rpc-8 --compare rps",
        "sim rpc-8 --seconds 0",
        "sim --published rps2",
        "run",
        "run eth0 --queue-size 7",
        "run eth0 --mode natve",
        "run eth0 --threads fifo",
        "run eth0 --threads nice:99",
        "completions bsh",
    ];
    compare_messages(folder.path(), "messages", &lines);
}

/// A build without the in-kernel path refuses these commands.
#[cfg(feature = "xdp")]
#[test]
fn snapshots_of_messages_of_set() {
    let folder = tempfile::tempdir().expect("a folder");
    let lines = [
        "set polcy=rps",
        "set policy",
        "set policy=rsp",
        "set policy=rps policy=rfs",
        "set eth0",
        "set queue-size=7",
        "set threads=fifo",
        "set flow-limit=maybe",
        "set --socket ./nosuch policy=rps",
        "status --socket ./nosuch",
    ];
    compare_messages(folder.path(), "messages-of-set", &lines);
}

fn compare_messages(folder: &Path, name: &str, lines: &[&str]) {
    let text: Vec<String> = lines.iter().map(|line| transcript(folder, line)).collect();
    for text in &text {
        assert!(text.contains("[exit status 2]") && !text.contains("panicked"), "{text}");
    }
    if !is_as_before("reports", name, &text.join("\n")) {
        assert_none(&[name.to_owned()]);
    }
}

/// The completions that bash offers for the last word of a command line.
fn completed(folder: &Path, line: &str) -> Vec<String> {
    let script = stdout(&rxsteer(folder, &["completions", "bash"]));
    written(folder, "completions", script.as_bytes());
    let words = line.split(' ').map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" ");
    let ask = format!(
        "source ./completions; COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); \
         _rxsteer rxsteer \"${{COMP_WORDS[COMP_CWORD]}}\" \"${{COMP_WORDS[COMP_CWORD - 1]}}\"; \
         printf '%s\\n' \"${{COMPREPLY[@]}}\""
    );
    let bash = Command::new("bash").args(["--norc", "-c", &ask]).current_dir(folder).output();
    let bash = bash.expect("there is bash");
    assert!(bash.status.success(), "{line}: {}", String::from_utf8_lossy(&bash.stderr));
    stdout(&bash).lines().map(str::to_owned).collect()
}

/// The completions that bash offers for `word` after a command, if these characters and blanks separate words.
fn asked(folder: &Path, command: &str, word: &str, breaks: &str) -> Vec<String> {
    let script = stdout(&rxsteer(folder, &["completions", "bash"]));
    written(folder, "completions", script.as_bytes());
    let parts = if breaks.is_empty() { word.to_owned() } else { word.replacen('=', " = ", 1) };
    let line = format!("rxsteer {command} {word}");
    let ask = format!(
        "source ./completions; compopt() {{ :; }}; COMP_WORDBREAKS='{breaks}'; COMP_LINE='{line}'; COMP_POINT=${{#COMP_LINE}}; \
         COMP_WORDS=(rxsteer {command} {parts}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); \
         _rxsteer_assignments rxsteer \"${{COMP_WORDS[COMP_CWORD]}}\" \"${{COMP_WORDS[COMP_CWORD - 1]}}\"; \
         printf '%s\\n' \"${{COMPREPLY[@]}}\""
    );
    let bash = Command::new("bash").args(["--norc", "-c", &ask]).current_dir(folder).output();
    let bash = bash.expect("there is bash");
    assert!(bash.status.success(), "{}", String::from_utf8_lossy(&bash.stderr));
    stdout(&bash).lines().map(str::to_owned).collect()
}

#[test]
fn completion_knows_the_values_of_options() {
    let folder = tempfile::tempdir().expect("a folder");
    let policies = Policy::NAMES;
    for (line, expected) in [
        ("replay --policy ", &policies[..]),
        ("run --policy ", &policies),
        ("sim --compare ", &policies),
        ("replay --policy rf", &["rfs", "rfs+sparse", "rfs+balance", "rfs+sparse+balance"]),
        ("replay --else ", &["hash", "local"]),
        ("replay --hash ", &["symmetric", "toeplitz"]),
        ("replay --rx-queues ", &["single", "file", "interface"]),
        ("replay --speed ", &["max", "drained", "recorded"]),
        ("replay --on-full ", &["wait", "drop"]),
        ("replay --key ", &["src", "dst", "protocol", "src-port", "dst-port"]),
        ("replay --partition-by ", &["hash-prefix", "hash-prefix:1"]),
        ("flows --by ", &["packets", "bytes"]),
        ("run --threads ", &["fifo", "nice", "other"]),
        ("run --mode ", &["auto", "native", "generic"]),
        ("run --rfs-namespaces ", &["own", "all"]),
        ("sim --from-spread ", &["even", "random"]),
        ("sim --published ", &["sparse", "rfs", "hand-off", "rps"]),
        ("completions z", &["zsh"]),
    ] {
        assert_eq!(completed(folder.path(), &format!("rxsteer {line}")), expected, "{line}");
    }
    let scenarios = completed(folder.path(), "rxsteer sim ro");
    assert!(scenarios.contains(&"router-one-queue".to_owned()), "{scenarios:?}");
    // Names of settings and their values, as whole words and as bash separates them.
    let settings = completed(folder.path(), "rxsteer set ");
    for setting in ["policy=rps", "cpus=", "queue-size=", "rule=", "threads=fifo", "shadow=off"] {
        assert!(settings.contains(&setting.to_owned()), "{setting} of {settings:?}");
    }
    assert_eq!(completed(folder.path(), "rxsteer set eth0 els"), ["else=hash", "else=local"]);
    for (word, values) in [("policy=rp", vec!["rps", "rps+balance"]), ("cpus=", vec![""])] {
        let full =
            values.iter().map(|value| format!("{}={value}", word.split_once('=').unwrap().0));
        assert_eq!(asked(folder.path(), "set eth0", word, ""), full.collect::<Vec<_>>(), "{word}");
        assert_eq!(asked(folder.path(), "set eth0", word, "="), values, "{word}");
    }
    // Files are offered for options that take a file; for options that take a number, nothing is offered.
    assert!(
        completed(folder.path(), "rxsteer replay --config comp")
            .contains(&"completions".to_owned())
    );
    assert_eq!(completed(folder.path(), "rxsteer replay --repeat comp"), ["comp"]);
}
