//! The programs in the kernel decide as `rxsteer-core` does, and keep the same state.
//!
//! Needs root (CAP_BPF, CAP_NET_ADMIN, CAP_PERFMON); prints SKIPPED without it.

use libbpf_rs::libbpf_sys::{XDP_DROP, XDP_PASS, XDP_REDIRECT};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rxsteer_bpf_native::abi::{
    STEER_BOUND, STEER_BY_BOUND, STEER_BY_HASH, STEER_BY_LOCAL, STEER_BY_RFS, STEER_BY_SLOT,
    STEER_CPU_GENERATION, STEER_CPU_LINGER, STEER_GENERATIONS, STEER_HYSTERESIS, STEER_LINE_WORDS,
    STEER_MAX_CPUS, STEER_MAX_LOOPS, STEER_NONE, STEER_RPS, STEER_SEQ_EACH,
};
use rxsteer_bpf_native::check::{Kind, Scenario, Seen, Subject, World};
use rxsteer_bpf_native::policy::{Decision, LastPacket, LimitHistory, NO_CPU, Packet, Rules};
use rxsteer_core::slot::upper_bits;
use rxsteer_packet::{DissectOptions, LinkType, SymmetricHash, dissect};
use rxsteer_xdp::testing::{self, Asked, KernelPolicy, TestDevice, TestRules, TestSizes};
use std::collections::HashMap;

/// Runs of one policy, and packets in each.
const RUNS: u64 = 10;
const PACKETS: u64 = 100_000;

const CPUS: [&[u16]; 2] = [&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9], &[0, 3, 17, 64, 130, 201]];

/// The programs in the kernel, with frames that have the hashes of the test.
struct InKernel {
    policy: KernelPolicy,
    hash: SymmetricHash,
    frames: HashMap<u32, Vec<u8>>,
    flow_log: u32,
    rules: Option<Rules>,
    cpus: u32,
    tables: u32,
}

impl InKernel {
    fn load(scenario: &Scenario) -> Result<InKernel, libbpf_rs::Error> {
        let sizes = scenario.sizes();
        let hash = SymmetricHash::new([42; 16]);
        let devices: Vec<TestDevice> = scenario
            .devices()
            .iter()
            .map(|&(queues, first_table)| TestDevice { queues, first_table })
            .collect();
        let test_sizes = TestSizes {
            cpus: sizes.cpus,
            rx_cpus: sizes.rx_cpus,
            tables: sizes.tables,
            flow_log: sizes.flow_log,
            sock_entries: sizes.sock_entries,
            sock_cpu_mask: sizes.sock_cpu_mask,
            chains_log: sizes.chains_log,
            limit_lines: sizes.limit_lines,
        };
        Ok(InKernel {
            policy: KernelPolicy::load(test_sizes, hash.words(), &devices)?,
            hash,
            frames: HashMap::new(),
            flow_log: sizes.flow_log,
            rules: None,
            cpus: sizes.cpus,
            tables: sizes.tables,
        })
    }

    /// The rank at which the walk reaches a slot, if it does, for flows of the queue with that flow table.
    fn rank(&self, table: u32, cpu: u32, loop_: u32) -> Option<u32> {
        let rules = self.rules.as_ref()?;
        let map = match (rules.by_queue, rules.rows[table as usize]) {
            (0, _) => &rules.map[..rules.map_len as usize],
            (_, row) => &rules.map[usize::from(row.first)..][..usize::from(row.len)],
        };
        let walk: Vec<u16> = map.iter().copied().filter(|cpu| *cpu != NO_CPU).collect();
        let position = walk.iter().position(|at| u32::from(*at) == cpu)?;
        (loop_ < rules.loops)
            .then(|| loop_ * walk.len() as u32 + (walk.len() - 1 - position) as u32)
    }
}

/// The generation that a CPU's frames go to.
fn generation_of(cpus: &[u8], cpu: u32) -> u32 {
    u32::from(u32::from(cpus[cpu as usize]) & STEER_CPU_GENERATION != 0)
}

/// A TCP or UDP frame over IPv4 or IPv6, with or without a VLAN tag.
fn frame(rng: &mut ChaCha8Rng) -> Vec<u8> {
    let (v6, udp, tagged) = (rng.random(), rng.random(), rng.random_ratio(1, 5));
    let mut frame: Vec<u8> = rng.random::<[u8; 12]>().to_vec();
    if tagged {
        frame.extend([0x81, 0, 0, 7]);
    }
    let protocol = if udp { 17 } else { 6 };
    if v6 {
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 20, protocol, 64]);
        frame.extend(rng.random::<[u8; 32]>());
    } else {
        frame.extend([8, 0, 0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, protocol, 0, 0]);
        frame.extend(rng.random::<[u8; 8]>());
    }
    frame.extend(rng.random::<[u8; 20]>());
    frame
}

impl Subject for InKernel {
    fn new_flow(&mut self, rng: &mut ChaCha8Rng) -> u32 {
        let frame = frame(rng);
        let key = dissect(LinkType::Ethernet, &frame, DissectOptions::default()).key;
        let hash = self.hash.hash(&key).get();
        self.frames.insert(hash, frame);
        hash
    }

