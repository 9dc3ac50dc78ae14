//! `rxsteer host show`: prints the settings, as text and as JSON.

use super::args::ShowArgs;
use super::listed;
use crate::Outcome;
use crate::check::{self, show::entry};
use crate::output::print;
use rxsteer_host::{
    CpuMask, Globals, Interface, InterfaceKnobs, Interrupt, Load, Offloads, Other, Root, Spreading,
    Topology, others,
};
use rxsteer_user::printable;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// The column at which texts begin.
const INDENT: usize = 26;
/// If there are more interrupts, they are shown in one line.
const MAX_INTERRUPTS: usize = 8;

/// All collected facts.
struct HostFacts {
    topology: Topology,
    core: Globals,
    interfaces: Vec<InterfaceFacts>,
    others: Vec<Other>,
    /// Counters since boot, or for this period.
    softnet: Option<Load>,
    sample: Option<Duration>,
}

/// One interface.
struct InterfaceFacts {
    knobs: InterfaceKnobs,
    /// What netlink reports; `None` for a recorded tree.
    offloads: Option<Offloads>,
    spreading: Spreading,
}

/// The command.
pub(crate) fn command(root: &Root, args: &ShowArgs) -> anyhow::Result<Outcome> {
    let facts = HostFacts::read(root, args)?;
    print(&if args.json { format!("{:#}\n", facts.json()) } else { facts.text() })?;
    Ok(Outcome::Success)
}

impl HostFacts {
    fn read(root: &Root, args: &ShowArgs) -> anyhow::Result<HostFacts> {
        let links = listed(root)?;
        let chosen = match (args.interfaces.as_slice(), root.is_host()) {
            ([], true) => check::nics(&links),
            ([], false) => links.iter().filter(|link| link.name != "lo").collect(),
            (names, _) => check::chosen(names, &links)?,
        };
        let mut interfaces = Vec::new();
        for link in chosen {
            let facts = root.is_host().then(|| Interface::of_link(link, &links));
            interfaces.push(InterfaceFacts {
                knobs: InterfaceKnobs::read(root, &link.name)?,
                offloads: facts.and_then(|facts| facts.offloads),
                spreading: if root.is_host() {
                    Spreading::read(link.index)
                } else {
                    Spreading::default()
                },
            });
        }
        let before = Load::read_in(root);
        if let Some(time) = args.duration {
            std::thread::sleep(time);
        }
        let softnet = match args.duration {
            None => before,
            Some(_) => Load::read_in(root).zip(before).map(|(after, before)| after.since(&before)),
        };
        Ok(HostFacts {
            topology: Topology::read(root),
            core: Globals::read(root),
            interfaces,
            others: others(root),
            softnet,
            sample: args.duration,
        })
    }

