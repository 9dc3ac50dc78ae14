//! `rxsteer check` on real interfaces.
//!
//! Tests that need their own interfaces create them in a separate network namespace, which requires root and `ip`;
//! without these, the tests print SKIPPED. The tests load nothing, and change no interface of the host.

use serde_json::Value;
use std::io::Write;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

fn run(command: &[&str]) -> Output {
    let (program, arguments) = command.split_first().expect("a program");
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    output.unwrap_or_else(|error| panic!("{program} can't be started: {error}"))
}

fn status(output: &Output) -> i32 {
    output.status.code().expect("it exits by itself")
}

const RXSTEER: &str = env!("CARGO_BIN_EXE_rxsteer");

/// The report, whatever the verdict.
fn report(command: &[&str]) -> Value {
    let output = run(command);
    assert!(status(&output) < 2, "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    let can_run = report["can_run"].as_bool().expect("a verdict");
    assert_eq!(status(&output), i32::from(!can_run), "the exit status is the verdict");
    report
}

/// The finding about `topic` on the interface `name`.
fn found<'a>(report: &'a Value, name: &str, topic: &str) -> &'a Value {
    let interfaces = report["interfaces"].as_array().expect("interfaces");
    let interface = interfaces.iter().find(|interface| interface["name"] == name);
    let findings = interface.and_then(|interface| interface["findings"].as_array());
    let findings = findings.unwrap_or_else(|| panic!("no {name} in {report:#}"));
    let finding = findings.iter().find(|finding| finding["topic"] == topic);
    finding.unwrap_or_else(|| panic!("no {topic} of {name} in {report:#}"))
}

fn skipped(test: &str, why: &str) {
    let _ = writeln!(std::io::stderr(), "SKIPPED check::{test}: {why}");
}

/// A network namespace, which is removed when this is dropped.
struct Namespace(String);

impl Namespace {
    /// Creates a namespace, or returns the reason why it cannot.
    fn new() -> Result<Namespace, String> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("rxsteer-check-{}-{number}", std::process::id());
        let output = Command::new("ip").args(["netns", "add", &name]).output();
        match output {
            Err(error) => Err(format!("there is no ip command: {error}")),
            Ok(output) if output.status.success() => Ok(Namespace(name)),
            Ok(output) => Err(format!(
                "no network namespace can be made: {}",
                String::from_utf8_lossy(&output.stderr).trim().replace('\n', " ")
            )),
        }
    }

    fn try_inside(&self, command: &[&str]) -> Output {
        run(&[&["ip", "netns", "exec", &self.0], command].concat())
    }

    fn inside(&self, command: &[&str]) {
        let output = self.try_inside(command);
        assert!(
            output.status.success(),
            "{command:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }

    /// The report about these interfaces.
    fn check(&self, names: &[&str]) -> Value {
        report(&[&["ip", "netns", "exec", &self.0, RXSTEER, "check", "--json"], names].concat())
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.0]).status();
    }
}

#[test]
fn loopback_is_refused_with_what_to_do() {
    let report = report(&[RXSTEER, "check", "lo", "--json"]);
    assert_eq!(report["can_run"], false);
    let device = found(&report, "lo", "device");
    assert_eq!((&device["state"], &device["blocks"]), (&Value::from("no"), &Value::from(true)));
    assert!(device["fix"].as_str().is_some_and(|fix| fix.contains("rxsteer check")));
    assert_eq!(report["interfaces"][0]["can_run"], false);
    assert_eq!(report["interfaces"][0]["help"]["answer"], "dont");
    let findings = report["host"]["findings"].as_array().expect("findings");
    for finding in findings {
        let fine = finding["state"] == "fine";
        assert!(fine || finding["why"].as_str().is_some_and(|why| !why.is_empty()), "{finding}");
        assert!(finding["blocks"] == false || finding["fix"].is_string(), "{finding}");
    }
}

#[test]
fn interface_that_is_not_there_ends_it_with_the_nearest() {
    let output = run(&[RXSTEER, "check", "nosuch0"]);
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!((status(&output), output.stdout.len()), (2, 0));
    assert!(message.contains("'nosuch0'") && message.contains("; "), "{message}");
    assert!(!message.contains("panicked"), "{message}");
    assert_eq!(status(&run(&[RXSTEER, "check", "nosuch*"])), 2);
    assert_eq!(status(&run(&[RXSTEER, "check", "eth["])), 2);
}

