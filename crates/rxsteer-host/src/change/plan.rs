//! Computes the exact writes for the requested settings.
//!
//! Sizes and sets are those of Documentation/networking/scaling.rst: RPS within the memory domain of the CPU that serves
//! the interrupt; 32768 entries in the sock flow table, divided by the RX queues for each flow table; XPS with an equal
//! share of the CPUs for each TX queue; the flow limit on the CPUs that serve interrupts.

use crate::knobs::{CORE, Globals, InterfaceKnobs, rx_file, tx_file};
use crate::mask::CpuMask;
use crate::root::Tree;
use crate::topology::Topology;
use rxsteer_core::CpuSet;
use rxsteer_core::limits::MAX_SOCK_FLOW_ENTRIES;
use serde::{Deserialize, Serialize};
use std::io;

/// The default number of entries of the sock flow table: "works fairly well on a moderately loaded server"
/// (scaling.rst).
const SOCK_FLOW_ENTRIES: u64 = 32768;

/// The requested settings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// The CPUs that RPS spreads over; by default those near the interrupts.
    pub cpus: Option<CpuSet>,
    /// CPUs of single RX queues; the maps of the others then stay as they are.
    pub queues: Vec<(u32, CpuSet)>,
    /// Whether flows go where their applications run.
    pub rfs: bool,
    /// Whether each CPU sends on its own TX queues.
    pub xps: bool,
    /// Whether flows that fill a backlog are dropped first.
    pub flow_limit: bool,
    /// Neither RPS nor RFS: packets stay where they are received. `cpus`, `queues` and `rfs` are ignored then.
    pub off: bool,
}

/// Identifies an interface at the time of a write. A later interface of the same name is another one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// Its name.
    pub name: String,
    /// Its index.
    pub index: u32,
    /// Its hardware address.
    pub address: String,
    /// The inode of its network namespace; 0 in a recorded tree.
    pub namespace: u64,
}

/// One value to write.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Write {
    /// The file.
    pub path: String,
    /// The present value, byte for byte.
    pub old: String,
    /// The future value, as the kernel will show it.
    pub new: String,
    /// The interface that it belongs to; `None` for settings of the network core.
    pub owner: Option<Owner>,
    /// The meaning of the new value, in words.
    pub meaning: String,
}

/// All writes in their order, and notes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Plan {
    /// The interfaces.
    pub interfaces: Vec<String>,
    /// The CPUs that RPS will spread over.
    #[serde(serialize_with = "shown")]
    pub cpus: CpuSet,
    /// The writes; values that are already right are left out.
    pub writes: Vec<Write>,
    /// Requested settings that have no effect here, and why.
    pub notes: Vec<String>,
}

fn shown<S: serde::Serializer>(set: &CpuSet, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(set)
}

/// Why there is no plan.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// RPS can't use some of the CPUs.
    #[error("{what}; choose among CPUs {usable}")]
    Unusable {
        /// Which CPUs, and why.
        what: String,
        /// The CPUs that it can use.
        usable: String,
    },
    /// No source reports which CPUs are online.
    #[error(
        "can't find out which CPUs are online (/sys/devices/system/cpu/online); name them with --cpus"
    )]
    NoCpus,
    /// The file for a setting does not exist.
    #[error("{interface} has no {knob}: {why}")]
    Missing {
        /// The interface.
        interface: String,
        /// The file.
        knob: &'static str,
        /// A possible reason, and what to do.
        why: &'static str,
    },
    /// A value cannot be read, so it could not be restored.
    #[error("can't read {path}, so it could not be restored: {error}")]
    Unreadable {
        /// The file.
        path: String,
        /// Why.
        error: io::Error,
    },
}

/// The state while a plan is made.
struct Planner<'a, T> {
    tree: &'a T,
    interface: &'a InterfaceKnobs,
    topology: &'a Topology,
    owner: Owner,
    writes: Vec<Write>,
    notes: Vec<String>,
}

