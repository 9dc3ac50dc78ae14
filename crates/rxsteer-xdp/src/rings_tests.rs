//! Rings in the kernel, with made-up numbers of frames. Needs root; prints SKIPPED without it.

use super::drained::STILL;
use super::lost::CHECK_INTERVAL;
use super::*;
use crate::abi::Mode;
use crate::grace::{Grace, Graces};
use crate::load::{Loaded, load, load_on};
use crate::setup::Setup;
use crate::testing;
use std::mem::offset_of;
use std::os::fd::AsFd;

pub(crate) fn setup() -> Setup {
    Setup {
        mode: Mode::Native,
        possible: "0-1".parse().unwrap(),
        flow_cnt: 4,
        tables: 1,
        interfaces: 1,
        sock_flow_entries: 16,
        rfs_namespace: None,
        secret: [0; 16],
        inner: false,
        key_tunnels: Default::default(),
        flow_stats: false,
        hz: None,
        drop_on_arrival: false,
        flow_records: false,
        as_with_short_ticks: false,
    }
}

fn loaded(test: &str) -> Option<Loaded> {
    testing::loaded(&format!("rings::{test}"), load(&setup()))
}

fn ensure(loaded: &Loaded, cpus: &str, size: u32) -> Made {
    let progs = &loaded.skel.progs;
    let programs = [progs.steer_cpumap.as_fd(), progs.steer_cpumap_1.as_fd()];
    loaded.rings.lock().ensure(&cpus.parse().unwrap(), size, programs).unwrap()
}

/// CPU 0 sends `count` more frames to `ring`.
fn send(rings: &mut Rings, ring: u32, count: u32) {
    let mut line = rings.tails.get(ring / LINE_WORDS);
    line.word[(ring % LINE_WORDS) as usize] += count;
    rings.tails.set(ring / LINE_WORDS, line);
}

/// The ring, if it is drained.
fn drained(rings: &Rings, ring: u32) -> Vec<Sent> {
    rings.drained_since(vec![rings.sent_by_now(ring)])
}

fn graces() -> Graces {
    let grace = Grace::new().expect("who may load programs may make maps");
    Graces::new(grace).expect("a thread can be made")
}

/// What a tick and the next one find.
fn have_drained_past(rings: &Rings, snapshots: &[Snapshot]) -> bool {
    let (mut search, graces) = (DrainSearch::default(), graces());
    (0..2).any(|_| {
        graces.until_all_are_over();
        rings.have_drained_past(snapshots, &mut search, &graces).unwrap()
    })
}

#[test]
fn change_that_waits_puts_no_ring_out_of_use() {
    let test = "change_that_waits_puts_no_ring_out_of_use";
    let Some(loaded) = loaded(test) else { return };
    if !std::path::Path::new("/sys/devices/system/cpu/cpu1").exists() {
        return testing::skipped(&format!("rings::{test}"), "it takes 2 CPUs");
    }
    assert_eq!(ensure(&loaded, "0-1", 64), Made::Done);
    assert_eq!(ensure(&loaded, "0-1", 128), Made::Done);
    assert_eq!(loaded.rings.lock().retired(), [0, 2], "the first rings");
    // The ring of CPU 0 has drained, that of CPU 1 has not.
    loaded.rings.lock().delete(0).unwrap();
    assert_eq!(ensure(&loaded, "0-1", 256), Made::Later);
    assert_eq!(loaded.rings.lock().retired(), [2], "frames still go to the second ring of CPU 0");
    loaded.rings.lock().delete(2).unwrap();
    assert_eq!(ensure(&loaded, "0-1", 256), Made::Done);
    assert_eq!(loaded.rings.lock().retired(), [1, 3]);
}

#[test]
fn what_is_sent_after_a_ring_was_found_drained_is_not_called_delivered() {
    let Some(loaded) =
        loaded("what_is_sent_after_a_ring_was_found_drained_is_not_called_delivered")
    else {
        return;
    };
    let rings = &mut *loaded.rings.lock();
    send(rings, 1, 5);
    // The ring does not exist, so nothing can be under way in it.
    let drained = drained(rings, 1);
    assert_eq!(drained.len(), 1);
    send(rings, 1, 2);
    rings.mark_delivered(&drained[0]);
    assert_eq!(rings.pairs.get(2).delivered, 5, "of CPU 0 to its second ring");
}

