//! Changes at run time, step by step: where flows go while packets sent before the change are under way, and when
//! the transition is over. The test completes packets explicitly, and checks that each flow's packets are
//! completed in the order they were sent.

mod world;

use rxsteer_core::{DropReason, Policy, Refusal, Slots, Verdict};
use world::{HIGH, LOW, THIRD, World, cpu, cpus};

#[test]
fn new_map_moves_flows_when_their_packets_are_completed() {
    let mut world = World::new(Policy::Rps, "1", 64);
    assert_eq!(world.send(LOW), 1);
    world.change_map("2");
    // The first period: it is unknown which flows still have packets under way.
    assert_eq!((world.send(LOW), world.send(HIGH)), (1, 1));
    assert!(!world.is_drained());
    // The packets sent before the change are completed: from now on the slots record where the flows are.
    world.complete(1, 1);
    assert_eq!(world.send(LOW), 1, "one of its packets is under way");
    assert_eq!(world.send(THIRD), 2, "nothing of it was ever sent");
    world.complete(1, 2);
    assert_eq!(world.send(LOW), 1, "the third period, and its packet of the second is under way");
    assert_eq!(world.send(HIGH), 2);
    world.complete(1, 2);
    assert_eq!(world.send(LOW), 2);
    world.complete_all();
    assert!(world.is_drained());
    assert_eq!(world.send(LOW), 2);
    assert!(world.is_drained(), "and nothing is noted any more");
}

#[test]
fn with_nothing_under_way_a_change_is_over_at_once() {
    let mut world = World::new(Policy::Rps, "1", 64);
    assert_eq!(world.send(LOW), 1);
    world.complete_all();
    world.change_map("2");
    assert_eq!(world.send(LOW), 2);
    assert!(world.is_drained());
}

/// The former rules sent the two flows to different CPUs, so they share no slot of the old rules' table.
#[test]
fn flows_that_share_a_slot_keep_their_order_and_move_in_the_end() {
    let mut world = World::new(Policy::Rps, "1-2", 1);
    assert_eq!((world.send(LOW), world.send(HIGH)), (1, 2));
    world.change_map("3");
    assert_eq!((world.send(LOW), world.send(HIGH)), (1, 2), "by the old map");
    world.complete(1, 1);
    world.complete(2, 1);
    assert_eq!((world.send(LOW), world.send(HIGH)), (1, 2), "the second period");
    world.complete(1, 1);
    world.complete(2, 1);
    assert_eq!((world.send(LOW), world.send(HIGH)), (1, 2), "the third, with those of the second");
    // One CPU is slow: only its own flows are held back.
    world.complete(1, 2);
    assert_eq!((world.send(LOW), world.send(HIGH)), (3, 2));
    assert!(!world.is_drained());
    world.complete_all();
    assert_eq!((world.send(LOW), world.send(HIGH)), (3, 3));
    world.complete_all();
    assert!(world.is_drained());
}

/// The same with completions that lag behind in every way that a small counter expresses. [`World`] checks the
/// order.
#[test]
fn sharing_flows_are_never_reordered_whatever_completes_when() {
    for script in 0..4096u32 {
        let mut world = World::new(Policy::Rps, "1-2", 1);
        world.send(LOW);
        world.send(HIGH);
        world.send(HIGH);
        world.change_map("2-3");
        for step in 0..6 {
            let cpu = 1 + (script >> (2 * step)) as usize % 4;
            if cpu < 4 && !world.queues[cpu].is_empty() {
                world.complete(cpu, 1);
            }
            world.send(if step % 2 == 0 { LOW } else { HIGH });
        }
        world.complete_all();
        assert_eq!((world.send(LOW), world.send(HIGH)), (2, 3), "script {script}");
    }
}

