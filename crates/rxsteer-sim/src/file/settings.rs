//! `[steering]` and `[scheduler]`.

use super::error::{FileError, nearest};
use super::fields::{Fields, Item, Keys};
use crate::scenario::{Placement, Scheduler, Steering};
use rxsteer_core::policy::PolicyError;
use rxsteer_core::{CpuSet, Fallback, Policy, QueueName};

/// The keys of the steering, also in an event.
pub(super) const STEERING: Keys = Keys {
    table: "[steering]",
    keys: &[
        "policy",
        "cpus",
        "maps",
        "else",
        "rfs_cpus",
        "sock_flow_entries",
        "flow_cnt",
        "flow_limit",
        "max_backlog",
        "budget",
    ],
};

/// The keys of the scheduler.
pub(super) const SCHEDULER: Keys =
    Keys { table: "[scheduler]", keys: &["cpus", "placement", "slice", "softirq", "balance"] };

/// Linux's base slice on a machine of eight CPUs or more.
const SLICE_NS: u64 = 3_000_000;
/// Linux's `MAX_SOFTIRQ_TIME`: 2 ms.
const SOFTIRQ_NS: u64 = 2_000_000;
/// A tick at 250 Hz, at which Linux looks whether threads wait; assumed.
const BALANCE_NS: u64 = 4_000_000;

type Read<T> = Result<T, FileError>;

/// The steering that a run begins with.
pub(super) fn steering(top: &Fields<'_>, cpus: usize) -> Read<Steering> {
    let default = Steering::new(Policy::None, all(cpus));
    top.or("steering", default.clone(), |item| changed(item, &default))
}

/// The settings that an item changes, on top of those before.
pub(super) fn changed(item: &Item<'_>, before: &Steering) -> Read<Steering> {
    let given = Fields::open(item, STEERING.table, &[&STEERING])?;
    let before = before.clone();
    Ok(Steering {
        policy: given.or("policy", before.policy, policy)?,
        cpus: given.or("cpus", before.cpus, Item::cpus)?,
        rps_maps: given.or("maps", before.rps_maps, maps)?,
        fallback: given.or("else", before.fallback, |item| {
            item.word(
                &[Fallback::Hash, Fallback::Local].map(|is| (Fallback::NAMES[is as usize], is)),
            )
        })?,
        rfs_cpus: given.maybe("rfs_cpus", Item::cpus)?.or(before.rfs_cpus),
        sock_flow_entries: given.or("sock_flow_entries", before.sock_flow_entries, Item::whole)?,
        flow_cnt: given.maybe("flow_cnt", Item::whole)?.or(before.flow_cnt),
        flow_limit: given.maybe("flow_limit", Item::whole)?.or(before.flow_limit),
        max_backlog: given.or("max_backlog", before.max_backlog, Item::whole)?,
        budget: given.or("budget", before.budget, Item::whole)?,
    })
}

fn policy(item: &Item<'_>) -> Read<Policy> {
    item.text()?.parse().map_err(|error: PolicyError| {
        let hint = match &error {
            PolicyError::UnknownName(name) => match nearest(name, Policy::NAMES.into_iter()) {
                Some(nearest) => format!("; nearest policy '{nearest}'"),
                None => format!("; they are '{}'", Policy::NAMES.join("', '")),
            },
            _ => String::new(),
        };
        item.wrong(format!("{error}{hint}"))
    })
}

/// CPU maps by the number of their RX queue.
fn maps(item: &Item<'_>) -> Read<Vec<(QueueName, CpuSet)>> {
    let mut maps = Vec::new();
    for (key, node) in item.entries()? {
        let map = Item { node, path: format!("{}.{key}", item.path), ..item.clone() };
        let Ok(queue) = key.parse::<u16>() else {
            return Err(map.wrong(format!(
                "'{key}' is no RX queue; write its number and its CPUs, e.g. maps = {{ 1 = \"0-3\" }}"
            )));
        };
        let queue = QueueName::from(queue);
        if maps.iter().any(|(mapped, _)| *mapped == queue) {
            return Err(map.wrong(format!("RX queue {queue} has two CPU maps")));
        }
        maps.push((queue, map.cpus()?));
    }
    maps.sort_by_key(|(queue, _): &(QueueName, CpuSet)| queue.queue());
    Ok(maps)
}

/// Where threads run.
pub(super) fn scheduler(top: &Fields<'_>, cpus: usize) -> Read<Scheduler> {
    let default = Scheduler {
        cpus: all(cpus),
        placement: Placement::Sticky,
        slice_ns: SLICE_NS,
        softirq_ns: SOFTIRQ_NS,
        balance_ns: BALANCE_NS,
    };
    let Some(item) = top.get("scheduler") else { return Ok(default) };
    let given = Fields::open(&item, SCHEDULER.table, &[&SCHEDULER])?;
    let words =
        [("pinned", Placement::Pinned), ("sticky", Placement::Sticky), ("waker", Placement::Waker)];
    Ok(Scheduler {
        cpus: given.or("cpus", default.cpus, Item::cpus)?,
        placement: given.or("placement", default.placement, |item| item.word(&words))?,
        slice_ns: given.or("slice", default.slice_ns, Item::time_ns)?,
        softirq_ns: given.or("softirq", default.softirq_ns, Item::time_ns)?,
        balance_ns: given.or("balance", default.balance_ns, Item::time_ns)?,
    })
}

/// All CPUs of a machine of so many, which has one at least.
fn all(cpus: usize) -> CpuSet {
    CpuSet::first(cpus as u16).expect("the number of CPUs was checked when it was read")
}
