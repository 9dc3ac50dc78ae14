//! The start of a run: CPUs, NICs, flows, threads.

use super::backlogs::BacklogSet;
use super::buckets::Buckets;
use super::calendar::{Calendar, Other};
use super::cpu::CpuState;
use super::nic::{Link, RxQueue};
use super::packet::{Flow, Role};
use super::rule_hits::RuleHits;
use super::sources::Source;
use super::stream::StreamState;
use super::summarize::TrafficCount;
use super::threads::Thread;
use super::{Client, World};
use crate::result::PacketAccount;
use crate::scenario::{EventKind, Load, Scenario, Share, Traffic, turned};
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rxsteer_core::{ConfigError, CpuId, FlowHash, Plan, Steering};
use std::sync::Arc;

/// The flow has not been counted on any CPU.
const NO_WINDOW: u32 = u32::MAX;

/// The packets' clock at the beginning of a run, with room for steps back and forward.
const CLOCK_BEGINS_NS: i64 = i64::MAX / 2;

impl<'a> World<'a> {
    pub(super) fn new(scenario: &'a Scenario, seed: u64) -> Result<World<'a>, ConfigError> {
        let settings = scenario.steering.clone();
        let producers = scenario.rx_queues();
        let config = scenario.steer_config(&settings, None);
        let plan = Arc::new(Plan::new(&config, producers as u16)?);
        for event in &scenario.events {
            if let EventKind::Steering(later) = &event.what {
                scenario.steer_config(later, None).check()?;
            }
        }
        let cpus = scenario.cpus.len();
        let cores = scenario.cpus.iter().map(|cpu| usize::from(cpu.core) + 1).max().unwrap_or(0);
        let queues = scenario.nics.iter().map(|nic| nic.irq_cpus.len()).sum();
        // Packet numbers wrap, so they begin shortly before their wrap.
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let first = u32::MAX - rng.random_range(0..10_000);
        let mut homes: Vec<u16> = scenario.scheduler.cpus.iter().map(CpuId::get).collect();
        homes.shuffle(&mut rng);
        let mut world = World {
            scenario,
            rebalancer: None,
            buckets: Buckets::default(),
            now: 0,
            from_ns: scenario.warm_up_ns,
            rng,
            calendar: Calendar::new(cpus, queues),
            flows: Vec::new(),
            facts: scenario.has_rules().then(Vec::new),
            rule_hits: RuleHits::default(),
            cpus: (0..cpus).map(|cpu| CpuState::new(cpu, scenario)).collect(),
            working: vec![0; cores],
            queues: Vec::new(),
            links: scenario.nics.iter().map(|nic| Link::new(nic, scenario.wire_ns)).collect(),
            backlogs: BacklogSet::new(cpus, producers, settings.max_backlog, first),
            server: (0..cpus as u16).collect(),
            steerings: (0..producers as u16)
                .map(|q| Steering::of_plan(plan.clone(), [q]))
                .collect(),
            plan,
            follows_applications: settings.mechanisms().rfs,
            steering: settings,
            sources: Vec::new(),
            streams: Vec::new(),
            reader_of: Vec::new(),
            clients: Vec::new(),
            threads: Vec::new(),
            clock_offset: CLOCK_BEGINS_NS,
            polls: 0,
            arrivals: Vec::new(),
            verdicts: Vec::new(),
            homes,
            account: PacketAccount::default(),
            results: Vec::new(),
            moves: 0,
            reordered: 0,
            kicks: 0,
            interrupts: 0,
            tx_full: 0,
            socket_full: 0,
        };
        world.rule_hits.hold(&world.plan);
        let mut first_virtual = 0;
        for nic in &scenario.nics {
            for queue in 0..nic.irq_cpus.len() {
                world.queues.push(RxQueue::new(nic, queue, first_virtual as u16));
                first_virtual += nic.virtual_queues() / nic.irq_cpus.len();
            }
        }
        for (index, traffic) in (0u16..).zip(&scenario.traffic) {
            world.add(index, traffic);
        }
        Ok(world)
    }

    /// Adds the flows of a traffic and the threads that read them.
    fn add(&mut self, index: u16, traffic: &Traffic) {
        let first_flow = self.flows.len() as u32;
        self.results.push(TrafficCount::new(first_flow));
        let (nic, out) = (traffic.nic as u16, traffic.out.map(|out| out as u16));
        let step = traffic.ramp_ns / u64::from(traffic.flows.max(1));
        let begin = |flow: u32| traffic.start_ns + u64::from(flow) * step;
        match &traffic.load {
            Load::Stream(stream) => {
                let first_thread = self.threads.len() as u32;
                if traffic.out.is_none() && stream.application > 0.0 {
                    self.add_threads(traffic.flows);
                }
                for flow in 0..traffic.flows {
                    let connection = self.streams.len() as u32;
                    let hash = self.draw_hash();
                    let back = if traffic.translated { self.draw_hash() } else { hash };
                    let data = self.add_flow(index, nic, out, (flow, hash), Role::Data(connection));
                    let ack = match out {
                        // Acknowledgements arrive on the NIC where data leaves.
                        Some(out) => self.add_flow(
                            index,
                            out,
                            Some(nic),
                            (flow, back),
                            Role::Ack(connection),
                        ),
                        None => data,
                    };
                    self.streams.push(StreamState::new(index, data, ack));
                    self.reader_of.push(first_thread + flow);
                    self.calendar.note(begin(flow), Other::Begin { connection });
                }
            }
            Load::Requests(requests) => {
                let threads = requests.threads.unwrap_or(traffic.flows).min(traffic.flows);
                let first_thread = self.threads.len() as u32;
                self.add_threads(threads);
                for flow in 0..traffic.flows {
                    let connection = self.clients.len() as u32;
                    let hash = self.draw_hash();
                    let role = Role::Request(connection);
                    let flow_index = self.add_flow(index, nic, out, (flow, hash), role);
                    self.clients.push(Client {
                        flow: flow_index,
                        thread: first_thread + flow % threads.max(1),
                        request_bytes: requests.request_bytes,
                        requested_ns: u64::MAX,
                    });
                    self.calendar.note(begin(flow), Other::Request { connection });
                }
            }
            Load::Constant(constant) => {
                self.add_packets(index, traffic, constant.application, &[]);
            }
            Load::Recorded(recorded) => {
                self.add_packets(index, traffic, recorded.application, &recorded.hashes);
            }
        }
        let flows = self.flows.len() as u32 - first_flow;
        let zipf = match &traffic.load {
            Load::Constant(constant) => match constant.share {
                Share::Equal => None,
                Share::Zipf(exponent) => Some(exponent),
            },
            _ => None,
        };
        self.sources.push(Source::new(first_flow, flows, traffic.start_ns, zipf));
    }

    /// Adds flows without answers, with the given hashes or drawn ones, and the threads that read them: one for
    /// each CPU that threads may run on.
    fn add_packets(&mut self, index: u16, traffic: &Traffic, application: f64, hashes: &[u32]) {
        let (nic, out) = (traffic.nic as u16, traffic.out.map(|out| out as u16));
        let is_read = traffic.out.is_none() && application > 0.0;
        let first_thread = self.threads.len() as u32;
        let threads = (self.scenario.scheduler.cpus.len() as u32).min(traffic.flows);
        if is_read {
            self.add_threads(threads);
        }
        for flow in 0..traffic.flows {
            let hash = match hashes.get(flow as usize) {
                Some(hash) => FlowHash::from_raw(*hash),
                None => self.draw_hash(),
            };
            let thread = if is_read { first_thread + flow % threads + 1 } else { 0 };
            self.add_flow(index, nic, out, (flow, hash), Role::Packet(thread));
        }
        self.calendar.note(traffic.start_ns, Other::Emit { traffic: index });
    }

    fn add_threads(&mut self, count: u32) {
        for _ in 0..count {
            let home = self.homes[self.threads.len() % self.homes.len()];
            self.threads.push(Thread::new(home));
        }
    }

    fn draw_hash(&mut self) -> FlowHash {
        FlowHash::from_raw(self.rng.random_range(1..=u32::MAX))
    }

    /// Adds a flow, given its number among those of the traffic and its hash.
    fn add_flow(
        &mut self,
        traffic: u16,
        nic: u16,
        out: Option<u16>,
        (number, hash): (u32, FlowHash),
        role: Role,
    ) -> u32 {
        if let Some(facts) = &mut self.facts {
            let interface = self.scenario.nics[usize::from(nic)].interface();
            let sent = &self.scenario.traffic[usize::from(traffic)];
            let is_connection = matches!(sent.load, Load::Stream(_) | Load::Requests(_));
            let of_flow = sent.headers.facts(number, is_connection, interface);
            facts.push(match role {
                Role::Ack(_) => turned(&of_flow, interface),
                _ => of_flow,
            });
        }
        let before: usize =
            self.scenario.nics[..usize::from(nic)].iter().map(|nic| nic.irq_cpus.len()).sum();
        let queues = self.scenario.nics[usize::from(nic)].irq_cpus.len() as u64;
        // The NIC has its own hash. The flow hash is mixed again, so that queue and CPU are independent.
        let mixed = u64::from(hash.get().wrapping_mul(0x9e37_79b1).rotate_left(15));
        let own = u64::from((mixed as u32).wrapping_mul(0x85eb_ca6b));
        let queue = before as u32 + ((own * queues) >> 32) as u32;
        self.flows.push(Flow {
            hash,
            traffic,
            role,
            queue,
            nic,
            out,
            sent: 0,
            started: 0,
            ended: 0,
            cpu: 0,
            window: NO_WINDOW,
            arrived: 0,
        });
        self.flows.len() as u32 - 1
    }
}