    fn configure(&mut self, rules: &Rules) {
        let rows = rules.rows.map(|row| [row.first, row.len, row.number, row.bound]);
        let tables = if rules.by_queue == 0 { 0 } else { self.tables as usize };
        self.policy.configure(&TestRules {
            policy: rules.policy,
            loops: rules.loops,
            after: rules.after,
            ring_size: rules.ring_size,
            flow_limit: rules.flow_limit,
            inactive_after: rules.inactive_after,
            local_by_ring: rules.local_by_ring != 0,
            unguarded: rules.unguarded != 0,
            no_hysteresis: rules.no_hysteresis != 0,
            boundary_slots: rules.boundary_slots != 0,
            else_local: rules.else_local != 0,
            map_len: rules.map_len,
            buckets: rules.buckets as u16,
            first_bucket: rules.first_bucket as u16,
            map: &rules.map,
            rows: &rows[..tables],
            cpu: &rules.cpu,
        });
        self.rules = Some(rules.clone());
    }

    fn decide(&mut self, packet: &Packet, table: u32) -> Decision {
        let Packet { rx_cpu, queue, device, now, .. } = *packet;
        let asked = Asked { rx_cpu, queue, device: device.into(), now, has_metadata: true };
        let frame = &self.frames[&packet.hash];
        let before = self.last_packet(table, packet.hash);
        let decided = self.policy.receive(&asked, frame);
        let after = self.last_packet(table, packet.hash);
        if decided.verdict == XDP_REDIRECT {
            // All frames carry their number, except those that go where their flow's last frame went: every eighth of
            // these does.
            let rules = self.rules.as_ref().expect("it was configured");
            let generation = generation_of(&rules.cpu, decided.target);
            let by_ring = decided.by != STEER_BY_LOCAL || rules.local_by_ring != 0;
            let is_target =
                (decided.cpu, decided.generation) == (decided.target, generation) && by_ring;
            let is_unguarded = rules.unguarded != 0;
            let is_known = after.is_some_and(|last| last.hysteresis == STEER_HYSTERESIS);
            let is_as_before = before.map(|last| LastPacket { seq: decided.seq, ..last }) == after;
            let goes_on = is_target
                && rules.flow_limit == 0
                && if is_unguarded { before == after } else { is_known && is_as_before };
            let may_lack_seq = goes_on && frame[12..14] != [0x81, 0];
            let carries = !may_lack_seq || decided.seq.is_multiple_of(STEER_SEQ_EACH);
            assert_eq!(decided.is_changed, carries, "{decided:?} {before:?} {after:?}");
        }
        assert_eq!(decided.hash, packet.hash, "{decided:?} {packet:?}");
        let (pass, dropped) = (decided.verdict == XDP_PASS, decided.verdict == XDP_DROP);
        assert_eq!(pass, decided.passes, "only what is decided to pass is passed: {decided:?}");
        assert!(pass || dropped || decided.verdict == XDP_REDIRECT, "{decided:?}");
        Decision {
            target: decided.target,
            by: decided.by,
            cpu: decided.cpu,
            generation: decided.generation,
            passes: decided.passes.into(),
            dropped: dropped.into(),
            seq: decided.seq,
            ..Decision::default()
        }
    }

    fn record_desired(&mut self, hash: u32, cpu: u32) {
        self.policy.record_desired(hash, cpu);
    }

    fn forget_desired(&mut self, hash: u32) {
        self.policy.forget_desired(hash);
    }

    fn set_pair(&mut self, pair: (u32, u32), numbers: [u32; 3]) {
        self.policy.set_pair(pair, numbers);
    }

    fn tail(&self, pair: (u32, u32)) -> u32 {
        self.policy.tail(pair)
    }

    fn last_packet(&self, table: u32, hash: u32) -> Option<LastPacket> {
        let index = (table << self.flow_log) + upper_bits(hash, self.flow_log);
        let testing::LastPacket { seq, cpu, generation, rx_cpu, hysteresis } =
            self.policy.last_packet(index)?;
        Some(LastPacket { seq, cpu, generation, rx_cpu, hysteresis })
    }

    fn sock_entry(&self, index: u32) -> u32 {
        self.policy.sock_entry(index)
    }

    fn slot_held(&self, table: u32, device: u32, hash: u32, now: u64) -> Option<(u32, u32)> {
        let rules = self.rules.as_ref()?;
        let ours = (u64::from(device) + 1) << 32 | u64::from(hash);
        let all =
            (0..self.cpus).flat_map(|cpu| (0..STEER_MAX_LOOPS).map(move |loop_| (cpu, loop_)));
        let held_by_flow = all.filter(|&(cpu, loop_)| {
            let (flow, seen) = self.policy.sparse_slot(cpu, loop_);
            let age = seen.checked_sub(1).and_then(|seen| now.checked_sub(seen));
            flow == ours && age.is_some_and(|age| age <= rules.inactive_after)
        });
        let ranked = held_by_flow
            .filter_map(|(cpu, loop_)| Some((self.rank(table, cpu, loop_)?, cpu, loop_)));
        ranked.min().map(|(_, cpu, loop_)| (cpu, loop_))
    }

