//! `rxsteer live --io xdp`: order and conservation under all policies, and its messages where it cannot receive.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rxsteer_lab::{LinkOptions, LiveFrames, Namespace, Steering, Testbed, Traffic, slice};
use serde_json::Value;

fn number(report: &Value, key: &str) -> u64 {
    report[key].as_u64().unwrap_or_else(|| panic!("no {key} in {report}"))
}

pub(crate) fn dropped(report: &Value) -> u64 {
    report["dropped"].as_object().unwrap().values().filter_map(Value::as_u64).sum()
}

/// Only frames of the test: hosts send no requests for neighbours or groups.
pub(crate) fn quiet(host: &Namespace, interface: &str) {
    host.run(&format!("sysctl -q -w net.ipv6.conf.{interface}.disable_ipv6=1")).unwrap();
}

fn quiet_hosts(options: LinkOptions) -> Testbed {
    let testbed = Testbed::hosts(options).unwrap();
    quiet(testbed.sender(), "out0");
    quiet(testbed.receiver(), "in0");
    testbed
}

#[test]
fn frames_are_in_order_and_conserved_under_all_policies() {
    let test = "xdp::frames_are_in_order_and_conserved_under_all_policies";
    let Some(_alone) = super::ready(test, &[], 2) else { return };
    let frames = slice(200_000, 10_000_000);
    for policy in ["none", "rps", "bound:0=1", "sparse", "rfs", "rfs+sparse"] {
        let testbed = quiet_hosts(LinkOptions::default());
        let arguments = ["in0", "--io", "xdp", "--policy", policy, "--cpus", "0-1"];
        let live = Steering::live(testbed.receiver(), &arguments).unwrap();
        // On a busy machine the receiving thread may run late, so frames are sent slowly.
        let pace = Duration::from_micros(5);
        let traffic = Traffic { flows: 40, train: 3, random: true, pace, ..Traffic::default() };
        let source = LiveFrames::new(testbed.link(), &traffic).unwrap();
        source.send(testbed.sender(), 0, frames).unwrap();
        let (report, _) = live.stop().unwrap();
        let [packets, delivered, kernel_drops, reordered] =
            ["packets", "delivered", "kernel_drops", "reordered"].map(|key| number(&report, key));
        assert_eq!(packets + kernel_drops, frames, "{policy}: {report}");
        assert_eq!(packets, delivered + dropped(&report), "{policy}: {report}");
        assert_eq!(reordered, 0, "{policy}: {report}");
        assert!(delivered > frames / 20, "{policy}: hardly any arrived: {report}");
        assert_eq!(report["settings"]["io"], "xdp");
    }
}

/// Each RX queue has its own RX thread; a flow stays on one queue, and its frames stay in order.
#[test]
fn queues_of_two_interfaces_are_received() {
    let test = "xdp::queues_of_two_interfaces_are_received";
    let Some(_alone) = super::ready(test, &[], 2) else { return };
    let options = LinkOptions { queues: 2, ..LinkOptions::default() };
    let mut testbed = quiet_hosts(options);
    testbed.another_link(options).unwrap();
    quiet(testbed.sender(), "out1");
    quiet(testbed.receiver(), "in1");
    let arguments = ["in0", "in1", "--io", "xdp", "--policy", "sparse", "--cpus", "0-1"];
    let live = Steering::live(testbed.receiver(), &arguments).unwrap();
    let frames = slice(50_000, 1_000_000);
    for link in &testbed.links {
        let traffic = Traffic { flows: 10, ..Traffic::default() };
        LiveFrames::new(link, &traffic).unwrap().send(testbed.sender(), 0, frames).unwrap();
    }
    let (report, _) = live.stop().unwrap();
    assert_eq!(report["settings"]["rx_queues"], 4);
    let sum = number(&report, "packets") + number(&report, "kernel_drops");
    assert_eq!((sum, number(&report, "reordered")), (2 * frames, 0), "{report}");
    for interface in report["interfaces"].as_array().unwrap() {
        assert!(number(interface, "packets") > 0, "{report}");
        assert!(interface["mode"].as_str().unwrap().ends_with("2 RX queues"), "{report}");
    }
}

/// A worker that takes 20 µs per packet holds the memory; the kernel then drops frames, and all are counted.
#[test]
fn frames_that_find_no_memory_are_counted() {
    let Some(_alone) = super::ready("xdp::frames_that_find_no_memory_are_counted", &[], 2) else {
        return;
    };
    let testbed = quiet_hosts(LinkOptions::default());
    let mut arguments = vec!["in0", "--io", "xdp", "--policy", "rps", "--cpus", "1-1"];
    arguments.extend(["--work-ns", "20000", "--max-backlog", "100000", "--ring-size", "1"]);
    let live = Steering::live(testbed.receiver(), &arguments).unwrap();
    let frames = 50_000;
    let source = LiveFrames::new(testbed.link(), &Traffic::default()).unwrap();
    source.send(testbed.sender(), 0, frames).unwrap();
    let (report, _) = live.stop().unwrap();
    let kernel_drops = number(&report, "kernel_drops");
    assert!(kernel_drops > 0, "{report}");
    assert_eq!(number(&report, "packets") + kernel_drops, frames, "{report}");
    assert_eq!(number(&report, "packets"), number(&report, "delivered"), "{report}");
}

