//! What is simulated: a machine, its costs, its traffic, its steering, and what happens to it.
//!
//! A [`Scenario`] is complete and checked: whoever makes one (a file, [`crate::file`]; a published
//! experiment, [`crate::published`]; a recording) names every value. Times are nanoseconds of
//! simulated time, costs nanoseconds of a CPU of speed 1.

mod traffic;

pub use traffic::{Constant, Load, Recorded, RecordedPacket, Requests, Share, Stream, Traffic};

use rxsteer_core::{CpuId, CpuSet, Fallback, Policy, QueueName, SteerConfig};

/// One experiment.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// What it shows, in a line.
    pub title: String,
    /// How long it lasts, warm-up included.
    pub duration_ns: u64,
    /// The first part, which is simulated but not measured.
    pub warm_up_ns: u64,
    /// The CPUs, by id from 0.
    pub cpus: Vec<Cpu>,
    /// How fast each of two SMT siblings is while both are busy, as a share of a lone one's speed.
    pub smt_speed: f64,
    /// The network cards. Their RX queues are numbered through, card by card.
    pub nics: Vec<Nic>,
    /// What things cost.
    pub costs: Costs,
    /// How long a frame takes between a far host and a card, one way, without waiting.
    pub wire_ns: u64,
    /// Which CPU is chosen, and how much may wait there.
    pub steering: Steering,
    /// Where threads of applications run.
    pub scheduler: Scheduler,
    /// What is sent.
    pub traffic: Vec<Traffic>,
    /// What happens in between, in the order of time.
    pub events: Vec<Event>,
}

/// One CPU.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cpu {
    /// Its speed: costs are divided by it.
    pub speed: f64,
    /// CPUs with the same number are SMT siblings.
    pub core: u16,
    /// CPUs with the same number share a last-level cache.
    pub cache: u16,
}

/// One network card.
#[derive(Clone, Debug, PartialEq)]
pub struct Nic {
    /// What it is called in results.
    pub name: String,
    /// Bits per second on the wire, each way, preamble and gap included.
    pub rate: f64,
    /// The CPU each RX queue interrupts; its length is the number of RX queues. A flow's queue is
    /// found by its hash, as by RSS.
    pub irq_cpus: Vec<CpuId>,
    /// Which CPU an interrupt goes to.
    pub interrupts: Interrupts,
    /// Slots for received frames in each queue's ring; a frame that finds none is lost.
    pub ring: u32,
    /// Least time between two interrupts of a queue.
    pub moderation_ns: u64,
}

/// Which CPU an interrupt goes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Interrupts {
    /// Always to the queue's own.
    Fixed,
    /// To each of these in turn: what reorders flows (rps-slides, "single queue, several CPUs").
    Spread(CpuSet),
}

/// What things cost, in nanoseconds of a CPU of speed 1, unless said otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Costs {
    /// An interrupt, and the start of the poll behind it.
    pub interrupt: f64,
    /// Taking one frame off the ring: buffer, descriptor, headers' first cache miss.
    pub receive: f64,
    /// Hash and decision, per packet, under every policy but `none`.
    pub steer: f64,
    /// Putting one packet onto a list for another CPU.
    pub hand_off: f64,
    /// Splicing a list onto another CPU's backlog.
    pub splice: f64,
    /// Waking another CPU, for the one that wakes.
    pub wake_up: f64,
    /// … for the one that is woken.
    pub woken: f64,
    /// … and how long it takes to get there, in simulated time.
    pub wake_delay: f64,
    /// Protocol processing of one packet up to the socket, or to forwarding it.
    pub protocol: f64,
    /// … for each of its bytes.
    pub protocol_byte: f64,
    /// Sending one packet (a forwarded one, an answer, an acknowledgement).
    pub transmit: f64,
    /// Waking an application's thread, for the CPU that does the protocol.
    pub thread_wake: f64,
    /// Switching to a thread.
    pub context_switch: f64,
    /// Per packet, where it is handled on another CPU than the step before, with a shared cache:
    /// from interrupt to protocol, and from protocol to application.
    pub miss_shared: f64,
    /// … without a shared cache.
    pub miss_remote: f64,
    /// Per packet, where its flow's state has left the cache: this times `n / (n + flow_cache)`, `n`
    /// being the flows the CPU has had in the last moments.
    pub flow_miss: f64,
    /// How many flows' states the cache of a CPU holds, about.
    pub flow_cache: f64,
}

/// The steering's settings. See [`SteerConfig`] for those not described here.
#[derive(Clone, Debug, PartialEq)]
pub struct Steering {
    /// Which rule picks the CPU.
    pub policy: Policy,
    /// The CPU map of every RX queue without one of its own.
    pub cpus: CpuSet,
    /// CPU maps of single RX queues.
    pub rps_maps: Vec<(QueueName, CpuSet)>,
    /// What places a flow that nothing else places.
    pub fallback: Fallback,
    /// CPUs that `rfs` sends a flow to where its application runs; `None`: every one.
    pub rfs_cpus: Option<CpuSet>,
    /// Entries of the sock flow table.
    pub sock_flow_entries: u32,
    /// Entries of each RX queue's flow table; `None`: as many as the core makes it.
    pub flow_cnt: Option<u32>,
    /// Buckets of the flow limit, where there is one.
    pub flow_limit: Option<u32>,
    /// Most packets that wait for one CPU (`netdev_max_backlog`).
    pub max_backlog: u32,
    /// Most packets of one poll, and of one turn at a backlog (NAPI weight).
    pub budget: u32,
}

