//! The programs in the kernel decide as `rxsteer-core` does, and keep the same state.
//!
//! Needs root (CAP_BPF, CAP_NET_ADMIN, CAP_PERFMON); prints SKIPPED without it.

use crate::frames::{frame, generation_of, with_dscp};
use libbpf_rs::libbpf_sys::{XDP_DROP, XDP_PASS, XDP_REDIRECT};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use rxsteer_bpf_native::abi::{
    STEER_BY_BOUND, STEER_BY_HASH, STEER_BY_LOCAL, STEER_BY_MATCH, STEER_BY_RFS, STEER_BY_SLOT,
    STEER_HYSTERESIS, STEER_MAX_LOOPS, STEER_SEQ_EACH,
};
use rxsteer_bpf_native::check::{Kind, Scenario, Seen, Subject, World, packets};
use rxsteer_bpf_native::policy::{Act, Decision, LastPacket, LimitHistory, NO_CPU, Packet, Rules};
use rxsteer_core::PacketRule;
use rxsteer_core::slot::upper_bits;
use rxsteer_packet::{DissectOptions, LinkType, SymmetricHash, dissect};
use rxsteer_xdp::testing::{
    self, KernelPolicy, RxContext, TestAction, TestDevice, TestRules, TestSizes,
};
use std::collections::HashMap;

/// Runs of one policy, and packets in each.
const RUNS: u64 = 6;
const PACKETS: u64 = 6_000;

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
        // The entries of a rule follow the general map, so none begins at 0.
        let actions = rules.actions.iter().take_while(|act| act.first != 0);
        let action = |act: &Act| TestAction { first: act.first, len: act.len, policy: act.policy };
        let actions: Vec<TestAction> = actions.map(action).collect();
        // The code point of a frame names its rule.
        let matching = |dscp: usize| format!("dscp {dscp} -> local").parse().expect("a rule");
        let packet_rules: Vec<PacketRule> = (1..=actions.len()).map(matching).collect();
        self.policy.set_actions(&packet_rules, &actions);
        self.rules = Some(rules.clone());
    }

    fn decide(&mut self, packet: &Packet, table: u32) -> Decision {
        let Packet { rx_cpu, queue, device, now, .. } = *packet;
        let context = RxContext { rx_cpu, queue, device: device.into(), now, has_metadata: true };
        let frame = &with_dscp(&self.frames[&packet.hash], packet.rule as u8);
        let before = self.last_packet(table, packet.hash);
        let decided = self.policy.receive(&context, frame);
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

/// The coverage of all runs of a policy, per million packets; otherwise prints why there are none, and returns `None`.
fn run(test: &str, kind: Kind) -> Option<Seen> {
    crate::quiet();
    let mut all = Seen::default();
    for seed in 0..RUNS {
        let mut rng = ChaCha8Rng::seed_from_u64(seed << 8 | kind as u64);
        let cpus = CPUS[seed as usize % CPUS.len()];
        let scenario = Scenario::new(kind, cpus, &mut rng);
        let subject = testing::loaded(&format!("policy::{test}"), InKernel::load(&scenario))?;
        all.add(&World::new(subject, scenario, rng).run(packets(PACKETS)));
    }
    assert!(all.packets >= RUNS * PACKETS);
    Some(all.of_a_million())
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
    assert!(seen.unguarded > 50_000, "{seen:?}");
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

#[test]
fn rules_before_the_policy() {
    let Some(seen) = run("rules_before_the_policy", Kind::Matched) else { return };
    assert!(
        seen.by(STEER_BY_MATCH) > 100_000
            && seen.by(STEER_BY_HASH) > 50_000
            && seen.by(STEER_BY_SLOT) > 1_000
            && seen.by(STEER_BY_RFS) > 1_000
            && seen.deferred > 10_000,
        "{seen:?}"
    );
}

#[test]
fn rules_before_balance() {
    let Some(seen) = run("rules_before_balance", Kind::MatchedBalance) else { return };
    assert!(
        seen.by(STEER_BY_MATCH) > 100_000
            && seen.by(STEER_BY_HASH) > 50_000
            && seen.by(STEER_BY_SLOT) > 1_000
            && seen.by(STEER_BY_RFS) > 1_000
            && seen.bucket_moves > 10_000,
        "{seen:?}"
    );
}