    fn json(&self) -> Value {
        let interface = |of: &InterfaceFacts| {
            let mut value = json!(of.knobs);
            value["offloads"] = json!(of.offloads);
            value["rss"] = json!(of.spreading.rss);
            value["channels"] = json!(of.spreading.channels);
            value["napi"] = json!(of.spreading.napi);
            value
        };
        let elapsed = self.sample.map(|time| time.as_nanos() as u64);
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "cpus": self.topology.cpus,
            "core": self.core,
            "interfaces": self.interfaces.iter().map(interface).collect::<Vec<_>>(),
            "softnet": self.softnet.as_ref().map(|load| {
                json!({ "elapsed_ns": elapsed, "cpus": load.cpus.iter().map(|cpu| self.counted(cpu)).collect::<Vec<_>>() })
            }),
            "others": self.others,
        })
    }

    /// Counts since boot, or rates per second.
    fn counted(&self, cpu: &rxsteer_host::CpuLoad) -> Value {
        let count = |count: u32| match self.sample {
            None => json!(count),
            Some(time) => json!(f64::from(count) / time.as_secs_f64()),
        };
        json!({
            "cpu": cpu.cpu,
            "processed": count(cpu.processed),
            "dropped": count(cpu.dropped),
            "squeezed": count(cpu.squeezed),
            "received_rps": count(cpu.received_rps),
            "flow_limited": count(cpu.flow_limited),
            "softirq_share": (cpu.ticks.softirq as f64) / cpu.ticks.all.max(1) as f64,
        })
    }

    fn text(&self) -> String {
        let mut text = String::new();
        text += "host\n";
        for (name, what) in self.cpu_lines().into_iter().chain(self.core_lines()) {
            entry(&mut text, &format!("  {name}"), INDENT, &what);
        }
        self.softnet_lines(&mut text);
        if self.others.is_empty() {
            entry(&mut text, "  set by others", INDENT, "nothing else was found that sets these");
        }
        for other in &self.others {
            let what = format!("{}: {}", printable(&other.what), other.effect);
            entry(&mut text, "  set by others", INDENT, &what);
        }
        for interface in &self.interfaces {
            text += &format!("\n{}\n", printable(&interface.knobs.name));
            for (name, what) in interface.lines() {
                entry(&mut text, &format!("  {name}"), INDENT, &what);
            }
        }
        if self.interfaces.is_empty() {
            text += "\nThere is no NIC here; name an interface to look at it.\n";
        }
        text
    }

    fn cpu_lines(&self) -> Vec<(String, String)> {
        let sets = &self.topology.sets;
        let mask = |set: &Option<_>| CpuMask(Option::clone(set)).to_string();
        let mut lines = vec![("online".to_owned(), mask(&sets.online))];
        for (name, set) in [
            ("offline", &self.topology.offline()),
            ("isolated", &sets.isolated),
            ("without tick", &sets.nohz_full),
        ] {
            if set.is_some() {
                lines.push((name.to_owned(), mask(set)));
            }
        }
        for (what, cpus) in self.domains() {
            lines.push((what, cpus));
        }
        lines
    }

    /// The CPUs by cache: package, node, and which of them are siblings.
    fn domains(&self) -> Vec<(String, String)> {
        let mut groups = BTreeMap::<_, Vec<_>>::new();
        for place in self.topology.cpus.iter().filter(|place| place.online) {
            let cache = place.last_level_cache.as_ref().map(|set| set.lowest().get());
            groups.entry((place.package, place.node, cache)).or_default().push(place);
        }
        let group =
            |(number, ((package, node, _), places)): (usize, (_, Vec<&rxsteer_host::CpuPlace>))| {
                let (package, node): (Option<u32>, Option<u32>) = (package, node);
                let set =
                    CpuMask(rxsteer_user::core::CpuSet::new(places.iter().map(|place| place.cpu)));
                let cores = places
                    .iter()
                    .map(|place| place.siblings.as_ref().map_or(place.cpu, |of| of.lowest()));
                let cores = rxsteer_user::core::CpuSet::new(cores).map_or(0, |set| set.len());
                let threads = if cores < places.len() {
                    format!(", on {cores} cores (SMT)")
                } else {
                    String::new()
                };
                let part = |name: &str, number: Option<u32>| {
                    number.map(|number| format!(", {name} {number}")).unwrap_or_default()
                };
                let what = format!(
                    "{set}{threads}{}{}",
                    part("package", package),
                    part("NUMA node", node)
                );
                (format!("last-level cache {number}"), what)
            };
        groups.into_iter().enumerate().map(group).collect()
    }

    fn core_lines(&self) -> Vec<(String, String)> {
        let core = &self.core;
        let unknown = || "unknown".to_owned();
        let number = |number: Option<u64>| number.map_or_else(unknown, |number| number.to_string());
        let mask = |mask: &Option<CpuMask>| mask.as_ref().map_or_else(unknown, ToString::to_string);
        let flows = match core.rps_sock_flow_entries {
            Some(0) => "0, so RFS is off".to_owned(),
            Some(entries) => entries.to_string(),
            None => "unknown; only the first network namespace shows it".to_owned(),
        };
        let limit = format!(
            "{}, in {} buckets",
            mask(&core.flow_limit_cpu_bitmap),
            number(core.flow_limit_table_len)
        );
        [
            ("rps_sock_flow_entries", flows),
            ("netdev_max_backlog", number(core.netdev_max_backlog)),
            ("flow limit", limit),
            ("rps_default_mask", mask(&core.rps_default_mask)),
            ("netdev_budget", number(core.netdev_budget)),
            ("dev_weight", number(core.dev_weight)),
        ]
        .map(|(name, what)| (name.to_owned(), what))
        .into()
    }

    fn softnet_lines(&self, text: &mut String) {
        let Some(load) = &self.softnet else {
            entry(text, "  softnet", INDENT, "unknown");
            return;
        };
        let (since, per) = match self.sample {
            None => ("since boot".to_owned(), 1.0),
            Some(time) => ("a second".to_owned(), time.as_secs_f64()),
        };
        let is_idle = |cpu: &&rxsteer_host::CpuLoad| cpu.processed == 0 && cpu.dropped == 0;
        for cpu in load.cpus.iter().filter(|cpu| !is_idle(cpu)) {
            let count = |count: u32| f64::from(count) / per;
            let what = format!(
                "{:.0} processed, {:.0} dropped, {:.0} squeezed, {:.0} woken by RPS, {:.0} dropped by the flow limit \
                 {since}; {:.0} % of the time in softirqs",
                count(cpu.processed),
                count(cpu.dropped),
                count(cpu.squeezed),
                count(cpu.received_rps),
                count(cpu.flow_limited),
                cpu.ticks.softirq as f64 / cpu.ticks.all.max(1) as f64 * 100.0
            );
            entry(text, &format!("  softnet cpu {}", cpu.cpu), INDENT, &what);
        }
        if load.cpus.iter().all(|cpu| is_idle(&cpu)) {
            entry(text, "  softnet", INDENT, "no CPU processed a packet");
        }
    }
}

