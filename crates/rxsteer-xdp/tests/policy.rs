//! The programs in the kernel decide what `rxsteer-core` decides, and remember what it remembers.
//!
//! Needs root (CAP_BPF, CAP_NET_ADMIN, CAP_PERFMON); says SKIPPED without.
#![cfg(feature = "bpf")]

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rxsteer_bpf_native::check::{Kind, Scenario, Seen, Subject, World};
use rxsteer_bpf_native::policy::{Decision, Packet, Rules};
use rxsteer_packet::{DissectOptions, LinkType, SymmetricHash, dissect};
use rxsteer_xdp::testing::{Asked, KernelPolicy, TestDevice, TestRules, TestSizes, is_forbidden};
use std::collections::HashMap;
use std::io::Write;

/// Runs of one policy, and packets in each.
const RUNS: u64 = 10;
const PACKETS: u64 = 100_000;

const CPUS: [&[u16]; 2] = [&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9], &[0, 3, 17, 64, 130, 201]];

/// The kernel's programs, with the frames that have the hashes the test speaks of.
struct InKernel {
    policy: KernelPolicy,
    hash: SymmetricHash,
    frames: HashMap<u32, Vec<u8>>,
    flow_log: u32,
    rules: Option<Rules>,
    cpus: u32,
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
            sources: sizes.sources,
            tables: sizes.tables,
            flow_log: sizes.flow_log,
            sock_entries: sizes.sock_entries,
            wish_mask: sizes.wish_mask,
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
        })
    }

    /// When the walk comes to a slot, if it does.
    fn rank(&self, cpu: u32, loop_: u32) -> Option<u32> {
        let rules = self.rules.as_ref()?;
        let map = &rules.map[..rules.map_len as usize];
        let walk: Vec<u16> = map.iter().copied().filter(|cpu| *cpu != 0xffff).collect();
        let position = walk.iter().position(|at| u32::from(*at) == cpu)?;
        (loop_ < rules.loops)
            .then(|| loop_ * walk.len() as u32 + (walk.len() - 1 - position) as u32)
    }
}

/// The kernel's `hash_32`.
fn hash_32(value: u32, log: u32) -> u32 {
    ((u64::from(value.wrapping_mul(0x61c8_8647)) << log) >> 32) as u32
}

/// A TCP or UDP frame over IPv4 or IPv6, with or without a VLAN tag.
fn frame(dice: &mut ChaCha8Rng) -> Vec<u8> {
    let (v6, udp, tagged) = (dice.random(), dice.random(), dice.random_ratio(1, 5));
    let mut frame: Vec<u8> = dice.random::<[u8; 12]>().to_vec();
    if tagged {
        frame.extend([0x81, 0, 0, 7]);
    }
    let protocol = if udp { 17 } else { 6 };
    if v6 {
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 20, protocol, 64]);
        frame.extend(dice.random::<[u8; 32]>());
    } else {
        frame.extend([8, 0, 0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, protocol, 0, 0]);
        frame.extend(dice.random::<[u8; 8]>());
    }
    frame.extend(dice.random::<[u8; 20]>());
    frame
}

impl Subject for InKernel {
    fn new_flow(&mut self, dice: &mut ChaCha8Rng) -> u32 {
        let frame = frame(dice);
        let key = dissect(LinkType::Ethernet, &frame, DissectOptions::default()).key;
        let hash = self.hash.hash(&key).get();
        self.frames.insert(hash, frame);
        hash
    }

    fn configure(&mut self, rules: &Rules) {
        self.policy.configure(&TestRules {
            policy: rules.policy,
            loops: rules.loops,
            ring_size: rules.ring_size,
            flow_limit: rules.flow_limit,
            inactive_after: rules.inactive_after,
            local_by_ring: rules.local_by_ring != 0,
            map: &rules.map[..rules.map_len as usize],
            bound: &rules.bound,
            cpu: &rules.cpu,
        });
        self.rules = Some(rules.clone());
    }

    fn decide(&mut self, packet: &Packet, _table: u32) -> Decision {
        let Packet { src, queue, device, now, .. } = *packet;
        let asked = Asked { src, queue, device, now };
        let decided = self.policy.receive(&asked, &self.frames[&packet.hash]);
        assert_eq!(decided.hash, packet.hash, "{decided:?} {packet:?}");
        let (pass, dropped) = (decided.verdict == 2, decided.verdict == 1);
        assert_eq!(pass, decided.straight, "only what goes straight on is passed: {decided:?}");
        assert!(pass || dropped || decided.verdict == 4, "{decided:?}");
        Decision {
            want: decided.want,
            by: decided.by,
            cpu: decided.cpu,
            bank: decided.bank,
            straight: decided.straight.into(),
            dropped: dropped.into(),
            seq: decided.seq,
        }
    }

