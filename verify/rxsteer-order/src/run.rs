//! One run of a seed, and its result.

use crate::Options;
use crate::change::Shape;
use crate::rng::SeededRng;
use crate::summary::Summary;
use crate::violation::{Fault, Violation};
use crate::world::{View, World};
use rxsteer_core::order::HYSTERESIS;
use rxsteer_core::{Arrival, CpuId, CpuSet, DropReason, Plan, SteerConfig, Steering, Verdict};
use std::sync::Arc;

/// The most packets of a batch; `decide` prefetches fewer at a time.
const BATCH: usize = 80;

/// Runs `seed` with all checks.
///
/// # Errors
/// The first [`Violation`] that was found.
pub fn run(seed: u64, options: &Options) -> Result<Summary, Violation> {
    let mut first = Run::new(seed, options);
    let fault = match first.run_packets(options.packets) {
        Ok(summary) => return Ok(summary),
        Err(fault) => fault,
    };
    let mut violation = Violation::new(seed, options, fault);
    if options.trace > 0 {
        // Runs the seed again, now that the flow to trace is known.
        let mut again = Run::new(seed, options);
        let flow = violation.fault.flow().and_then(|name| again.world.flows.find(name));
        again.world.trace.flow = Some(flow.unwrap_or(u32::MAX));
        again.world.trace.keep = options.trace;
        let _ = again.run_packets(options.packets);
        violation.trace = again.world.trace.lines.into();
    }
    Err(violation)
}

struct Run {
    world: World,
    shape: Shape,
    producers: Vec<Producer>,
    /// The plan that was published last, and the number of plans so far.
    plan: Arc<Plan>,
    published: u64,
    /// CPUs that are offline in the configuration, although their workers are alive.
    shut: Vec<bool>,
    /// Turns until a plan reflects the changes of CPUs.
    news_in: Option<u32>,
    phase: Phase,
    now_ns: u64,
}

/// An RX thread.
struct Producer {
    steering: Steering,
    /// The number of the plan that it has adopted.
    adopted: u64,
    /// Whether a transition was seen that has not ended yet.
    in_transition: bool,
    /// The present batch, and the number of packets decided so far.
    arrivals: Vec<Arrival>,
    flows: Vec<u32>,
    done: usize,
}

/// The intensities of events for some time.
#[derive(Debug)]
struct Phase {
    rounds_left: u32,
    /// The most packets of a batch.
    batch: u32,
    /// The most turns of workers after a batch.
    steps: u32,
    /// The time between packets is below this power of two, in nanoseconds.
    time_log: u32,
    /// In how many of 256 turns applications move, plans change, CPUs are lost or come back, and a producer adopts a
    /// pending plan.
    applications: u32,
    changes: u32,
    cpus: u32,
    adopts: u32,
    /// In how many of 256 turns buckets move.
    moves: u32,
}

impl Phase {
    fn new(rng: &mut SeededRng) -> Phase {
        Phase {
            rounds_left: rng.between(4, 160),
            batch: rng.pick(&[1, 4, 16, 32, BATCH as u32]),
            steps: rng.pick(&[0, 1, 4, 8, 16, 24, 48]),
            time_log: rng.pick(&[4, 10, 16, 20, 24, 28]),
            applications: rng.pick(&[0, 8, 64, 255]),
            changes: rng.pick(&[0, 0, 0, 4, 16, 128]),
            cpus: rng.pick(&[0, 0, 2, 16]),
            adopts: rng.pick(&[256, 256, 128, 16]),
            moves: rng.pick(&[0, 16, 64, 255]),
        }
    }
}

impl Run {
    fn new(seed: u64, options: &Options) -> Run {
        let mut rng = SeededRng::new(seed);
        let shape = Shape::new(&mut rng);
        let config = shape.first_config(&mut rng);
        let plan = Arc::new(Plan::new(&config, shape.producers).expect("made to be possible"));
        let mut world = World::new(rng, &shape, options.guard, options.packets);
        world.socks = plan.sock_flows().clone();
        let producers = (0..shape.producers)
            .map(|producer| Producer {
                steering: Steering::of_plan(plan.clone(), shape.queues_of(producer)),
                adopted: 0,
                in_transition: false,
                arrivals: Vec::with_capacity(BATCH),
                flows: Vec::with_capacity(BATCH),
                done: 0,
            })
            .collect();
        Run {
            phase: Phase::new(&mut world.rng),
            now_ns: u64::from(world.rng.below(u32::MAX)),
            shut: vec![false; shape.cpus.len()],
            news_in: None,
            published: 0,
            plan,
            producers,
            shape,
            world,
        }
    }

