//! The default costs of a packet, for scenarios without measured costs.
//!
//! They are those of one core of a current server, at speed 1, and each has its source. Most are *assumed*: round
//! values of the right magnitude. A scenario that describes a particular machine sets its own costs.

use crate::scenario::{Costs, Scenario};

/// The highest single cost, in nanoseconds of a CPU of speed 1: a second.
pub const MAX_COST_NS: f64 = 1e9;

/// One key of `[costs]`.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    /// The name of the key in a scenario file.
    pub key: &'static str,
    /// The value when the file does not set the key.
    pub default: f64,
    /// The highest valid value.
    pub most: f64,
    /// The unit.
    pub unit: &'static str,
    /// The source of the default.
    pub source: &'static str,
    /// The corresponding field of [`Costs`].
    pub field: fn(&mut Costs) -> &mut f64,
}

impl Cost {
    /// Whether the default is not based on a measurement on such a core.
    #[must_use]
    pub fn is_assumed(&self) -> bool {
        self.source.starts_with(ASSUMED)
    }

    /// Whether `scenario` pays it: it is not 0, and what it is for is there.
    #[must_use]
    pub fn is_paid(&self, scenario: &Scenario) -> bool {
        let is_for_rules = self.key == RULES;
        *(self.field)(&mut scenario.costs.clone()) > 0.0 && (!is_for_rules || scenario.has_rules())
    }
}

const NS: &str = "nanoseconds of a CPU of speed 1";
const ASSUMED: &str = "assumed";

/// A cost in nanoseconds.
const fn ns(
    key: &'static str,
    default: f64,
    source: &'static str,
    field: fn(&mut Costs) -> &mut f64,
) -> Cost {
    Cost { key, default, most: MAX_COST_NS, unit: NS, source, field }
}

/// A remote interrupt takes 7 to 11 µs for the round trip on the small virtual machine where this project was
/// measured. Without a hypervisor it takes about a fifth of that.
const REMOTE_INTERRUPT: &str = "assumed: a fifth of what a virtual machine takes";
/// `cargo xtask bench`: decide with the order guard takes 2 to 28 ns, the flow hash of a frame about 10 ns.
const STEER: &str = "cargo xtask bench: flow hash and decision";
/// `cargo xtask bench`: an item through a ring in lists of 32 takes 1 to 2 ns, plus its cache lines.
const HAND_OFF: &str = "cargo xtask bench: an item of a ring, and its cache lines";

/// The cost of the rules before the policy. The same with 1, 64 and 256 rules of one address, the protocol and one port, most
/// of it for the address (docs/policies.md). The lookup in user space takes 13 to 27 ns.
const RULES: &str = "rules";
const MATCH: &str = "assumed: what a virtual machine takes in the kernel, 60 to 65";

/// All costs, in the order in which they apply to a packet.
pub const COSTS: [Cost; 18] = [
    ns("interrupt", 1500.0, ASSUMED, |c| &mut c.interrupt),
    ns("receive", 150.0, ASSUMED, |c| &mut c.receive),
    ns(RULES, 60.0, MATCH, |c| &mut c.rules),
    ns("steer", 25.0, STEER, |c| &mut c.steer),
    ns("hand_off", 20.0, HAND_OFF, |c| &mut c.hand_off),
    ns("splice", 100.0, ASSUMED, |c| &mut c.splice),
    ns("wake_up", 500.0, REMOTE_INTERRUPT, |c| &mut c.wake_up),
    ns("woken", 1000.0, REMOTE_INTERRUPT, |c| &mut c.woken),
    ns("wake_delay", 1000.0, REMOTE_INTERRUPT, |c| &mut c.wake_delay),
    ns("protocol", 600.0, ASSUMED, |c| &mut c.protocol),
    ns("protocol_byte", 0.1, "assumed: a copy at 10 GB/s", |c| &mut c.protocol_byte),
    ns("transmit", 300.0, ASSUMED, |c| &mut c.transmit),
    ns("thread_wake", 800.0, ASSUMED, |c| &mut c.thread_wake),
    ns("context_switch", 1200.0, ASSUMED, |c| &mut c.context_switch),
    ns("miss_shared", 60.0, "measured: a cache line between two CPUs takes 40 to 50", |c| {
        &mut c.miss_shared
    }),
    ns("miss_remote", 180.0, "measured: a cache line without a shared cache, 160 to 200", |c| {
        &mut c.miss_remote
    }),
    ns("flow_miss", 200.0, "assumed: two misses to memory", |c| &mut c.flow_miss),
    Cost {
        key: "flow_cache",
        default: 2000.0,
        most: 1e9,
        unit: "flows",
        source: "assumed: 1 MiB of 512 bytes each",
        field: |c| &mut c.flow_cache,
    },
];

/// The default costs.
#[must_use]
pub fn default_costs() -> Costs {
    let mut costs = Costs::default();
    for cost in &COSTS {
        *(cost.field)(&mut costs) = cost.default;
    }
    costs
}