#[test]
fn frames_that_no_thread_has_seen_are_under_way() {
    let Some(loaded) = loaded("frames_that_no_thread_has_seen_are_under_way") else { return };
    assert_eq!(ensure(&loaded, "0", 64), Made::Done);
    let rings = &mut *loaded.rings.lock();
    assert_eq!(drained(rings, 0).len(), 1, "nothing was sent");
    send(rings, 0, 3);
    assert_eq!(drained(rings, 0).len(), 0, "its thread has yet to run");
    assert_eq!(lost_and_waiting_of(rings), (0, 3));
    // The frames seem lost, since none of them arrives.
    (0..=STILL).for_each(|_| rings.note_sent());
    assert_eq!(drained(rings, 0).len(), 1);
    assert_eq!(rings.lost_and_waiting(0), (0, 3), "not yet read");
    rings.find_lost(rings.short());
    assert_eq!(rings.lost_and_waiting(0), (3, 0));
    send(rings, 0, 2);
    rings.find_lost(rings.short());
    assert_eq!(lost_and_waiting_of(rings), (3, 2), "what was lost stays lost");
    seen(rings, 0, 2, 5);
    assert_eq!(lost_and_waiting_of(rings), (3, 0));
    // The pid of another process, as in another PID namespace, says nothing about the thread.
    let ring = steer_ring { pid: 1, ..rings.ring_states.get(0) };
    rings.ring_states.set(0, ring);
    send(rings, 0, 1);
    rings.note_sent();
    assert_eq!(drained(rings, 0).len(), 0);
}

#[test]
fn kernel_without_socket_tracepoints_will_do_without_rfs() {
    let test = "rings::kernel_without_socket_tracepoints_will_do_without_rfs";
    let Some(loaded) = testing::loaded(test, load_on(&setup(), |_| false)) else { return };
    assert!(loaded.skel.progs.steer_switch.attach_trace().is_ok());
    assert!(!loaded.skel.progs.steer_receives.autoload(), "it was left out");
}

/// The ring's thread has seen this many frames, and sequence number `number` of CPU 0.
fn seen(rings: &mut Rings, ring: u32, frames: u64, number: u32) {
    let state = steer_ring { passed: frames, ..rings.ring_states.get(ring) };
    rings.ring_states.set(ring, state);
    let index = ring * rings.cpus();
    rings.pairs.set_number(index, offset_of!(steer_pair, dequeued), number);
}

#[test]
fn what_is_lost_is_found_in_three_ways() {
    let test = "what_is_lost_is_found_in_three_ways";
    let Some(loaded) = loaded(test) else { return };
    assert_eq!(ensure(&loaded, "0", 64), Made::Done);
    let rings = &mut *loaded.rings.lock();
    // The ring, one batch of its thread, and for each CPU a bulk queue and the frame that finds it full.
    let room = 64 + 8 + 9 * rings.cpus();
    send(rings, 0, room);
    assert_eq!(lost_and_waiting_of(rings), (0, room.into()), "there is room for them");
    // Losses found by the size of the room.
    send(rings, 0, 5);
    assert_eq!(lost_and_waiting_of(rings), (5, room.into()));
    // Losses found by gaps in the numbers, once the earlier counts are certainly visible.
    seen(rings, 0, 20, 32);
    rings.check_losses();
    assert_eq!(rings.lost_and_waiting(0).0, 5, "too early");
    assert_eq!(lost_and_waiting_of(rings), (12, u64::from(room) + 5 - 12 - 20));
    // Some frames without a number arrived after the last frame with one.
    seen(rings, 0, 26, 32);
    assert_eq!(lost_and_waiting_of(rings), (12, u64::from(room) + 5 - 12 - 26));
    // Losses found at the end, when nothing moves any more.
    (0..=STILL).for_each(|_| rings.note_sent());
    rings.find_lost(rings.short());
    let lost = u64::from(room) + 5 - 26;
    assert_eq!(lost_and_waiting_of(rings), (lost, 0));
    send(rings, 0, 1);
    seen(rings, 0, 27, room + 6);
    assert_eq!(lost_and_waiting_of(rings), (lost, 0), "the gap was known");
}

/// The lost and the waiting frames of CPU 0's ring, after two checks.
fn lost_and_waiting_of(rings: &Rings) -> (u64, u64) {
    for _ in 0..2 {
        std::thread::sleep(CHECK_INTERVAL);
        rings.check_losses();
    }
    rings.lost_and_waiting(0)
}

