//! Recommends what to do for one interface, from facts and a measurement, and names the rule that led to it.
//!
//! A pure function, which reads nothing but its arguments. [`relief`] decides whether a CPU is short of time, as for
//! `rxsteer check`, so that both agree. `sets` computes sets and sizes, according to
//! Documentation/networking/scaling.rst.

mod facts;
mod sets;
mod show;
#[cfg(test)]
mod tests;

pub use facts::{Counts, Facts, Measurement, Traffic};
pub use sets::Sets;

use crate::cpus::Cpus;
use crate::judge::{BUSY, Help, LOOPBACK_IS, QUIET, in_softirqs, is_down, relief};
use crate::knobs::InterfaceKnobs;
use crate::link::LOOPBACK;
use crate::load::Load;
use crate::rss::Rss;
use rxsteer_core::{CpuId, CpuSet, Policy, Slots};
use serde::{Serialize, Serializer};

/// A flow with more than this share of the frames loads a CPU nearly as much as all frames do.
const ONE_FLOW: f64 = 0.8;
/// Inner headers help if the largest inner flow has at most this share.
const DIVIDED: f64 = 0.5;
/// A CPU or queue with this share of the frames has nearly all.
const NEARLY_ALL: f64 = 0.8;
/// With fewer flows than this per CPU, the hash puts several onto one CPU, and leaves others idle.
const FEW_FLOWS: u64 = 2;

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum Action {
    /// Nothing.
    LeaveAlone,
    /// Let the NIC spread the flows.
    NicRss,
    /// The kernel's RPS, and RFS if the sets have it.
    KernelSteering(Sets),
    /// `rxsteer run`.
    Run {
        /// Its policy.
        #[serde(serialize_with = "shown")]
        policy: Policy,
        /// Its CPUs.
        #[serde(serialize_with = "shown")]
        cpus: CpuSet,
        /// Whether it steers by the headers inside tunnels.
        inner: bool,
    },
    /// Nothing can spread a single flow.
    SingleFlow,
}

fn shown<T: ToString, S: Serializer>(value: &T, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&value.to_string())
}

/// Which rule a recommendation comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Rule {
    /// There is only one CPU.
    OneCpu,
    /// It is the loopback interface.
    Loopback,
    /// It is down.
    Down,
    /// Its packets arrive on the interfaces below it.
    Upper,
    /// Too few frames to judge.
    Quiet,
    /// The kernel does not report what the CPUs do.
    NotMeasured,
    /// No CPU is short of time, or the other CPUs share the work, or have no time left.
    NothingToRelieve,
    /// One flow has nearly all frames.
    SingleFlow,
    /// One flow has nearly all frames, and contains many inner flows.
    InnerHeaders,
    /// The NIC could use more RX queues.
    MoreQueues,
    /// The indirection table does not use all queues.
    Table,
    /// UDP is hashed by addresses only.
    HashFields,
    /// Several queues are served by one CPU.
    Interrupts,
    /// There are few flows.
    FewFlows,
    /// The kernel's steering is on, and does not suffice.
    SetOtherwise,
    /// Few queues, and many CPUs.
    FewQueues,
    /// There are enough queues, but one of them receives nearly everything.
    OneQueue,
    /// It has no hardware queues.
    Virtual,
}

/// What to do, why, and how.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Recommendation {
    /// The rule that led to this.
    pub rule: Rule,
    /// What to do.
    pub action: Action,
    /// What was measured, the conclusion and the reason, in sentences.
    pub sentences: Vec<String>,
    /// The commands to run.
    pub commands: Vec<String>,
}

/// The recommendation for these facts and this measurement.
pub fn recommend(facts: &Facts, measured: &Measurement) -> Recommendation {
    let judge = Judge { facts, measured, name: &facts.knobs.name };
    judge.recommendation()
}

struct Judge<'a> {
    facts: &'a Facts,
    measured: &'a Measurement,
    name: &'a str,
}

/// Link kinds whose packets come from another interface without a second RPS: __netif_receive_skb_core makes another
/// round, and get_rps_cpu was called before (net/core/dev.c).
const UPPER: [&str; 10] =
    ["bond", "bridge", "hsr", "ipvlan", "ipvtap", "macvlan", "macvtap", "team", "vlan", "vrf"];

/// Why an interface is left alone, whatever the measurement shows.
fn without_measurement(knobs: &InterfaceKnobs) -> Option<(Rule, String)> {
    if knobs.hardware_type == Some(LOOPBACK) {
        return Some((Rule::Loopback, LOOPBACK_IS.join(", and ")));
    }
    if !knobs.up {
        return Some((Rule::Down, is_down(&knobs.name)));
    }
    let kind = knobs.kind.as_deref().filter(|kind| UPPER.contains(kind))?;
    let why = format!(
        "{} is a {kind} interface: the kernel steers its packets where they arrive, on the interfaces below it. \
         Check those: rxsteer host recommend IFACE",
        knobs.name
    );
    Some((Rule::Upper, why))
}

