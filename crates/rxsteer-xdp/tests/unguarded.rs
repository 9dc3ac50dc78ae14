//! Policies that remember nothing leave slots alone, and frames without a sequence number keep to their ring.
//!
//! Needs root (CAP_BPF, CAP_NET_ADMIN, CAP_PERFMON); prints SKIPPED without it.

use crate::frames::{frame, generation_of};
use libbpf_rs::libbpf_sys::{XDP_PASS, XDP_REDIRECT};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rxsteer_bpf_native::abi::{
    STEER_BOUND, STEER_BY_BOUND, STEER_BY_HASH, STEER_BY_LOCAL, STEER_CPU_GENERATION,
    STEER_CPU_LINGER, STEER_GENERATIONS, STEER_LINE_WORDS, STEER_MAX_CPUS, STEER_NONE, STEER_RPS,
    STEER_SEQ_EACH,
};
use rxsteer_bpf_native::policy::NO_CPU;
use rxsteer_core::slot::upper_bits;
use rxsteer_packet::{DissectOptions, LinkType, SymmetricHash, dissect};
use rxsteer_xdp::testing::{self, KernelPolicy, RxContext, TestDevice, TestRules, TestSizes};
use std::collections::HashMap;

/// The programs with tables of that size; otherwise prints why they are missing, and returns `None`.
fn loaded(test: &str, hash: &SymmetricHash, flow_log: u32) -> Option<KernelPolicy> {
    crate::quiet();
    let sizes = TestSizes {
        cpus: 4,
        rx_cpus: 4,
        tables: 2,
        flow_log,
        sock_entries: STEER_LINE_WORDS,
        sock_cpu_mask: 7,
        chains_log: STEER_LINE_WORDS.ilog2(),
        limit_lines: 1,
    };
    let devices = [TestDevice { queues: 2, first_table: 0 }];
    let policy = KernelPolicy::load(sizes, hash.words(), &devices);
    testing::loaded(&format!("unguarded::{test}"), policy)
}

/// Under a policy without state, frames go to its targets, and no slot is touched, except by frames that need metadata,
/// or that share a slot with flows of another CPU. Of the other frames every eighth carries its number.
fn unguarded(test: &str, rules: &TestRules<'_>, flow_log: u32) {
    let hash = SymmetricHash::new([7; 16]);
    let Some(mut policy) = loaded(test, &hash, flow_log) else { return };
    policy.configure(rules);
    let mut rng = ChaCha8Rng::seed_from_u64(flow_log.into());
    let mut sent = HashMap::<(u32, u32), u32>::new();
    let (mut carried, mut tagged, mut boundary_slots) = (0, 0, 0);
    for now in 0..20_000 {
        let frame = frame(&mut rng);
        let (rx_cpu, queue) = (rng.random_range(0..4), rng.random_range(0..2));
        let key = dissect(LinkType::Ethernet, &frame, DissectOptions::default()).key;
        let flow = hash.hash(&key).get();
        let slot = upper_bits(flow, flow_log);
        let guard = (queue << flow_log) + slot;
        let before = policy.last_packet(guard);
        let decided = policy
            .receive(&RxContext { rx_cpu, queue, device: 0, now, has_metadata: true }, &frame);
        // Flow tables are by queue.
        let [begin, len, _, bound] = match rules.rows.get(queue as usize) {
            Some(row) => row.map(u64::from),
            None => [0, u64::from(rules.map_len), 0, NO_CPU.into()],
        };
        let map_index_of = |hash: u64| (hash * len) >> 32;
        let map_index = map_index_of(flow.into());
        let (cpu, by) = match (rules.policy, bound) {
            (STEER_RPS, _) => (u32::from(rules.map[(begin + map_index) as usize]), STEER_BY_HASH),
            (STEER_BOUND, cpu) if cpu != NO_CPU.into() => (cpu as u32, STEER_BY_BOUND),
            _ => (rx_cpu, STEER_BY_LOCAL),
        };
        assert_eq!((decided.hash, decided.target, decided.by), (flow, cpu, by));
        let [first, after] = [slot, slot + 1].map(|slot| u64::from(slot) << (32 - flow_log));
        if by == STEER_BY_HASH && map_index_of(first) != map_index_of(after - 1) {
            // The flows of its slot have two targets, so the frame is guarded, and nothing is delivered here.
            assert!(decided.seq != 0 && decided.verdict == XDP_REDIRECT, "{decided:?}");
            assert!(decided.is_changed || decided.seq % STEER_SEQ_EACH != 0, "{decided:?}");
            *sent
                .entry((rx_cpu, decided.cpu * STEER_GENERATIONS + decided.generation))
                .or_default() += 1;
            boundary_slots += 1;
            continue;
        }

        assert_eq!(decided.cpu, cpu, "{decided:?}");
        let passes_frames = by == STEER_BY_LOCAL;
        assert_eq!((decided.passes, decided.verdict == XDP_PASS), (passes_frames, passes_frames));
        let generation = generation_of(rules.cpu, cpu);
        let is_tagged = frame[12..14] == [0x81, 0];
        if passes_frames {
            assert_eq!((decided.seq, decided.is_changed), (0, false), "{decided:?}");
            continue;
        }
        let number = sent.entry((rx_cpu, cpu * STEER_GENERATIONS + generation)).or_default();
        *number += 1;
        assert_eq!((decided.seq, decided.generation), (*number, generation), "{decided:?}");
        if is_tagged {
            tagged += 1;
            continue;
        }
        // A frame whose address has no entry of its own takes metadata, and therefore its slot.
        if policy.last_packet(guard) == before {
            assert_eq!(decided.is_changed, number.is_multiple_of(STEER_SEQ_EACH), "{decided:?}");
            carried += u32::from(decided.is_changed);
        } else {
            assert!(number.is_multiple_of(STEER_SEQ_EACH) && decided.is_changed, "{decided:?}");
        }
    }
    for pair in (0..4).flat_map(|rx_cpu| (0..4 * STEER_GENERATIONS).map(move |ring| (rx_cpu, ring)))
    {
        assert_eq!(policy.tail(pair), sent.get(&pair).copied().unwrap_or(0), "{pair:?}");
    }
    let is_none = rules.policy == STEER_NONE;
    assert_eq!(is_none, sent.is_empty());
    assert_eq!((is_none, is_none), (carried == 0, tagged == 0));
    assert_eq!(boundary_slots != 0, rules.boundary_slots, "{boundary_slots}");
}

