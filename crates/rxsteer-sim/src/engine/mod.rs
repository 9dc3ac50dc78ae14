//! Runs a scenario.
//!
//! ```text
//!   far hosts ─► wire ─► ring ─► poll: Steering::decide ─► backlogs ─► protocol ─► thread | next wire
//!      ▲                                (the core's own)                              │
//!      └──────────────────── answers, acknowledgements ◄──────────────────────────────┘
//! ```
//!
//! Invariants of every run:
//! - Each packet is in one place ([`crate::result::PacketAccount`]).
//! - No packet begins or ends before an earlier one of its flow (`deliver.rs`, `begins`), except where interrupts
//!   are spread over CPUs.
//! - One seed gives one result: randomness has one source, and events with the same time occur in the order in
//!   which they were noted.

mod backlogs;
mod buckets;
mod calendar;
mod changes;
mod cpu;
mod deliver;
mod latency;
mod nic;
mod packet;
mod pauses;
mod rule_hits;
mod setup;
mod sources;
mod stream;
mod summarize;
mod threads;
mod work;

use crate::rebalance::Rebalancer;
use crate::result::{PacketAccount, RunResult};
use crate::scenario::{Scenario, Steering as Settings};
use backlogs::BacklogSet;
use buckets::Buckets;
use calendar::{Calendar, Kind, Other};
use cpu::CpuState;
use nic::{Link, RxQueue};
use packet::Flow;
use rand_chacha::ChaCha8Rng;
use rule_hits::RuleHits;
use rxsteer_core::matching::Facts;
use rxsteer_core::{Arrival, ConfigError, Plan, Steering, Verdict};
use sources::Source;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use stream::StreamState;
use summarize::TrafficCount;
use threads::Thread;

/// Runs `scenario` with `seed`. The same pair always gives the same result.
///
/// # Errors
/// When the core refuses a configuration of the steering, the first one or a later one.
pub fn run(scenario: &Scenario, seed: u64) -> Result<RunResult, ConfigError> {
    let mut world = World::new(scenario, seed)?;
    world.run(&AtomicBool::new(false));
    Ok(world.finish(seed))
}

/// Like [`run`], but the run is abandoned when `stop` becomes true. In that case it returns the measurements so
/// far, over [`RunResult::measured_ns`]; `None` if the measured part had not begun.
///
/// # Errors
/// As [`run`].
pub fn run_unless(
    stop: &AtomicBool,
    scenario: &Scenario,
    seed: u64,
) -> Result<Option<RunResult>, ConfigError> {
    let mut world = World::new(scenario, seed)?;
    let is_whole = world.run(stop);
    Ok((is_whole || world.now > world.from_ns).then(|| world.finish(seed)))
}

/// Like [`run`], but `rebalancer` decides which buckets move, under policies with `balance`. It can keep what it saw.
///
/// # Errors
/// As [`run`].
pub fn run_with(
    scenario: &Scenario,
    seed: u64,
    rebalancer: &mut dyn Rebalancer,
) -> Result<RunResult, ConfigError> {
    let mut world = World::new(scenario, seed)?;
    world.rebalancer = Some(rebalancer);
    world.run(&AtomicBool::new(false));
    Ok(world.finish(seed))
}

/// A client that sends a request and waits for the answer.
#[derive(Debug)]
struct Client {
    flow: u32,
    /// The thread that serves the client.
    thread: u32,
    request_bytes: u32,
    /// When the client sent its pending request; `u64::MAX` without one.
    requested_ns: u64,
}

/// The whole state of a run.
#[derive(Debug)]
struct World<'a> {
    scenario: &'a Scenario,
    /// What decides about buckets instead of the policy.
    rebalancer: Option<&'a mut dyn Rebalancer>,
    /// What was counted in buckets and on CPUs until the last interval.
    buckets: Buckets,
    now: u64,
    /// When the measured part begins.
    from_ns: u64,
    rng: ChaCha8Rng,
    calendar: Calendar,
    flows: Vec<Flow>,
    /// Their header fields, where there are rules before the policy.
    facts: Option<Vec<Facts>>,
    rule_hits: RuleHits,
    cpus: Vec<CpuState>,
    /// By core, how many of its CPUs work.
    working: Vec<u32>,
    queues: Vec<RxQueue>,
    links: Vec<Link>,
    backlogs: BacklogSet,
    /// By CPU, which CPU serves its backlog.
    server: Vec<u16>,
    plan: Arc<Plan>,
    /// By RX queue as the policy sees it.
    steerings: Vec<Steering>,
    steering: Settings,
    /// Whether the policy uses the CPUs of applications.
    follows_applications: bool,
    sources: Vec<Source>,
    streams: Vec<StreamState>,
    /// By stream, the thread that reads it, if any.
    reader_of: Vec<u32>,
    clients: Vec<Client>,
    threads: Vec<Thread>,
    /// The offset that is added to the time stamps of packets.
    clock_offset: i64,
    /// The number of polls so far.
    polls: u64,
    /// What the present poll decides about, and its verdicts.
    arrivals: Vec<Arrival>,
    verdicts: Vec<Verdict>,
    /// The CPUs that threads begin on, in turn.
    homes: Vec<u16>,
    account: PacketAccount,
    results: Vec<TrafficCount>,
    moves: u64,
    reordered: u64,
    kicks: u64,
    interrupts: u64,
    tx_full: u64,
    socket_full: u64,
}

impl World<'_> {
    /// Runs until the end. Returns whether the run reached its end.
    fn run(&mut self, stop: &AtomicBool) -> bool {
        self.note_events();
        while let Some((at_ns, what)) = self.calendar.next() {
            if at_ns >= self.scenario.duration_ns {
                break;
            }
            // ORDER: Relaxed; the flag is a request and carries no data.
            if stop.load(Ordering::Relaxed) {
                return false;
            }
            debug_assert!(at_ns >= self.now, "time does not go back");
            self.now = at_ns;
            match what {
                Kind::Step { cpu } => self.step(cpu),
                Kind::Interrupt { queue } => self.interrupt(queue),
                Kind::Other(Other::Emit { traffic }) => self.emit_by_clock(traffic),
                Kind::Other(Other::Request { connection }) => self.request(connection, at_ns),
                Kind::Other(Other::Begin { connection }) => self.stream_sends(connection, at_ns),
                Kind::Other(Other::Timeout { connection }) => self.timeout(connection),
                Kind::Other(Other::Event { index }) => self.run_event(index),
                Kind::Other(Other::MoveBuckets) => self.end_interval(),
                Kind::Other(Other::Pause { cpu, kind }) => self.pause(cpu, kind),
                Kind::Other(Other::Balance) => {
                    self.balance();
                    let next = self.now + self.scenario.scheduler.balance_ns;
                    self.calendar.note(next, Other::Balance);
                }
            }
        }
        self.now = self.scenario.duration_ns;
        true
    }
}
