//! The systemd units: systemd accepts them, and they wait for their interface.

use std::io::Write;
use std::path::PathBuf;
use std::process::Command;

const UNITS: [(&str, &str); 2] =
    [("rxsteer@.service", "rxsteer@eth0.service"), ("rxsteer.service", "rxsteer.service")];

fn packaging() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../packaging")
}

fn unit(name: &str) -> String {
    std::fs::read_to_string(packaging().join("systemd").join(name)).unwrap()
}

/// The values of a key in a unit.
fn values<'a>(unit: &'a str, key: &str) -> Vec<&'a str> {
    unit.lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix('=')).collect()
}

#[test]
fn units_are_accepted_by_systemd() {
    let folder = tempfile::tempdir().unwrap();
    for (name, instance) in UNITS {
        // The program is not installed here, so this uses the path of a file that exists.
        let own = std::env::current_exe().unwrap().display().to_string();
        let text = unit(name).replace("ExecStart=rxsteer", &format!("ExecStart={own}"));
        std::fs::write(folder.path().join(name), text).unwrap();
        let mut verify = Command::new("systemd-analyze");
        verify.args(["verify", "--man=no"]).arg(folder.path().join(instance));
        let Ok(output) = verify.output() else {
            let test = "units::units_are_accepted_by_systemd";
            let _ = writeln!(std::io::stderr(), "SKIPPED {test}: systemd-analyze is not installed");
            return;
        };
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && !stderr.contains(name), "{name}: {stderr}");
    }
}

/// Without a configuration file, SIGHUP would end a run.
#[test]
fn units_reload_the_file_of_the_package() {
    for (name, _) in UNITS {
        let unit = unit(name);
        assert!(
            values(&unit, "ExecStart")[0].ends_with("--config /etc/rxsteer/rxsteer.toml"),
            "{name}"
        );
        assert_eq!(values(&unit, "ExecReload"), ["/bin/kill -HUP $MAINPID"], "{name}");
    }
}

/// The exposure, of 100, as systemd computes it: the unit keeps the privileges to load and attach BPF programs.
#[test]
fn units_are_hardened() {
    let folder = tempfile::tempdir().unwrap();
    for (name, instance) in UNITS {
        std::fs::write(folder.path().join(name), unit(name)).unwrap();
        let mut security = Command::new("systemd-analyze");
        security.args(["security", "--offline=true", "--threshold=30", "--no-pager"]);
        let Ok(output) = security.arg(folder.path().join(instance)).output() else {
            let test = "units::units_are_hardened";
            let _ = writeln!(std::io::stderr(), "SKIPPED {test}: systemd-analyze is not installed");
            return;
        };
        let report = String::from_utf8_lossy(&output.stdout);
        let score = report.lines().rfind(|line| line.contains("Overall exposure level"));
        assert!(output.status.success(), "{name}: {score:?}");
    }
}

/// The options of `rxsteer run` that a file can have, according to its help: those in these sections, except --config.
const PARTS: [&str; 3] = ["Steering:", "Flow records:", "Output:"];

fn settings() -> Vec<String> {
    let help =
        Command::new(env!("CARGO_BIN_EXE_rxsteer")).args(["run", "--help"]).output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let mut names = Vec::new();
    let mut is_setting = false;
    for line in help.lines() {
        // The heading of a section begins in the first column; text that explains an option is indented more.
        if !line.is_empty() && !line.starts_with(' ') {
            is_setting = PARTS.contains(&line);
        }
        let Some(option) = line.strip_prefix("      --").filter(|_| is_setting) else { continue };
        let name = option.split(|c: char| !(c.is_alphanumeric() || c == '-')).next().unwrap();
        names.push(name.to_owned());
    }
    assert!(PARTS.iter().all(|part| help.lines().any(|line| line == *part)), "{help}");
    names.retain(|name| name != "config");
    names
}

