//! CPU sets and table sizes for the kernel's own steering, by Documentation/networking/scaling.rst:
//!
//! - RPS uses CPUs that share the cache of the CPU that serves the queue's interrupt ("the ones that share the same
//!   memory domain as the interrupting CPU for that queue").
//! - "At high interrupt rate, it might be wise to exclude the interrupting CPU from the map since that already performs
//!   much work."
//! - RFS is used if applications of this host receive; the sizes are those of a plan
//!   ([`flow_sizes`](crate::change::flow_sizes)).

use super::{Facts, Measurement, is_busy};
use crate::change::{Wanted, flow_sizes};
use crate::mask::CpuMask;
use rxsteer_core::{CpuId, CpuSet};
use serde::Serialize;

/// If applications of this host receive more than this share of the IP packets, RFS is worth its tables.
const DELIVERED: f64 = 0.5;

/// What to set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Sets {
    /// The CPU maps: (RX queue, CPUs). Queues that are not listed keep theirs.
    #[serde(serialize_with = "by_queue")]
    pub rps: Vec<(u32, CpuSet)>,
    /// The same, as the kernel writes them.
    pub masks: Vec<String>,
    /// The number of entries of the sock flow table and of each queue's flow table, for RFS.
    #[serde(serialize_with = "entries")]
    pub rfs: Option<(u64, u64)>,
    /// The reasons.
    #[serde(skip)]
    pub why: Vec<String>,
}

fn by_queue<S: serde::Serializer>(rps: &[(u32, CpuSet)], to: S) -> Result<S::Ok, S::Error> {
    to.collect_map(rps.iter().map(|(queue, cpus)| (queue, cpus.to_string())))
}

/// `{"sock_flow_entries": …, "flow_cnt": …}`, named after the options of `rxsteer run`.
fn entries<S: serde::Serializer>(rfs: &Option<(u64, u64)>, to: S) -> Result<S::Ok, S::Error> {
    match rfs {
        Some((all, queue)) => to.collect_map([("sock_flow_entries", all), ("flow_cnt", queue)]),
        None => to.serialize_none(),
    }
}

impl Sets {
    /// The sets in the form that a plan needs.
    pub fn wanted(&self) -> Wanted {
        Wanted {
            cpus: CpuSet::new(self.rps.iter().flat_map(|(_, set)| set.iter())),
            queues: self.rps.clone(),
            rfs: self.rfs.is_some(),
            ..Wanted::default()
        }
    }

    /// The CPU set that all of `queues` queues have in common, if there is one.
    fn same(&self, queues: usize) -> Option<&CpuSet> {
        let (_, first) = self.rps.first()?;
        let same = self.rps.len() == queues && self.rps.iter().all(|(_, set)| set == first);
        same.then_some(first)
    }

    /// A command that sets them. If all queues have the same set, there is an option for it; otherwise only `auto` can
    /// set them.
    pub(super) fn commands(&self, name: &str, queues: usize) -> Vec<String> {
        let rfs = if self.rfs.is_some() { " --rfs" } else { "" };
        match self.same(queues) {
            Some(set) => {
                let set = set.as_option();
                vec![format!("rxsteer host apply {name} --cpus {set}{rfs} --verify 30s")]
            }
            None => vec![format!("rxsteer auto {name} --verify 60s")],
        }
    }
}

/// The sets, from the `usable` CPUs, for an interface whose packets arrive on the `receiving` CPUs.
pub(super) fn sets(
    facts: &Facts,
    measured: &Measurement,
    usable: &CpuSet,
    receiving: Option<&CpuSet>,
) -> Sets {
    let knobs = &facts.knobs;
    let (mut left_out, mut kept) = (false, false);
    let mut set = |queue: u32| {
        let own = knobs.interrupt_cpus_of(queue);
        let served = own.as_ref().or(receiving);
        let (set, out) = near(facts, measured, usable, served);
        left_out |= out;
        let is_kept = |cpu: CpuId| set.contains(cpu) && is_busy(&measured.load, cpu);
        kept |= served.is_some_and(|served| served.iter().any(is_kept));
        (queue, set)
    };
    let needs = needing(facts, measured);
    let rps: Vec<(u32, CpuSet)> = needs.iter().map(|queue| set(*queue)).collect();
    let width = facts.topology.ids();
    let masks = rps.iter().map(|(_, set)| CpuMask(Some(set.clone())).hex(width)).collect();
    let smt = facts.topology.one_per_core(usable).len() < usable.len();
    let why = format!(
        "The CPU sets stay within the cache of the receiving CPU{}{}.",
        if smt { ", take one CPU of each core" } else { "" },
        if left_out {
            ", and leave out the receiving CPU, which is busy enough"
        } else if kept {
            ", and include that CPU: a single other one would get all of its work"
        } else {
            ""
        }
    );
    let (rfs, why_rfs) = rfs(facts, measured);
    Sets { rps, masks, rfs, why: [why].into_iter().chain(why_rfs).collect() }
}