#[test]
fn from_rfs_to_rps_a_flow_follows_its_slot_until_it_is_drained() {
    let mut world = World::new(Policy::Rfs, "1", 64);
    world.record(LOW, 3);
    assert_eq!((world.send(LOW), world.send(LOW)), (3, 3));
    world.change(|config| config.policy = Policy::Rps);
    assert_eq!(world.send(LOW), 3);
    assert_eq!(world.send(HIGH), 1, "nothing of it is under way");
    world.complete(3, 2);
    assert_eq!(world.send(LOW), 3);
    world.complete(3, 1);
    world.complete(1, 1);
    assert!(!world.is_drained());
    assert_eq!(world.send(LOW), 3, "its packet of the second period is under way in the third");
    world.complete(3, 2);
    assert_eq!(world.send(LOW), 1);
    world.complete_all();
    assert!(world.is_drained());
    // The change back: there is no slot, but the former rules say where the flow's packets are.
    assert_eq!(world.send(LOW), 1);
    world.change(|config| config.policy = Policy::Rfs);
    assert_eq!(world.send(LOW), 1);
    world.complete_all();
    assert_eq!(world.send(LOW), 3, "the desired CPU was kept all the time");
}

#[test]
fn flow_under_way_stays_through_tables_of_other_sizes() {
    let mut world = World::new(Policy::Rfs, "1", 4);
    world.record(LOW, 3);
    assert_eq!(world.send(LOW), 3);
    for flow_cnt in [64, 2] {
        assert!(world.resize(flow_cnt));
        world.record(LOW, 2);
        assert_eq!(world.send(LOW), 3, "after a change to {flow_cnt}");
        world.complete(3, 1);
        assert_eq!(world.send(LOW), 3);
        assert!(!world.is_drained());
    }
    world.record(HIGH, 4);
    assert_eq!(world.send(HIGH), 4, "its slot of now is unset");
    world.complete(3, 3);
    assert_eq!(world.send(LOW), 2);
    world.record(LOW, 5);
    assert_eq!(world.send(LOW), 2, "the table of now holds it");
    world.complete_all();
    assert!(world.is_drained());
    assert_eq!(world.send(LOW), 5);
}

#[test]
fn change_before_the_last_one_is_over() {
    let mut world = World::new(Policy::Rps, "1", 64);
    assert_eq!(world.send(LOW), 1);
    world.change_map("2");
    assert_eq!(world.send(LOW), 1);
    world.complete(1, 1);
    assert_eq!(world.send(HIGH), 2);
    world.change_map("3");
    assert_eq!((world.send(LOW), world.send(HIGH)), (1, 2), "each where its packets are");
    assert_eq!(world.send(THIRD), 3);
    world.complete(1, 2);
    assert_eq!((world.send(LOW), world.send(HIGH)), (3, 2));
    world.complete_all();
    assert_eq!((world.send(LOW), world.send(HIGH)), (3, 3));
    world.complete_all();
    assert!(world.is_drained());
}

/// Two changes in the first period: the rules before *both* changes say where the earlier packets are.
#[test]
fn change_in_the_first_period() {
    let mut world = World::new(Policy::Rps, "1", 64);
    assert_eq!((world.send(LOW), world.send(HIGH)), (1, 1));
    world.change_map("2");
    world.change(|config| config.policy = Policy::Bound(vec![(0.into(), cpu(3))]));
    assert_eq!(world.send(LOW), 1);
    world.change_map("4");
    world.change(|config| config.policy = Policy::Rps);
    assert_eq!((world.send(LOW), world.send(THIRD)), (1, 1));
    world.complete(1, 2);
    assert_eq!((world.send(LOW), world.send(HIGH)), (1, 4));
    world.complete_all();
    assert_eq!((world.send(LOW), world.send(THIRD)), (4, 4));
}

/// A change that is reverted while in progress: flows that have moved return in the same way as flows moved
/// before.
#[test]
fn packet_counts_once_in_its_bucket_while_a_bucket_moves() {
    let mut world = World::new("rps+balance:buckets=256".parse().unwrap(), "1,2", 64);
    let counted = |world: &World| -> u32 {
        world.steering.plan().bucket_counts().expect("there are buckets").packets.iter().sum()
    };
    world.send(LOW);
    assert_eq!(counted(&world), 1);
    world.change_map("3");
    assert_eq!(
        (world.send(LOW), world.send(HIGH)),
        (1, 3),
        "CPU 1 has a packet of the former rules"
    );
    assert_eq!(counted(&world), 3);
}