#[test]
fn policies_that_remember_nothing_leave_slots_alone() {
    let mut cpu = [STEER_CPU_LINGER as u8; STEER_MAX_CPUS as usize];
    // The second ring of CPU 2 is in use.
    cpu[2] |= STEER_CPU_GENERATION as u8;
    // RX queue 1 is bound, and may have its own map after the general one.
    let bound = |map_len, [first, len]: [u16; 2]| {
        [[0, map_len, 0, NO_CPU], [first, len, u16::from(first != 0), 2]]
    };
    for policy in [STEER_NONE, STEER_RPS, STEER_BOUND] {
        // With few slots no statistics are kept.
        for (flow_log, map, map_len, own) in [
            (1, &[2, 3][..], 2, [0, 2]),
            (8, &[2, 3], 2, [0, 2]),
            (8, &[1, 2, 3], 3, [0, 3]),
            (8, &[2, 3, 0, 1], 2, [2, 2]),
            (8, &[2, 3, 0, 1, 3], 2, [2, 3]),
        ] {
            let rows = bound(map_len, own);
            // Without rows, if the rows have no effect.
            let rows = if policy != STEER_BOUND && own[0] == 0 { &[][..] } else { &rows };
            let rules = TestRules {
                policy,
                loops: 0,
                after: 0,
                ring_size: 64,
                flow_limit: 0,
                inactive_after: 250,
                local_by_ring: false,
                unguarded: true,
                no_hysteresis: true,
                boundary_slots: policy == STEER_RPS && (map_len == 3 || own[1] == 3),
                else_local: false,
                map_len: map_len.into(),
                buckets: 0,
                first_bucket: 0,
                map,
                rows,
                cpu: &cpu,
            };
            unguarded("policies_that_remember_nothing_leave_slots_alone", &rules, flow_log);
        }
    }
}

/// If a driver does not support metadata, a frame that cannot carry its number goes through the ring without it: if it
/// passed, it would overtake the frames in the ring. A frame that would be taken for one with a number always passes.
#[test]
fn frames_without_sequence_number_keep_to_their_ring() {
    let test = "frames_without_sequence_number_keep_to_their_ring";
    let hash = SymmetricHash::new([7; 16]);
    for unguarded in [true, false] {
        let Some(mut policy) = loaded(test, &hash, 8) else { return };
        policy.configure(&TestRules {
            policy: STEER_RPS,
            loops: 0,
            after: 0,
            ring_size: 64,
            flow_limit: 0,
            inactive_after: 250,
            local_by_ring: false,
            unguarded,
            no_hysteresis: true,
            boundary_slots: false,
            else_local: false,
            map_len: 2,
            buckets: 0,
            first_bucket: 0,
            map: &[2, 3],
            rows: &[],
            cpu: &[STEER_CPU_LINGER as u8; STEER_MAX_CPUS as usize],
        });
        let mut rng = ChaCha8Rng::seed_from_u64(8);
        let (mut without_seq, mut carried, mut passed) = (0, 0, 0);
        // More addresses than the table has entries.
        for now in 0..40_000 {
            let frame = frame(&mut rng);
            let context = RxContext { rx_cpu: 1, queue: 0, device: 0, now, has_metadata: false };
            let decided = policy.receive(&context, &frame);
            if frame[12..14] == [0x81, 0] {
                assert_eq!((decided.verdict, decided.is_changed), (XDP_PASS, false), "{decided:?}");
                passed += 1;
                continue;
            }
            assert_eq!(decided.verdict, XDP_REDIRECT, "{decided:?}");
            without_seq +=
                u32::from(!decided.is_changed && decided.seq.is_multiple_of(STEER_SEQ_EACH));
            carried += u32::from(decided.is_changed);
        }
        assert!(
            without_seq > 100 && carried > 100 && passed > 100,
            "{without_seq} {carried} {passed}"
        );
        let sent: u32 = (0..4 * STEER_GENERATIONS).map(|ring| policy.tail((1, ring))).sum();
        assert_eq!(sent + passed, 40_000, "each has its number");
    }
}
