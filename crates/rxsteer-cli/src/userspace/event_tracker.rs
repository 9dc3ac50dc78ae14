//! Events of a command that steers in user space, found by comparing one reading with the next.

use crate::events_out::Events;
use crate::interface_state;
use crate::summaries::{CpuActivity, Summaries};
use crate::words::plural;
use rxsteer_status::figures::{grouped, percent};
use rxsteer_status::{CpuStatus, Event, EventKind, NewEvent, SettingsShown, State};
use rxsteer_user::core::counters::LiveCounter;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

/// What one reading finds.
pub(super) struct Found {
    pub(super) cpus: Vec<CpuStatus>,
    /// By origin.
    pub(super) received_from: Vec<ReceivedFrom>,
    pub(super) settings: SettingsShown,
    /// Whether packets are under way that were sent by former settings.
    pub(super) is_changing: bool,
}

/// What one interface, or the input of a replay, is and gave.
pub(super) struct ReceivedFrom {
    pub(super) name: String,
    pub(super) state: State,
    pub(super) received: u64,
    /// What the kernel dropped before it was received.
    pub(super) kernel_drops: u64,
    /// RX queues of the interface whose frames go to the host.
    pub(super) queues_left_out: usize,
}

/// The events so far, and what the next ones are found by.
pub(super) struct EventTracker {
    events: Events,
    packets: Summaries,
    /// What the kernel dropped, by origin.
    before_us: Summaries,
    origins: Vec<(String, State)>,
    /// RX queues that are left out, by origin.
    left_out: Vec<usize>,
    settings: Vec<(&'static str, String)>,
    offline: Option<String>,
}

impl EventTracker {
    /// Begins with what the first reading found.
    pub(super) fn new(now: Instant, found: &Found, events: Events) -> EventTracker {
        EventTracker {
            events,
            packets: Summaries::new(now),
            before_us: Summaries::new(now),
            origins: origins(found),
            left_out: left_out(found),
            settings: listed(&found.settings),
            offline: found.settings.offline.clone(),
        }
    }

    /// The last events.
    pub(super) fn latest(&self) -> Arc<[Event]> {
        self.events.latest()
    }

    /// Adds one that no reading finds.
    pub(super) fn add(&mut self, now: Instant, event: NewEvent) {
        self.events.add(now, event);
    }

    /// Finds a change of settings that is done.
    pub(super) fn see_settings(&mut self, now: Instant, found: &Found) {
        let events = self.settings_changed(found);
        events.into_iter().for_each(|event| self.add(now, event));
    }

    /// Finds what happened since the reading before. To be called once a second.
    pub(super) fn update(&mut self, now: Instant, found: &Found) {
        let mut events = self.changes(found);
        events.extend(self.packets.update(now, &by_cpu(found), dropped));
        let lost = |origin, activity: &_, seconds| not_received(found, origin, activity, seconds);
        events.extend(self.before_us.update(now, &by_origin(found), lost));
        events.into_iter().for_each(|event| self.add(now, event));
        self.events.overdue(now);
    }

    /// The end: what is not said yet is said, and the last lines are written.
    pub(super) fn end(mut self, now: Instant, found: &Found) {
        let mut events = self.changes(found);
        events.extend(self.packets.rest(now, &by_cpu(found), dropped));
        let lost = |origin, activity: &_, seconds| not_received(found, origin, activity, seconds);
        events.extend(self.before_us.rest(now, &by_origin(found), lost));
        events.extend(self.ended());
        events.into_iter().for_each(|event| self.add(now, event));
        self.events.close(now);
    }

    /// The event of an end because no interface is left.
    fn ended(&self) -> Option<NewEvent> {
        let are_gone = !self.origins.is_empty()
            && self.origins.iter().all(|(_, state)| *state == State::Deleted);
        are_gone.then(|| NewEvent::new(EventKind::Ended, "no interface is left to receive from"))
    }

    /// What became of interfaces, settings and workers.
    fn changes(&mut self, found: &Found) -> Vec<NewEvent> {
        let now = origins(found);
        let pairs = self.origins.iter().zip(&now);
        let mut events: Vec<NewEvent> =
            pairs.filter_map(|(before, now)| interface_state::changed(before, now)).collect();
        self.origins = now;
        let now = left_out(found);
        let more = self.left_out.iter().zip(&now).map(|(before, now)| now > before);
        let warned = found.received_from.iter().zip(more).filter(|(_, more)| *more);
        events.extend(warned.map(|(origin, _)| queues_left_out(origin)));
        self.left_out = now;
        let offline = &found.settings.offline;
        if *offline != self.offline {
            let cpus = offline.as_deref().unwrap_or("none");
            let text = format!(
                "CPUs without a worker: {cpus} (were {}); their flows go to other CPUs",
                self.offline.as_deref().unwrap_or("none")
            );
            events.push(NewEvent::new(EventKind::Warning, text).with("cpus", cpus));
            self.offline.clone_from(offline);
        }
        events.extend(self.settings_changed(found));
        events
    }

