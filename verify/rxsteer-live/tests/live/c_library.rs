//! The C library between live interfaces: its example `filter.c`, by AF_XDP and by packet sockets. One flow is dropped, and
//! the others leave in order.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rxsteer_lab::{LinkOptions, LiveFrames, OrderCheck, Traffic, slice};

use super::bridge::{pass, row};
use super::out::Running;

/// The number of flows; the filter drops the frames of one of them.
const FLOWS: u32 = 20;
/// The place of that flow.
const UNWANTED: u16 = 3;

/// Compiles an example of the C library, and links it to the library that was built for these tests.
fn compile(example: &str, folder: &Path) -> PathBuf {
    // The library lies beside the tests of the same build.
    let tests = std::env::current_exe().unwrap();
    let library = tests.parent().unwrap();
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates/rxsteer-c");
    let program = folder.join(example);
    let mut compiler = Command::new("gcc");
    compiler.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-O2", "-pthread"]);
    compiler.arg(sources.join("examples").join(example).with_extension("c"));
    compiler.arg("-I").arg(sources.join("include")).arg("-L").arg(library).arg("-lrxsteer_c");
    // The library has another name where it is installed, and the example refers to that one.
    std::os::unix::fs::symlink(library.join("librxsteer_c.so"), folder.join("librxsteer.so.0"))
        .unwrap();
    compiler.arg("-Wl,-rpath").arg("-Wl,".to_owned() + &folder.to_string_lossy());
    let output = compiler.arg("-o").arg(&program).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    program
}

/// The numbers of the example's report: packets, sent on, dropped by the filter, for lack of room, by the kernel, and out of
/// order.
fn numbers(report: &str) -> Vec<u64> {
    report.split(|c: char| !c.is_ascii_digit()).filter_map(|word| word.parse().ok()).collect()
}

#[test]
fn filter_sends_on_in_order_by_af_xdp() {
    filter("filter_sends_on_in_order_by_af_xdp", "xdp");
}

#[test]
fn filter_sends_on_in_order_by_packet_sockets() {
    filter("filter_sends_on_in_order_by_packet_sockets", "packet");
}

fn filter(test: &str, io: &str) {
    let Some(_alone) = super::ready(&format!("c_library::{test}"), &["gcc"], 2) else { return };
    let folder = tempfile::tempdir().unwrap();
    let program = compile("filter", folder.path());
    let frames = slice(20_000, 1_000_000);
    let testbed = row(LinkOptions::default());
    let hosts = &testbed.namespaces;
    let _pass = (io == "packet").then(|| pass(&testbed));
    let mut filter = hosts[1].command(&program);
    let traffic = Traffic { flows: FLOWS, train: 2, random: true, ..Traffic::default() };
    let unwanted = (traffic.source_port + UNWANTED).to_string();
    let mut filter = Running::start(filter.args([&format!("{io}:in0,out1"), &unwanted, "0-1"]));
    filter.wait_for_stderr("filtering");
    let check = OrderCheck::new(&hosts[2], &testbed.links[1].far, FLOWS).unwrap();
    let source = LiveFrames::new(&testbed.links[0], &traffic).unwrap();
    source.send(&hosts[0], 0, frames).unwrap();
    std::thread::sleep(Duration::from_millis(100));
    let seen = check.drained().unwrap();
    filter.signal("-INT");
    let (report, status) = filter.ended();
    assert!(status.success(), "{status}: {report}");
    let [packets, sent, refused, dropped, kernel, reordered] = numbers(&report)[..] else {
        panic!("{report}");
    };
    let what = || format!("{io}: {seen:?} {report}");
    assert_eq!((seen.late, reordered), (0, 0), "{}", what());
    assert_eq!((seen.frames, packets), (sent, sent + refused + dropped), "{}", what());
    assert_eq!(packets + kernel, frames, "{}", what());
    // One flow of 20; more of the others may be lost on the way.
    let share = u64::from(FLOWS);
    assert!(refused > frames / share / 20 && refused < frames / share * 2, "{}", what());
    assert!(sent > frames / 20, "{}", what());
}