/// The RX queues whose packets should go to other CPUs: those whose CPU is short of time; if that is unknown, all
/// queues. The CPUs of other queues have enough time, and passing packets on would only add cost.
fn needing(facts: &Facts, measured: &Measurement) -> Vec<u32> {
    let queues = || facts.knobs.rx.iter().map(|queue| queue.queue);
    let is_served_by_busy = |queue: &u32| {
        let served = facts.knobs.interrupt_cpus_of(*queue);
        served.is_some_and(|cpus| cpus.iter().any(|cpu| is_busy(&measured.load, cpu)))
    };
    let busy: Vec<u32> = queues().filter(is_served_by_busy).collect();
    if busy.is_empty() { queues().collect() } else { busy }
}

/// The sizes for RFS if it is useful, and the reason; or why it is not useful.
fn rfs(facts: &Facts, measured: &Measurement) -> (Option<(u64, u64)>, Option<String>) {
    let (delivered, forwarded) = (measured.delivered as f64, measured.forwarded as f64);
    let all = delivered + forwarded;
    if all == 0.0 {
        return (None, None);
    }
    let share = format!("{:.0} % of its IP packets", 100.0 * delivered / all);
    if delivered <= DELIVERED * all {
        let why = format!(
            "Applications of this host receive {share}; it forwards the others, so RFS has little to follow."
        );
        return (None, Some(why));
    }
    let Some(now) = facts.globals.rps_sock_flow_entries else {
        let why =
            "RFS can't be set here: only the first network namespace shows rps_sock_flow_entries.";
        return (None, Some(why.to_owned()));
    };
    let why = format!(
        "Applications of this host receive {share}: RFS steers them to the CPUs where these applications run."
    );
    (Some(flow_sizes(now, facts.knobs.rx.len())), Some(why))
}

/// The CPUs near those that serve a queue, and whether the serving CPUs were left out.
fn near(
    facts: &Facts,
    measured: &Measurement,
    usable: &CpuSet,
    served: Option<&CpuSet>,
) -> (CpuSet, bool) {
    let topology = &facts.topology;
    let Some(served) = served else { return (topology.one_per_core(usable), false) };
    let domain = topology.near(served);
    let near = CpuSet::new(
        usable.iter().filter(|cpu| domain.as_ref().is_none_or(|domain| domain.contains(*cpu))),
    );
    let busy: Vec<_> = served.iter().filter(|cpu| is_busy(&measured.load, *cpu)).collect();
    // The nearest set with more than one CPU; whole cores first, then their siblings. If there were only a single other
    // CPU, it would get all the work that was too much for this one. So then both share it.
    let Some(from) = near.iter().chain([usable]).find(|from| from.len() > 1) else {
        return (usable.clone(), false);
    };
    let is_free = |cpu: &CpuId| {
        let siblings = topology.place(*cpu).and_then(|place| place.siblings.as_ref());
        !busy
            .iter()
            .any(|busy| busy == cpu || siblings.is_some_and(|siblings| siblings.contains(*busy)))
    };
    let cores = CpuSet::new(from.iter().filter(is_free)).map(|free| topology.one_per_core(&free));
    let free = || CpuSet::new(from.iter().filter(|cpu| !busy.contains(cpu)));
    let several = |set: &CpuSet| set.len() > 1;
    match cores.filter(several).or_else(|| free().filter(several)) {
        Some(set) => (set, !busy.is_empty()),
        None => (from.clone(), false),
    }
}