impl InterfaceFacts {
    fn lines(&self) -> Vec<(String, String)> {
        let knobs = &self.knobs;
        let mut lines = vec![("device".to_owned(), self.device())];
        let polled =
            match (knobs.threaded, self.spreading.napi.iter().filter(|napi| napi.threaded).count())
            {
                (Some(true), _) => "in threads of its own (threaded NAPI)".to_owned(),
                (_, 0) => "in softirqs".to_owned(),
                (_, some) => format!("in softirqs, but for {some} NAPI instances in threads"),
            };
        lines.push(("polled".to_owned(), polled));
        lines.extend(grouped(
            &knobs.rx,
            "rx",
            |queue| queue.queue,
            |queue| {
                let rps = queue
                    .rps_cpus
                    .as_ref()
                    .map_or_else(|| "unknown".to_owned(), ToString::to_string);
                let rfs = match queue.rps_flow_cnt {
                    Some(0) => "off".to_owned(),
                    Some(count) => format!("{count} flows"),
                    None => "unknown".to_owned(),
                };
                format!("RPS {rps}; RFS {rfs}")
            },
        ));
        lines.extend(grouped(
            &knobs.tx,
            "tx",
            |queue| queue.queue,
            |queue| {
                let rxqs = queue.xps_rxqs.as_deref().filter(|queues| !queues.is_empty());
                let rxqs =
                    rxqs.map(|queues| format!("; by RX queues {queues:?}")).unwrap_or_default();
                match &queue.xps_cpus {
                    Some(cpus) => format!("XPS {cpus}{rxqs}"),
                    None => "no XPS: it is the only one".to_owned(),
                }
            },
        ));
        if knobs.interrupts.len() <= MAX_INTERRUPTS {
            lines.extend(knobs.interrupts.iter().map(interrupt_line));
        } else {
            let served = CpuMask(knobs.interrupt_cpus());
            let what = format!("{}, served on {served}; --json has each", knobs.interrupts.len());
            lines.push(("interrupts".to_owned(), what));
        }
        lines.push(("RSS".to_owned(), self.rss()));
        if let Some(offloads) = &self.offloads {
            let on = |is_on: bool| if is_on { "on" } else { "off" };
            let what = format!(
                "GRO {}, in hardware {}; LRO {}",
                on(offloads.gro),
                on(offloads.gro_hw),
                on(offloads.lro)
            );
            lines.push(("offloads".to_owned(), what));
        }
        lines
    }

