//! `rxsteer host` on recorded hosts, in separate folders.

use rxsteer_host::change::{Journal, Lock};
use rxsteer_host::testing::{MachineSpec, NicSpec};
use rxsteer_host::{Root, Tree};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// A recorded host, removed when this is dropped.
struct Host {
    root: Root,
    folder: tempfile::TempDir,
}

impl Host {
    fn of(machine: &MachineSpec) -> Host {
        let folder = tempfile::tempdir().unwrap();
        let root = machine.build(folder.path()).unwrap();
        Host { root, folder }
    }

    /// Sixteen CPUs, one queue, its interrupt on CPU 2.
    fn small() -> Host {
        Host::of(&MachineSpec::cpus(16).nic(NicSpec::named("eth0").interrupts([2])))
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rxsteer"));
        command.arg("host").args(arguments).arg("--root").arg(self.folder.path());
        command.env("COLUMNS", "100").stdin(Stdio::null()).output().unwrap()
    }

    /// The output of a command, which must end with this status.
    fn output(&self, arguments: &[&str], status: i32) -> String {
        let output = self.run(arguments);
        let text = [&output.stdout[..], &output.stderr[..]].concat();
        let text = String::from_utf8_lossy(&text).into_owned();
        assert_eq!(output.status.code(), Some(status), "{arguments:?}: {text}");
        text
    }

    fn value(&self, file: &str) -> String {
        self.root.read(file).unwrap()
    }

    fn put(&self, path: &str, text: &str) {
        let at = self.root.path(path);
        fs::create_dir_all(at.parent().unwrap()).unwrap();
        fs::write(at, text).unwrap();
    }

    fn has(&self, path: &str) -> bool {
        self.root.path(path).exists()
    }
}

const RPS: &str = "/sys/class/net/eth0/queues/rx-0/rps_cpus";
const FLOWS: &str = "/sys/class/net/eth0/queues/rx-0/rps_flow_cnt";
const SOCK_FLOWS: &str = "/proc/sys/net/core/rps_sock_flow_entries";

fn snapshot(name: &str, text: &str) {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path("snapshots/host");
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(name, text));
}

#[test]
fn snapshots_of_recorded_hosts() {
    let nic = || NicSpec::named("eth0");
    let wg = NicSpec::made_by("wg0", "wireguard", 65534);
    let hosts = [
        ("two-cpus", MachineSpec::cpus(2).nic(nic().driver("virtio_net").rps("0-1"))),
        ("one-queue", MachineSpec::cpus(16).nic(nic().interrupts([2])).nic(wg)),
        ("64-queues", MachineSpec::cpus(72).smt().nic(nic().queues(64, 64).interrupts(0..64))),
        (
            "sparse-ids",
            MachineSpec { cores_per_cache: 64, ..MachineSpec::ids((0..256).map(|id| id * 16)) }
                .nic(nic().queues(2, 2).interrupts([16])),
        ),
        (
            "two-nodes",
            MachineSpec { isolated: "12-15", offline: "11", ..MachineSpec::cpus(16).nodes(2) }
                .nic(nic().on_node(1).interrupts([8]))
                .process(77, "irqbalance"),
        ),
    ];
    for (name, machine) in hosts {
        let host = Host::of(&machine);
        snapshot(&format!("show-{name}"), &host.output(&["show"], 0));
        let plan =
            host.output(&["apply", "eth0", "--rfs", "--xps", "--flow-limit", "--dry-run"], 0);
        // The plan for the last of 64 queues is enough for the snapshot.
        let lines: Vec<&str> = plan.lines().collect();
        let cut = lines.len().saturating_sub(24);
        let cut =
            if cut > 0 { format!("[{cut} lines]\n{}", lines[cut..].join("\n")) } else { plan };
        snapshot(&format!("plan-{name}"), &cut);
    }
}