#[test]
fn without_a_name_the_host_is_reported() {
    let output = run(&[RXSTEER, "check"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(status(&output) < 2);
    for topic in ["kernel", "preemption", "btf", "capabilities", "cpus"] {
        assert!(text.contains(topic), "{topic} is not in\n{text}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
}

#[test]
fn load_is_reported_on_request() {
    let report = report(&[RXSTEER, "check", "lo", "--duration", "1ms", "--json"]);
    let findings = report["host"]["findings"].as_array().expect("findings");
    assert_eq!(findings.iter().filter(|finding| finding["topic"] == "load").count(), 1);
    for wrong in ["0s", "2h", "soon"] {
        assert_eq!(status(&run(&[RXSTEER, "check", "--duration", wrong])), 2);
        // The former name of the option.
        assert_eq!(status(&run(&[RXSTEER, "check", "--sample", wrong])), 2);
    }
}

#[test]
fn veth_pair_is_seen_as_it_is_set() {
    const NAME: &str = "veth_pair_is_seen_as_it_is_set";
    let namespace = match Namespace::new() {
        Ok(namespace) => namespace,
        Err(why) => return skipped(NAME, &why),
    };
    if Command::new("ethtool").arg("--version").output().is_err() {
        return skipped(NAME, "there is no ethtool");
    }
    let ip = |arguments: &[&str]| namespace.inside(&[&["ip"], arguments].concat());
    ip(&["link", "add", "veth0", "type", "veth", "peer", "name", "veth1"]);
    let report = namespace.check(&["veth*"]);
    assert_eq!(report["interfaces"].as_array().map(Vec::len), Some(2));
    assert_eq!(found(&report, "veth0", "up")["fix"], "ip link set dev veth0 up");
    // The checksums are left to the device unless that is changed.
    let checksums = found(&report, "veth0", "peer_checksums");
    assert_eq!(
        (&checksums["blocks"], &checksums["fix"]),
        (&true.into(), &"ethtool -K veth1 tx off".into())
    );
    assert_eq!(found(&report, "veth0", "kernel_rps")["state"], "fine");

    namespace.inside(&["ethtool", "-K", "veth1", "tx", "off"]);
    namespace.inside(&["ethtool", "-K", "veth0", "gro", "on"]);
    ip(&["link", "set", "veth0", "up"]);
    let mask = "echo 1 > /sys/class/net/veth0/queues/rx-0/rps_cpus";
    let has_rps = namespace.try_inside(&["sh", "-c", mask]).status.success();
    let report = namespace.check(&["veth0", "veth1"]);
    assert_eq!(found(&report, "veth0", "peer_checksums")["state"], "fine");
    assert_eq!(found(&report, "veth1", "peer_checksums")["blocks"], true, "that is its own tx");
    assert_ne!(found(&report, "veth0", "gro")["what"], "off");
    assert_eq!(report["interfaces"][0]["facts"]["rx_queues"], 1);
    if has_rps {
        let rps = found(&report, "veth0", "kernel_rps");
        assert_eq!(rps["blocks"], true);
        assert!(rps["fix"].as_str().is_some_and(|fix| fix == "rxsteer host apply veth0 --off"));
        assert_eq!(found(&report, "veth1", "kernel_rps")["blocks"], false);
    } else {
        skipped(&format!("{NAME}/rps"), "this kernel or sandbox has no rps_cpus to write to");
    }
}

#[test]
fn veth_with_fewer_queues_than_its_peer_has_no_native_mode() {
    const NAME: &str = "veth_with_fewer_queues_than_its_peer_has_no_native_mode";
    let namespace = match Namespace::new() {
        Ok(namespace) => namespace,
        Err(why) => return skipped(NAME, &why),
    };
    let two = ["numtxqueues", "2", "numrxqueues", "2"];
    let pair = [
        &["ip", "link", "add", "veth0"],
        &two[..],
        &["type", "veth", "peer", "name", "veth1"],
        &two,
    ];
    namespace.inside(&pair.concat());
    let queues = |name, kind, count| {
        namespace.try_inside(&["ethtool", "-L", name, kind, count]).status.success()
    };
    if !queues("veth1", "tx", "2")
        || namespace.check(&["veth0"])["interfaces"][0]["facts"]["xdp"].is_null()
    {
        return skipped(
            NAME,
            "no ethtool, or a kernel that does not say what XDP can do (before 6.3)",
        );
    }
    // Without native mode, generic mode may work or not.
    for (count, states) in [("1", &["note", "no"][..]), ("2", &["fine"])] {
        // If the interface already has this many queues, ethtool returns an error.
        let _ = queues("veth0", "rx", count);
        let report = namespace.check(&["veth0"]);
        assert_eq!(report["interfaces"][0]["facts"]["rx_queues"].to_string(), count);
        let state = found(&report, "veth0", "xdp_mode")["state"].clone();
        assert!(states.iter().any(|expected| state == *expected), "{count} queues: {state}");
    }
}

#[test]
fn peer_in_another_namespace_is_not_guessed_at() {
    const NAME: &str = "peer_in_another_namespace_is_not_guessed_at";
    let (near, far) = match (Namespace::new(), Namespace::new()) {
        (Ok(near), Ok(far)) => (near, far),
        (Err(why), _) | (_, Err(why)) => return skipped(NAME, &why),
    };
    near.inside(&["ip", "link", "add", "veth0", "type", "veth", "peer", "name", "away0"]);
    near.inside(&["ip", "link", "set", "away0", "netns", &far.0]);
    // In this namespace, an interface with the index of the peer is not the peer.
    near.inside(&["ip", "link", "add", "veth2", "type", "veth", "peer", "name", "veth3"]);
    let report = near.check(&["veth0"]);
    let checksums = found(&report, "veth0", "peer_checksums");
    assert_eq!((&checksums["state"], &checksums["blocks"]), (&"note".into(), &false.into()));
    assert!(
        checksums["what"].as_str().is_some_and(|what| what.contains("another network namespace"))
    );
}

#[test]
fn stacked_interface_names_its_lower_ones() {
    const NAME: &str = "stacked_interface_names_its_lower_ones";
    let namespace = match Namespace::new() {
        Ok(namespace) => namespace,
        Err(why) => return skipped(NAME, &why),
    };
    let can =
        |arguments: &[&str]| namespace.try_inside(&[&["ip"], arguments].concat()).status.success();
    assert!(can(&["link", "add", "veth0", "type", "veth", "peer", "name", "veth1"]));
    if can(&["tuntap", "add", "tun0", "mode", "tun"]) {
        let report = namespace.check(&["tun0"]);
        let device = found(&report, "tun0", "device");
        assert_eq!(device["blocks"], true);
        assert!(device["what"].as_str().is_some_and(|what| what.contains("no Ethernet header")));
    } else {
        skipped(&format!("{NAME}/tun"), "no tun device can be made");
    }
    if can(&["link", "add", "br0", "type", "bridge"])
        && can(&["link", "set", "veth1", "master", "br0"])
    {
        let report = namespace.check(&["br0", "veth1"]);
        assert_eq!(found(&report, "br0", "device")["fix"], "attach below: rxsteer run veth1");
        assert_eq!(found(&report, "veth1", "port")["blocks"], false);
    } else {
        skipped(&format!("{NAME}/bridge"), "no bridge can be made");
    }
    if can(&["link", "add", "link", "veth0", "name", "veth0.5", "type", "vlan", "id", "5"]) {
        let report = namespace.check(&["veth0", "veth0.5"]);
        assert_eq!(found(&report, "veth0.5", "device")["fix"], "attach below: rxsteer run veth0");
        assert_eq!(
            found(&report, "veth0", "vlan_tags")["blocks"],
            true,
            "the peer keeps tags beside frames"
        );
        namespace.inside(&["ethtool", "-K", "veth1", "txvlan", "off"]);
        assert_eq!(found(&namespace.check(&["veth0"]), "veth0", "vlan_tags")["blocks"], false);
    } else {
        skipped(&format!("{NAME}/vlan"), "no VLAN interface can be made (no 8021q module)");
    }
}

#[test]
fn sysfs_of_another_namespace_is_not_believed() {
    const NAME: &str = "sysfs_of_another_namespace_is_not_believed";
    let namespace = match Namespace::new() {
        Ok(namespace) => namespace,
        Err(why) => return skipped(NAME, &why),
    };
    namespace.inside(&["ip", "link", "add", "veth0", "type", "veth", "peer", "name", "veth1"]);
    let net = format!("--net=/run/netns/{}", namespace.0);
    let enter = |command: &[&str]| Command::new("nsenter").arg(&net).args(command).output();
    if !enter(&["true"]).is_ok_and(|output| output.status.success()) {
        return skipped(NAME, "there is no nsenter, or it may not enter");
    }
    // Only the network namespace is entered: /sys still shows the namespace of the test.
    let report = report(&["nsenter", &net, RXSTEER, "check", "veth0", "--json"]);
    assert_eq!(found(&report, "veth0", "rx_queues")["state"], "note");
    assert_eq!(found(&report, "veth0", "kernel_rps")["state"], "note");
    assert_eq!(report["interfaces"][0]["facts"]["link"]["kind"], "veth");
}