#[test]
fn file_of_the_package_explains_every_setting_and_is_accepted() {
    let text = std::fs::read_to_string(packaging().join("rxsteer.toml")).unwrap();
    let set =
        |line: &str| line.strip_prefix("# ").filter(|line| line.contains(" = ")).map(str::to_owned);
    let shown: Vec<String> = text.lines().filter_map(set).collect();
    let mut names: Vec<&str> = shown.iter().filter_map(|line| line.split(" = ").next()).collect();
    let mut expected = settings();
    names.sort_unstable();
    expected.sort_unstable();
    assert_eq!(
        names, expected,
        "the keys of packaging/rxsteer.toml are the settings of rxsteer run"
    );
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rxsteer.toml");
    for text in [text.clone(), shown.join("\n")] {
        std::fs::write(&file, text).unwrap();
        let mut check = Command::new(env!("CARGO_BIN_EXE_rxsteer"));
        let output = check.args(["config", "check", "--any-host"]).arg(&file).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn mistake_in_a_file_is_named_with_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("wrong.toml");
    std::fs::write(&file, "# rings\n  que-size = 512\n").unwrap();
    let mut check = Command::new(env!("CARGO_BIN_EXE_rxsteer"));
    let output = check.args(["config", "check", "--json"]).arg(&file).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let error = report["error"].as_str().unwrap();
    assert!(
        error.ends_with(":2:3: there is no setting 'que-size'; did you mean 'queue-size'?"),
        "{error}"
    );
    let missing = folder.path().join("missing.toml");
    let mut check = Command::new(env!("CARGO_BIN_EXE_rxsteer"));
    let output = check.args(["config", "check"]).arg(missing).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
}

/// The result of `rxsteer config check` for a file with this text.
#[cfg(feature = "xdp")]
fn checked(text: &str, more: &[&str]) -> serde_json::Value {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.toml");
    std::fs::write(&file, text).unwrap();
    let mut check = Command::new(env!("CARGO_BIN_EXE_rxsteer"));
    let output = check.args(["config", "check", "--json"]).args(more).arg(&file).output().unwrap();
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["ok"], output.status.code() == Some(0), "{report}");
    report
}

/// `rxsteer config check` refuses what `rxsteer run` refuses at once, with the same code.
#[test]
#[cfg(feature = "xdp")]
fn file_that_run_refuses_is_not_right() {
    for (text, part, is_right_elsewhere) in [
        ("flows = '/nonexist/x.csv'", "there is no folder /nonexist for /nonexist/x.csv", true),
        ("flows-rotate = '1s'", "--flows-rotate is an option of flow records", false),
        ("events = '/nonexist/e'", "there is no folder /nonexist for --events /nonexist/e", true),
        ("listen-token-file = '/t'", "requires --listen", false),
        ("policy = 'bound:1000=0'", "there is no RX queue 1000", true),
        ("rule = ['tcp vni 5 -> 0']", "no packet can match", false),
        ("flows = '/tmp/a.csv'\nno-flow-stats = true", "leave out --no-flow-stats", false),
    ] {
        let report = checked(text, &[]);
        let error = report["error"].as_str().unwrap_or_default();
        let column = if text.starts_with("rule") { 9 } else { 1 };
        assert!(error.contains(part), "{text}: {report}");
        assert!(
            error.contains(&format!(".toml:1:{column}: ")) || error.contains(":2:1: "),
            "{report}"
        );
        assert_eq!(error.contains("--any-host"), is_right_elsewhere, "{report}");
        assert_eq!(checked(text, &["--any-host"])["ok"], is_right_elsewhere, "{text}");
    }
    #[cfg(feature = "serve")]
    {
        let report = checked("listen = '0.0.0.0:80'", &["--any-host"]);
        assert!(
            report["error"].as_str().unwrap_or_default().contains(":1:1: other hosts can reach")
        );
    }
}