#[test]
fn json_of_a_recommendation_says_why_run_is_not_named() {
    let host = Host::small();
    let text = host.output(&["recommend", "eth0", "--duration", "50ms", "--json"], 0);
    let report: Value = serde_json::from_str(&text).unwrap();
    let run = serde_json::json!({ "eligible": false, "why": "it is a recorded tree" });
    assert_eq!(report["interfaces"][0]["facts"]["run"], run, "{text}");
}

#[test]
fn apply_and_restore() {
    let host = Host::small();
    let before = (host.value(RPS), host.value(FLOWS), host.value(SOCK_FLOWS));
    let text = host.output(&["apply", "eth0", "--cpus", "0-1", "--rfs", "--yes"], 0);
    assert!(text.contains("0000 -> 0003   RPS of RX queue 0: cpus 0-1"), "{text}");
    assert_eq!((host.value(RPS).as_str(), host.value(FLOWS).as_str()), ("0003\n", "32768\n"));
    assert_eq!(host.value(SOCK_FLOWS), "32768\n");
    let text = host.output(&["apply", "eth0", "--cpus", "0-1", "--rfs", "--yes"], 0);
    assert!(text.contains("already has these settings"), "{text}");
    let shown: Value = serde_json::from_str(&host.output(&["show", "--json"], 0)).unwrap();
    assert_eq!(shown["interfaces"][0]["rx"][0]["rps_cpus"], "0-1");
    assert_eq!(shown["core"]["rps_sock_flow_entries"], 32768);

    let report: Value =
        serde_json::from_str(&host.output(&["restore", "--yes", "--json"], 0)).unwrap();
    assert_eq!(report["values"].as_array().unwrap().len(), 3);
    assert_eq!(report["values"][0]["outcome"], "restored");
    assert_eq!((host.value(RPS), host.value(FLOWS), host.value(SOCK_FLOWS)), before);
    assert!(host.output(&["restore", "--yes"], 0).contains("nothing to restore"));
}

#[test]
fn dry_run_writes_nothing() {
    let host = Host::small();
    let text = host.output(&["apply", "eth0", "--cpus", "0-3", "--dry-run", "--persist"], 0);
    assert!(text.contains("000f") && text.contains("/etc/udev/rules.d"), "{text}");
    assert_eq!(host.value(RPS), "0000\n");
    assert!(!host.has("/run/rxsteer") && !host.has("/etc/udev"));
}

#[test]
fn off_is_written_read_back_and_restored() {
    let host = Host::small();
    host.output(&["apply", "eth0", "--cpus", "0-3", "--rfs", "--yes"], 0);
    let set = (host.value(RPS), host.value(FLOWS));
    let text = host.output(&["apply", "eth0", "--off", "--yes"], 0);
    assert!(text.contains("RPS of RX queue 0: off"), "{text}");
    assert_eq!((&*host.value(RPS), &*host.value(FLOWS)), ("0000\n", "0\n"), "{set:?}");
    assert!(
        host.output(&["apply", "eth0", "--off", "--yes"], 0).contains("already has these settings")
    );
    host.output(&["restore", "--yes"], 0);
    assert_eq!(host.value(RPS), "0000\n");
    assert!(host.output(&["apply", "eth0", "--off", "--rfs", "--yes"], 2).contains("--rfs"));
}

#[test]
fn without_a_terminal_it_takes_a_yes() {
    let host = Host::small();
    assert!(host.output(&["apply", "eth0"], 2).contains("--yes"));
    assert_eq!(host.value(RPS), "0000\n");
    host.output(&["apply", "eth0", "--yes"], 0);
    assert!(host.output(&["restore"], 2).contains("--yes"));
    assert_ne!(host.value(RPS), "0000\n");
}

