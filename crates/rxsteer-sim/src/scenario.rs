//! What is simulated: a machine, its costs, its traffic, its steering, and the events of a run.
//!
//! A [`Scenario`] is complete and checked: its source (a file, [`crate::file`]; a published experiment,
//! [`crate::published`]; a recording) sets every value. Times are nanoseconds of simulated time, costs are
//! nanoseconds of a CPU of speed 1.

mod headers;
mod traffic;

pub use headers::Headers;
pub(crate) use headers::turned;
pub use traffic::{Constant, Load, Recorded, RecordedPacket, Requests, Share, Stream, Traffic};

use rxsteer_core::matching::InterfaceName;
use rxsteer_core::{
    CpuId, CpuSet, Fallback, Mechanisms, PacketRule, Policy, QueueName, SteerConfig,
};

/// One experiment.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// The title, in one line.
    pub title: String,
    /// The duration, warm-up included.
    pub duration_ns: u64,
    /// The first part, which is simulated but not measured.
    pub warm_up_ns: u64,
    /// The CPUs, by id from 0.
    pub cpus: Vec<Cpu>,
    /// The speed of each of two busy SMT siblings, as a share of the speed of one alone.
    pub smt_speed: f64,
    /// Pauses of the CPUs; none on a machine that always runs.
    pub pauses: Vec<Pause>,
    /// The NICs. Their RX queues are numbered consecutively, NIC by NIC.
    pub nics: Vec<Nic>,
    /// The costs.
    pub costs: Costs,
    /// The delay of a frame between a far host and a NIC, one way, without queueing.
    pub wire_ns: u64,
    /// How the CPU is chosen, and how much may wait there.
    pub steering: Steering,
    /// Where the threads of applications run.
    pub scheduler: Scheduler,
    /// The traffic.
    pub traffic: Vec<Traffic>,
    /// The events, in the order of time.
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

/// A kind of pauses. Each CPU of the scenario has them, at random times (a Poisson process), independently of the others.
/// A paused CPU does nothing: work in hand takes longer by the whole pause, and a CPU that is woken meanwhile begins
/// afterwards. A hypervisor that runs another guest pauses the CPUs of a virtual machine, and an interrupt of the firmware
/// (SMI) those of any machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pause {
    /// The mean time from the beginning of one pause to that of the next, of a CPU.
    pub every_ns: u64,
    /// How long each of them lasts.
    pub lasts_ns: u64,
}

/// One NIC.
#[derive(Clone, Debug, PartialEq)]
pub struct Nic {
    /// The name in results.
    pub name: String,
    /// The rate of the wire in bits per second, each way, preamble and gap included.
    pub rate: f64,
    /// The CPU that each RX queue interrupts. The length is the number of RX queues. As in RSS, a hash determines
    /// a flow's queue.
    pub irq_cpus: Vec<CpuId>,
    /// The CPU that an interrupt goes to.
    pub interrupts: Interrupts,
    /// Slots for received frames in each queue's ring; a frame that finds no free slot is lost.
    pub ring: u32,
    /// The least time between two interrupts of a queue.
    pub moderation_ns: u64,
}

/// The CPU that an interrupt goes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Interrupts {
    /// Always the queue's own CPU.
    Fixed,
    /// Each of these CPUs in turn, which reorders flows (rps-slides, "single queue, several CPUs").
    Spread(CpuSet),
}

/// Costs in nanoseconds of a CPU of speed 1, unless noted otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Costs {
    /// An interrupt, and the start of the poll that it causes.
    pub interrupt: f64,
    /// Taking one frame off the ring: buffer, descriptor, headers' first cache miss.
    pub receive: f64,
    /// Finding the rule before the policy that a packet matches, per packet, while there are rules.
    pub rules: f64,
    /// Hash and decision, per packet, under every policy but `none`, and with rules.
    pub steer: f64,
    /// Putting one packet onto a list for another CPU.
    pub hand_off: f64,
    /// Splicing a list onto another CPU's backlog.
    pub splice: f64,
    /// Waking another CPU: the cost on the CPU that wakes it.
    pub wake_up: f64,
    /// … the cost on the CPU that is woken.
    pub woken: f64,
    /// … the delay of the wake-up, in simulated time.
    pub wake_delay: f64,
    /// Protocol processing of one packet up to the socket or the forwarding.
    pub protocol: f64,
    /// … per byte of the packet.
    pub protocol_byte: f64,
    /// Sending one packet (a forwarded one, an answer, an acknowledgement).
    pub transmit: f64,
    /// Waking an application's thread: the cost on the CPU that does the protocol processing.
    pub thread_wake: f64,
    /// Switching to a thread.
    pub context_switch: f64,
    /// Per packet, if the previous step was on another CPU with a shared cache: from interrupt to protocol, and
    /// from protocol to application.
    pub miss_shared: f64,
    /// … if the CPUs share no cache.
    pub miss_remote: f64,
    /// Per packet, for a flow whose state may have left the cache: this cost times `n / (n + flow_cache)`, where
    /// `n` is the number of flows that the CPU had recently.
    pub flow_miss: f64,
    /// The approximate number of flow states that the cache of a CPU holds.
    pub flow_cache: f64,
}

