//! The measured cases: `decide` over lists of 32 packets. Each policy is compared with plain `rps`, with few and
//! with many active flows, and with tables sized to match.
//!
//! The backlogs are counters: every packet gets room, and each CPU is some packets behind.

use rxsteer_bench::Case;
use rxsteer_core::matching::{Facts, Matcher, PacketRule};
use rxsteer_core::policy::Front;
use rxsteer_core::{
    Arrival, Backlogs, Balance, CpuId, CpuSet, FlowHash, Policy, Refusal, Slots, SteerConfig,
    Steering, Verdict,
};
use std::net::Ipv4Addr;

/// CPUs that packets are steered to.
const CPUS: u16 = 8;
/// Packets that each CPU has yet to complete.
const BEHIND: u32 = 100;
/// Packets that one call decides on.
const PACKETS: usize = 1 << 20;
const LIST: usize = 32;
/// Packets that are looked up in rules.
const FACTS: usize = 1 << 16;
/// Sparse slots with admission.
const ADMITS: Slots = Slots { loops: 4, after: 8 };

/// All cases of this crate.
pub fn all() -> Vec<Case> {
    let mut cases = Vec::new();
    for (group, flows) in [
        ("decide, lists of 32, 10 000 flows", 10_000),
        ("decide, lists of 32, 1 000 000 flows", 1_000_000),
    ] {
        for (name, policy, baseline) in [
            ("rps", Policy::Rps, true),
            ("rps+balance", Policy::Balance(Front::default(), Balance::default()), false),
            ("sparse", Policy::Sparse(Slots::of(4)), false),
            ("sparse:after=8", Policy::Sparse(ADMITS), false),
            ("rfs", Policy::Rfs, false),
            ("rfs+sparse", Policy::RfsSparse(Slots::of(4)), false),
        ] {
            let run = decide(policy, flows, false, move |n| hash(flow(n, flows)));
            cases.push(Case { group, name, baseline, per_iter: PACKETS as u64, run });
        }
    }
    for (name, policy) in [
        ("rps, flow limit", Policy::Rps),
        ("rfs+sparse, flow limit", Policy::RfsSparse(Slots::of(4))),
    ] {
        let group = "decide, lists of 32, 10 000 flows";
        let run = decide(policy, 10_000, true, |n| hash(flow(n, 10_000)));
        cases.push(Case { group, name, baseline: false, per_iter: PACKETS as u64, run });
    }
    for (name, rules) in [("1 rule", 1), ("64 rules", 64), ("256 rules", 256)] {
        let (group, baseline) = ("rules before the policy: which one matches", rules == 1);
        cases.push(Case { group, name, baseline, per_iter: FACTS as u64, run: find(rules) });
    }
    // The hash of packet `n`: a packet of an established flow, or packets of an attack.
    type Packets = fn(usize) -> FlowHash;
    let established = |n: usize| hash(flow(n, 100));
    let floods: [(&str, bool, Packets); 3] = [
        ("100 established flows alone", true, established),
        ("99 spoofed flows' packets to each of theirs", false, |n| match n % 100 {
            0 => hash(flow(n, 100)),
            _ => hash(n as u32 + 100),
        }),
        ("99 packets of one hash to each of theirs", false, |n| match n % 100 {
            0 => hash(flow(n, 100)),
            _ => hash(100),
        }),
    ];
    for (name, baseline, packets) in floods {
        let run = decide(Policy::RfsSparse(Slots::of(4)), 100, false, packets);
        let group = "decide under a flood, rfs+sparse";
        cases.push(Case { group, name, baseline, per_iter: PACKETS as u64, run });
    }
    cases
}

/// Counters of one producer's queues.
struct Counters {
    tails: [u32; CPUS as usize],
}

impl Backlogs for Counters {
    #[inline(always)]
    fn reserve(&mut self, cpu: CpuId) -> Result<u32, Refusal> {
        let tail = &mut self.tails[cpu.index() % usize::from(CPUS)];
        let position = *tail;
        *tail = position.wrapping_add(1);
        Ok(position)
    }

