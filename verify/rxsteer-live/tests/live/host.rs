//! `rxsteer host`: sets the kernel's own steering with live traffic, and restores it.
//!
//! `ip netns exec` gives the program a /sys of the namespace. The sock flow table belongs to the whole host: the tests
//! set it and restore it.

use std::fs::File;
use std::io::Write;
use std::net::SocketAddr;
use std::process::{Output, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rxsteer_lab::{
    Datagrams, LinkOptions, LiveFrames, Namespace, OrderCheck, Pass, Steering, Testbed, Traffic,
    rxsteer, slice,
};
use serde_json::Value;

const FLOWS: u16 = 8;
/// Datagrams of a step.
const FRAMES: u64 = 5_000;
/// A step that takes longer counts as failed.
const TIMEOUT: Duration = Duration::from_secs(60);

/// `rxsteer host …` in a namespace.
fn host(namespace: &Namespace, arguments: &[&str]) -> Output {
    let mut command = namespace.command(rxsteer().unwrap());
    command.arg("host").args(arguments).stdin(Stdio::null()).output().unwrap()
}

/// The output, if it succeeds.
fn succeeds(namespace: &Namespace, arguments: &[&str]) -> String {
    let output = host(namespace, arguments);
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {text}");
    text
}

/// Every file that may be written, with its contents.
fn values(namespace: &Namespace) -> String {
    let script =
        "for f in /sys/class/net/in0/queues/*/[rx]ps_*; do echo \"$f $(cat $f 2>/dev/null)\"; done";
    let output = namespace.command("sh").args(["-c", script]).output().unwrap();
    let core =
        ["rps_sock_flow_entries", "flow_limit_cpu_bitmap", "netdev_max_backlog"].map(|name| {
            std::fs::read_to_string(format!("/proc/sys/net/core/{name}")).unwrap_or_default()
        });
    format!("{}{core:?}", String::from_utf8_lossy(&output.stdout))
}

/// `received_rps` of each CPU: how often another CPU woke it.
fn woken(namespace: &Namespace) -> Vec<u64> {
    let shown: Value =
        serde_json::from_str(&succeeds(namespace, &["show", "in0", "--json"])).unwrap();
    let cpus = shown["softnet"]["cpus"].as_array().unwrap();
    cpus.iter().map(|cpu| cpu["received_rps"].as_u64().unwrap()).collect()
}

fn pairs(testbed: &Testbed) -> Vec<(SocketAddr, SocketAddr)> {
    let link = testbed.link();
    let pair = |flow| {
        let (from, to) = (link.near.ipv4, link.far.ipv4);
        ((from, 10_000 + flow).into(), (to, 20_000 + flow).into())
    };
    (0..FLOWS).map(pair).collect()
}

/// Sends until this many more frames have arrived, pauses the sender, waits until no frame is under way, and returns
/// how many each CPU has taken since `before`.
fn taken(sender: &Datagrams, check: &OrderCheck, before: &[u64]) -> Vec<u64> {
    sender.resume();
    let (started, first) = (Instant::now(), check.total().unwrap().frames);
    while check.total().unwrap().frames < first + FRAMES {
        assert!(started.elapsed() < TIMEOUT, "frames stopped");
        std::thread::sleep(Duration::from_millis(5));
    }
    sender.pause();
    check.drained().unwrap();
    let now = check.by_cpu().unwrap();
    now.iter().zip(before).map(|(now, before)| now - before).collect()
}

#[test]
fn traffic_moves_to_the_chosen_cpu_and_back() {
    let test = "host::traffic_moves_to_the_chosen_cpu_and_back";
    let Some(_alone) = super::ready(test, &[], 2) else { return };
    let testbed = Testbed::hosts(LinkOptions::default()).unwrap();
    let receiver = testbed.receiver();
    let before = values(receiver);
    let check = OrderCheck::new(receiver, &testbed.link().far, FLOWS.into()).unwrap();
    let sender = Datagrams::start(testbed.sender(), &pairs(&testbed), 0).unwrap();
    sender.pause();

    // Without RPS, the CPU that sends a datagram also receives it.
    let none = vec![0; check.by_cpu().unwrap().len()];
    let unsteered = taken(&sender, &check, &none);
    assert!(unsteered[0] >= FRAMES && unsteered[1] == 0, "{unsteered:?}");

    let text = succeeds(receiver, &["apply", "in0", "--cpus", "1-1", "--yes"]);
    assert!(text.contains("RPS of RX queue 0: cpu 1"), "{text}");
    assert_ne!(values(receiver), before);
    let (counts, wakes) = (check.by_cpu().unwrap(), woken(receiver));
    let steered = taken(&sender, &check, &counts);
    assert!(steered[1] >= FRAMES && steered[0] == 0, "{steered:?}");
    let now = woken(receiver);
    assert!(now[1] > wakes[1], "softnet_stat counts wake-ups by RPS: {wakes:?} {now:?}");

    succeeds(receiver, &["restore", "--yes"]);
    assert_eq!(values(receiver), before);
    let counts = check.by_cpu().unwrap();
    let restored = taken(&sender, &check, &counts);
    assert!(restored[0] >= FRAMES && restored[1] == 0, "{restored:?}");
}

#[test]
fn all_settings_are_read_back_and_restored() {
    let Some(_alone) = super::ready("host::all_settings_are_read_back_and_restored", &[], 2) else {
        return;
    };
    let testbed = Testbed::hosts(LinkOptions { queues: 4, ..LinkOptions::default() }).unwrap();
    let receiver = testbed.receiver();
    let before = values(receiver);
    for arguments in [
        &["apply", "in0", "--cpus", "0-1", "--rfs", "--yes"][..],
        &["apply", "in0", "--cpus", "1-1", "--rfs", "--xps", "--yes"],
        &["apply", "in0", "--cpus", "0-0", "--yes"],
    ] {
        succeeds(receiver, arguments);
    }
    let set = values(receiver);
    assert!(set.contains("rx-3/rps_cpus 1\n") && set.contains("rx-3/rps_flow_cnt 8192"), "{set}");
    assert!(set.contains("tx-0/xps_cpus 1\n") && set.contains("tx-1/xps_cpus 2\n"), "{set}");
    succeeds(receiver, &["restore", "--yes"]);
    assert_eq!(values(receiver), before);
}

#[test]
fn value_that_another_set_is_left() {
    let Some(_alone) = super::ready("host::value_that_another_set_is_left", &[], 2) else { return };
    let testbed = Testbed::hosts(LinkOptions { queues: 2, ..LinkOptions::default() }).unwrap();
    let receiver = testbed.receiver();
    succeeds(receiver, &["apply", "in0", "--cpus", "0-1", "--yes"]);
    receiver.write_sys("/sys/class/net/in0/queues/rx-1/rps_cpus", "2").unwrap();
    let restored = host(receiver, &["restore", "--yes"]);
    let text = String::from_utf8_lossy(&restored.stdout).into_owned();
    assert_eq!(restored.status.code(), Some(1), "{text}");
    assert!(text.contains("left at 2: something else set that"), "{text}");
    let left = values(receiver);
    assert!(left.contains("rx-0/rps_cpus 0\n") && left.contains("rx-1/rps_cpus 2\n"), "{left}");
}

#[test]
fn interface_and_namespace_that_are_gone_are_named() {
    let test = "host::interface_and_namespace_that_are_gone_are_named";
    let Some(_alone) = super::ready(test, &[], 1) else { return };
    let mut testbed = Testbed::hosts(LinkOptions::default()).unwrap();
    testbed.another_link(LinkOptions::default()).unwrap();
    let receiver = testbed.receiver();
    succeeds(receiver, &["apply", "in0", "--cpus", "0-0", "--yes"]);
    succeeds(receiver, &["apply", "in1", "--cpus", "0-0", "--yes"]);
    receiver.ip("link del in1").unwrap();
    // From another namespace they stay recorded.
    let text = succeeds(testbed.sender(), &["restore", "--yes"]);
    assert!(text.contains("it belongs to network namespace"), "{text}");
    let text = succeeds(receiver, &["restore", "--yes"]);
    assert!(text.contains("1 -> 0") && text.contains("interface or queue is gone"), "{text}");

    succeeds(receiver, &["apply", "in0", "--cpus", "0-0", "--yes"]);
    drop(testbed);
    let other = Namespace::new().unwrap();
    let text = succeeds(&other, &["restore", "--yes"]);
    assert!(text.contains("interface or queue is gone"), "{text}");
}

#[test]
fn killed_at_any_moment_it_is_restored() {
    let Some(_alone) = super::ready("host::killed_at_any_moment_it_is_restored", &[], 2) else {
        return;
    };
    let testbed = Testbed::hosts(LinkOptions { queues: 8, ..LinkOptions::default() }).unwrap();
    let receiver = testbed.receiver();
    let before = values(receiver);
    let apply = ["host", "apply", "in0", "--cpus", "0-1", "--rfs", "--xps", "--yes"];
    succeeds(receiver, &apply[1..]);
    let journal = std::path::Path::new("/run/rxsteer/host-journal.jsonl");
    let whole = std::fs::metadata(journal).unwrap().len();
    succeeds(receiver, &["restore", "--yes"]);
    let (rounds, mut midway) = (slice(10, 100), 0);
    for round in 0..rounds {
        let mut command = receiver.command(rxsteer().unwrap());
        let mut child =
            command.args(apply).stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
        // Kills it when this share of the journal is written; the shares are in irregular order.
        let length = whole * (round * 37 % rounds) / rounds;
        let started = Instant::now();
        while std::fs::metadata(journal).map_or(0, |metadata| metadata.len()) <= length {
            let ended = child.try_wait().unwrap();
            assert!(
                started.elapsed() < TIMEOUT && ended.is_none_or(|status| status.success()),
                "{ended:?}"
            );
            if ended.is_some() {
                break;
            }
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let partly = std::fs::metadata(journal).map_or(0, |metadata| metadata.len());
        midway += u32::from(partly > 0 && partly < whole);
        let text = succeeds(receiver, &["restore", "--yes"]);
        assert_eq!(values(receiver), before, "round {round}: {text}");
        assert!(!journal.exists(), "round {round}: {text}");
    }
    println!("{midway} of {rounds} kills came between the first and the last value");
    assert!(midway > 0, "no kill came in between");
}

/// One CPU can send far more than another one can process with a thousand rules. If a wrong mask sends everything
/// there, most is dropped in each turn. Without the mask the sender's CPU receives each frame before it sends the next,
/// so none is dropped.
#[test]
fn wrong_mask_is_found_worse_and_undone() {
    let test = "host::wrong_mask_is_found_worse_and_undone";
    let Some(_alone) = super::ready(test, &["nft"], 2) else { return };
    let testbed = Testbed::hosts(LinkOptions::default()).unwrap();
    let receiver = testbed.receiver();
    let _pass = Pass::attach(receiver, &testbed.link().far).unwrap();
    let chain = "type filter hook prerouting priority 0 ; policy accept ;";
    let rules = (0..1000).map(|rule| format!("ip saddr 192.0.2.{} drop\n", rule % 250));
    let rules =
        format!("table ip lab {{ chain walked {{ {chain}\n{} }}\n}}", rules.collect::<String>());
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rules");
    std::fs::write(&file, rules).unwrap();
    receiver.run(&format!("nft -f {}", file.display())).unwrap();
    let before = values(receiver);
    let source =
        LiveFrames::new(testbed.link(), &Traffic { flows: 64, ..Traffic::default() }).unwrap();
    let _busy = super::Busy::on(1);
    let stop = AtomicBool::new(false);
    let output = std::thread::scope(|scope| {
        let _stop = super::Stop(&stop);
        scope.spawn(|| source.send_until(testbed.sender(), 0, 10_000, &stop).unwrap());
        host(receiver, &["apply", "in0", "--cpus", "1-1", "--yes", "--verify", "6s"])
    });
    let output_text = [&output.stdout[..], &output.stderr[..]].concat();
    let output_text = String::from_utf8_lossy(&output_text).into_owned();
    assert_eq!(output.status.code(), Some(1), "{output_text}");
    assert!(
        output_text.contains("worse: drops") && output_text.contains("the old values are restored"),
        "{output_text}"
    );
    assert_eq!(values(receiver), before, "{output_text}");
}

/// An ssh session that its own change disconnects: the terminal hangs up while the change waits for confirmation.
#[test]
fn change_is_undone_where_its_terminal_hangs_up() {
    let test = "host::change_is_undone_where_its_terminal_hangs_up";
    let Some(_alone) = super::ready(test, &["setsid"], 2) else { return };
    let testbed = Testbed::hosts(LinkOptions::default()).unwrap();
    let receiver = testbed.receiver();
    let before = values(receiver);
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&terminal).unwrap();
    unlockpt(&terminal).unwrap();
    let name = ptsname(&terminal, Vec::new()).unwrap().into_string().unwrap();
    let end = || File::options().read(true).write(true).open(&name).unwrap();
    let mut command = receiver.command("setsid");
    command.arg("--ctty").arg(rxsteer().unwrap());
    command.args(["host", "apply", "in0", "--cpus", "1-1", "--confirm", "5m"]);
    let mut running = command.stdin(end()).stdout(end()).stderr(end()).spawn().unwrap();
    // This also closes the ends of the terminal.
    drop(command);
    let mut terminal = File::from(terminal);
    terminal.write_all(b"y\n").unwrap();
    let started = Instant::now();
    while values(receiver) == before {
        assert!(started.elapsed() < TIMEOUT, "it applied nothing: {:?}", running.try_wait());
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(running.try_wait().unwrap(), None, "it waits to be confirmed");
    drop(terminal);
    let status = running.wait().unwrap();
    assert_eq!(status.code(), Some(1), "{status:?}");
    assert_eq!(values(receiver), before);
}

#[test]
fn steering_of_an_interface_that_is_steered_is_refused() {
    let test = "host::steering_of_an_interface_that_is_steered_is_refused";
    let Some(_alone) = super::ready(test, &[], 2) else { return };
    let testbed = Testbed::hosts(LinkOptions::default()).unwrap();
    let receiver = testbed.receiver();
    let before = values(receiver);
    let steering = Steering::start(receiver, &["in0", "--policy", "rps", "--cpus", "0-1"]).unwrap();
    for arguments in [&["apply", "in0", "--cpus", "0-1", "--yes"][..], &["apply", "in0", "--yes"]] {
        let output = host(receiver, arguments);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {stderr}");
        assert!(stderr.contains("in0") && stderr.contains("steer"), "{arguments:?}: {stderr}");
        assert_eq!(values(receiver), before, "{arguments:?}");
    }
    steering.stop().unwrap();
}

#[test]
fn read_only_sys_and_missing_privilege_are_named() {
    let test = "host::read_only_sys_and_missing_privilege_are_named";
    let Some(_alone) = super::ready(test, &["setpriv"], 1) else { return };
    let testbed = Testbed::hosts(LinkOptions::default()).unwrap();
    let receiver = testbed.receiver();
    let before = values(receiver);
    let program = rxsteer().unwrap();
    let refused = |script: &str| {
        // `ip netns exec` mounts a separate /sys, so the scripts do not change the /sys of the host.
        let mut command = receiver.command("sh");
        let output = command.args(["-c", script, "sh"]).arg(&program).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let apply = "\"$1\" host apply in0 --cpus 0-0 --yes";
    let text = refused(&format!("mount -o remount,ro /sys && {apply}"));
    assert!(text.contains("rx-0/rps_cpus") && text.contains("mounted read-only"), "{text}");
    let text = refused(&format!("setpriv --reuid 65534 --clear-groups {apply}"));
    assert!(text.contains("rx-0/rps_cpus") && text.contains("CAP_NET_ADMIN"), "{text}");
    assert_eq!(values(receiver), before);
}
