//! `[machine]`, `[[pause]]`, `[[nic]]`, `[costs]` and `[wire]`.

use super::error::FileError;
use super::fields::{Fields, Item, Keys};
use super::tree::{Node, Value};
use crate::check::{MAX_CPUS, MAX_NICS};
use crate::costs::{COSTS, default_costs};
use crate::scenario::{Costs, Cpu, Interrupts, Nic, Pause};
use rxsteer_core::limits::MAX_RX_QUEUES;
use rxsteer_core::{CpuId, CpuSet};

/// The keys of the machine.
pub(super) const MACHINE: Keys =
    Keys { table: "[machine]", keys: &["cpus", "speed", "smt", "smt_speed", "caches"] };

/// The keys of a kind of pauses.
pub(super) const PAUSE: Keys = Keys { table: "[[pause]]", keys: &["every", "lasts"] };

/// The keys of a NIC.
pub(super) const NIC: Keys = Keys {
    table: "[[nic]]",
    keys: &["name", "rate", "queues", "irq_cpus", "interrupts", "ring", "moderation"],
};

/// The keys of the costs.
pub(super) const COST_KEYS: Keys = Keys { table: "[costs]", keys: &COST_NAMES };

/// The key of `[costs]` that names a set of other costs.
pub(super) const SET: Keys = Keys { table: "[costs]", keys: &["set"] };

const COST_NAMES: [&str; COSTS.len()] = {
    let mut names = [""; COSTS.len()];
    let mut index = 0;
    while index < names.len() {
        names[index] = COSTS[index].key;
        index += 1;
    }
    names
};

/// The keys of the path to far hosts.
pub(super) const WIRE: Keys = Keys { table: "[wire]", keys: &["delay", "switch"] };

/// The default speed of each of two busy SMT siblings: together 1.3 times one alone.
const SMT_SPEED: f64 = 0.65;
/// The default rate of a NIC.
const RATE: f64 = 1e9;
/// The default number of slots of a ring; Linux drivers default to 256 to 1024.
const RING: u32 = 512;
/// The default time between interrupts; assumed.
const MODERATION_NS: u64 = 20_000;
/// The default delay of a cable and the far host's NIC; assumed.
const WIRE_DELAY_NS: u64 = 10_000;
/// The default delay of a switch; assumed.
const SWITCH_DELAY_NS: u64 = 5_000;

type Read<T> = Result<T, FileError>;

fn table<'a>(top: &Fields<'a>, key: &str, keys: &Keys) -> Read<Option<Fields<'a>>> {
    top.maybe(key, |item| Fields::open(item, keys.table, &[keys]))
}

/// The CPUs.
pub(super) fn cpus(top: &Fields<'_>) -> Read<Vec<Cpu>> {
    let what = "a table with the number of 'cpus'";
    let machine = table(top, "machine", &MACHINE)?.ok_or_else(|| top.missing("machine", what))?;
    let count: usize = machine.needed("cpus", "how many CPUs there are, e.g. 4", |item| {
        let count = item.whole()?;
        match count {
            0 => Err(item.wrong("the machine has no CPUs; give it at least one")),
            1..=MAX_CPUS => Ok(count),
            _ => Err(item.wrong(format!("{count} CPUs are too many: at most {MAX_CPUS}"))),
        }
    })?;
    let speeds = machine.or("speed", vec![1.0; count], |item| speeds(item, count))?;
    let alone = (0..count as u16).collect();
    let core = machine.or("smt", alone, |item| groups(item, count))?;
    let cache = machine.or("caches", vec![0; count], |item| groups(item, count))?;
    let cpu = |id: usize| Cpu { speed: speeds[id], core: core[id], cache: cache[id] };
    Ok((0..count).map(cpu).collect())
}

/// One speed for all CPUs, or a list with one for each.
fn speeds(item: &Item<'_>, count: usize) -> Read<Vec<f64>> {
    if !matches!(item.node.value, Value::List(_)) {
        return Ok(vec![item.number()?; count]);
    }
    let speeds = item.list("speeds")?;
    if speeds.len() != count {
        return Err(item.wrong(format!(
            "there are {} speeds for {count} CPUs; give one for each, or one number for all",
            speeds.len()
        )));
    }
    speeds.iter().map(Item::number).collect()
}

/// For each CPU, the number of its group, which is the group's lowest CPU. A CPU in no group forms its own group.
fn groups(item: &Item<'_>, count: usize) -> Read<Vec<u16>> {
    let mut group_of: Vec<u16> = (0..count as u16).collect();
    let mut named = vec![false; count];
    for group in item.list("a list of CPU lists, e.g. [\"0-1\", \"2-3\"]")? {
        let cpus = group.cpus()?;
        for cpu in cpus.iter() {
            if cpu.index() >= count {
                let last = count - 1;
                return Err(group.wrong(format!("there is no CPU {cpu}: they are 0 to {last}")));
            }
            if named[cpu.index()] {
                return Err(group.wrong(format!("CPU {cpu} is in two groups; leave it in one")));
            }
            named[cpu.index()] = true;
            group_of[cpu.index()] = cpus.lowest().get();
        }
    }
    Ok(group_of)
}

/// The speed of each of two busy SMT siblings.
pub(super) fn smt_speed(top: &Fields<'_>) -> Read<f64> {
    match table(top, "machine", &MACHINE)? {
        Some(machine) => machine.or("smt_speed", SMT_SPEED, Item::number),
        None => Ok(SMT_SPEED),
    }
}