impl Plan {
    /// Plans `wanted` for an interface of the network namespace with that inode. This writes nothing.
    pub fn new(
        tree: &impl Tree,
        interface: &InterfaceKnobs,
        topology: &Topology,
        globals: &Globals,
        namespace: u64,
        wanted: &Wanted,
    ) -> Result<Plan, PlanError> {
        let cpus = match &wanted.cpus {
            Some(cpus) => cpus.clone(),
            None => default_cpus(interface, topology).ok_or(PlanError::NoCpus)?,
        };
        for cpus in wanted.queues.iter().map(|(_, cpus)| cpus).chain([&cpus]) {
            refuse_unusable(cpus, topology)?;
        }
        let owner = Owner {
            name: interface.name.clone(),
            index: interface.index,
            address: interface.address.clone(),
            namespace,
        };
        let (writes, notes) = (Vec::new(), Vec::new());
        let mut planner = Planner { tree, interface, topology, owner, writes, notes };
        // The order in which settings take effect: a flow table needs a sock flow table; a CPU map moves packets at
        // once.
        if wanted.off {
            planner.off()?;
        } else if wanted.rfs {
            planner.rfs(globals)?;
        }
        if wanted.flow_limit {
            planner.flow_limit(globals)?;
        }
        if !wanted.off {
            planner.rps(&cpus, &wanted.queues)?;
        }
        if wanted.xps {
            planner.xps()?;
        }
        let Planner { writes, notes, .. } = planner;
        Ok(Plan { interfaces: vec![interface.name.clone()], cpus, writes, notes })
    }

    /// Plans the same settings for each of several interfaces, to be applied together: see [`join`](Plan::join).
    pub fn of_each(
        tree: &impl Tree,
        interfaces: &[InterfaceKnobs],
        topology: &Topology,
        globals: &Globals,
        namespace: u64,
        wanted: &Wanted,
    ) -> Result<Vec<Plan>, PlanError> {
        let mut globals = globals.clone();
        let plan = |interface: &InterfaceKnobs| {
            let plan = Plan::new(tree, interface, topology, &globals, namespace, wanted)?;
            // All interfaces share this mask: a later interface adds to what an earlier one will have set.
            if let Some(write) = plan.writes.iter().find(|write| write.path == flow_limit_file()) {
                globals.flow_limit_cpu_bitmap = CpuMask::read(&write.new);
            }
            Ok(plan)
        };
        interfaces.iter().map(plan).collect()
    }

    /// Joins several plans into one, in their order, so that they are applied as a whole or not at all. `None` if there
    /// are none.
    pub fn join(plans: impl IntoIterator<Item = Plan>) -> Option<Plan> {
        plans.into_iter().reduce(|mut all, plan| {
            for write in plan.writes {
                // A value that interfaces share is written once, as the last of them requests it.
                match all.writes.iter_mut().find(|earlier| earlier.path == write.path) {
                    Some(earlier) => *earlier = write,
                    None => all.writes.push(write),
                }
            }
            for note in plan.notes {
                if !all.notes.contains(&note) {
                    all.notes.push(note);
                }
            }
            let cpus = CpuSet::new(all.cpus.iter().chain(plan.cpus.iter()));
            Plan {
                interfaces: [all.interfaces, plan.interfaces].concat(),
                cpus: cpus.unwrap_or(plan.cpus),
                ..all
            }
        })
    }

    /// The plan that restores all values, in the opposite order.
    #[must_use]
    pub fn reversed(&self) -> Plan {
        let back = |write: &Write| Write {
            old: write.new.clone(),
            new: write.old.clone(),
            meaning: "as before".to_owned(),
            ..write.clone()
        };
        Plan { writes: self.writes.iter().rev().map(back).collect(), ..self.clone() }
    }
}

fn flow_limit_file() -> String {
    format!("{CORE}/flow_limit_cpu_bitmap")
}

/// The number of entries of the sock flow table, which has `now`, and of each RX queue's flow table.
pub fn flow_sizes(now: u64, queues: usize) -> (u64, u64) {
    // A larger number is kept: other interfaces share the table.
    let entries = now.max(SOCK_FLOW_ENTRIES);
    let queues = u64::try_from(queues.max(1)).unwrap_or(u64::MAX);
    // The kernel rounds up to a power of two, and shows the result.
    let each = (entries / queues).clamp(1, u64::from(MAX_SOCK_FLOW_ENTRIES)).next_power_of_two();
    (entries, each)
}