#[test]
fn bad_input_is_refused_with_what_to_do() {
    let host = Host::of(
        &MachineSpec { isolated: "3", ..MachineSpec::cpus(4) }.nic(NicSpec::named("eth0")),
    );
    assert!(host.output(&["apply", "ehh0", "--yes"], 2).contains("did you mean 'eth0'?"));
    assert!(host.output(&["show", "ehh0"], 2).contains("did you mean 'eth0'?"));
    let text = host.output(&["apply", "eth0", "--cpus", "2-3", "--yes"], 2);
    assert!(text.contains("CPU 3 is isolated") && text.contains("CPUs 0-2"), "{text}");
    assert!(host.output(&["apply", "eth0", "--cpus", "3-2", "--yes"], 2).contains("backwards"));
    let text = host.output(&["apply", "eth0", "--cpus", "1", "--yes"], 2);
    assert!(
        text.contains("1-1 for CPU 1 alone") && text.contains("0-0 for a count of 1"),
        "{text}"
    );
    assert!(host.output(&["apply", "lo", "--yes"], 2).contains("lo has no rps_cpus"));
    assert!(host.output(&["apply", "eth0", "--verify", "1s", "--yes"], 2).contains("3 s"));
    assert_eq!(host.value(RPS), "0\n");
    let empty = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_rxsteer"))
        .args(["host", "show", "--root"])
        .arg(empty.path())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn second_change_is_refused_with_the_first_ones_process() {
    let host = Host::small();
    let lock = Lock::take(&host.root).unwrap();
    let text = host.output(&["apply", "eth0", "--yes"], 2);
    assert!(text.contains(&format!("process {} is changing", std::process::id())), "{text}");
    assert_eq!(host.value(RPS), "0000\n");
    drop(lock);
    host.output(&["apply", "eth0", "--yes"], 0);
}

#[test]
fn what_another_set_is_left() {
    let host = Host::small();
    host.output(&["apply", "eth0", "--cpus", "0-1", "--rfs", "--yes"], 0);
    host.put(RPS, "0008\n");
    let text = host.output(&["restore", "--yes"], 1);
    assert!(text.contains("left at 0008: something else set that"), "{text}");
    assert_eq!((host.value(RPS).as_str(), host.value(FLOWS).as_str()), ("0008\n", "0\n"));
}

#[test]
fn without_confirmation_it_is_undone() {
    let host = Host::small();
    let text = host.output(&["apply", "eth0", "--cpus", "0-1", "--yes", "--confirm", "20s"], 1);
    assert!(text.contains("closed before it was confirmed"), "{text}");
    assert_eq!(host.value(RPS), "0000\n");
    assert!(!Journal::path(&host.root).exists());
}

/// A part of a line does not confirm, and neither the end of the time nor a signal waits for the rest.
#[test]
fn part_of_a_line_does_not_keep_it() {
    for signal in [None, Some("TERM")] {
        let host = Host::small();
        let time = if signal.is_some() { "10m" } else { "1s" };
        let mut command = Command::new(env!("CARGO_BIN_EXE_rxsteer"));
        command.args(["host", "apply", "eth0", "--cpus", "0-1", "--yes", "--confirm", time]);
        command.arg("--root").arg(host.folder.path()).stdin(Stdio::piped()).stderr(Stdio::piped());
        let mut running = command.stdout(Stdio::null()).spawn().unwrap();
        let mut input = running.stdin.take().unwrap();
        input.write_all(b"x").unwrap();
        let mut lines = BufReader::new(running.stderr.take().unwrap()).lines().map(Result::unwrap);
        assert!(lines.any(|line| line.contains("Enter")), "it asks");
        if let Some(signal) = signal {
            let id = running.id().to_string();
            assert!(Command::new("kill").args(["-s", signal, &id]).status().unwrap().success());
        }
        let rest: Vec<String> = lines.collect();
        assert_eq!(running.wait().unwrap().code(), Some(1), "{rest:?}");
        assert_eq!(host.value(RPS), "0000\n", "{rest:?}");
        drop(input);
    }
}

/// `restore` shows changes from the present values, not from those that apply set.
#[test]
fn restore_reads_before_it_shows_what_it_would_do() {
    let host = Host::small();
    host.output(&["apply", "eth0", "--cpus", "0-1", "--yes"], 0);
    let dry = host.output(&["restore", "--dry-run"], 0);
    assert!(dry.contains(RPS) && dry.contains("0003 -> 0000"), "{dry}");
    host.put(RPS, "0001\n");
    let dry = host.output(&["restore", "--dry-run"], 0);
    assert!(dry.contains("left at 0001: something else set that"), "{dry}");
    let text = host.output(&["restore", "--yes"], 1);
    assert!(text.contains("left at 0001: something else set that"), "{text}");
    assert_eq!(host.value(RPS), "0001\n");
    let nothing = host.output(&["restore", "--yes"], 0);
    assert!(nothing.contains("is on record"), "{nothing}");
}

#[test]
fn others_that_set_these_are_named() {
    let host = Host::small();
    host.put("/proc/9/comm", "irqbalance\n");
    host.put("/etc/systemd/network/10-a.link", "[Link]\nReceivePacketSteeringCPUMask=0-3\n");
    host.put(
        "/etc/rc.local",
        "for f in /sys/class/net/*/queues/*/rps_cpus; do echo f > $f; done\n",
    );
    host.put("/etc/sysctl.d/1.conf", "# net.core.rps_sock_flow_entries = 1\n");
    host.put("/config/config.boot", "ethernet eth0 {\n  offload {\n    rps\n  }\n}\n");
    let shown: Value = serde_json::from_str(&host.output(&["show", "--json"], 0)).unwrap();
    let found: Vec<&str> = shown["others"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|other| other["what"].as_str())
        .collect();
    let expected = [
        "irqbalance (process 9)",
        "/etc/systemd/network/10-a.link",
        "/config/config.boot",
        "/etc/rc.local",
    ];
    assert_eq!(found, expected);
    let text = host.output(&["apply", "eth0", "--dry-run"], 0);
    assert!(text.contains("irqbalance (process 9): it moves interrupts"), "{text}");
}

#[test]
fn unit_and_rule_are_written_shown_and_removed() {
    let host = Host::small();
    let text = host.output(&["apply", "eth0", "--cpus", "0-1", "--rfs", "--yes", "--persist"], 0);
    let unit = host.value("/etc/systemd/system/rxsteer-host-eth0.service");
    assert!(unit.contains("rxsteer host apply eth0 --cpus 0-1 --rfs --yes\n"), "{unit}");
    let rule = host.value("/etc/udev/rules.d/81-rxsteer-host-eth0.rules");
    assert!(
        rule.contains("rxsteer-host-eth0.service") && text.contains(rule.lines().last().unwrap()),
        "{rule}"
    );
    // These files belong to rxsteer, so they are not listed as those of others.
    let shown: Value = serde_json::from_str(&host.output(&["show", "--json"], 0)).unwrap();
    assert_eq!(shown["others"].as_array().unwrap().len(), 0, "{shown}");
    let text = host.output(&["restore", "--yes"], 0);
    assert!(text.contains("81-rxsteer-host-eth0.rules was removed"), "{text}");
    assert!(!host.has("/etc/systemd/system/rxsteer-host-eth0.service"));
    assert!(!host.has("/etc/udev/rules.d/81-rxsteer-host-eth0.rules"));
}

/// A host with this systemd, whose udev applied the default `.link` file.
fn with_systemd(version: u32) -> Host {
    let host = Host::small();
    host.put(&format!("/usr/lib/x86_64-linux-gnu/systemd/libsystemd-shared-{version}.so"), "");
    host.put("/sys/class/net/eth0/addr_assign_type", "0\n");
    let file = "/usr/lib/systemd/network/99-default.link";
    host.put("/run/udev/data/n2", &format!("I:1\nE:ID_NET_LINK_FILE={file}\n"));
    host.put(file, "# one\n[Match]\nOriginalName=*\n\n[Link]\nNamePolicy=keep kernel\nMACAddressPolicy=persistent\n");
    host
}

const LINK: &str = "/etc/systemd/network/10-rxsteer-host-eth0.link";

#[test]
fn link_file_is_written_where_it_can_express_it() {
    let host = with_systemd(257);
    host.output(&["apply", "eth0", "--cpus", "0-3,8", "--yes", "--persist"], 0);
    let text = host.value(LINK);
    let (_, link) = text.split_once("[Match]\n").unwrap();
    let expected = "MACAddress=02:00:00:00:00:02\nType=ether\n\n[Link]\nNamePolicy=keep kernel\n\
                    MACAddressPolicy=persistent\nReceivePacketSteeringCPUMask=0-3,8\n";
    assert_eq!(link, expected);
    // RFS requires a unit, so the file is removed.
    let text = host.output(&["apply", "eth0", "--cpus", "0-3,8", "--rfs", "--yes", "--persist"], 0);
    assert!(text.contains("systemd.link has no setting for RFS"), "{text}");
    assert!(!host.has(LINK) && host.has("/etc/systemd/system/rxsteer-host-eth0.service"));

    let older = with_systemd(252);
    let text = older.output(&["apply", "eth0", "--cpus", "0-3", "--yes", "--persist"], 0);
    assert!(text.contains("systemd 252 has no ReceivePacketSteeringCPUMask"), "{text}");
    assert!(!older.has(LINK));
}

#[test]
fn files_of_another_are_not_removed() {
    let host = Host::small();
    host.put(LINK, "[Link]\nReceivePacketSteeringCPUMask=0\n");
    host.output(&["apply", "eth0", "--yes"], 0);
    host.output(&["restore", "--yes"], 0);
    assert!(host.has(LINK));
}

#[test]
fn verify_without_traffic_keeps_and_says_so() {
    let host = Host::small();
    let text = host.output(&["apply", "eth0", "--cpus", "0-1", "--yes", "--verify", "3s"], 0);
    assert!(text.contains("too few to compare; it is kept"), "{text}");
    assert_eq!(host.value(RPS), "0003\n");
    host.output(&["restore", "--yes"], 0);
    assert_eq!(host.value(RPS), "0000\n");
}

#[test]
fn folder_that_can_not_be_written_is_named() {
    let host = Host::small();
    // A file has the path of the journal's folder.
    host.put("/run/rxsteer", "");
    let text = host.output(&["apply", "eth0", "--yes"], 2);
    assert!(text.contains("/run/rxsteer"), "{text}");
    assert_eq!(host.value(RPS), "0000\n");
    assert!(Path::new(&host.root.path("/run/rxsteer")).is_file());
}

#[test]
fn several_interfaces_are_set_together_or_not_at_all() {
    let nic = |name| NicSpec::named(name);
    let host = Host::of(&MachineSpec::cpus(4).nic(nic("eth0")).nic(nic("eth1")).nic(nic("wan0")));
    let map = |name: &str| host.value(&format!("/sys/class/net/{name}/queues/rx-0/rps_cpus"));
    let all = || ["eth0", "eth1", "wan0"].map(|name| map(name).trim().to_owned());
    host.output(&["apply", "eth*", "--cpus", "2-3", "--yes"], 0);
    assert_eq!(all(), ["c", "c", "0"]);
    let text = host.output(&["apply", "eth*", "--cpus", "2-3", "--yes"], 0);
    assert!(text.contains("eth0, eth1 already has these settings"), "{text}");
    // Without a name, apply changes every NIC. If one of several interfaces lacks the setting, none is changed.
    host.output(&["apply", "--cpus", "1-1", "--yes"], 0);
    assert_eq!(all(), ["2", "2", "2"]);
    assert!(
        host.output(&["apply", "eth0", "lo", "--cpus", "0-0", "--yes"], 2).contains("lo has no")
    );
    assert_eq!(all(), ["2", "2", "2"]);
    assert!(host.output(&["apply", "ppp*", "--yes"], 2).contains("matches 'ppp*'"));
    host.output(&["restore", "--yes"], 0);
    assert_eq!(all(), ["0", "0", "0"]);
    host.output(&["apply", "eth*", "--cpus", "0-1", "--yes", "--persist"], 0);
    assert!(
        ["eth0", "eth1"]
            .iter()
            .all(|name| { host.has(&format!("/etc/systemd/system/rxsteer-host-{name}.service")) })
    );
}
