//! The status of a command that steers in user space.

use super::event_tracker::{Found, ReceivedFrom};
use super::{Answers, CommandInfo, Origin, flows};
use crate::interface_state;
use rxsteer_host::Link;
use rxsteer_status::userspace::{Reading, Watched};
use rxsteer_status::{InterfaceStatus, SettingsShown, Status};
use rxsteer_user::core::counters::LiveCounter;

impl Answers {
    /// What events are found by.
    pub(super) fn found(&self) -> Found {
        found(&self.info, &self.watched)
    }

    /// The settings that hold now.
    pub(super) fn settings(&self) -> SettingsShown {
        let CommandInfo { mode, dissect, flows, .. } = &self.info;
        self.watched.settings(mode, *dissect, flows.is_some())
    }

    /// The status, with up to `count` flows.
    pub(super) fn status(&self, count: usize) -> Status {
        let running_ns = self.started.elapsed().as_nanos() as u64;
        let reading = self.watched.read();
        let info = &self.info;
        let guarded = self.watched.is_guarded();
        let settings = self.settings();
        let links = links(info);
        let interface = |origin| InterfaceStatus {
            running_ns,
            ..interface(origin, &reading, links.as_deref(), guarded)
        };
        let mut totals = reading.totals();
        if let Some(flows) = &info.flows {
            let counts = flows.table.counts();
            totals.rx.add(|counter| match counter {
                LiveCounter::Flows => counts.created,
                LiveCounter::FlowsEnded => counts.expired + counts.evicted,
                LiveCounter::FlowPacketsRefused => counts.refused,
                _ => 0,
            });
        }
        let listed = info.flows.as_ref().filter(|_| count > 0);
        Status {
            command: info.command,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            socket: self.socket.clone(),
            network_namespace: self.network_namespace,
            program_id: None,
            running_ns,
            memory_bytes: None,
            policy: settings.policy.clone(),
            settings,
            changing: reading.is_changing(),
            guarded,
            threads_problem: None,
            balance: None,
            longest_round_ns: 0,
            interfaces: info.origins.iter().map(interface).collect(),
            cpus: reading.cpus(),
            totals,
            reordered: Some(reading.reordered()),
            input_share: reading.input_share(),
            // The table has the packets of the flows that it holds, and records have the others.
            flow_statistics: None,
            largest_flows: listed
                .map_or_else(Vec::new, |flows| flows::largest(flows, count, info.command)),
            flow_records: None,
            events: self.tracker.latest().to_vec(),
            ended_flows: Vec::new(),
        }
    }
}

/// The interfaces that there are now, if they matter and are known.
fn links(info: &CommandInfo) -> Option<Vec<Link>> {
    match info.origins.iter().any(|origin| origin.ifindex.is_some()) {
        true => rxsteer_host::links().ok(),
        false => None,
    }
}

/// What events are found by.
pub(super) fn found(info: &CommandInfo, watched: &Watched) -> Found {
    let reading = watched.read();
    let links = links(info);
    let received_from = |origin: &Origin| {
        let InterfaceStatus { name, state, kernel_drops, counts, .. } =
            interface(origin, &reading, links.as_deref(), false);
        ReceivedFrom {
            name,
            state,
            received: counts.get(LiveCounter::Received),
            kernel_drops: kernel_drops.unwrap_or(0),
            queues_left_out: queues_left_out(origin, links.as_deref()),
        }
    };
    Found {
        cpus: reading.cpus(),
        received_from: info.origins.iter().map(received_from).collect(),
        settings: watched.settings(info.mode, info.dissect, false),
        is_changing: reading.is_changing(),
    }
}

/// The RX queues of an interface that no receiver has, as far as that is known.
fn queues_left_out(origin: &Origin, links: Option<&[Link]>) -> usize {
    let index = origin.ifindex.filter(|_| origin.by_rx_queue);
    let link = index.zip(links).and_then(|(index, links)| links.iter().find(|l| l.index == index));
    let used = link.and_then(|link| link.rx_queues().or_else(|| link.rx_queues_of_driver()));
    used.map_or(0, |used| (used as usize).saturating_sub(origin.receivers.len()))
}

/// `links` are the interfaces that there are now, if that is known.
fn interface(
    origin: &Origin,
    reading: &Reading,
    links: Option<&[Link]>,
    guarded: bool,
) -> InterfaceStatus {
    let receivers = origin.receivers.clone();
    let tables = if guarded { receivers.len() as u16 } else { 0 };
    let (counts, kernel_drops) = reading.received(receivers);
    // An interface that was renamed is received from on.
    let (name, state) = interface_state::of(&origin.name, origin.ifindex, links);
    InterfaceStatus {
        name,
        ifindex: origin.ifindex.unwrap_or(0),
        state,
        why: None,
        running_ns: 0,
        flow_tables: tables,
        kernel_drops: origin.ifindex.map(|_| kernel_drops),
        counts,
    }
}