#[test]
#[cfg(feature = "xdp")]
fn all_mistakes_of_a_file_are_named_with_their_places() {
    let text = "polciy = 'rps'\ncpus = '0-900'\nshadow = [1]\nqueue-size = 3\nrule = ['udp -> 0',\n  'tcp -> 800']\n\
                events = '/nonexist/e'\n";
    let report = checked(text, &[]);
    let mistakes = report["mistakes"].as_array().unwrap();
    let places = [":1:1: ", ":2:1: ", ":3:10: ", ":4:1: ", ":6:3: ", ":7:1: "];
    assert_eq!(mistakes.len(), places.len(), "{report}");
    for (mistake, place) in mistakes.iter().zip(places) {
        assert!(mistake.as_str().unwrap().contains(place), "{place}: {report}");
    }
}

#[test]
#[cfg(feature = "xdp")]
fn rules_and_settings_without_effect_are_noted() {
    let text = "policy = 'rps'\nelse = 'local'\nrfs-cpus = '0'\nrule = ['udp -> 0', 'udp dst-port 53 -> 0']\n";
    let report = checked(text, &[]);
    let notes = report["notes"].to_string();
    for part in
        ["rule 2 (udp dst-port 53 → 0) never matches", "--else changes", "--rfs-cpus changes"]
    {
        assert!(notes.contains(part), "{part}: {report}");
    }
    assert_eq!(report["ok"], true, "{report}");
}

/// A setting that `rxsteer run` would refuse on this host is a mistake, unless the file is for another host.
#[test]
#[cfg(feature = "xdp")]
fn file_is_checked_for_this_host() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rxsteer.toml");
    let check = |text: &str, more: &[&str]| {
        std::fs::write(&file, text).unwrap();
        let mut check = Command::new(env!("CARGO_BIN_EXE_rxsteer"));
        let output = check.args(["config", "check", "--json"]).args(more).arg(&file).output();
        let output = output.unwrap();
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(report["ok"], output.status.code() == Some(0), "{report}");
        report
    };
    for (text, part) in [
        ("cpus = '0,900'", "cpus: this host has no CPU 900"),
        ("policy = 'bound:0=900'", "policy: this host has no CPU 900"),
        ("policy = 'bound:lo:7=0'", "there is no RX queue 7: lo has 1 RX queue"),
    ] {
        let report = check(text, &[]);
        let error = report["error"].as_str().unwrap_or_default();
        assert!(error.contains(part) && error.contains("--any-host"), "{text}: {report}");
        assert_eq!(check(text, &["--any-host"])["ok"], true, "{text}");
    }
    let report = check("policy = 'rps'\nrps-map = { nosuch0 = '0' }", &[]);
    let note = report["notes"][0].as_str().unwrap();
    assert!(report["ok"] == true && note.contains("there is no interface nosuch0"), "{report}");
    // These are wrong on every host.
    for (text, part) in [
        ("no-flow-stats = true\nflows = 'f.csv'", "--no-flow-stats"),
        ("cpus = '0,4000'", "CPU 4000 can't be steered to"),
        ("policy = 'rps+balance'\nrps-map = { 1 = '0' }", "rps-map"),
    ] {
        let report = check(text, &["--any-host"]);
        assert!(report["error"].as_str().unwrap_or_default().contains(part), "{text}: {report}");
    }
}

#[test]
fn unit_waits_for_its_interface_and_is_started_again() {
    let unit = unit("rxsteer@.service");
    let device = "sys-subsystem-net-devices-%i.device";
    assert_eq!(values(&unit, "BindsTo"), [device]);
    assert!(values(&unit, "After")[0].contains(device));
    assert_eq!(values(&unit, "WantedBy"), [device], "it starts when the interface appears");
    for (name, _) in UNITS {
        let unit = self::unit(name);
        assert_eq!(values(&unit, "Restart"), ["on-failure"], "{name}");
        assert_eq!(values(&unit, "RestartPreventExitStatus"), [""; 0], "{name}");
        assert_eq!(values(&unit, "StartLimitIntervalSec"), ["0"], "{name}");
    }
}