#[test]
fn round_trips() {
    let mut world = World::new(Policy::Rps, "1", 64);
    assert_eq!(world.send(LOW), 1);
    world.change_map("2");
    assert_eq!(world.send(LOW), 1);
    world.complete(1, 1);
    assert_eq!(world.send(HIGH), 2);
    world.change_map("1");
    assert_eq!((world.send(LOW), world.send(HIGH)), (1, 2));
    world.complete_all();
    assert_eq!((world.send(LOW), world.send(HIGH)), (1, 1));
    world.complete_all();
    assert!(world.is_drained());
}

/// After 2³¹ packets a number seems to lie ahead. A slot of an old table that was found completed must not become
/// active again because of that.
#[test]
fn old_slot_that_was_left_does_not_come_back() {
    let mut world = World::new(Policy::Rfs, "1", 4);
    world.record(LOW, 1);
    world.record(HIGH, 2);
    assert_eq!((world.send(LOW), world.send(HIGH)), (1, 2));
    assert!(world.resize(64));
    world.record(LOW, 3);
    world.complete(1, 1);
    assert_eq!(world.send(LOW), 3, "done with the old table");
    assert_eq!(world.send(HIGH), 2, "under way, and keeps the old table");
    world.backlogs.pass(1, 1 << 31);
    assert_eq!(world.send(LOW), 3, "where its packet is under way");
    world.complete_all();
    assert!(world.is_drained());
}

#[test]
fn fifth_resize_waits_for_the_tables_before_it() {
    let mut world = World::new(Policy::Rfs, "1", 4);
    world.record(LOW, 2);
    assert_eq!(world.send(LOW), 2);
    for flow_cnt in [8, 16, 32, 64] {
        assert!(world.resize(flow_cnt));
        assert_eq!(world.send(LOW), 2);
    }
    assert!(!world.resize(128), "four old tables are in use");
    world.change_map("3");
    assert_eq!(world.send(HIGH), 3, "what else was changed holds at once");
    world.complete(3, 1);
    assert_eq!(world.send(LOW), 2);
    world.complete(2, 5);
    assert!(!world.is_drained());
    assert_eq!(world.slots(), Some(64), "one packet is under way still");
    world.complete(2, 1);
    assert_eq!(world.send(LOW), 2);
    assert_eq!(world.slots(), Some(128), "as soon as there is room");
    world.complete_all();
    assert!(world.is_drained());
    assert_eq!(world.slots(), Some(128));
}

/// Another worker takes over the queue of a CPU that is gone and completes the packets that wait there.
#[test]
fn flows_of_an_offline_cpu_go_to_the_receiving_cpu() {
    let mut world = World::new(Policy::Rps, "1-2", 64);
    assert_eq!((world.send(LOW), world.send(HIGH)), (1, 2));
    world.change(|config| config.offline = Some(cpus("1")));
    assert_eq!((world.send(LOW), world.send(HIGH)), (1, 2));
    world.complete(1, 2);
    world.complete(2, 1);
    assert_eq!((world.send(LOW), world.send(HIGH)), (0, 2));
    world.complete_all();
    assert!(world.is_drained());
    world.change(|config| config.offline = None);
    assert_eq!((world.send(LOW), world.send(HIGH)), (1, 2), "back, with nothing under way");
}

#[test]
fn slots_of_an_offline_cpu_are_absent() {
    let mut world = World::new(Policy::Sparse(Slots::of(1)), "1-2", 64);
    // HIGH holds the slot of CPU 2, LOW the slot of CPU 1.
    assert_eq!((world.send(HIGH), world.send(LOW)), (2, 1));
    world.change(|config| config.offline = Some(cpus("2")));
    assert_eq!(world.send(HIGH), 2, "its packet is under way");
    world.complete_all();
    assert_eq!(world.send(HIGH), 0, "no slot; the hash says CPU 2, and CPU 0 receives");
    assert_eq!(world.send(LOW), 1);
    world.complete_all();
    world.change(|config| config.offline = None);
    assert_eq!(world.send(HIGH), 2, "the slot is still its own");
}

/// A desired CPU that is gone is ignored, and the flow leaves it.
#[test]
fn offline_desired_cpu_is_ignored() {
    let mut world = World::new(Policy::Rfs, "1", 64);
    world.record(LOW, 3);
    assert_eq!(world.send(LOW), 3);
    world.change(|config| config.offline = Some(cpus("3")));
    assert_eq!(world.send(LOW), 3);
    world.complete_all();
    assert_eq!(world.send(LOW), 1);
}

