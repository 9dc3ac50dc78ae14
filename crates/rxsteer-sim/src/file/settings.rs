//! `[steering]` and `[scheduler]`.

use super::error::FileError;
use super::fields::{Fields, Item, Keys};
use super::tree::{Origin, Value};
use crate::check::MAX_BUDGET;
use crate::scenario::{Placement, Scheduler, Steering};
use clap::Args;
use rxsteer_core::{CpuSet, Policy};
use rxsteer_settings::{Rules, Tables, Text, backlog, read, whole};

/// The settings of `[steering]`, also in an event: those of the command line, and two more.
#[derive(Args)]
pub(super) struct SteeringKeys {
    #[command(flatten)]
    steering: rxsteer_settings::Steering,
    #[command(flatten)]
    rules: Rules,
    #[command(flatten)]
    tables: Tables,
    #[arg(long, value_parser = backlog)]
    max_backlog: Option<u32>,
    #[arg(long, value_parser = whole::<u32, 1, { MAX_BUDGET as u64 }>)]
    budget: Option<u32>,
}

/// The keys of the scheduler.
pub(super) const SCHEDULER: Keys = Keys {
    table: "[scheduler]",
    keys: &["cpus", "placement", "slice", "softirq", "balance", "newidle"],
};

/// Linux's base slice on a machine of eight CPUs or more.
const SLICE_NS: u64 = 3_000_000;
/// Linux's `MAX_SOFTIRQ_TIME`: 2 ms.
const SOFTIRQ_NS: u64 = 2_000_000;
/// A tick at 250 Hz, at which Linux checks whether threads wait; assumed.
const BALANCE_NS: u64 = 4_000_000;

type Read<T> = Result<T, FileError>;

/// The steering at the start of a run.
pub(super) fn steering(top: &Fields<'_>, cpus: usize) -> Read<Steering> {
    let default = Steering::new(Policy::None, all(cpus));
    top.or("steering", default.clone(), |item| changed(item, &default))
}

/// The settings that an item changes, applied to the previous ones.
pub(super) fn changed(item: &Item<'_>, before: &Steering) -> Read<Steering> {
    let (texts, origins) = texts(item)?;
    let given: SteeringKeys = read(texts).map_err(|refused| FileError::Setting {
        place: item.document.place(origins.get(refused.place).copied().unwrap_or(item.node.origin)),
        path: item.path.clone(),
        refused,
    })?;
    let SteeringKeys { steering, rules, tables, max_backlog, budget } = given;
    let before = before.clone();
    Ok(Steering {
        // The machine's CPUs are numbered from 0, so a count selects the first ones.
        cpus: steering.cpus.as_ref().map_or(before.cpus, |choice| choice.cpus(None)),
        packet_rules: rules.rules().unwrap_or(before.packet_rules),
        rps_maps: steering.rps_maps().unwrap_or(before.rps_maps),
        fallback: steering.fallback.unwrap_or(before.fallback),
        rfs_cpus: steering.rfs_cpus().unwrap_or(before.rfs_cpus),
        flow_limit: steering.flow_limit().unwrap_or(before.flow_limit),
        policy: steering.policy.unwrap_or(before.policy),
        sock_flow_entries: tables.sock_flow_entries.unwrap_or(before.sock_flow_entries),
        flow_cnt: tables.flow_cnt.or(before.flow_cnt),
        max_backlog: max_backlog.unwrap_or(before.max_backlog),
        budget: budget.unwrap_or(before.budget),
    })
}

/// The settings of a table in the form of the command line, in the order of the file, and the origin of each.
fn texts(item: &Item<'_>) -> Read<(Vec<Text>, Vec<Origin>)> {
    let mut entries: Vec<_> = item.entries()?.iter().collect();
    entries.sort_by_key(|(_, node)| node.origin);
    let (mut texts, mut origins) = (Vec::new(), Vec::new());
    let mut add = |name: &str, value: String, origin| {
        texts.push(Text::new(name, value, origins.len()));
        origins.push(origin);
    };
    for (name, node) in entries {
        let item = item.entry(name, node);
        match &node.value {
            // Settings of several RX queues.
            Value::Table(queues) => {
                for (queue, node) in queues {
                    let value = item.entry(queue, node).scalar()?;
                    add(name, format!("{queue}={value}"), node.origin);
                }
            }
            // Several rules.
            Value::List(items) if items.is_empty() => add(name, "none".to_owned(), node.origin),
            Value::List(items) => {
                for (index, node) in items.iter().enumerate() {
                    add(name, item.entry(&index.to_string(), node).scalar()?, node.origin);
                }
            }
            _ => add(name, item.scalar()?, node.origin),
        }
    }
    Ok((texts, origins))
}

/// The scheduler's settings.
pub(super) fn scheduler(top: &Fields<'_>, cpus: usize) -> Read<Scheduler> {
    let default = Scheduler {
        cpus: all(cpus),
        placement: Placement::Sticky,
        slice_ns: SLICE_NS,
        softirq_ns: SOFTIRQ_NS,
        balance_ns: BALANCE_NS,
        newidle: false,
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
        newidle: given.or("newidle", default.newidle, Item::flag)?,
    })
}

/// All CPUs of a machine with `cpus` CPUs, at least one.
fn all(cpus: usize) -> CpuSet {
    CpuSet::first(cpus as u16).expect("the number of CPUs was checked when it was read")
}
