//! `rxsteer compare --iface`, `advise`, `host recommend`, `run --fallback` and `auto`, on live interfaces.

use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rxsteer_lab::{Datagrams, LinkOptions, Namespace, Testbed, rxsteer};
use serde_json::Value;

/// A step that takes longer counts as failed.
const TIMEOUT: Duration = Duration::from_secs(60);
const FLOWS: u16 = 40;

fn command(namespace: &Namespace, arguments: &[&str]) -> Command {
    let mut command = namespace.command(rxsteer().unwrap());
    command.args(arguments).stdin(Stdio::null());
    command
}

fn output(namespace: &Namespace, arguments: &[&str]) -> Output {
    command(namespace, arguments).output().unwrap()
}

/// All its output, if it ends with `status`.
fn ends(namespace: &Namespace, status: i32, arguments: &[&str]) -> String {
    let output = output(namespace, arguments);
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    assert_eq!(output.status.code(), Some(status), "{arguments:?}: {text}");
    text
}

fn json(namespace: &Namespace, arguments: &[&str]) -> Value {
    let output = output(namespace, arguments);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {errors}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// A namespace with a tun device, to which our XDP programs cannot be attached.
fn with_tun() -> Namespace {
    let namespace = Namespace::new().unwrap();
    namespace.ip("tuntap add dev tun9 mode tun").unwrap();
    namespace.ip("link set tun9 up").unwrap();
    namespace
}

/// The tun device's CPU map, without leading zeroes.
fn map(namespace: &Namespace) -> String {
    let file = "/sys/class/net/tun9/queues/rx-0/rps_cpus";
    let output = namespace.command("cat").arg(file).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    text.trim_start_matches(['0', ',']).to_owned()
}

/// Waits until the CPU map is this one.
fn until_map_is(namespace: &Namespace, wanted: &str, child: &mut Child) {
    let started = Instant::now();
    while map(namespace) != wanted {
        assert_eq!(child.try_wait().unwrap(), None, "it ended before it set the CPU map");
        assert!(started.elapsed() < TIMEOUT, "the CPU map is {}", map(namespace));
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn interface_is_compared_and_judged_by_what_it_receives() {
    let test = "advice::interface_is_compared_and_judged_by_what_it_receives";
    let Some(_alone) = super::ready(test, &[], 2) else { return };
    let testbed = Testbed::hosts(LinkOptions::default()).unwrap();
    let link = testbed.link();
    let pair = |flow| {
        let (from, to) = (link.near.ipv4, link.far.ipv4);
        ((from, 10_000 + flow).into(), (to, 20_000 + flow).into())
    };
    let pairs: Vec<_> = (0..FLOWS).map(pair).collect();
    let sender = Datagrams::start(testbed.sender(), &pairs, 0).unwrap();
    let receiver = testbed.receiver();
    let compare = ["compare", "--iface", "in0", "--duration", "2s", "--cpus", "2", "--json"];
    let compared = json(receiver, &compare);
    let frames = compared["sample"]["frames"].as_u64().unwrap();
    assert!(frames > 1000 && compared["packets"] == frames, "{compared}");
    assert!(compared["flows_steered"].as_u64().unwrap() >= u64::from(FLOWS), "{compared}");
    let policies = compared["policies"].as_array().unwrap();
    assert_eq!(policies.len(), 6);
    assert!(policies.iter().all(|policy| policy["reordered"] == 0), "{compared}");

    let recommend = ["host", "recommend", "in0", "--duration", "2s", "--capture", "--json"];
    let found = json(receiver, &recommend);
    let found = &found["interfaces"][0];
    let traffic = &found["measured"]["traffic"];
    assert!(traffic["flows"].as_u64().unwrap() >= u64::from(FLOWS), "{found}");
    assert!(traffic["largest"].as_u64() < traffic["frames"].as_u64(), "{found}");
    // Whether CPUs have idle time depends on the machine; check and recommend must agree.
    assert!(found["rule"].is_string() && !found["sentences"].as_array().unwrap().is_empty());
    drop(sender);
}

#[test]
fn advise_replays_the_same_packets_under_each_policy() {
    let test = "advice::advise_replays_the_same_packets_under_each_policy";
    let Some(_alone) = super::ready(test, &[], 2) else { return };
    let testbed = Testbed::hosts(LinkOptions::default()).unwrap();
    let link = testbed.link();
    let pair = |flow| {
        let (from, to) = (link.near.ipv4, link.far.ipv4);
        ((from, 10_000 + flow).into(), (to, 20_000 + flow).into())
    };
    let mice: Vec<_> = (0..FLOWS).map(pair).collect();
    // One flow has a separate sender: how much each of the two senders sends depends on the scheduler.
    let senders = [&mice[..], &[pair(FLOWS)]]
        .map(|pairs| Datagrams::start(testbed.sender(), pairs, 0).unwrap());
    let receiver = testbed.receiver();
    let advise = ["advise", "in0", "--cpus", "2", "--seeds", "3"];
    let found = json(receiver, &[&advise[..], &["--duration", "3s", "--json"]].concat());
    let packets = found["packets"].as_u64().unwrap();
    assert!(packets > 1000 && found["sample"]["frames"] == packets, "{found}");
    assert!(found["sample"]["frames_received"].is_u64(), "{found}");
    let policies = found["policies"].as_array().unwrap();
    assert_eq!(policies.len(), 6);
    for policy in policies {
        let by_cpu = policy["cpus"].as_array().unwrap().iter();
        let sum: u64 = by_cpu.filter_map(|cpu| cpu["packets"].as_u64()).sum();
        assert_eq!((sum, &policy["packets"]), (packets, &found["packets"]), "{policy}");
        assert_eq!((&policy["reordered"], &policy["dropped"]["maximum"]), (&0.into(), &0.into()));
        for figure in ["imbalance", "moves", "deferred"] {
            assert!(policy[figure]["median"].is_number(), "{figure}: {policy}");
        }
    }
    let advice = found["advice"].as_str().unwrap();
    assert_eq!(found["policy"].is_null(), advice.starts_with("Leave it alone"), "{advice}");

    // A signal ends the observation, and the output has the advice before the table.
    let mut run = command(receiver, &[&advise[..], &["--duration", "1h"]].concat());
    let child = run.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(Duration::from_secs(3));
    let id = child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    let output_text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(
        output_text.starts_with("Leave it alone") || output_text.starts_with("Use "),
        "{output_text}"
    );
    assert!(
        output_text.contains("rps+balance") && output_text.contains("watched"),
        "{output_text}"
    );
    drop(senders);
}

#[test]
fn advise_on_an_idle_interface_says_so() {
    let test = "advice::advise_on_an_idle_interface_says_so";
    let Some(_alone) = super::ready(test, &[], 2) else { return };
    let namespace = with_tun();
    let advise = ["advise", "tun9", "--duration", "1s", "--cpus", "2"];
    let output = ends(&namespace, 0, &advise);
    assert!(output.starts_with("Leave it alone: no traffic seen"), "{output}");
    let found = json(&namespace, &[&advise[..], &["--json"]].concat());
    assert_eq!((&found["rule"], &found["packets"]), (&"no_traffic".into(), &0.into()));
}

#[test]
fn fallback_lasts_as_long_as_run_does() {
    let test = "advice::fallback_lasts_as_long_as_run_does";
    let Some(_alone) = super::ready(test, &[], 2) else { return };
    let namespace = with_tun();
    let refused = ends(&namespace, 2, &["run", "tun9"]);
    assert!(refused.contains("host recommend tun9"), "{refused}");
    let options = ["run", "tun9", "--fallback", "--policy", "sparse", "--cpus", "0-1"];
    let mut run = command(&namespace, &options);
    let mut child = run.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    until_map_is(&namespace, "3", &mut child);
    let status = json(&namespace, &["status", "tun9", "--json"]);
    assert_eq!(status["mode"], "kernel");
    assert!(status["values"][0]["set"].as_str().unwrap().ends_with('3'), "{status}");
    let id = child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    for words in ["no Ethernet header", "the kernel has no sparse", "restored"] {
        assert!(stderr.contains(words), "{words}: {stderr}");
    }
    assert_eq!(map(&namespace), "", "{stderr}");
}

/// Standard output has the events of a fallback, from the first to the last, and nothing else.
#[test]
fn fallback_has_events() {
    let test = "advice::fallback_has_events";
    let Some(_alone) = super::ready(test, &[], 2) else { return };
    let namespace = with_tun();
    let options =
        ["run", "tun9", "--fallback", "--policy", "sparse", "--cpus", "0-1", "--events", "-"];
    let mut run = command(&namespace, &options);
    let mut child = run.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    until_map_is(&namespace, "3", &mut child);
    namespace.ip("link set tun9 down").unwrap();
    // It ends by itself when no interface is left. It looks once a second, so it may miss that tun9 was down.
    namespace.ip("link del tun9").unwrap();
    let output = child.wait_with_output().unwrap();
    let (stdout, output_text) =
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8_lossy(&output.stderr));
    assert_eq!(
        output.status.code(),
        Some(1),
        "an interface that went away is a finding: {output_text}"
    );
    let events: Vec<Value> = stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|why| panic!("{why}: {line}")))
        .collect();
    let of_kind = |kind: &str| {
        let found = events.iter().find(|event| event["kind"] == kind);
        found.unwrap_or_else(|| panic!("no {kind}: {stdout}; {output_text}"))
    };
    let text = |kind: &str| of_kind(kind)["text"].as_str().unwrap();
    assert!(text("warning").contains("Fallback: the kernel's own steering"), "{stdout}");
    assert!(text("interface_warning").contains("the kernel has no sparse"), "{stdout}");
    assert!(text("interface_steered").contains("the kernel steers tun9"), "{stdout}");
    for kind in ["interface_steered", "interface_gone"] {
        assert_eq!(of_kind(kind)["fields"]["interface"], "tun9", "{stdout}");
    }
    let numbers: Vec<u64> = events.iter().map(|event| event["number"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (1..=events.len() as u64).collect::<Vec<_>>(), "none is missing");
    assert_eq!(text("ended"), "no interface is left to steer");
    assert!(output_text.contains("rps_cpus"), "what is set goes to standard error: {output_text}");
}

#[test]
fn fallback_that_was_killed_is_restored() {
    let test = "advice::fallback_that_was_killed_is_restored";
    let Some(_alone) = super::ready(test, &[], 2) else { return };
    let namespace = with_tun();
    let options = ["run", "tun9", "--fallback", "--policy", "bound:0=1"];
    let mut child = command(&namespace, &options).spawn().unwrap();
    until_map_is(&namespace, "2", &mut child);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(map(&namespace), "2");
    assert!(ends(&namespace, 0, &["status", "tun9"]).contains("rps_cpus"));
    ends(&namespace, 0, &["host", "restore", "--yes"]);
    assert_eq!(map(&namespace), "");
}

#[test]
fn auto_says_each_step_and_leaves_nothing() {
    let test = "advice::auto_says_each_step_and_leaves_nothing";
    let Some(_alone) = super::ready(test, &[], 2) else { return };
    let namespace = with_tun();
    // No packets arrive, so auto has nothing to do.
    let output = ends(&namespace, 0, &["auto", "tun9", "--sample", "1s", "--verify", "3s"]);
    assert!(
        output.contains("Leave tun9 alone") && output.contains("nothing was changed"),
        "{output}"
    );
    assert_eq!(map(&namespace), "");
    let anyway =
        ["auto", "tun9", "--sample", "1s", "--verify", "3s", "--duration", "8s", "--anyway"];
    let output =
        ends(&namespace, 0, &[&anyway[..], &["--policy", "rps", "--cpus", "0-1"]].concat());
    for words in ["step 2: native XDP: no, because", "step 3", "too few to compare", "restored"] {
        assert!(output.contains(words), "{words}: {output}");
    }
    assert_eq!(map(&namespace), "");
}

#[test]
fn auto_tries_native_xdp_and_takes_it_off() {
    let test = "advice::auto_tries_native_xdp_and_takes_it_off";
    let Some(_alone) = super::ready(test, &[], 2) else { return };
    let testbed = Testbed::hosts(LinkOptions::default()).unwrap();
    let link = testbed.link();
    let pairs = [((link.near.ipv4, 10_000).into(), (link.far.ipv4, 20_000).into())];
    let sender = Datagrams::start(testbed.sender(), &pairs, 0).unwrap();
    let auto = ["auto", "in0", "--sample", "1s", "--verify", "3s", "--duration", "6s", "--anyway"];
    let options = ["--policy", "rps", "--cpus", "0-1"];
    let output = output(testbed.receiver(), &[&auto[..], &options].concat());
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    // Which is better depends on the machine: auto steers, or reports why native XDP is not kept and continues.
    let steers = stderr.contains("native XDP steers");
    let goes_on = stderr.contains("step 2: native XDP: no, because") && stderr.contains("step 3");
    assert!(stderr.contains("rxsteer run in0 --policy=rps") && (steers || goes_on), "{stderr}");
    assert!(matches!(output.status.code(), Some(0 | 1)), "{stderr}");
    let shown = testbed.receiver().command("ip").args(["link", "show", "in0"]).output().unwrap();
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(!shown.contains("xdp"), "{shown}");
    drop(sender);
}

#[test]
fn auto_that_was_killed_leaves_no_program() {
    let test = "advice::auto_that_was_killed_leaves_no_program";
    let Some(_alone) = super::ready(test, &[], 2) else { return };
    let testbed = Testbed::hosts(LinkOptions::default()).unwrap();
    let (link, receiver) = (testbed.link(), testbed.receiver());
    let pairs = [((link.near.ipv4, 10_000).into(), (link.far.ipv4, 20_000).into())];
    let sender = Datagrams::start(testbed.sender(), &pairs, 0).unwrap();
    let auto = ["auto", "in0", "--sample", "1s", "--verify", "10s", "--anyway", "--policy", "rps"];
    let mut auto = command(receiver, &[&auto[..], &["--cpus", "0-1"]].concat());
    let mut child = auto.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let until = |attached: bool| {
        let started = Instant::now();
        while super::program_on(receiver, "in0").is_some() != attached {
            assert!(started.elapsed() < Duration::from_secs(30), "attached: {}", !attached);
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    until(true);
    child.kill().unwrap();
    child.wait().unwrap();
    until(false);
    drop(sender);
}