/// The CPUs near the interrupts; without interrupts, those of the NUMA node; otherwise all usable CPUs.
fn default_cpus(interface: &InterfaceKnobs, topology: &Topology) -> Option<CpuSet> {
    let of_node = interface.numa_node.and_then(|node| {
        let of = topology.cpus.iter().filter(|place| place.node == Some(node));
        CpuSet::new(of.map(|place| place.cpu))
    });
    let near = interface.interrupt_cpus().and_then(|cpus| topology.near(&cpus)).or(of_node);
    let usable = topology.sets.usable(&[])?;
    let near_and_usable =
        near.and_then(|near| CpuSet::new(usable.iter().filter(|cpu| near.contains(*cpu))));
    Some(near_and_usable.unwrap_or(usable))
}

/// The kernel silently removes offline CPUs from a CPU map, and isolated ones (`rps_cpumask_housekeeping`).
fn refuse_unusable(cpus: &CpuSet, topology: &Topology) -> Result<(), PlanError> {
    refuse(cpus, topology, topology.sets.isolated.as_ref())
}

/// Refuses CPUs that are not online.
///
/// # Errors
/// The offline CPUs, and those that can be used.
pub fn refuse_offline(cpus: &CpuSet, topology: &Topology) -> Result<(), PlanError> {
    refuse(cpus, topology, None)
}

fn refuse(cpus: &CpuSet, topology: &Topology, isolated: Option<&CpuSet>) -> Result<(), PlanError> {
    let Some(online) = &topology.sets.online else { return Ok(()) };
    let is_isolated = |cpu: &_| isolated.is_some_and(|set| set.contains(*cpu));
    let off = CpuSet::new(cpus.iter().filter(|cpu| !online.contains(*cpu)));
    let apart = CpuSet::new(cpus.iter().filter(is_isolated));
    let which = |set: &CpuSet| {
        if set.len() == 1 { format!("CPU {set} is") } else { format!("CPUs {set} are") }
    };
    let off = off.map(|set| format!("{} not online", which(&set)));
    let apart = apart.map(|set| {
        format!(
            "{} isolated (isolcpus), and the kernel's RPS leaves isolated CPUs out",
            which(&set)
        )
    });
    let what: Vec<String> = off.into_iter().chain(apart).collect();
    if what.is_empty() {
        return Ok(());
    }
    let usable = topology.sets.usable(&[]).map(|set| set.to_string()).unwrap_or_default();
    Err(PlanError::Unusable { what: what.join("; "), usable })
}