/// Receiving ends under load. The driver's counts equal those of the report: no frame is taken from the host and lost
/// at the end.
#[test]
fn end_under_load_counts_every_frame() {
    let test = "xdp::end_under_load_counts_every_frame";
    let Some(_alone) = super::ready(test, &["ethtool"], 2) else { return };
    let testbed = quiet_hosts(LinkOptions::default());
    let receiver = testbed.receiver();
    let live =
        Steering::live(receiver, &["in0", "--io", "xdp", "--policy", "rps", "--cpus", "1-1"]);
    let live = live.unwrap();
    let traffic = Traffic { pace: Duration::from_micros(5), ..Traffic::default() };
    let source = LiveFrames::new(testbed.link(), &traffic).unwrap();
    let stop = AtomicBool::new(false);
    let report = std::thread::scope(|scope| {
        let sender = scope.spawn(|| source.send_until(testbed.sender(), 0, 50_000, &stop));
        std::thread::sleep(Duration::from_millis(400));
        let (report, _) = live.stop().unwrap();
        stop.store(true, Ordering::Relaxed);
        sender.join().unwrap().unwrap();
        report
    });
    let counts = receiver.run("ethtool -S in0").unwrap();
    let count = |name: &str| -> u64 {
        let line = counts.lines().find_map(|line| line.trim().strip_prefix(name));
        line.unwrap().trim_start_matches(':').trim().parse().unwrap()
    };
    let driver = (count("rx_queue_0_xdp_redirect"), count("rx_queue_0_drops"));
    let packets = number(&report, "packets");
    assert!(packets > 1000, "{report}");
    assert_eq!(driver, (packets, number(&report, "kernel_drops")), "{counts}{report}");
}

#[test]
fn killed_one_leaves_nothing_and_the_host_receives_again() {
    let test = "xdp::killed_one_leaves_nothing_and_the_host_receives_again";
    let Some(_alone) = super::ready(test, &["ping"], 1) else { return };
    let testbed = Testbed::hosts(LinkOptions::default()).unwrap();
    let receiver = testbed.receiver();
    let arguments = ["in0", "--io", "xdp", "--promiscuous", "--cpus", "0-0"];
    let live = Steering::live(receiver, &arguments).unwrap();
    live.wait_for_stderr("this host no longer receives", Duration::from_secs(1)).unwrap();
    assert!(super::program_on(receiver, "in0").is_some());
    let ping = || testbed.sender().run(&format!("ping -c 1 -W 1 {}", testbed.link().far.ipv4));
    assert!(ping().is_err(), "it is taken away");
    live.kill().unwrap();
    assert_eq!(super::program_on(receiver, "in0"), None);
    assert!(!receiver.ip("-d link show in0").unwrap().contains("promiscuity 1"));
    ping().unwrap();
}

/// A second instance finds an XDP program; once that is detached, it finds a socket. It reports both, and the first
/// instance reports why it ends.
#[test]
fn another_program_or_socket_is_refused() {
    let test = "xdp::another_program_or_socket_is_refused";
    let Some(_alone) = super::ready(test, &["bpftool"], 1) else { return };
    let testbed = Testbed::hosts(LinkOptions::default()).unwrap();
    let receiver = testbed.receiver();
    let arguments = ["in0", "--io", "xdp", "--cpus", "0-0"];
    let first = Steering::live(receiver, &arguments).unwrap();
    let refused = |words: &str| {
        let mut second = Steering::begin_live_by(receiver, &[], &arguments).unwrap();
        let status = second.wait(Duration::from_secs(10)).unwrap();
        assert_eq!(status.code(), Some(2), "{}", second.stderr());
        assert!(second.stderr().contains(words), "{}", second.stderr());
    };
    refused("another XDP program (id ");
    let links = super::under_load::links_of(first.id());
    receiver.run(&format!("bpftool link detach id {}", links[0])).unwrap();
    refused("another AF_XDP socket uses RX queue 0 of in0");
    let (status, report) = first.report().unwrap();
    assert_eq!(status.code(), Some(1));
    assert!(report["errors"].to_string().contains("another process detached"), "{report}");
}

#[test]
fn interface_that_goes_down_and_up_goes_on_and_one_that_goes_ends_it() {
    let test = "xdp::interface_that_goes_down_and_up_goes_on_and_one_that_goes_ends_it";
    let Some(_alone) = super::ready(test, &[], 1) else { return };
    let testbed = Testbed::hosts(LinkOptions::default()).unwrap();
    let (receiver, sender) = (testbed.receiver(), testbed.sender());
    quiet(sender, "out0");
    quiet(receiver, "in0");
    let live = Steering::live(receiver, &["in0", "--io", "xdp", "--cpus", "0-0"]).unwrap();
    let source = LiveFrames::new(testbed.link(), &Traffic::default()).unwrap();
    source.send(sender, 0, 500).unwrap();
    receiver.ip("link set in0 down").unwrap();
    receiver.ip("link set in0 up").unwrap();
    std::thread::sleep(Duration::from_millis(100));
    source.send(sender, 0, 500).unwrap();
    std::thread::sleep(Duration::from_millis(200));
    receiver.ip("link del in0").unwrap();
    let (status, report) = live.report().unwrap();
    assert_eq!(status.code(), Some(1), "{report}");
    assert!(report["errors"].to_string().contains("the interface is gone"), "{report}");
    assert_eq!((number(&report, "packets"), number(&report, "reordered")), (1000, 0), "{report}");
}