#[test]
fn numbers_that_wrap_around_lose_nothing() {
    let test = "numbers_that_wrap_around_lose_nothing";
    let Some(loaded) = loaded(test) else { return };
    assert_eq!(ensure(&loaded, "0", 64), Made::Done);
    let rings = &mut *loaded.rings.lock();
    let sends = |rings: &mut Rings, sent: u64| {
        let mut line = rings.tails.get(0);
        line.word[0] = sent as u32;
        rings.tails.set(0, line);
    };
    // In steps between two checks; a quarter of each step is lost.
    let (mut sent, mut passed) = (0_u64, 0_u64);
    for _ in 0..5 {
        sent += 1 << 30;
        passed += 3 << 28;
        sends(rings, sent);
        seen(rings, 0, passed, sent as u32);
        std::thread::sleep(CHECK_INTERVAL);
        rings.note_sent();
    }
    assert_eq!(lost_and_waiting_of(rings), (sent - passed, 0));
    // If the thread does not run, all frames are refused except those for which there is room.
    let room = u64::from(64 + 8 + 9 * rings.cpus());
    for _ in 0..5 {
        sent += 1 << 30;
        sends(rings, sent);
        std::thread::sleep(CHECK_INTERVAL);
        rings.note_sent();
    }
    assert_eq!(lost_and_waiting_of(rings), (sent - passed - room, room));
}

#[test]
fn what_came_without_a_number_is_delivered_once_its_ring_is_at_rest() {
    let test = "what_came_without_a_number_is_delivered_once_its_ring_is_at_rest";
    let Some(loaded) = loaded(test) else { return };
    assert_eq!(ensure(&loaded, "0", 64), Made::Done);
    let map = loaded.skel.maps.steer_ring_0.info().unwrap().info.id;
    let thread = thread_of(&format!("cpumap/0/map:{map}"));
    let rings = &mut *loaded.rings.lock();
    let delivered = |rings: &Rings| {
        let (mut search, graces) = (DrainSearch::default(), graces());
        for _ in 0..2 {
            rings.mark_idle_delivered(&mut search, &graces).unwrap();
            graces.until_all_are_over();
        }
        rings.pairs.get(0).delivered
    };
    send(rings, 0, 11);
    seen(rings, 0, 11, 8);
    (0..=STILL).for_each(|_| rings.note_sent());
    assert_eq!(delivered(rings), 0, "its thread is not known");
    let ring = steer_ring { pid: thread, ..rings.ring_states.get(0) };
    rings.ring_states.set(0, ring);
    // A frame carried number 8, and one of the last three is missing.
    seen(rings, 0, 10, 8);
    (0..=STILL).for_each(|_| rings.note_sent());
    assert_eq!(delivered(rings), 0, "a frame is missing");
    seen(rings, 0, 11, 8);
    rings.note_sent();
    assert_eq!(delivered(rings), 0, "its thread was at work a moment ago");
    // The thread may run for a moment without a frame, since its CPU belongs to others, too. Then a later tick finds it at rest.
    let is_delivered = |_| {
        rings.note_sent();
        delivered(rings) == 11
    };
    assert!((0..1000).any(is_delivered), "{}", rings.pairs.get(0).delivered);
}

/// The pid of the thread with that name. Returns when it is the only one, since the thread of a ring that was deleted goes
/// later than the ring, and when it sleeps: beside other work a new thread may not have run yet.
fn thread_of(name: &str) -> u32 {
    let is_it = |entry: &std::fs::DirEntry| {
        let comm = std::fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
        comm.trim_end() == name
    };
    let sleeps = |entry: &std::fs::DirEntry| {
        let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        let state = stat.rsplit_once(") ").and_then(|(_, after)| after.chars().next());
        matches!(state, Some('S' | 'I'))
    };
    loop {
        let all: Vec<_> = std::fs::read_dir("/proc").unwrap().flatten().filter(is_it).collect();
        assert!(!all.is_empty(), "the ring has a thread");
        if let [one] = &all[..]
            && sleeps(one)
        {
            return one.file_name().to_str().unwrap().parse().unwrap();
        }
        std::thread::yield_now();
    }
}