    /// The event of a change of settings that is done.
    fn settings_changed(&mut self, found: &Found) -> Option<NewEvent> {
        let settings = listed(&found.settings);
        if found.is_changing || settings == self.settings {
            return None;
        }
        let pairs = self.settings.iter().zip(&settings).filter(|(before, now)| before != now);
        let texts = pairs.map(|((name, was), (_, now))| format!("{name}={now} (was {was})"));
        let text = texts.collect::<Vec<_>>().join(", ");
        self.settings = settings;
        Some(NewEvent::new(EventKind::ChangeDone, text.clone()).with("changes", text))
    }
}

fn origins(found: &Found) -> Vec<(String, State)> {
    found.received_from.iter().map(|origin| (origin.name.clone(), origin.state)).collect()
}

fn left_out(found: &Found) -> Vec<usize> {
    found.received_from.iter().map(|origin| origin.queues_left_out).collect()
}

/// The event of an interface that uses more RX queues than at the start.
fn queues_left_out(origin: &ReceivedFrom) -> NewEvent {
    let ReceivedFrom { name, queues_left_out, .. } = origin;
    let text = format!(
        "{name} uses {} more than at the start, and this host receives their frames instead of rxsteer; restart \
         rxsteer to receive them",
        plural(*queues_left_out, "RX queue")
    );
    let event = NewEvent::new(EventKind::InterfaceWarning, text).with("interface", name.clone());
    event.with("rx_queues_left_out", *queues_left_out)
}

/// The settings that can change while it runs, by the names of their options.
fn listed(settings: &SettingsShown) -> Vec<(&'static str, String)> {
    let or = |text: &Option<String>, otherwise: &str| {
        text.clone().unwrap_or_else(|| otherwise.to_owned())
    };
    let rules: Vec<&str> = settings.rules.iter().map(|rule| rule.rule.as_str()).collect();
    let flow_limit = settings.flow_limit.map(|buckets| buckets.to_string());
    vec![
        ("policy", settings.policy.clone()),
        ("cpus", settings.cpus.clone()),
        ("rps-map", settings.rps_maps.join(" ")),
        ("rule", rules.join("; ")),
        ("else", settings.fallback.clone()),
        ("rfs-cpus", or(&settings.rfs_cpus, "all")),
        ("max-backlog", settings.queue_size.to_string()),
        ("flow-limit", or(&flow_limit, "off")),
        ("flow-cnt", settings.flow_cnt.to_string()),
        ("sock-flow-entries", settings.sock_flow_entries.to_string()),
    ]
}

/// What each CPU did.
fn by_cpu(found: &Found) -> BTreeMap<u16, CpuActivity> {
    let activity = |cpu: &CpuStatus| CpuActivity {
        received: cpu.counts.rx.get(LiveCounter::Received),
        moves: cpu.counts.rx.get(LiveCounter::Moves),
        deferred: cpu.counts.rx.get(LiveCounter::Deferred),
        delivered: cpu.counts.delivered,
        drops: cpu.counts.drops,
        ..CpuActivity::default()
    };
    found.cpus.iter().map(|cpu| (cpu.cpu, activity(cpu))).collect()
}

/// What was received from each origin, and what the kernel dropped before.
fn by_origin(found: &Found) -> BTreeMap<u16, CpuActivity> {
    let activity = |origin: &ReceivedFrom| {
        let mut activity = CpuActivity { delivered: origin.received, ..CpuActivity::default() };
        activity.drops.ring_full = origin.kernel_drops;
        activity
    };
    (0..).zip(found.received_from.iter().map(activity)).collect()
}

/// The event of a CPU that dropped many packets.
fn dropped(cpu: u16, activity: &CpuActivity, seconds: u64) -> NewEvent {
    let drops = &activity.drops;
    let reasons = [
        (
            drops.ring_full,
            "queue_full",
            "the CPU's backlog was full; steer to more CPUs, or raise --max-backlog",
        ),
        (drops.alloc, "no_memory", "there was no memory for them"),
        (drops.flow_limit, "flow_limit", "one flow filled half of a backlog that was half full"),
        (drops.worker_lost, "worker_lost", "they were lost with their worker"),
        (drops.interface_removed, "interface_removed", "their interface was removed"),
        (drops.tx_full, "tx_full", "the interface that forwards them had no room"),
    ];
    let there = reasons.iter().filter(|(count, ..)| *count > 0);
    let parts: Vec<String> =
        there.map(|(count, _, why)| format!("{} since {why}", grouped(*count))).collect();
    let text = format!(
        "in the last {}: CPU {cpu} dropped {}: {}",
        plural(seconds as usize, "second"),
        plural(usize::try_from(drops.total()).unwrap_or(usize::MAX), "packet"),
        parts.join("; ")
    );
    let event = NewEvent::new(EventKind::Drops, text).with("cpu", cpu).with("seconds", seconds);
    let event = event.with("drops", drops.total()).with("delivered", activity.delivered);
    reasons.iter().fold(event, |event, (count, name, _)| event.with(name, *count))
}

/// The event of an interface whose packets came faster than they were received.
fn not_received(found: &Found, origin: u16, activity: &CpuActivity, seconds: u64) -> NewEvent {
    let name = found.received_from.get(usize::from(origin)).map_or("", |origin| &origin.name);
    let lost = activity.drops.ring_full;
    let text = format!(
        "in the last {}: the kernel dropped {} of {name} ({}) before they were received: receive on another CPU \
         (--rx-cpus), steer to more CPUs, or raise --ring-size",
        plural(seconds as usize, "second"),
        plural(usize::try_from(lost).unwrap_or(usize::MAX), "packet"),
        percent(lost, lost + activity.delivered)
    );
    let event = NewEvent::new(EventKind::Drops, text).with("interface", name);
    event.with("seconds", seconds).with("kernel_drops", lost).with("received", activity.delivered)
}

#[cfg(test)]
#[path = "event_tracker_tests.rs"]
mod tests;