    fn run_packets(&mut self, packets: u64) -> Result<Summary, Fault> {
        loop {
            let left = packets - self.world.summary.received;
            if left == 0 && self.producers.iter().all(Producer::is_idle) {
                break;
            }
            self.turn(left)?;
            self.world.found()?;
        }
        self.world.drain();
        self.world.found()?;
        self.check_counts()?;
        let summary = self.summary();
        self.check_rest()?;
        Ok(summary)
    }

    /// A batch of one producer, and other events at that time.
    fn turn(&mut self, packets_left: u64) -> Result<(), Fault> {
        if self.phase.rounds_left == 0 {
            self.next_phase();
        }
        self.phase.rounds_left -= 1;
        let producer = self.world.rng.below(self.producers.len() as u32) as usize;
        if self.producers[producer].adopted != self.published
            && self.world.rng.chance(self.phase.adopts)
        {
            self.adopt(producer);
        }
        if self.producers[producer].is_idle() {
            self.receive(producer, packets_left);
        }
        self.decide(producer)?;

        for _ in 0..self.world.rng.below(self.phase.steps + 1) {
            self.world.step();
        }
        if self.world.rng.chance(self.phase.applications) {
            self.world.applications_move(8);
        }
        if self.world.rng.chance(self.phase.cpus) {
            self.cpus_change();
        }
        let news = self.news_in;
        self.news_in = news.and_then(|turns| turns.checked_sub(1));
        if news == Some(0) {
            self.publish(self.plan.config().clone());
        } else if self.world.rng.chance(self.phase.changes) {
            let mut config = self.plan.config().clone();
            self.shape.change(&mut self.world.rng, &mut config);
            self.publish(config);
        } else if !self.plan.bucket_table().is_empty() && self.world.rng.chance(self.phase.moves) {
            let moves = self.shape.moves(&mut self.world.rng, self.plan.bucket_table());
            self.plan = Arc::new(self.plan.moved(&moves));
            self.published += 1;
            self.world.summary.bucket_moves += moves.len() as u64;
            self.world.trace.note(None, || format!("plan {}: {moves:?}", self.published));
        }
        Ok(())
    }

    fn next_phase(&mut self) {
        let rng = &mut self.world.rng;
        self.phase = Phase::new(rng);
        for worker in &mut self.world.workers {
            worker.diligence = rng.pick(&[256, 256, 256, 128, 24]);
            worker.stalled = if rng.chance(24) { rng.below(400) } else { 0 };
        }
    }

    fn cpus_change(&mut self) {
        let changed = match self.world.rng.below(4) {
            0 => self.world.lose_cpu(),
            1 | 2 => self.world.return_cpu(),
            _ => {
                let cpu = self.world.rng.below(self.shut.len() as u32) as usize;
                self.shut[cpu] = !self.shut[cpu];
                true
            }
        };
        if changed {
            self.news_in = Some(self.world.rng.below(24));
        }
    }

    /// Creates a plan from `config` with the present CPUs, for producers to adopt.
    fn publish(&mut self, mut config: SteerConfig) {
        let workers = &self.world.workers;
        let is_gone = |cpu: &usize| self.shut[*cpu] || !workers[*cpu].alive;
        let gone: Vec<usize> = (0..workers.len()).filter(is_gone).collect();
        // A machine without a CPU cannot steer, so one CPU stays.
        let gone = if gone.len() == workers.len() { &gone[1..] } else { &gone };
        config.offline = CpuSet::new(gone.iter().map(|cpu| self.shape.cpus[*cpu]));
        self.plan = Arc::new(self.plan.next(&config).expect("made to be possible"));
        self.world.socks = self.plan.sock_flows().clone();
        self.published += 1;
        self.world.summary.changes += 1;
        self.world.trace.note(None, || {
            let SteerConfig { policy, cpus, rps_maps, fallback, rfs_cpus, offline, flow_cnt, .. } =
                &config;
            let rules = config.packet_rules.iter().map(ToString::to_string).collect::<Vec<_>>();
            format!(
                "plan {}: {policy} on {cpus}, rules {rules:?}, maps {rps_maps:?}, else {fallback}, rfs CPUs {rfs_cpus:?}, \
                 offline {offline:?}, \
                 flow_cnt {flow_cnt:?}",
                self.published
            )
        });
    }