/// The settings of the steering. Fields that are not described here are those of [`SteerConfig`].
#[derive(Clone, Debug, PartialEq)]
pub struct Steering {
    /// The rule that picks the CPU.
    pub policy: Policy,
    /// The CPU map of every RX queue that does not have its own.
    pub cpus: CpuSet,
    /// Rules before the policy, in order.
    pub packet_rules: Vec<PacketRule>,
    /// CPU maps of single RX queues.
    pub rps_maps: Vec<(QueueName, CpuSet)>,
    /// What places a flow that no other rule places.
    pub fallback: Fallback,
    /// CPUs that `rfs` may send a flow to because its application runs there; `None`: every CPU.
    pub rfs_cpus: Option<CpuSet>,
    /// Entries of the sock flow table.
    pub sock_flow_entries: u32,
    /// Entries of each RX queue's flow table; `None`: the default of the core.
    pub flow_cnt: Option<u32>,
    /// Buckets of the flow limit; `None`: no flow limit.
    pub flow_limit: Option<u32>,
    /// The most packets that wait for one CPU (`netdev_max_backlog`).
    pub max_backlog: u32,
    /// The most packets of one poll, and of one turn at a backlog (NAPI weight).
    pub budget: u32,
}

impl Steering {
    /// The mechanisms that the policy and the rules before it use.
    #[must_use]
    pub fn mechanisms(&self) -> Mechanisms {
        Mechanisms::of(&self.policy, &self.packet_rules)
    }
}

/// Where threads run.
#[derive(Clone, Debug, PartialEq)]
pub struct Scheduler {
    /// CPUs that threads may run on.
    pub cpus: CpuSet,
    /// Where a woken thread goes.
    pub placement: Placement,
    /// How long a thread runs at most while another waits for the CPU.
    pub slice_ns: u64,
    /// How long interrupt work may keep threads off a CPU before they get half of the CPU (`ksoftirqd`).
    pub softirq_ns: u64,
    /// The interval for balancing waiting threads over the CPUs; 0: never.
    pub balance_ns: u64,
    /// Whether a CPU that has no thread left immediately takes one that waits for another CPU (newidle balancing, which
    /// Linux does if idle periods are long).
    pub newidle: bool,
}

/// Where a woken thread goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Always the CPU where the thread began.
    Pinned,
    /// The CPU where the thread ran last, unless threads wait there and another CPU is idle.
    Sticky,
    /// The CPU that wakes the thread if no thread runs there, otherwise as `Sticky` (wake affinity).
    Waker,
}

/// An event at a given time.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// The time.
    pub at_ns: u64,
    /// The kind of event.
    pub what: EventKind,
}

/// The kinds of events.
#[derive(Clone, Debug, PartialEq)]
pub enum EventKind {
    /// The CPU goes offline. Other CPUs process the packets that wait for it, in order.
    Offline(CpuId),
    /// The CPU comes back online.
    Online(CpuId),
    /// The speed of the CPU changes to this value.
    Speed(CpuId, f64),
    /// The policy or its settings change.
    Steering(Steering),
    /// The clock for the packets' time stamps jumps by this many nanoseconds.
    ClockStep(i64),
    /// This many additional packets at once, evenly over the flows of this traffic (by index).
    Burst(usize, u32),
}

impl Scenario {
    /// The length of the measured part: the duration less the warm-up.
    #[must_use]
    pub fn measured_ns(&self) -> u64 {
        self.duration_ns - self.warm_up_ns
    }

    /// The number of RX queues of all NICs, as the policy sees them.
    #[must_use]
    pub fn rx_queues(&self) -> usize {
        self.nics.iter().map(|nic| nic.virtual_queues()).sum()
    }

    /// Whether there are rules before the policy, at the start or from an event on.
    #[must_use]
    pub fn has_rules(&self) -> bool {
        let later = self.events.iter().filter_map(|event| match &event.what {
            EventKind::Steering(steering) => Some(steering),
            _ => None,
        });
        later.chain([&self.steering]).any(|steering| !steering.packet_rules.is_empty())
    }

    /// The core's configuration for `steering`, with the CPUs that are offline.
    #[must_use]
    pub fn steer_config(&self, steering: &Steering, offline: Option<CpuSet>) -> SteerConfig {
        let queues = self.nics.iter().zip(0..).flat_map(|(nic, device)| {
            (0..nic.virtual_queues()).map(move |queue| (nic.receiving_cpu(queue), device))
        });
        let (receiving_cpus, devices): (Vec<_>, Vec<_>) = queues.unzip();
        let names = self.nics.iter().map(Nic::interface).collect::<Option<_>>();
        SteerConfig {
            packet_rules: steering.packet_rules.clone(),
            inner: self.traffic.iter().any(|traffic| traffic.headers.are_inner()),
            // A NIC whose name no interface can have cannot be in a rule either.
            device_names: names.unwrap_or_default(),
            rps_maps: if steering.mechanisms().maps {
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
    /// Its name as that of an interface; `None` where no interface can have it.
    #[must_use]
    pub fn interface(&self) -> Option<InterfaceName> {
        InterfaceName::new(&self.name)
    }

    /// The number of RX queues as the policy sees them. With spread interrupts, each queue on each CPU is a
    /// separate queue: no order is kept between packets that two CPUs took off one ring.
    #[must_use]
    pub fn virtual_queues(&self) -> usize {
        match &self.interrupts {
            Interrupts::Fixed => self.irq_cpus.len(),
            Interrupts::Spread(cpus) => self.irq_cpus.len() * cpus.len(),
        }
    }

    /// The CPU that receives a queue, given its number as the policy sees it.
    #[must_use]
    pub fn receiving_cpu(&self, virtual_queue: usize) -> CpuId {
        match &self.interrupts {
            Interrupts::Fixed => self.irq_cpus[virtual_queue],
            Interrupts::Spread(cpus) => cpus.as_slice()[virtual_queue % cpus.len()],
        }
    }
}

impl Steering {
    /// `policy` over `cpus`, with defaults for all other settings.
    #[must_use]
    pub fn new(policy: Policy, cpus: CpuSet) -> Steering {
        Steering {
            policy,
            cpus,
            packet_rules: Vec::new(),
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