    #[inline(always)]
    fn has_completed(&mut self, _producer: u16, cpu: CpuId, position: u32) -> bool {
        let completed = self.tail(cpu).wrapping_sub(BEHIND);
        completed.wrapping_sub(position.wrapping_add(1)) as i32 >= 0
    }

    #[inline(always)]
    fn tail(&self, cpu: CpuId) -> u32 {
        self.tails[cpu.index() % usize::from(CPUS)]
    }

    #[inline(always)]
    fn waiting(&mut self, _cpu: CpuId) -> (u32, u32) {
        (BEHIND, 2 * BEHIND)
    }
}

/// The flow of packet `n`: one of `flows` flows, in pseudo-random order.
fn flow(n: usize, flows: usize) -> u32 {
    let mixed = (n as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (((mixed >> 32) * flows as u64) >> 32) as u32
}

/// The hash of `flow`: it looks random and is not 0.
fn hash(flow: u32) -> FlowHash {
    let mixed = (flow ^ flow >> 16).wrapping_mul(0x7feb_352d);
    FlowHash::computed((mixed ^ mixed >> 15).wrapping_mul(0x846c_a68b))
}

/// Decides on packets whose hashes `packets` gives by packet number. The applications of the first `flows` flows
/// have recorded their CPUs.
fn decide(
    policy: Policy,
    flows: usize,
    flow_limit: bool,
    packets: impl Fn(usize) -> FlowHash + 'static,
) -> Box<dyn FnMut() -> u64> {
    let cpus = CpuSet::first(CPUS).expect("some CPUs");
    let receiving = vec![cpus.lowest()];
    let size = (flows as u32).next_power_of_two().max(32768);
    let config = SteerConfig {
        sock_flow_entries: size,
        flow_cnt: Some(size),
        flow_limit: flow_limit.then_some(4096),
        ..SteerConfig::new(policy, cpus, receiving)
    };
    let mut steering: Option<Steering> = None;
    let mut arrivals = Vec::new();
    let mut backlogs = Counters { tails: [0; CPUS as usize] };
    let mut verdicts = [Verdict::default(); LIST];
    Box::new(move || {
        // The first call creates the state, so that cases that have not started hold no memory.
        let steering = steering.get_or_insert_with(|| {
            let made = Steering::new(&config).expect("the configuration is right");
            for flow in 0..flows as u32 {
                let cpu = CpuId::new((flow % u32::from(CPUS)) as u16).expect("a CPU");
                made.plan().sock_flows().record(hash(flow), cpu);
            }
            arrivals = (0..PACKETS)
                .map(|n| Arrival {
                    time_ns: n as u64 * 100,
                    hash: packets(n),
                    ..Arrival::default()
                })
                .collect();
            made
        });
        let mut sum = 0;
        for list in arrivals.chunks(LIST) {
            let decided = steering.decide(list, &mut backlogs, &mut verdicts);
            sum += decided as u64 + u64::from(verdicts[0].cpu().get());
        }
        sum
    })
}

/// Looks up packets in rules that each name an address, a protocol and a port, and that none of the packets matches.
fn find(rules: u16) -> Box<dyn FnMut() -> u64> {
    let mut made: Option<(Matcher, Vec<Facts>)> = None;
    Box::new(move || {
        let (matcher, packets) = made.get_or_insert_with(|| {
            let rule = |index: u16| {
                let (net, port) = (index % 64, 1000 + index);
                let text = format!("src 172.16.{net}.0/24 tcp dst-port {port} -> 1");
                text.parse().expect("it is a rule")
            };
            let rules: Vec<PacketRule> = (0..rules).map(rule).collect();
            let packet = |n: usize| Facts {
                source: Ipv4Addr::from_bits(0x0a00_0000 + flow(n, 10_000)).into(),
                destination: Ipv4Addr::from_bits(0x0a80_0000 + flow(n, 100)).into(),
                protocol: 6,
                ports: Some([flow(n, 60_000) as u16, 443]),
                vlan: None,
                dscp: 0,
                tunnel: None,
                interface: None,
            };
            (Matcher::new(&rules, 1), (0..FACTS).map(packet).collect())
        });
        packets.iter().filter_map(|packet| matcher.find(packet)).map(u64::from).sum()
    })
}