    fn device(&self) -> String {
        let knobs = &self.knobs;
        let what = match (&knobs.driver, &knobs.kind) {
            (Some(driver), _) => format!("driver {}", printable(driver)),
            (None, Some(kind)) => format!("virtual ({})", printable(kind)),
            (None, None) => "virtual".to_owned(),
        };
        let node = knobs.numa_node.map(|node| format!(", NUMA node {node}")).unwrap_or_default();
        let channels = self.spreading.channels.filter(|channels| channels.most > 0);
        let channels = channels.map(|channels| {
            format!(", {} of {} channels in use (ethtool -L)", channels.used, channels.most)
        });
        let state = if knobs.up { "up" } else { "down" };
        format!("{what}{node}, {state}{}", channels.unwrap_or_default())
    }

    fn rss(&self) -> String {
        let Some(rss) = &self.spreading.rss else {
            return "the driver does not report it".to_owned();
        };
        let table = match rss.queues() {
            0 => "no indirection table".to_owned(),
            queues => format!("{} entries name {queues} RX queues", rss.table.len()),
        };
        let function = rss.function.as_deref().unwrap_or("an unknown function");
        let fields = |flow: &str| {
            let fields = rss.fields.get(flow)?;
            // A driver reports no fields for kinds of packets that it does not hash.
            Some(match fields.is_empty() {
                true => format!("; {flow} is not hashed"),
                false => format!("; {flow} by {}", fields.join(", ")),
            })
        };
        let shown: String = ["tcp4", "udp4", "ip4"].into_iter().filter_map(fields).collect();
        format!("{table}, by {function}{shown}")
    }
}

/// Combines consecutive queues with the same settings into one line.
fn grouped<T>(
    queues: &[T],
    kind: &str,
    number: impl Fn(&T) -> u32,
    text: impl Fn(&T) -> String,
) -> Vec<(String, String)> {
    let mut lines: Vec<(u32, u32, String)> = Vec::new();
    for queue in queues {
        let (number, text) = (number(queue), text(queue));
        match lines.last_mut() {
            Some((_, last, same)) if *same == text && *last + 1 == number => *last = number,
            _ => lines.push((number, number, text)),
        }
    }
    let name = |(first, last, text): (u32, u32, String)| {
        let name = if first == last {
            format!("{kind}-{first}")
        } else {
            format!("{kind}-{first} to {kind}-{last}")
        };
        (name, text)
    };
    lines.into_iter().map(name).collect()
}

fn interrupt_line(interrupt: &Interrupt) -> (String, String) {
    let mask = |set: &Option<_>| CpuMask(Option::clone(set)).to_string();
    let served = match interrupt.served_on() {
        Some(set) => format!("served on {}", CpuMask(Some(set.clone()))),
        None => "served on an unknown CPU".to_owned(),
    };
    let may = match &interrupt.affinity {
        Some(set) if interrupt.effective.as_ref() != Some(set) => {
            format!(" (may be on {})", mask(&interrupt.affinity))
        }
        _ => String::new(),
    };
    let raised: u64 = interrupt.counts.values().sum();
    let name = format!("interrupt {}", interrupt.number);
    (name, format!("{} {served}{may}; raised {raised} times", printable(&interrupt.name)))
}