impl<T: Tree> Planner<'_, T> {
    fn set(
        &mut self,
        path: String,
        text: &str,
        meaning: String,
        of_interface: bool,
    ) -> Result<(), PlanError> {
        let old = self.tree.read(&path);
        let old = old.map_err(|error| PlanError::Unreadable { path: path.clone(), error })?;
        let new = format!("{text}\n");
        if old != new {
            let owner = of_interface.then(|| self.owner.clone());
            self.writes.push(Write { path, old, new, owner, meaning });
        }
        Ok(())
    }

    fn missing(&self, knob: &'static str, why: &'static str) -> PlanError {
        PlanError::Missing { interface: self.interface.name.clone(), knob, why }
    }

    fn rps(&mut self, cpus: &CpuSet, queues: &[(u32, CpuSet)]) -> Result<(), PlanError> {
        let has = self.interface.rx.iter().any(|queue| queue.rps_cpus.is_some());
        if !has {
            return Err(self.missing(
                "rps_cpus",
                "the kernel was built without CONFIG_RPS, or the interface has no RX queue; nothing can be set",
            ));
        }
        for queue in &self.interface.rx {
            let own = queues.iter().find(|(own, _)| *own == queue.queue).map(|(_, cpus)| cpus);
            let Some(cpus) = own.or(queues.is_empty().then_some(cpus)) else { continue };
            let mask = CpuMask(Some(cpus.clone()));
            let text = mask.hex(self.topology.ids());
            let path = rx_file(&self.interface.name, queue.queue, "rps_cpus");
            let meaning = format!("RPS of RX queue {}: {mask}", queue.queue);
            self.set(path, &text, meaning, true)?;
        }
        let alone = self.interface.interrupt_cpus();
        if cpus.len() == 1 && alone.is_none_or(|alone| alone == *cpus) {
            self.notes.push(format!(
                "all packets go to CPU {cpus}: that spreads nothing; name more CPUs with --cpus"
            ));
        }
        Ok(())
    }

    /// The sock flow table stays: all interfaces share it, and it has no effect without flow tables.
    fn off(&mut self) -> Result<(), PlanError> {
        let none = CpuMask(None).hex(self.topology.ids());
        for queue in &self.interface.rx {
            let knobs = [
                ("rps_cpus", queue.rps_cpus.is_some(), none.as_str(), "RPS"),
                ("rps_flow_cnt", queue.rps_flow_cnt.is_some(), "0", "RFS"),
            ];
            for (knob, _, text, what) in knobs.into_iter().filter(|(_, is_there, ..)| *is_there) {
                let path = rx_file(&self.interface.name, queue.queue, knob);
                let meaning = format!("{what} of RX queue {}: off", queue.queue);
                self.set(path, text, meaning, true)?;
            }
        }
        Ok(())
    }

    fn rfs(&mut self, globals: &Globals) -> Result<(), PlanError> {
        let now = globals.rps_sock_flow_entries.unwrap_or(0);
        let (entries, each) = flow_sizes(now, self.interface.rx.len());
        if globals.rps_sock_flow_entries.is_some() {
            self.set(
                format!("{CORE}/rps_sock_flow_entries"),
                &entries.to_string(),
                format!("RFS: {entries} flows in the sock flow table, of all interfaces"),
                false,
            )?;
        } else {
            self.notes.push(format!(
                "rps_sock_flow_entries is not set: only the first network namespace shows it, and this process \
                 can't enter that namespace. RFS does nothing while it is 0; set it there: \
                 sysctl -w net.core.rps_sock_flow_entries={entries}"
            ));
        }
        for queue in &self.interface.rx {
            let path = rx_file(&self.interface.name, queue.queue, "rps_flow_cnt");
            let meaning = format!("RFS of RX queue {}: {each} flows", queue.queue);
            self.set(path, &each.to_string(), meaning, true)?;
        }
        Ok(())
    }

    fn xps(&mut self) -> Result<(), PlanError> {
        let queues: Vec<u32> = self
            .interface
            .tx
            .iter()
            .filter(|queue| queue.xps_cpus.is_some())
            .map(|queue| queue.queue)
            .collect();
        if queues.len() < 2 {
            let name = &self.interface.name;
            self.notes.push(format!("--xps has no effect: {name} has one TX queue"));
            return Ok(());
        }
        for (queue, mask) in queues.iter().zip(shares(self.topology, queues.len())) {
            let path = tx_file(&self.interface.name, *queue, "xps_cpus");
            let meaning = format!("XPS of TX queue {queue}: {mask}");
            self.set(path, &mask.hex(self.topology.ids()), meaning, true)?;
        }
        Ok(())
    }

    fn flow_limit(&mut self, globals: &Globals) -> Result<(), PlanError> {
        if globals.flow_limit_cpu_bitmap.is_none() {
            return Err(self.missing(
                "flow_limit_cpu_bitmap",
                "the kernel was built without CONFIG_NET_FLOW_LIMIT, has too many CPUs to show it, or this process \
                 is not in the first network namespace and can't enter it; leave --flow-limit out",
            ));
        }
        // The kernel reads the table of the CPU that receives, not of the CPU that gets the packet.
        let receiving =
            self.interface.interrupt_cpus().or_else(|| self.topology.sets.online.clone());
        let mut mask = CpuMask(receiving);
        if let Some(set) = &globals.flow_limit_cpu_bitmap {
            mask = CpuMask(CpuSet::new(mask.iter().chain(set.iter())));
        }
        self.set(
            flow_limit_file(),
            &mask.hex(self.topology.ids()),
            format!("flow limit where packets are received: {mask}"),
            false,
        )
    }
}

/// The CPUs of each of `queues` TX queues: equal shares of the online CPUs, neighbours together. With more queues than
/// CPUs, each of the first queues gets one CPU, and the others get none.
fn shares(topology: &Topology, queues: usize) -> Vec<CpuMask> {
    let mut cpus: Vec<_> = topology.cpus.iter().filter(|place| place.online).collect();
    cpus.sort_by_key(|place| {
        let cache = place.last_level_cache.as_ref().map(CpuSet::lowest);
        (place.node, place.package, cache, place.core, place.cpu)
    });
    let (count, used) = (cpus.len(), queues.min(cpus.len()).max(1));
    let share = |queue: usize| {
        let of = if queue < used { queue * count / used..(queue + 1) * count / used } else { 0..0 };
        CpuMask(CpuSet::new(cpus[of].iter().map(|place| place.cpu)))
    };
    (0..queues).map(share).collect()
}