    /// The producer changes to the plan that was published last.
    fn adopt(&mut self, index: usize) {
        let producer = &mut self.producers[index];
        let mut view = View { world: &mut self.world, producer: index as u16 };
        producer.steering.change(&self.plan, &mut view);
        producer.adopted = self.published;
        let lasts = !producer.steering.is_drained(&mut view);
        let summary = &mut self.world.summary;
        summary.adopted += 1;
        summary.transitions += u64::from(lasts && !producer.in_transition);
        producer.in_transition |= lasts;
        self.world.trace.note(None, || {
            let word = if lasts { ", and a transition begins or goes on" } else { "" };
            format!("producer {index} adopts plan {}{word}", self.published)
        });
    }

    /// Receives a new batch for the producer.
    fn receive(&mut self, index: usize, packets_left: u64) {
        let world = &mut self.world;
        let producer = &mut self.producers[index];
        producer.arrivals.clear();
        producer.flows.clear();
        producer.done = 0;
        let count = u64::from(world.rng.between(1, self.phase.batch)).min(packets_left);
        for _ in 0..count {
            let bits = world.rng.bits();
            let later = (bits >> 32) & ((1 << self.phase.time_log) - 1);
            self.now_ns = match bits & 0x3ff {
                // Slots of sparse flows expire after a second.
                0 => self.now_ns + 900_000_000 + later,
                // Clocks are set back, or a capture was merged badly.
                1 | 2 => self.now_ns.saturating_sub(later * 8),
                _ => self.now_ns + later,
            };
            let flow = world.flows.pick(&mut world.rng, index);
            producer.flows.push(flow);
            let mut arrival = world.flows.get(flow).arrival(self.now_ns);
            // Packets of a flow may match different rules, such as its two directions and fragments.
            if producer.steering.plan().matcher().is_some() {
                arrival.rule = world.rng.below(4) as u16;
            }
            producer.arrivals.push(arrival);
        }
        world.summary.received += count;
    }

    /// Decides on the rest of the producer's batch, and publishes the packets that got room.
    fn decide(&mut self, index: usize) -> Result<(), Fault> {
        let producer = &mut self.producers[index];
        let world = &mut self.world;
        let mut verdicts = [Verdict::default(); BATCH];
        let arrivals = &producer.arrivals[producer.done..];
        let mut view = View { world, producer: index as u16 };
        if producer.in_transition && producer.steering.is_drained(&mut view) {
            producer.in_transition = false;
            world.summary.ended += 1;
            world.trace.note(None, || format!("producer {index} is drained"));
            view = View { world, producer: index as u16 };
        }
        let decided = producer.steering.decide(arrivals, &mut view, &mut verdicts);
        world.found()?;
        world.summary.waits += u64::from(decided < arrivals.len());
        let flows = &producer.flows[producer.done..];
        for (flow, verdict) in flows.iter().zip(&verdicts[..decided]) {
            if let Some(reason) = verdict.drop_reason() {
                world.summary.drops.add(reason, 1);
                continue;
            }
            let cpu = verdict.cpu();
            let backlog = world.backlog(index as u16, cpu).ok_or(Fault::NotPossible(cpu))?;
            let packet = world.flows.accept(*flow, cpu);
            world.backlogs[backlog].publish(packet);
            world.trace.note(Some(*flow), || {
                format!("packet {} is accepted for CPU {cpu} by producer {index}", packet.number)
            });
        }
        producer.done += decided;
        let in_backlogs = &world.backlogs[index * self.shape.cpus.len()..][..self.shape.cpus.len()];
        if let Some(backlog) = in_backlogs.iter().position(|backlog| !backlog.is_published()) {
            let cpu = self.shape.cpus[backlog];
            let text = format!("a place for CPU {cpu} was reserved for no packet");
            return Err(Fault::Unbalanced(text));
        }
        Ok(())
    }

