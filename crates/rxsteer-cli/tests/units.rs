//! The units for systemd: what systemd says of them, and that they wait for their interface.

use std::io::Write;
use std::path::PathBuf;
use std::process::Command;

const UNITS: [(&str, &str); 2] =
    [("rxsteer@.service", "rxsteer@eth0.service"), ("rxsteer.service", "rxsteer.service")];

fn unit(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name);
    std::fs::read_to_string(path).unwrap()
}

/// The values of a key.
fn values<'a>(unit: &'a str, key: &str) -> Vec<&'a str> {
    unit.lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix('=')).collect()
}

#[test]
fn units_are_accepted_by_systemd() {
    let folder = tempfile::tempdir().unwrap();
    for (name, instance) in UNITS {
        // The program is not installed here; this one is there.
        let own = std::env::current_exe().unwrap().display().to_string();
        let text = unit(name).replace("/usr/local/bin/rxsteer", &own);
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

/// SIGHUP ends a run without a file.
#[test]
fn unit_reloads_where_there_is_a_file() {
    let reload = "/bin/kill -HUP $MAINPID";
    for (name, _) in UNITS {
        let unit = unit(name);
        let has_file = values(&unit, "ExecStart")[0].contains("--config");
        let expected = if has_file { vec![reload] } else { vec![] };
        assert_eq!(values(&unit, "ExecReload"), expected, "{name}");
        assert!(unit.contains(&format!("ExecReload={reload}")), "{name} shows how");
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