/// The result of [`recommend`] for an interface that is left alone whatever the measurement shows; `None` if a
/// measurement is needed.
#[must_use]
pub fn left_alone(knobs: &InterfaceKnobs) -> Option<String> {
    without_measurement(knobs).map(|(_, why)| alone(&knobs.name, &why))
}

fn alone(name: &str, why: &str) -> String {
    format!("Leave {name} alone: {why}.")
}

impl Judge<'_> {
    fn recommendation(&self) -> Recommendation {
        if let Some((rule, why)) = without_measurement(&self.facts.knobs) {
            return self.alone(rule, why);
        }
        let sets: &Cpus = &self.facts.topology.sets;
        let Some(cpus) = sets.usable(&[]) else {
            return self.alone(
                Rule::NotMeasured,
                "the kernel does not report which CPUs are online".to_owned(),
            );
        };
        if cpus.len() == 1 {
            return self.alone(
                Rule::OneCpu,
                "there is one CPU to process packets, so there is nothing to choose".to_owned(),
            );
        }
        let relief = relief(self.name, &cpus, &self.measured.load, self.measured.time);
        match relief {
            Help::Likely(why) => self.relieved(&cpus, why),
            Help::Dont(why) => self.alone(Rule::NothingToRelieve, why),
            Help::Unknown(why) if self.is_quiet() => self.alone(Rule::Quiet, why),
            Help::Unknown(why) => self.alone(Rule::NotMeasured, why),
        }
    }

    fn is_quiet(&self) -> bool {
        self.rate().is_some_and(|rate| rate < QUIET)
    }

    /// Frames per second on this interface.
    fn rate(&self) -> Option<f64> {
        let frames = *self.measured.load.received.get(self.name)? as f64;
        Some(frames / self.measured.time.as_secs_f64().max(1e-9))
    }

    fn alone(&self, rule: Rule, why: String) -> Recommendation {
        let sentences = vec![alone(self.name, &why)];
        Recommendation { rule, action: Action::LeaveAlone, sentences, commands: Vec::new() }
    }

    /// One CPU is short of time, and others are not.
    fn relieved(&self, cpus: &CpuSet, why: String) -> Recommendation {
        let why = format!("A CPU is short of time for receiving: {why}.");
        let found =
            self.by_traffic(cpus).or_else(|| self.by_nic()).unwrap_or_else(|| self.by_kernel(cpus));
        Recommendation { sentences: [vec![why], found.sentences].concat(), ..found }
    }

    /// One flow, or few, come first: neither the NIC nor the kernel can spread them.
    fn by_traffic(&self, cpus: &CpuSet) -> Option<Recommendation> {
        let traffic = self.measured.traffic.filter(|traffic| traffic.frames > 0)?;
        let share = |frames: u64| frames as f64 / traffic.frames as f64;
        let (largest, inner) = (share(traffic.largest), share(traffic.inner_largest));
        if largest > ONE_FLOW {
            let flow = format!("One flow has {:.0} % of the frames captured", 100.0 * largest);
            if inner > DIVIDED {
                return Some(self.single_flow(&flow));
            }
            let inside = format!(
                "{flow}, a tunnel; inside it are {} flows, and the largest has {:.0} %.",
                traffic.inner_flows,
                100.0 * inner
            );
            return Some(match &self.facts.run {
                Ok(()) => {
                    let why = "Neither the NIC's RSS nor the kernel's RPS looks into most tunnels (VXLAN, Geneve, GTP-U); \
                               rxsteer run --inner does.";
                    self.run(
                        Rule::InnerHeaders,
                        Policy::Rps,
                        cpus,
                        true,
                        vec![inside, why.to_owned()],
                    )
                }
                Err(why) => {
                    let how = format!(
                        "rxsteer run --inner would spread them, but can't run here ({why}). Steer where the tunnel ends: \
                         rxsteer host recommend on the tunnel's own interface."
                    );
                    Recommendation {
                        rule: Rule::InnerHeaders,
                        action: Action::SingleFlow,
                        sentences: vec![inside, how],
                        commands: Vec::new(),
                    }
                }
            });
        }
        let is_few = traffic.flows < FEW_FLOWS * cpus.len() as u64;
        let is_divisible = traffic.flows > 1 && largest <= DIVIDED;
        if is_few && is_divisible && self.facts.run.is_ok() {
            let few = format!(
                "{} flows were seen for {} CPUs: a hash, the NIC's or the kernel's, puts several of them onto one CPU. \
                 The policy sparse gives each a CPU of its own.",
                traffic.flows,
                cpus.len()
            );
            return Some(self.run(
                Rule::FewFlows,
                Policy::Sparse(Slots::default()),
                cpus,
                false,
                vec![few],
            ));
        }
        None
    }

    fn single_flow(&self, flow: &str) -> Recommendation {
        let what = format!(
            "{flow}. A flow in order stays on one CPU, so neither RSS, RPS nor rxsteer run spreads it."
        );
        let how = "What helps: fewer and larger frames (GRO, a larger MTU), several connections or tunnels instead of one, a \
                   faster CPU, or less work for each packet. If it is a tunnel that ends here, its flows can be \
                   spread after it: rxsteer host recommend on the tunnel's own interface.";
        Recommendation {
            rule: Rule::SingleFlow,
            action: Action::SingleFlow,
            sentences: vec![what, how.to_owned()],
            commands: Vec::new(),
        }
    }

    /// The NIC's own means cost no CPU time, so they come next.
    fn by_nic(&self) -> Option<Recommendation> {
        let (knobs, spreading) = (&self.facts.knobs, &self.facts.spreading);
        let name = self.name;
        // A veth has channels, but no hash for spreading.
        knobs.driver.as_ref()?;
        let cores = self.near_cores().map_or(1, |cores| cores.len() as u32);
        if let Some(channels) = spreading.channels
            && channels.used < channels.most.min(cores)
            && !self.is_unhashed()
        {
            let wanted = channels.most.min(cores);
            let what = format!(
                "{name} uses {} of {} RX queues, and {cores} cores are near it. The NIC itself spreads flows over queues \
                 (RSS), at no cost for a CPU. Changing their number resets the link for a moment.",
                channels.used, channels.most
            );
            return Some(self.rss(
                Rule::MoreQueues,
                what,
                vec![format!("ethtool -L {name} combined {wanted}")],
            ));
        }
        let rss = spreading.rss.as_ref()?;
        let queues = knobs.rx.len();
        if queues > 1 && !rss.table.is_empty() && rss.queues() < queues {
            let what = format!(
                "{name} has {queues} RX queues, and its indirection table names {} of them, so the others receive nothing.",
                rss.queues()
            );
            return Some(self.rss(
                Rule::Table,
                what,
                vec![format!("ethtool -X {name} equal {queues}")],
            ));
        }
        if self.has_one_queue() && hashes_udp_by_addresses(rss) && self.has_many_flows() {
            let what = format!(
                "One RX queue of {queues} receives nearly everything, there are many flows, and the NIC hashes UDP by \
                 addresses only."
            );
            let commands =
                ["udp4", "udp6"].map(|kind| format!("ethtool -N {name} rx-flow-hash {kind} sdfn"));
            return Some(self.rss(Rule::HashFields, what, commands.to_vec()));
        }
        self.interrupts(queues)
    }

    /// Several queues receive, and one CPU serves their interrupts.
    fn interrupts(&self, queues: usize) -> Option<Recommendation> {
        let counts = &self.measured.interrupts;
        let all: u64 = counts.values().sum();
        let (cpu, most) = counts.iter().max_by_key(|(_, count)| **count)?;
        let spread = self.busiest_queue().is_some_and(|(_, share)| share < NEARLY_ALL);
        if queues < 2 || !spread || all == 0 || (*most as f64) < NEARLY_ALL * all as f64 {
            return None;
        }
        let what = format!(
            "The NIC spreads frames over its {queues} RX queues, but CPU {cpu} serves {:.0} % of their interrupts.",
            100.0 * *most as f64 / all as f64
        );
        let cores: Vec<CpuId> = self.near_cores()?.iter().collect();
        let numbers = self.facts.knobs.interrupts.iter().filter(|it| it.rx_queue.is_some());
        let commands = numbers.zip(cores.iter().cycle()).map(|(interrupt, cpu)| {
            format!("echo {cpu} > /proc/irq/{}/smp_affinity_list", interrupt.number)
        });
        Some(self.rss(Rule::Interrupts, what, commands.collect()))
    }

    fn rss(&self, rule: Rule, what: String, commands: Vec<String>) -> Recommendation {
        Recommendation { rule, action: Action::NicRss, sentences: vec![what], commands }
    }

    /// Whether the queues show that the NIC cannot spread what it receives.
    fn is_unhashed(&self) -> bool {
        self.facts.knobs.rx.len() > 1 && self.has_one_queue()
    }

    fn busiest_queue(&self) -> Option<(u32, f64)> {
        let all: u64 = self.measured.queues.values().sum();
        let (queue, most) = self.measured.queues.iter().max_by_key(|(_, frames)| **frames)?;
        (all > 0).then(|| (*queue, *most as f64 / all as f64))
    }

    fn has_one_queue(&self) -> bool {
        self.busiest_queue().is_some_and(|(_, share)| share >= NEARLY_ALL)
    }

    fn has_many_flows(&self) -> bool {
        self.measured.traffic.is_some_and(|traffic| traffic.flows > 16)
    }

    /// The kernel's own steering.
    fn by_kernel(&self, cpus: &CpuSet) -> Recommendation {
        let knobs = &self.facts.knobs;
        let sets = sets::sets(self.facts, self.measured, cpus, self.receiving().as_ref());
        let queues = knobs.rx.len();
        let is_on =
            |queue: &crate::RxQueue| queue.rps_cpus.as_ref().is_some_and(|set| !set.is_empty());
        let (rule, what) = if knobs.rx.iter().any(is_on) {
            (
                Rule::SetOtherwise,
                format!(
                    "The kernel's RPS is on for {}, and does not relieve that CPU with its present settings.",
                    self.name
                ),
            )
        } else if knobs.driver.is_none() {
            (
                Rule::Virtual,
                format!(
                    "{} is not a NIC, so no hardware spreads its flows; the kernel's RPS does.",
                    self.name
                ),
            )
        } else if self.is_unhashed() {
            let (queue, share) = self.busiest_queue().unwrap_or_default();
            (
                Rule::OneQueue,
                format!(
                    "RX queue {queue} of {queues} receives {:.0} % of the frames: the NIC's hash does not distinguish their flows \
                 (PPPoE, tunnels). The kernel's RPS looks further into a packet.",
                    100.0 * share
                ),
            )
        } else {
            let of = if queues == 1 {
                "There is one RX queue".to_owned()
            } else {
                format!("There are {queues} RX queues")
            };
            (
                Rule::FewQueues,
                format!(
                    "{of} for {} CPUs; the kernel's RPS spreads the work after it.",
                    cpus.len()
                ),
            )
        };
        let mut sentences = vec![what];
        sentences.extend(sets.why.iter().cloned());
        if self.facts.run.is_ok() {
            sentences.push(format!(
                "rxsteer run {} would move more of the work (it acts before a socket buffer is made) and keep order when \
                 settings change; rxsteer auto {} --verify 60s measures which is faster here.",
                self.name, self.name
            ));
        }
        let commands = sets.commands(self.name, self.facts.knobs.rx.len());
        Recommendation { rule, action: Action::KernelSteering(sets), sentences, commands }
    }

    fn run(
        &self,
        rule: Rule,
        policy: Policy,
        cpus: &CpuSet,
        inner: bool,
        sentences: Vec<String>,
    ) -> Recommendation {
        let with = if inner { " --inner" } else { "" };
        let list = cpus.as_option();
        let commands =
            vec![format!("rxsteer run {} --policy {policy} --cpus {list}{with}", self.name)];
        Recommendation {
            rule,
            action: Action::Run { policy, cpus: cpus.clone(), inner },
            sentences,
            commands,
        }
    }

    /// The CPUs that receive from this interface: those that serve its interrupts, or the one with the most time in
    /// softirqs.
    fn receiving(&self) -> Option<CpuSet> {
        let served = self.facts.knobs.interrupt_cpus();
        let busiest = || {
            let loads = self.measured.load.cpus.iter();
            let busiest = loads.max_by(|a, b| in_softirqs(a).total_cmp(&in_softirqs(b)))?;
            CpuSet::new(u16::try_from(busiest.cpu).ok().and_then(CpuId::new))
        };
        served.or_else(busiest)
    }

    /// One CPU of each core near the interface.
    fn near_cores(&self) -> Option<CpuSet> {
        let topology = &self.facts.topology;
        let near = self.receiving().and_then(|cpus| topology.near(&cpus));
        Some(topology.one_per_core(&topology.sets.usable(&[near])?))
    }
}

/// Whether UDP is hashed by addresses only, if the driver reports what it hashes.
fn hashes_udp_by_addresses(rss: &Rss) -> bool {
    let udp = rss.fields.get("udp4");
    udp.is_some_and(|fields| !fields.is_empty() && !fields.iter().any(|field| field.contains("l4")))
}

/// Whether this CPU spends so much time in softirqs that the sets leave it out.
fn is_busy(load: &Load, cpu: CpuId) -> bool {
    let of = load.cpus.iter().find(|other| other.cpu == u32::from(cpu.get()));
    of.is_some_and(|of| in_softirqs(of) >= BUSY)
}
