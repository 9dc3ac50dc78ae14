//! Live flows: which are the largest, and where one is and why.

use super::datapath::Datapath;
use super::flows_shown::{FlowShown, FlowWhere, Place, ShareShown, SlotShown, SparseShown};
use super::instance::Instance;
use crate::explain::flow::shown;
use rxsteer_user::core::{FlowKey, Policy};
use rxsteer_xdp::{LiveFlow, Whereabouts};

/// So many flows, those with most packets first.
pub(crate) fn largest(mut flows: Vec<LiveFlow>, count: usize) -> Vec<FlowShown> {
    let packets = |flow: &LiveFlow| std::cmp::Reverse(flow.total().packets);
    if count < flows.len() {
        flows.select_nth_unstable_by_key(count, packets);
        flows.truncate(count);
    }
    flows.sort_by_key(|flow| (packets(flow), flow.key));
    flows.iter().map(flow_shown).collect()
}

fn flow_shown(flow: &LiveFlow) -> FlowShown {
    let total = flow.total();
    let share = |(cpu, share): (&rxsteer_user::core::CpuId, &rxsteer_xdp::CpuShare)| ShareShown {
        cpu: cpu.get(),
        packets: share.packets,
        bytes: share.bytes,
    };
    FlowShown {
        flow: shown(&flow.key),
        packets: total.packets,
        bytes: total.bytes,
        moves: flow.moves,
        idle_s: flow.idle_s,
        tcp_flags: flow.tcp_flags,
        cpus: flow.cpus.iter().map(share).collect(),
    }
}

/// Where the packets of a flow go, and why.
pub(crate) fn explained<P: Datapath>(instance: &Instance<P>, key: &FlowKey) -> FlowWhere {
    let at = instance.path.whereabouts(key);
    let settings = &instance.settings;
    let name = |device: P::Device| {
        let known = instance.interfaces.iter().find(|known| known.device == Some(device));
        known.map_or_else(String::new, |known| known.name.clone())
    };
    let sparse = at
        .sparse
        .iter()
        .map(|(device, cpu)| SparseShown { interface: name(P::device(*device)), cpu: cpu.get() });
    let slots = at.slots.iter().map(|slot| SlotShown {
        interface: name(P::device(slot.device)),
        queue: slot.queue,
        cpu: slot.cpu.get(),
        received_on: slot.received_on.get(),
        delivered: slot.is_delivered,
        patience: slot.patience,
    });
    FlowWhere {
        flow: shown(key),
        policy: settings.policy.to_string(),
        cpus: settings.cpus.to_string(),
        wish: at.wish.map(|cpu| cpu.get()),
        sparse: if settings.policy.loops().is_some() { sparse.collect() } else { Vec::new() },
        wanted: wanted(instance, &at),
        slots: slots.collect(),
        guarded: at.guarded,
        flows: at.flows.iter().map(flow_shown).collect(),
    }
}

/// Where the rules want it, the order guard left aside.
fn wanted<P: Datapath>(instance: &Instance<P>, at: &Whereabouts) -> Place {
    let settings = &instance.settings;
    let usable =
        |cpu: &rxsteer_user::core::CpuId| settings.cpus.contains(*cpu) && settings.is_online(*cpu);
    match &settings.policy {
        Policy::None => return Place { rule: "none".to_owned(), cpu: None, place: None },
        Policy::Bound(_) => return Place { rule: "bound".to_owned(), cpu: None, place: None },
        _ => {}
    }
    if let Some(cpu) = at.wish.filter(|cpu| settings.policy.is_rfs() && usable(cpu)) {
        return Place { rule: "wish".to_owned(), cpu: Some(cpu.get()), place: None };
    }
    let slot = at.sparse.iter().map(|(_, cpu)| *cpu).find(|cpu| usable(cpu));
    if let Some(cpu) = slot.filter(|_| settings.policy.loops().is_some()) {
        return Place { rule: "slot".to_owned(), cpu: Some(cpu.get()), place: None };
    }
    // An offline CPU's place in the map stands for the receiving CPU.
    let cpu = settings.cpus.as_slice().get(at.place_in_map).filter(|cpu| usable(cpu));
    let place = Some((at.place_in_map, settings.cpus.len()));
    Place { rule: "hash".to_owned(), cpu: cpu.map(|cpu| cpu.get()), place }
}