#[test]
fn refused_packet_touches_nothing() {
    for refusal in [Refusal::Wait, Refusal::Drop(DropReason::BacklogFull)] {
        let refused = |at| match refusal {
            Refusal::Wait => None,
            Refusal::Drop(reason) => Some(Verdict::drop(cpu(at), reason)),
        };
        // In steady state.
        let mut world = World::with_limit(Policy::Rfs, "1", 64, 1, refusal);
        world.record(LOW, 3);
        assert_eq!(world.send(LOW), 3);
        assert_eq!(world.verdict(LOW), refused(3));
        world.record(LOW, 4);
        assert_eq!(world.verdict(LOW), refused(3), "held, and no room there");
        world.complete(3, 1);
        assert_eq!(world.send(LOW), 4, "its one packet is completed");
        assert_eq!((world.send(HIGH), world.verdict(THIRD)), (1, refused(1)));
        world.record(THIRD, 5);
        assert_eq!(world.send(THIRD), 5, "nothing of it was ever queued");

        // In a transition.
        let mut world = World::with_limit(Policy::Rps, "1", 64, 1, refusal);
        assert_eq!(world.send(LOW), 1);
        world.change_map("2");
        assert_eq!((world.verdict(LOW), world.verdict(HIGH)), (refused(1), refused(1)));
        world.complete(1, 1);
        assert_eq!(world.send(LOW), 2, "its one packet is completed");
        assert_eq!(world.verdict(HIGH), refused(2));
        world.complete(2, 1);
        assert!(world.is_drained());
    }
}

/// Any sequence of operations: policies, maps, table sizes, CPUs that go offline and return, applications that
/// move, completions that lag. [`World`] checks the order of every flow. In the end, with no packet under way, the
/// last transition is over.
#[test]
fn no_list_of_changes_reorders_a_flow() {
    for seed in 0..2000u64 {
        let mut state = seed;
        let mut below = move |bound: u32| {
            // SplitMix64.
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            ((mixed ^ (mixed >> 31)) % u64::from(bound)) as u32
        };
        let refusal = [Refusal::Wait, Refusal::Drop(DropReason::BacklogFull)][below(2) as usize];
        let mut world = World::with_limit(Policy::Rps, "1-2", 4, 4 + below(20), refusal);
        let flow = |number: u32| (number + 1).wrapping_mul(0x9e37_79b1);
        // Changes are rare in some runs, so that transitions end, and frequent in others.
        let rare = 5 + below(60);
        for _ in 0..600 {
            match below(rare + 3) {
                0 => {
                    let mut config = world.steering.plan().config().clone();
                    config.policy = match below(6) {
                        0 => Policy::None,
                        1 => Policy::Rps,
                        2 => Policy::Bound(vec![(0.into(), cpu(below(8) as u16))]),
                        3 => Policy::Sparse(Slots {
                            loops: 1 + below(5) as u8,
                            after: 1 + below(3) as u8,
                        }),
                        4 => Policy::Rfs,
                        _ => Policy::RfsSparse(Slots {
                            loops: 1 + below(5) as u8,
                            after: 1 + below(3) as u8,
                        }),
                    };
                    world.change(|changed| *changed = config);
                }
                1 => {
                    let map = ["1-2", "3", "0-7", "2-5", "1,4,6"][below(5) as usize];
                    let offline = [None, Some("2"), Some("0,3"), Some("1,2,4")][below(4) as usize];
                    world.change(|config| {
                        config.cpus = cpus(map);
                        config.offline = offline.map(cpus);
                    });
                }
                2 => {
                    let flow_cnt = 1 << below(5);
                    world.resize(flow_cnt);
                }
                n if n % 3 == 0 => {
                    let at = below(8) as usize;
                    let count = below(1 + world.queues[at].len() as u32);
                    world.complete(at, count);
                }
                n if n % 17 == 1 => world.record(flow(below(12)), below(8) as u16),
                _ => {
                    let _ = world.verdict(flow(below(12)));
                }
            }
        }
        world.complete_all();
        assert!(world.is_drained(), "seed {seed}");
    }
}