    fn record_wish(&mut self, hash: u32, cpu: u32) {
        self.policy.record_wish(hash, cpu);
    }

    fn forget_wish(&mut self, hash: u32) {
        self.policy.forget_wish(hash);
    }

    fn set_pair(&mut self, pair: (u32, u32), numbers: [u32; 3]) {
        self.policy.set_pair(pair, numbers);
    }

    fn tail(&self, pair: (u32, u32)) -> u32 {
        self.policy.tail(pair)
    }

    fn guard(&self, table: u32, hash: u32) -> [u32; 2] {
        self.policy.guard((table << self.flow_log) + hash_32(hash, self.flow_log))
    }

    fn sock_entry(&self, index: u32) -> u32 {
        self.policy.sock_entry(index)
    }

    fn slot_held(&self, device: u32, hash: u32, now: u64) -> Option<(u32, u32)> {
        let rules = self.rules.as_ref()?;
        let ours = (u64::from(device) + 1) << 32 | u64::from(hash);
        let all = (0..self.cpus).flat_map(|cpu| (0..5).map(move |loop_| (cpu, loop_)));
        let held = all.filter(|&(cpu, loop_)| {
            let (flow, seen) = self.policy.sparse_slot(cpu, loop_);
            let age = seen.checked_sub(1).and_then(|seen| now.checked_sub(seen));
            flow == ours && age.is_some_and(|age| age <= rules.inactive_after)
        });
        let ranked = held.filter_map(|(cpu, loop_)| Some((self.rank(cpu, loop_)?, cpu, loop_)));
        ranked.min().map(|(_, cpu, loop_)| (cpu, loop_))
    }

    fn chains_are_sound(&mut self) -> bool {
        self.policy.nobody_gives()
    }

    fn limit_history(&self, src: u32) -> [u32; 128] {
        self.policy.limit_history(src)
    }

    fn limit_count(&self, src: u32, bucket: u32) -> u32 {
        self.policy.limit_count(src, bucket)
    }
}

/// What all runs of a policy saw, or `None` after saying why there are none.
fn run(test: &str, kind: Kind) -> Option<Seen> {
    libbpf_rs::set_print(None);
    let mut all = Seen::default();
    for seed in 0..RUNS {
        let mut dice = ChaCha8Rng::seed_from_u64(seed << 8 | kind as u64);
        let cpus = CPUS[seed as usize % CPUS.len()];
        let scenario = Scenario::new(kind, cpus, &mut dice);
        match InKernel::load(&scenario) {
            Ok(subject) => all.add(&World::new(subject, scenario, dice).run(PACKETS)),
            Err(error) if is_forbidden(&error) => {
                // Not eprintln!: the test runner swallows that.
                let _ = writeln!(
                    std::io::stderr(),
                    "SKIPPED policy::{test}: not allowed to load BPF programs ({error}); run as root"
                );
                return None;
            }
            Err(error) => panic!("the kernel refuses the programs: {error:#}"),
        }
    }
    assert!(all.packets >= RUNS * PACKETS);
    Some(all)
}

#[test]
fn none() {
    let Some(seen) = run("none", Kind::None) else { return };
    assert!(seen.by[0] > 900_000, "{seen:?}");
}

#[test]
fn rps() {
    let Some(seen) = run("rps", Kind::Rps) else { return };
    assert!(seen.by[2] > 900_000 && seen.held > 10_000 && seen.moved > 1_000, "{seen:?}");
}

#[test]
fn bound() {
    let Some(seen) = run("bound", Kind::Bound) else { return };
    assert!(seen.by[0] > 10_000 && seen.by[1] > 10_000, "{seen:?}");
}

#[test]
fn sparse() {
    let Some(seen) = run("sparse", Kind::Sparse) else { return };
    assert!(seen.by[2] > 10_000 && seen.by[3] > 1_000 && seen.moved > 1_000, "{seen:?}");
}

#[test]
fn rfs() {
    let Some(seen) = run("rfs", Kind::Rfs) else { return };
    assert!(seen.by[2] > 10_000 && seen.by[4] > 10_000 && seen.moved > 1_000, "{seen:?}");
}

#[test]
fn rfs_and_sparse() {
    let Some(seen) = run("rfs_and_sparse", Kind::RfsSparse) else { return };
    assert!(seen.by[2] > 10_000 && seen.by[3] > 1_000 && seen.by[4] > 10_000, "{seen:?}");
}