#[test]
fn rx_queues_that_are_added_are_named() {
    let test = "xdp::rx_queues_that_are_added_are_named";
    let Some(_alone) = super::ready(test, &["ethtool"], 2) else { return };
    let testbed = quiet_hosts(LinkOptions { queues: 2, ..LinkOptions::default() });
    let receiver = testbed.receiver();
    testbed.sender().run("ethtool -L out0 rx 1 tx 1").unwrap();
    receiver.run("ethtool -L in0 rx 1 tx 1").unwrap();
    let live = Steering::live(receiver, &["in0", "--io", "xdp", "--cpus", "0-1"]).unwrap();
    receiver.run("ethtool -L in0 rx 2").unwrap();
    live.wait_for_stderr("in0 uses 1 RX queue more than at the start", Duration::from_secs(20))
        .unwrap();
    let (report, _) = live.stop().unwrap();
    assert_eq!(report["settings"]["rx_queues"], 1, "{report}");
}

#[test]
fn driver_without_native_xdp_is_received_from_in_generic_mode() {
    let test = "xdp::driver_without_native_xdp_is_received_from_in_generic_mode";
    let Some(_alone) = super::ready(test, &["ping"], 1) else { return };
    let testbed = Testbed::hosts(LinkOptions::default()).unwrap();
    let (receiver, sender) = (testbed.receiver(), testbed.sender());
    receiver.ip("link add link in0 name mac0 type macvlan mode bridge").unwrap();
    receiver.ip("link set mac0 up").unwrap();
    let live = Steering::live(receiver, &["mac0", "--io", "xdp", "--cpus", "0-0"]).unwrap();
    live.wait_for_stderr("generic XDP, copy mode", Duration::from_secs(1)).unwrap();
    // Broadcasts arrive at a macvlan.
    let _ = sender.run("ping -b -c 20 -i 0.01 -W 1 10.77.1.255");
    let (report, _) = live.stop().unwrap();
    assert!(number(&report, "packets") >= 20, "{report}");
    let refused = ["mac0", "--io", "xdp", "--zero-copy", "--cpus", "0-0"];
    let mut refused = Steering::begin_live_by(receiver, &[], &refused).unwrap();
    assert_eq!(refused.wait(Duration::from_secs(10)).unwrap().code(), Some(2));
    assert!(refused.stderr().contains("without copying"), "{}", refused.stderr());
}

#[test]
fn what_is_missing_is_reported() {
    let Some(_alone) = super::ready("xdp::what_is_missing_is_reported", &["setpriv", "prlimit"], 1)
    else {
        return;
    };
    let testbed = Testbed::hosts(LinkOptions::default()).unwrap();
    let receiver = testbed.receiver();
    let without = |caps: &str| format!("--bounding-set={caps}");
    let cases: [(&[&str], &[&str], &str); 4] = [
        (&["setpriv", "--inh-caps=-net_raw", &without("-net_raw")], &[], "CAP_NET_RAW"),
        (
            &["setpriv", "--inh-caps=-bpf,-sys_admin", &without("-bpf,-sys_admin,-net_admin")],
            &[],
            "CAP_BPF",
        ),
        (
            &["setpriv", "--bounding-set=-ipc_lock", "prlimit", "--memlock=65536"],
            &[],
            "RLIMIT_MEMLOCK is 0.1 MiB",
        ),
        (&["env"], &["--filter", "tcp"], "--filter requires packet sockets"),
    ];
    for (by, more, words) in cases {
        let arguments = [&["in0", "--io", "xdp", "--cpus", "0-0"], more].concat();
        let mut live = Steering::begin_live_by(receiver, by, &arguments).unwrap();
        let status = live.wait(Duration::from_secs(10)).unwrap();
        assert_eq!(status.code(), Some(2), "{by:?}: {}", live.stderr());
        assert!(live.stderr().contains(words), "{by:?}: {}", live.stderr());
        assert_eq!(super::program_on(receiver, "in0"), None, "{by:?}");
    }
    receiver.ip("link set in0 mtu 9000").unwrap();
    let arguments = ["in0", "--io", "xdp", "--cpus", "0-0"];
    let mut live = Steering::begin_live_by(receiver, &[], &arguments).unwrap();
    assert_eq!(live.wait(Duration::from_secs(10)).unwrap().code(), Some(2));
    assert!(live.stderr().contains("an MTU of 9000 on in0"), "{}", live.stderr());
}
