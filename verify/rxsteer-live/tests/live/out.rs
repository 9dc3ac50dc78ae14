//! `rxsteer live --out`: programs that read from taps, interfaces and pipes get every packet once, each flow in order.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rxsteer_lab::{LinkOptions, Namespace, Pass, Testbed, rxsteer, send_recorded};
use rxsteer_user::Block;
use rxsteer_user::source::capture::{CaptureOptions, CaptureSource};
use rxsteer_user::source::{Fill, Source};
use serde_json::Value;

/// How long anything may take, even in a slow virtual machine.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A program, with its standard error. Dropping this ends the program.
pub(crate) struct Running {
    child: Child,
    stderr: Arc<Mutex<String>>,
}

impl Running {
    /// Starts a command, and collects its standard error.
    pub(crate) fn start(command: &mut Command) -> Running {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (stderr, errors) = (Arc::new(Mutex::new(String::new())), child.stderr.take().unwrap());
        let collected = stderr.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(errors).lines().map_while(Result::ok) {
                *collected.lock().unwrap() += &(line + "\n");
            }
        });
        Running { child, stderr }
    }

    pub(crate) fn stderr(&self) -> String {
        self.stderr.lock().unwrap().clone()
    }

    /// Waits until its standard error contains the words.
    pub(crate) fn wait_for_stderr(&mut self, words: &str) {
        until(&format!("says {words}"), || {
            assert!(self.child.try_wait().unwrap().is_none(), "it ended: {}", self.stderr());
            self.stderr().contains(words)
        });
    }

    pub(crate) fn signal(&self, signal: &str) {
        // `ip netns exec` replaces itself with the program, so this is the program's process id.
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args([signal, &id]).status().unwrap().success());
    }

    /// Its output, and how it ended.
    pub(crate) fn ended(mut self) -> (String, ExitStatus) {
        let mut out = self.child.stdout.take().unwrap();
        let reader = std::thread::spawn(move || {
            let mut text = String::new();
            out.read_to_string(&mut text).map(|_| text)
        });
        let mut status = None;
        until("ends", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        (reader.join().unwrap().unwrap(), status.unwrap())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The program may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until a condition holds.
pub(crate) fn until(what: &str, mut is: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is() {
        assert!(started.elapsed() < TIMEOUT, "it took too long until it {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

pub(crate) fn has(namespace: &Namespace, interface: &str) -> bool {
    namespace.ip("-br link").unwrap().split_whitespace().any(|word| word == interface)
}

/// `rxsteer live` in a namespace.
pub(crate) fn live(namespace: &Namespace, arguments: &[&str]) -> Running {
    let mut command = namespace.command(rxsteer().unwrap());
    command.args(["live", "in0", "--policy", "rps", "--cpus", "0-1", "--json"]);
    // All frames arrive at once, and none must be dropped.
    command.args(["--max-backlog", "20000"]).args(arguments);
    Running::start(&mut command)
}

/// Ends it by SIGINT; returns its report.
pub(crate) fn report_of(live: Running) -> Value {
    live.signal("-INT");
    let (printed, status) = live.ended();
    let report: Value = serde_json::from_str(printed.lines().last().unwrap()).unwrap();
    assert_eq!(status.code(), Some(0), "{report}");
    report
}

const FLOWS: u16 = 50;

/// Numbered UDP frames of all flows in turn; each flow has its own source port.
fn numbered(count: u32) -> Vec<Vec<u8>> {
    (0..count)
        .map(|number| {
            // The addresses belong to no host here, so no host answers.
            let mut frame = vec![2, 0, 0, 0, 9, 1, 2, 0, 0, 0, 9, 2, 8, 0];
            frame.extend([0x45, 0, 0, 60, 0, 0, 0, 0, 64, 17, 0, 0, 10, 9, 0, 1, 10, 9, 0, 2]);
            let port = 1000 + number as u16 % FLOWS;
            frame.extend(port.to_be_bytes().into_iter().chain([0, 9, 0, 40, 0, 0]));
            frame.extend(number.to_be_bytes());
            frame.resize(74, 0);
            frame
        })
        .collect()
}

/// The numbers of the frames in a capture, by flow.
fn numbers(capture: &Path) -> HashMap<u16, Vec<u32>> {
    let mut source = CaptureSource::open(&[capture.to_owned()], CaptureOptions::default()).unwrap();
    let mut flows: HashMap<u16, Vec<u32>> = HashMap::new();
    loop {
        let mut block = Block::new();
        let fill = source.fill(&mut block);
        for frame in block.frames().iter().map(|frame| block.bytes_of(frame)) {
            let port = u16::from_be_bytes([frame[34], frame[35]]);
            let number = u32::from_be_bytes([frame[42], frame[43], frame[44], frame[45]]);
            flows.entry(port).or_default().push(number);
        }
        if fill == Fill::End {
            return flows;
        }
    }
}

/// Asserts that each flow is complete and in order in one of these captures.
fn check(captures: [&Path; 2], frames: u32) {
    let mut seen = 0;
    let mut flows = std::collections::HashSet::new();
    for capture in captures {
        for (port, numbers) in numbers(capture) {
            assert!(flows.insert(port), "flow {port} is in both outputs");
            assert!(numbers.is_sorted(), "flow {port} is out of order");
            seen += numbers.len() as u32;
        }
    }
    assert_eq!((seen, flows.len()), (frames, usize::from(FLOWS)));
}

/// Starts tcpdump on an interface; it writes the test's frames into a capture.
fn tcpdump(namespace: &Namespace, interface: &str, into: &Path) -> Running {
    let mut command = namespace.command("tcpdump");
    command.args(["-i", interface, "-Z", "root", "-U", "-B", "65536", "-w"]).arg(into);
    let mut tcpdump = Running::start(command.arg("net 10.9.0.0/16"));
    tcpdump.wait_for_stderr("listening on");
    tcpdump
}

/// Waits until tcpdump has written this many frames of 74 bytes to both captures.
fn written(captures: [&Path; 2], frames: u32) {
    let bytes = 2 * 24 + u64::from(frames) * (16 + 74);
    let size = |path: &Path| std::fs::metadata(path).map_or(0, |file| file.len());
    until("was read", || captures.iter().map(|path| size(path)).sum::<u64>() >= bytes);
}

#[test]
fn taps_and_interfaces_carry_every_frame_in_order() {
    let test = "out::taps_and_interfaces_carry_every_frame_in_order";
    let Some(_alone) = super::ready(test, &["tcpdump"], 2) else { return };
    let testbed = Testbed::hosts(LinkOptions::default()).unwrap();
    let (receiver, link) = (testbed.receiver(), testbed.link());
    // The receiving end needs an XDP program to receive the recorded frames.
    let _pass = Pass::attach(receiver, &link.far).unwrap();
    for cpu in 0..2 {
        receiver.ip(&format!("link add v{cpu} type veth peer name p{cpu}")).unwrap();
        for end in ["v", "p"] {
            receiver.run(&format!("sysctl -q -w net.ipv6.conf.{end}{cpu}.disable_ipv6=1")).unwrap();
            receiver.ip(&format!("link set {end}{cpu} up")).unwrap();
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let frames = numbered(8000);
    for (out, read) in [("tap:w%d", "w"), ("veth:v%d", "p")] {
        let mut live = live(receiver, &["--out", out]);
        live.wait_for_stderr("receiving from");
        let captures = [0, 1].map(|cpu| folder.path().join(format!("{read}{cpu}.pcap")));
        let captures = [captures[0].as_path(), captures[1].as_path()];
        let readers = [0, 1].map(|cpu| tcpdump(receiver, &format!("{read}{cpu}"), captures[cpu]));
        assert_eq!(send_recorded(testbed.sender(), link, 0, &frames).unwrap(), frames.len());
        written(captures, frames.len() as u32);
        readers.iter().for_each(|tcpdump| tcpdump.signal("-INT"));
        let report = report_of(live);
        check(captures, frames.len() as u32);
        let sum = |field: &str| {
            let outputs = report["out"].as_array().unwrap().iter();
            outputs.map(|output| output[field].as_u64().unwrap()).sum::<u64>()
        };
        assert_eq!(report["delivered"].as_u64(), Some(sum("written")), "{report}");
        assert_eq!((&report["reordered"], &report["kernel_drops"]), (&0.into(), &0.into()));
        assert!(!has(receiver, "w0") && !has(receiver, "w1"), "a tap is left");
    }
}

#[test]
fn no_tap_is_left_of_one_that_was_killed() {
    let Some(_alone) = super::ready("out::no_tap_is_left_of_one_that_was_killed", &[], 1) else {
        return;
    };
    let testbed = Testbed::hosts(LinkOptions::default()).unwrap();
    let receiver = testbed.receiver();
    let mut live = live(receiver, &["--out", "tap:w%d"]);
    live.wait_for_stderr("receiving from");
    assert!(has(receiver, "w0") && has(receiver, "w1"));
    live.signal("-KILL");
    live.ended();
    until("has no tap", || !has(receiver, "w0") && !has(receiver, "w1"));
}

#[test]
fn interface_that_goes_down_is_reported_and_the_other_goes_on() {
    let test = "out::interface_that_goes_down_is_reported_and_the_other_goes_on";
    let Some(_alone) = super::ready(test, &[], 1) else { return };
    let testbed = Testbed::hosts(LinkOptions::default()).unwrap();
    let (receiver, link) = (testbed.receiver(), testbed.link());
    let _pass = Pass::attach(receiver, &link.far).unwrap();
    let mut live = live(receiver, &["--out", "tap:w%d"]);
    live.wait_for_stderr("receiving from");
    receiver.ip("link set w1 down").unwrap();
    let frames = numbered(2000);
    send_recorded(testbed.sender(), link, 0, &frames).unwrap();
    until("has written", || {
        let text = receiver.ip("-s -j link show dev w0").unwrap();
        let shown: Value = serde_json::from_str(&text).unwrap();
        shown[0]["stats64"]["rx"]["packets"].as_u64().unwrap() > 0
    });
    live.signal("-INT");
    let (printed, status) = live.ended();
    let report: Value = serde_json::from_str(printed.lines().last().unwrap()).unwrap();
    assert_eq!(status.code(), Some(1), "{report}");
    let [up, down] = [&report["out"][0], &report["out"][1]];
    assert!(up["written"].as_u64() > Some(0) && up["error"].is_null(), "{report}");
    assert!(down["dropped"]["failed"].as_u64() > Some(0), "{report}");
    assert_eq!(down["error"], "w1: is down, so packets were not sent; bring it up");
}
