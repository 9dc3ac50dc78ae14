//! From the datapath's counters to those that are shown.

use super::datapath::{Counted, Datapath};
use super::instance::Instance;
use super::protocol::{Counts, CpuStatus, InterfaceStatus, RxShown, Status};
use rxsteer_user::core::counters::{LiveCounter, LiveCpuCounter};
use std::collections::BTreeMap;

/// The counts of interfaces that are not attached any more: the datapath keeps those only until another
/// interface gets the number.
#[derive(Clone, Debug, Default)]
pub(crate) struct Former {
    cpus: BTreeMap<u16, Counts>,
    redirect_errors: u64,
}

impl Former {
    /// Takes over what `device` counted; returns its sum.
    pub(crate) fn keep<D: Copy + PartialEq>(&mut self, counted: &Counted<D>, device: D) -> RxShown {
        self.redirect_errors += redirect_errors(counted, |of| of == device);
        let mut sum = RxShown::default();
        for (cpu, of, row) in &counted.received {
            if *of == device {
                add_rx(self.cpus.entry(cpu.get()).or_default(), |counter| row.get(counter));
                sum.add(|counter| row.get(counter));
            }
        }
        sum
    }
}

/// Everything there is to say of an instance.
pub(crate) fn status<P: Datapath>(instance: &Instance<P>, flows: u32) -> Status {
    let counted = instance.path.counted();
    let mut cpus = instance.former.cpus.clone();
    let attached: Vec<P::Device> =
        instance.interfaces.iter().filter_map(|known| known.device).collect();
    for (cpu, device, row) in &counted.received {
        if attached.contains(device) {
            add_rx(cpus.entry(cpu.get()).or_default(), |counter| row.get(counter));
        }
    }
    for (cpu, row) in &counted.processed {
        let counts = cpus.entry(cpu.get()).or_default();
        counts.delivered += row.get(LiveCpuCounter::Delivered);
        counts.drops.alloc += row.get(LiveCpuCounter::AllocDrops);
        counts.drops.ring_full += row.get(LiveCpuCounter::Lost);
        counts.waiting += row.get(LiveCpuCounter::Waiting);
    }
    let mut totals = Counts::default();
    cpus.values().for_each(|counts| add(&mut totals, counts));
    // Those that could not be handed over are among those that never came, whatever CPU received them.
    let errors = instance.former.redirect_errors
        + redirect_errors(&counted, |device| attached.contains(&device));
    totals.drops.redirect_errors = errors;
    totals.drops.ring_full = totals.drops.ring_full.saturating_sub(errors);
    let interfaces = instance.interfaces.iter().map(|known| {
        let mut counts = known.counts.clone();
        let of = counted.received.iter().filter(|(_, device, _)| Some(*device) == known.device);
        of.for_each(|(_, _, row)| counts.add(|counter| row.get(counter)));
        InterfaceStatus {
            name: known.name.clone(),
            ifindex: known.index,
            state: known.state,
            why: known.why.clone(),
            flow_tables: known.tables,
            counts,
        }
    });
    let wanted = instance.settings.cpus.iter().map(|cpu| (cpu.get(), Counts::default()));
    let mut shown: BTreeMap<u16, Counts> = wanted.collect();
    shown.extend(cpus);
    Status {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        pid: std::process::id(),
        socket: instance.fixed.socket.display().to_string(),
        network_namespace: instance.fixed.network_namespace,
        program_id: instance.path.program_id(),
        running_ns: instance.fixed.begun.elapsed().as_nanos() as u64,
        policy: instance.settings.policy.to_string(),
        settings: instance.shown(),
        changing: !instance.is_settled(),
        guarded: !instance.path.is_plain(),
        interfaces: interfaces.collect(),
        cpus: shown.into_iter().map(|(cpu, counts)| CpuStatus { cpu, counts }).collect(),
        totals,
        largest_flows: match flows {
            0 => Vec::new(),
            count => super::flows::largest(instance.path.flows(), count as usize),
        },
    }
}

fn redirect_errors<D: Copy>(counted: &Counted<D>, is_meant: impl Fn(D) -> bool) -> u64 {
    let rows = counted.received.iter().filter(|(_, device, _)| is_meant(*device));
    rows.map(|(_, _, row)| row.get(LiveCounter::RedirectErrors)).sum()
}

fn add_rx(sum: &mut Counts, count: impl Fn(LiveCounter) -> u64) {
    sum.drops.flow_limit += count(LiveCounter::FlowLimitDrops);
    sum.rx.add(count);
}

fn add(sum: &mut Counts, counts: &Counts) {
    sum.rx.add(|counter| counts.rx.get(counter));
    sum.delivered += counts.delivered;
    sum.waiting += counts.waiting;
    sum.drops.ring_full += counts.drops.ring_full;
    sum.drops.alloc += counts.drops.alloc;
    sum.drops.flow_limit += counts.drops.flow_limit;
}