    fn bucket(&self, rx_cpu: u32, bucket: u32) -> [u32; 3] {
        self.policy.bucket(rx_cpu, bucket)
    }

    fn chains_are_sound(&mut self) -> bool {
        self.policy.no_thread_gives()
    }

    fn limit_history(&self, rx_cpu: u32) -> LimitHistory {
        self.policy.limit_history(rx_cpu)
    }

    fn limit_count(&self, rx_cpu: u32, bucket: u32) -> u32 {
        self.policy.limit_count(rx_cpu, bucket)
    }
}

/// What all runs of a policy saw; otherwise prints why there are none, and returns `None`.
fn run(test: &str, kind: Kind) -> Option<Seen> {
    libbpf_rs::set_print(None);
    let mut all = Seen::default();
    for seed in 0..RUNS {
        let mut rng = ChaCha8Rng::seed_from_u64(seed << 8 | kind as u64);
        let cpus = CPUS[seed as usize % CPUS.len()];
        let scenario = Scenario::new(kind, cpus, &mut rng);
        let subject = testing::loaded(&format!("policy::{test}"), InKernel::load(&scenario))?;
        all.add(&World::new(subject, scenario, rng).run(PACKETS));
    }
    assert!(all.packets >= RUNS * PACKETS);
    Some(all)
}

#[test]
fn none() {
    let Some(seen) = run("none", Kind::None) else { return };
    assert!(seen.by(STEER_BY_LOCAL) > 900_000, "{seen:?}");
}

#[test]
fn rps() {
    let Some(seen) = run("rps", Kind::Rps) else { return };
    assert!(
        seen.by(STEER_BY_HASH) > 900_000 && seen.deferred > 10_000 && seen.moved > 1_000,
        "{seen:?}"
    );
}

#[test]
fn rps_as_run() {
    let Some(seen) = run("rps_as_run", Kind::RpsAsRun) else { return };
    assert!(
        seen.by(STEER_BY_HASH) > 900_000 && seen.deferred == 0 && seen.moved > 1_000,
        "{seen:?}"
    );
    assert!(seen.unguarded > 100_000, "{seen:?}");
}

#[test]
fn bound() {
    let Some(seen) = run("bound", Kind::Bound) else { return };
    assert!(seen.by(STEER_BY_LOCAL) > 10_000 && seen.by(STEER_BY_BOUND) > 10_000, "{seen:?}");
}

#[test]
fn sparse() {
    let Some(seen) = run("sparse", Kind::Sparse) else { return };
    assert!(
        seen.by(STEER_BY_HASH) > 10_000 && seen.by(STEER_BY_SLOT) > 1_000 && seen.moved > 1_000,
        "{seen:?}"
    );
}

#[test]
fn rfs() {
    let Some(seen) = run("rfs", Kind::Rfs) else { return };
    assert!(
        seen.by(STEER_BY_HASH) > 10_000 && seen.by(STEER_BY_RFS) > 10_000 && seen.moved > 1_000,
        "{seen:?}"
    );
}

#[test]
fn rfs_and_sparse() {
    let Some(seen) = run("rfs_and_sparse", Kind::RfsSparse) else { return };
    assert!(
        seen.by(STEER_BY_HASH) > 10_000
            && seen.by(STEER_BY_SLOT) > 1_000
            && seen.by(STEER_BY_RFS) > 10_000,
        "{seen:?}"
    );
}

#[test]
fn balance() {
    let Some(seen) = run("balance", Kind::Balance) else { return };
    // Buckets move once everything is delivered, as the core keeps no flow table here.
    assert!(seen.by(STEER_BY_HASH) > 900_000 && seen.moved > 10_000, "{seen:?}");
    assert!(seen.bucket_moves > 10_000, "{seen:?}");
}

#[test]
fn rfs_and_sparse_and_balance() {
    let Some(seen) = run("rfs_and_sparse_and_balance", Kind::RfsSparseBalance) else { return };
    assert!(
        seen.by(STEER_BY_HASH) > 10_000
            && seen.by(STEER_BY_SLOT) > 1_000
            && seen.by(STEER_BY_RFS) > 10_000,
        "{seen:?}"
    );
}

/// The programs with tables of that size; otherwise prints why they are missing, and returns `None`.
fn loaded(test: &str, hash: &SymmetricHash, flow_log: u32) -> Option<KernelPolicy> {
    libbpf_rs::set_print(None);
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
    testing::loaded(&format!("policy::{test}"), policy)
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
        let decided =
            policy.receive(&Asked { rx_cpu, queue, device: 0, now, has_metadata: true }, &frame);
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
    // RX queue 1 is bound, and may have its own map behind the general one.
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
            let asked = Asked { rx_cpu: 1, queue: 0, device: 0, now, has_metadata: false };
            let decided = policy.receive(&asked, &frame);
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