    fn check_counts(&self) -> Result<(), Fault> {
        let Summary { received, accepted, completed, lost, .. } = self.summary();
        let dropped = self.world.summary.drops.total();
        let full = self.world.summary.drops.get(DropReason::BacklogFull);
        let limited = self.world.summary.drops.get(DropReason::FlowLimit);
        if received != accepted + dropped || dropped != full + limited {
            let text = format!("{received} received, {accepted} accepted, {dropped} dropped");
            return Err(Fault::Unbalanced(text));
        }
        if accepted != completed + lost {
            let text = format!("{accepted} accepted, {completed} completed, {lost} lost");
            return Err(Fault::Unbalanced(text));
        }
        Ok(())
    }

    /// When nothing is under way, no transition may be under way, and each flow must go where a policy without history
    /// sends it: now, and after a change to rules that keep no table.
    fn check_rest(&mut self) -> Result<(), Fault> {
        // Applications would change targets.
        self.world.interference = 0;
        self.check_places()?;
        let mut config = self.plan.config().clone();
        config.policy = self.shape.quiet_policy(&mut self.world.rng);
        config.rps_maps.clear();
        self.publish(config);
        self.check_places()
    }

    fn check_places(&mut self) -> Result<(), Fault> {
        for index in 0..self.producers.len() {
            self.check_drained(index)?;
            let queues = self.shape.queues_of(index as u16);
            // It shares the slots of sparse flows, and at the same time both have the same result there.
            let fresh = Steering::of_plan(self.plan.clone(), queues);
            for place in 0..self.world.flows.of_producer(index).len() {
                let flow = self.world.flows.of_producer(index)[place];
                self.check_place(index, flow, &fresh)?;
            }
        }
        Ok(())
    }

    fn check_drained(&mut self, index: usize) -> Result<(), Fault> {
        let number = index as u16;
        if self.producers[index].adopted != self.published {
            self.adopt(index);
        }
        // A new size of the flow tables may have been delayed; one decision each releases the old tables.
        for _ in 0..2 {
            self.decide(index)?;
        }
        let mut view = View { world: &mut self.world, producer: number };
        if self.producers[index].steering.is_drained(&mut view) {
            Ok(())
        } else {
            Err(Fault::Undrained(number))
        }
    }

    /// The first packets may follow other flows of their slot; after that nothing defers the flow.
    fn check_place(&mut self, index: usize, flow: u32, fresh: &Steering) -> Result<(), Fault> {
        let state = self.world.flows.get(flow);
        let (name, arrival) = (state.name(), state.arrival(self.now_ns));
        let mut verdict = [Verdict::default()];
        let mut target = CpuId::NONE;
        for _ in 0..=HYSTERESIS {
            let mut view = View { world: &mut self.world, producer: index as u16 };
            target = fresh.explain(&arrival, &mut view).target;
            self.producers[index].steering.decide(&[arrival], &mut view, &mut verdict);
            let cpu = verdict[0].cpu();
            let backlog = self.world.backlog(index as u16, cpu).ok_or(Fault::NotPossible(cpu))?;
            let packet = self.world.flows.accept(flow, cpu);
            self.world.backlogs[backlog].publish(packet);
            self.world.drain();
            self.world.found()?;
        }
        if verdict[0] == Verdict::deliver(target) {
            return Ok(());
        }
        Err(Fault::Misplaced { flow: name, cpu: verdict[0].cpu(), target })
    }

    fn summary(&self) -> Summary {
        let mut summary = self.world.summary.clone();
        for producer in &self.producers {
            let counts = producer.steering.counts();
            summary.rfs += counts.rfs;
            summary.in_slots += counts.in_slots;
            summary.deferred += counts.deferred;
        }
        summary.accepted = self.world.flows.accepted();
        summary.moves = self.world.flows.moves;
        summary.wrapped_runs = u64::from(summary.wraps > 0);
        summary
    }
}

impl Producer {
    fn is_idle(&self) -> bool {
        self.done == self.arrivals.len()
    }
}