/// The kinds of pauses.
pub(super) fn pauses(top: &Fields<'_>) -> Read<Vec<Pause>> {
    top.or("pause", Vec::new(), |item| {
        item.list("a list of tables, [[pause]]")?.iter().map(pause).collect()
    })
}

fn pause(item: &Item<'_>) -> Read<Pause> {
    let pause = Fields::open(item, PAUSE.table, &[&PAUSE])?;
    let needed = |key, what| pause.needed(key, what, Item::time_ns);
    Ok(Pause {
        every_ns: needed("every", "the mean time from one pause to the next, e.g. \"10ms\"")?,
        lasts_ns: needed("lasts", "how long a pause lasts, e.g. \"50us\"")?,
    })
}

/// The NICs.
pub(super) fn nics(top: &Fields<'_>) -> Read<Vec<Nic>> {
    let items = top.needed("nic", "a card that packets come in by: add a [[nic]]", |item| {
        let items = item.list("a list of tables, [[nic]]")?;
        if items.len() > MAX_NICS {
            return Err(item.wrong(format!("there are {} cards, at most {MAX_NICS}", items.len())));
        }
        Ok(items)
    })?;
    items.iter().enumerate().map(|(index, item)| nic(item, index)).collect()
}

fn nic(item: &Item<'_>, index: usize) -> Read<Nic> {
    let nic = Fields::open(item, NIC.table, &[&NIC])?;
    let name = nic.or("name", format!("eth{index}"), |item| Ok(item.text()?.to_string()))?;
    Ok(Nic {
        name,
        rate: nic.or("rate", RATE, Item::bit_rate)?,
        irq_cpus: irq_cpus(&nic)?,
        interrupts: nic.or("interrupts", Interrupts::Fixed, interrupts)?,
        ring: nic.or("ring", RING, Item::whole)?,
        moderation_ns: nic.or("moderation", MODERATION_NS, Item::time_ns)?,
    })
}

/// The CPU of each RX queue: the listed CPUs in turn.
fn irq_cpus(nic: &Fields<'_>) -> Read<Vec<CpuId>> {
    let named: Vec<CpuId> =
        nic.or("irq_cpus", CpuSet::first(1).iter().flat_map(CpuSet::iter).collect(), |item| {
            match item.node.value {
                Value::List(_) => item.list("CPUs")?.iter().map(Item::cpu).collect(),
                _ => Ok(item.cpus()?.iter().collect()),
            }
        })?;
    let Some(item) = nic.get("queues") else { return Ok(named) };
    let queues: usize = item.whole()?;
    if !(1..=usize::from(MAX_RX_QUEUES)).contains(&queues) {
        return Err(item.wrong(format!("it is {queues}; it must be 1 to {MAX_RX_QUEUES}")));
    }
    if named.len() > queues {
        return Err(item.wrong(format!(
            "'irq_cpus' names {} CPUs for {queues} RX queues; name as many as there are queues, or fewer",
            named.len()
        )));
    }
    Ok(named.iter().copied().cycle().take(queues).collect())
}

/// `fixed`, or `spread:` with a CPU list.
fn interrupts(item: &Item<'_>) -> Read<Interrupts> {
    match item.text()?.split_once(':') {
        None if item.text()? == "fixed" => Ok(Interrupts::Fixed),
        Some(("spread", cpus)) => {
            cpus.parse().map(Interrupts::Spread).map_err(|error| item.wrong(format!("{error}")))
        }
        _ => Err(item.wrong(format!(
            "expected \"fixed\" or \"spread:CPUS\", e.g. \"spread:0-3\", not {}",
            Node::shown(item.node)
        ))),
    }
}

/// The costs: those of `[costs]`, which override those of the set that `set` names.
pub(super) fn costs(top: &Fields<'_>) -> Read<Costs> {
    let mut costs = default_costs();
    let mut sets = Vec::new();
    if let Some(all) = top.get("cost_set") {
        for (name, node) in all.entries()? {
            let item = all.entry(name, node);
            sets.push((name, Fields::open(&item, "[cost_set.NAME]", &[&COST_KEYS])?));
        }
    }
    let table = top.maybe("costs", |item| Fields::open(item, "[costs]", &[&COST_KEYS, &SET]))?;
    let Some(table) = table else { return Ok(costs) };
    read_costs(&table, &mut costs)?;
    if let Some(chosen) = table.get("set") {
        let name = chosen.text()?;
        let names: Vec<&str> = sets.iter().map(|(name, _)| name.as_str()).collect();
        let (_, set) = sets.iter().find(|(of, _)| of.as_str() == name).ok_or_else(|| {
            chosen.wrong(match names[..] {
                [] => "the file has no table [cost_set.NAME]".to_owned(),
                _ => format!("there is no [cost_set.{name}]; there are: {}", names.join(", ")),
            })
        })?;
        read_costs(set, &mut costs)?;
    }
    Ok(costs)
}

/// Replaces the costs that the table has.
fn read_costs(table: &Fields<'_>, costs: &mut Costs) -> Read<()> {
    for cost in &COSTS {
        let field = (cost.field)(costs);
        *field = table.or(cost.key, *field, Item::cost_ns)?;
    }
    Ok(())
}

/// The delay of a frame to a far host.
pub(super) fn wire_ns(top: &Fields<'_>) -> Read<u64> {
    let Some(wire) = table(top, "wire", &WIRE)? else {
        return Ok(WIRE_DELAY_NS + SWITCH_DELAY_NS);
    };
    let delay = wire.or("delay", WIRE_DELAY_NS, Item::time_ns)?;
    Ok(delay + wire.or("switch", SWITCH_DELAY_NS, Item::time_ns)?)
}