/// Where threads run.
#[derive(Clone, Debug, PartialEq)]
pub struct Scheduler {
    /// CPUs that threads may run on.
    pub cpus: CpuSet,
    /// What a woken thread does.
    pub placement: Placement,
    /// The longest a thread runs while another waits for the CPU.
    pub slice_ns: u64,
    /// How long the interrupts' work may keep threads off a CPU before they get half of it
    /// (`ksoftirqd`).
    pub softirq_ns: u64,
    /// How often waiting threads are shared out again over the CPUs; 0: never.
    pub balance_ns: u64,
}

/// Where a woken thread goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Always where it began.
    Pinned,
    /// Where it ran last, unless others wait there and a CPU is idle.
    Sticky,
    /// To the CPU that wakes it if nothing runs there, else as `Sticky` (wake affinity).
    Waker,
}

/// Something that happens at a time.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// When.
    pub at_ns: u64,
    /// What.
    pub what: EventKind,
}

/// What can happen.
#[derive(Clone, Debug, PartialEq)]
pub enum EventKind {
    /// The CPU goes away. What waits for it is processed elsewhere, in order.
    Offline(CpuId),
    /// It is back.
    Online(CpuId),
    /// Its speed changes to this.
    Speed(CpuId, f64),
    /// Another policy, or other settings of it.
    Steering(Steering),
    /// The clock that packets are stamped with jumps by this many nanoseconds.
    ClockStep(i64),
    /// So many packets more, at once, evenly over the flows of this traffic (by index).
    Burst(usize, u32),
}

impl Scenario {
    /// How long is measured: all but the warm-up.
    #[must_use]
    pub fn measured_ns(&self) -> u64 {
        self.duration_ns - self.warm_up_ns
    }

    /// How many RX queues all cards have.
    #[must_use]
    pub fn rx_queues(&self) -> usize {
        self.nics.iter().map(|nic| nic.virtual_queues()).sum()
    }

    /// The core's configuration of `steering`, given which CPUs are offline.
    #[must_use]
    pub fn steer_config(&self, steering: &Steering, offline: Option<CpuSet>) -> SteerConfig {
        let queues = self.nics.iter().zip(0..).flat_map(|(nic, device)| {
            (0..nic.virtual_queues()).map(move |queue| (nic.receiving_cpu(queue), device))
        });
        let (receiving_cpus, devices): (Vec<_>, Vec<_>) = queues.unzip();
        SteerConfig {
            rps_maps: if steering.policy.has_maps() {
                steering.rps_maps.clone()
            } else {
                Vec::new()
            },
            fallback: steering.fallback,
            rfs_cpus: steering.rfs_cpus.clone(),
            devices,
            offline,
            possible: CpuSet::first(self.cpus.len() as u16),
            sock_flow_entries: steering.sock_flow_entries,
            flow_cnt: steering.flow_cnt,
            flow_limit: steering.flow_limit,
            ..SteerConfig::new(steering.policy.clone(), steering.cpus.clone(), receiving_cpus)
        }
    }
}

impl Nic {
    /// RX queues as the policy sees them. Where interrupts are spread, each queue on each CPU is one
    /// of its own: no order is kept between what two CPUs took off one ring.
    #[must_use]
    pub fn virtual_queues(&self) -> usize {
        match &self.interrupts {
            Interrupts::Fixed => self.irq_cpus.len(),
            Interrupts::Spread(cpus) => self.irq_cpus.len() * cpus.len(),
        }
    }

    /// The CPU that receives the queue of that number, as the policy sees them.
    #[must_use]
    pub fn receiving_cpu(&self, virtual_queue: usize) -> CpuId {
        match &self.interrupts {
            Interrupts::Fixed => self.irq_cpus[virtual_queue],
            Interrupts::Spread(cpus) => cpus.as_slice()[virtual_queue % cpus.len()],
        }
    }
}

impl Steering {
    /// `policy` over `cpus`, all else as by default.
    #[must_use]
    pub fn new(policy: Policy, cpus: CpuSet) -> Steering {
        Steering {
            policy,
            cpus,
            rps_maps: Vec::new(),
            fallback: Fallback::default(),
            rfs_cpus: None,
            sock_flow_entries: rxsteer_core::limits::DEFAULT_SOCK_FLOW_ENTRIES,
            flow_cnt: None,
            flow_limit: None,
            max_backlog: rxsteer_core::limits::DEFAULT_BACKLOG,
            budget: 64,
        }
    }
}