#[test]
fn ring_has_drained_past_a_snapshot_when_a_later_number_is_delivered() {
    let test = "ring_has_drained_past_a_snapshot_when_a_later_number_is_delivered";
    let Some(loaded) = loaded(test) else { return };
    assert_eq!(ensure(&loaded, "0", 64), Made::Done);
    let rings = &mut *loaded.rings.lock();
    send(rings, 0, 10);
    let snapshots = rings.snapshot_since(rings.sent_to_all());
    let delivered = |rings: &Rings, number| {
        rings.pairs.set_number(0, offset_of!(steer_pair, delivered), number);
    };
    delivered(rings, 10);
    assert!(!have_drained_past(rings, &snapshots), "other CPUs' frames may be behind it");
    assert!(rings.are_delivered(&snapshots));
    send(rings, 0, 1);
    assert!(!have_drained_past(rings, &snapshots));
    delivered(rings, 11);
    assert!(have_drained_past(rings, &snapshots));
    // The mark covers what had been sent before, and never lowers a number.
    rings.mark_snapshots_delivered(&snapshots);
    assert_eq!(rings.pairs.get(0).delivered, 11);
    let snapshots = rings.snapshot_since(rings.sent_to_all());
    delivered(rings, 9);
    assert!(!rings.are_delivered(&snapshots));
    rings.mark_snapshots_delivered(&snapshots);
    assert!(rings.are_delivered(&snapshots) && rings.pairs.get(0).delivered == 11);
    // Without a later frame: the ring has drained when nothing is under way.
    assert!(!have_drained_past(rings, &snapshots), "its thread has yet to run");
    (0..=STILL).for_each(|_| rings.note_sent());
    assert!(have_drained_past(rings, &snapshots));
}

#[test]
fn frames_sent_while_a_snapshot_was_taken_do_not_count_as_delivered() {
    let test = "frames_sent_while_a_snapshot_was_taken_do_not_count_as_delivered";
    let Some(loaded) = loaded(test) else { return };
    assert_eq!(ensure(&loaded, "0", 64), Made::Done);
    let rings = &mut *loaded.rings.lock();
    send(rings, 0, 5);
    // Two more frames may still be in CPU 0's bulk queue when a later frame of CPU 1 is delivered.
    let sent = rings.sent_to_all();
    rings.tails.set_number(0, 0, 7);
    let snapshots = rings.snapshot_since(sent);
    rings.pairs.set_number(1, offset_of!(steer_pair, delivered), 1);
    assert!(have_drained_past(rings, &snapshots));
    rings.mark_snapshots_delivered(&snapshots);
    assert_eq!(rings.pairs.get(0).delivered, 5);
}

#[test]
fn search_finds_what_is_drained_a_grace_period_later() {
    let Some(loaded) = loaded("search_finds_what_is_drained_a_grace_period_later") else { return };
    let (rings, graces) = (&mut *loaded.rings.lock(), graces());
    let search = &mut DrainSearch::default();
    // These rings do not exist, so nothing can be under way in them.
    send(rings, 0, 5);
    search.begin(rings, vec![0, 1], &graces);
    search.begin(rings, vec![2], &graces);
    send(rings, 1, 1);
    graces.until_all_are_over();
    let found = search.end(rings, &graces).unwrap();
    assert_eq!(
        found,
        [rings.sent_by_now(0)],
        "1 was sent to, and 2 came while a search was under way"
    );
    assert!(search.end(rings, &graces).unwrap().is_empty(), "the search is over");
    search.begin(rings, Vec::new(), &graces);
    search.begin(rings, vec![1], &graces);
    graces.until_all_are_over();
    assert_eq!(search.end(rings, &graces).unwrap(), [rings.sent_by_now(1)]);
}

#[test]
fn marking_as_delivered_takes_nothing_back_that_a_thread_publishes_meanwhile() {
    let test = "marking_as_delivered_takes_nothing_back_that_a_thread_publishes_meanwhile";
    let Some(loaded) = loaded(test) else { return };
    const STEPS: u32 = 200_000;
    let rings = loaded.rings.lock();
    let pairs = &rings.pairs;
    let offset = offset_of!(steer_pair, delivered);
    let fell = std::thread::scope(|scope| {
        for first in 1..3 {
            scope.spawn(move || {
                (first..STEPS).step_by(2).for_each(|number| pairs.raise_number(0, offset, number));
            });
        }
        let mut before = 0;
        let mut fell = 0;
        while before < STEPS - 1 {
            let now = pairs.get_number(0, offset);
            fell += u32::from(now < before);
            before = before.max(now);
        }
        fell
    });
    assert_eq!(fell, 0, "it was taken back so many times");
}
