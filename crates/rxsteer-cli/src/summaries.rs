//! Events that summarize what happened to packets: moves, and many drops.
//!
//! [`Summaries::update`] is called once a second. Moves are summarized over a minute. Drops are reported after the
//! first second with many of them, and then once a minute as long as there are many; the caller provides the words.

use rxsteer_status::figures::grouped;
use rxsteer_status::{Drops, EventKind, NewEvent};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How often counts are read.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// The time that one summary covers.
const SUMMARY: Duration = Duration::from_secs(60);
/// Fewer drops than this are not reported.
const MIN_DROPS: u64 = 10;
/// Drops are reported from this share of the CPU's packets on: one of so many.
const ONE_OF: u64 = 1000;

/// What one CPU did, as far as events need it: cumulative counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CpuActivity {
    /// What it received.
    pub(crate) received: u64,
    pub(crate) moves: u64,
    pub(crate) deferred: u64,
    /// What was delivered on it, and what never arrived; the flow limit drops what it received.
    pub(crate) delivered: u64,
    pub(crate) drops: Drops,
    /// What its ring's thread did meanwhile.
    pub(crate) while_waiting: u64,
    pub(crate) while_busy: u64,
    pub(crate) in_bursts: u64,
    pub(crate) waited_ns: u64,
    /// Not cumulative.
    pub(crate) longest_wait_ns: u64,
    pub(crate) class: Option<String>,
}

impl CpuActivity {
    /// What was counted after `before`. The counts of an interface that was detached since are missing, so a count may
    /// be lower than before.
    fn since(&self, before: &CpuActivity) -> CpuActivity {
        let difference = |count: fn(&CpuActivity) -> u64| count(self).saturating_sub(count(before));
        CpuActivity {
            received: difference(|counts| counts.received),
            moves: difference(|counts| counts.moves),
            deferred: difference(|counts| counts.deferred),
            delivered: difference(|counts| counts.delivered),
            drops: self.drops.since(&before.drops),
            while_waiting: difference(|counts| counts.while_waiting),
            while_busy: difference(|counts| counts.while_busy),
            in_bursts: difference(|counts| counts.in_bursts),
            waited_ns: difference(|counts| counts.waited_ns),
            longest_wait_ns: self.longest_wait_ns,
            class: self.class.clone(),
        }
    }

    /// Whether so many were dropped that it is reported.
    fn is_over(&self) -> bool {
        let are_many = |drops: u64, of: u64| drops >= MIN_DROPS && drops * ONE_OF >= of;
        let lost = self.drops.total() - self.drops.flow_limit;
        are_many(lost, self.delivered + lost) || are_many(self.drops.flow_limit, self.received)
    }
}

/// What was counted on a CPU when its drops were last read.
#[derive(Debug, Default)]
struct Before {
    counts: CpuActivity,
    /// When drops were last reported.
    reported_at: Option<Instant>,
}

/// What was counted at the last readings.
#[derive(Debug)]
pub(crate) struct Summaries {
    drops: BTreeMap<u16, Before>,
    moves: (Instant, CpuActivity),
}

impl Summaries {
    pub(crate) fn new(now: Instant) -> Summaries {
        Summaries { drops: BTreeMap::new(), moves: (now, CpuActivity::default()) }
    }

    /// The events since the last call. `describe` says that a CPU dropped so many in so many seconds.
    pub(crate) fn update(
        &mut self,
        now: Instant,
        cpus: &BTreeMap<u16, CpuActivity>,
        describe: impl Fn(u16, &CpuActivity, u64) -> NewEvent,
    ) -> Vec<NewEvent> {
        self.report(now, cpus, describe, false)
    }

    /// The same at the end: what is not reported yet.
    pub(crate) fn rest(
        &mut self,
        now: Instant,
        cpus: &BTreeMap<u16, CpuActivity>,
        describe: impl Fn(u16, &CpuActivity, u64) -> NewEvent,
    ) -> Vec<NewEvent> {
        self.report(now, cpus, describe, true)
    }

    fn report(
        &mut self,
        now: Instant,
        cpus: &BTreeMap<u16, CpuActivity>,
        describe: impl Fn(u16, &CpuActivity, u64) -> NewEvent,
        is_last: bool,
    ) -> Vec<NewEvent> {
        let dropped = |(cpu, counts): (&u16, &CpuActivity)| {
            let (activity, seconds) = self.dropped(now, *cpu, counts, is_last)?;
            Some(describe(*cpu, &activity, seconds))
        };
        let mut events: Vec<NewEvent> = cpus.iter().filter_map(dropped).collect();
        events.extend(self.moved(now, cpus, is_last));
        events
    }

    /// What a CPU did since its drops were last read, and the seconds since then, if so many were dropped.
    fn dropped(
        &mut self,
        now: Instant,
        cpu: u16,
        counts: &CpuActivity,
        is_last: bool,
    ) -> Option<(CpuActivity, u64)> {
        let before = self.drops.entry(cpu).or_default();
        let since =
            before.reported_at.map(|reported_at| now.saturating_duration_since(reported_at));
        if !is_last && since.is_some_and(|since| since < SUMMARY) {
            return None;
        }
        let activity = counts.since(&before.counts);
        before.counts = counts.clone();
        if !activity.is_over() {
            before.reported_at = None;
            return None;
        }
        before.reported_at = Some(now);
        Some((activity, since.unwrap_or(POLL_INTERVAL).as_secs().max(1)))
    }

    fn moved(
        &mut self,
        now: Instant,
        cpus: &BTreeMap<u16, CpuActivity>,
        is_last: bool,
    ) -> Option<NewEvent> {
        let since = now.saturating_duration_since(self.moves.0);
        if !is_last && since < SUMMARY {
            return None;
        }
        let sum = |count: fn(&CpuActivity) -> u64| cpus.values().map(count).sum();
        let counts = CpuActivity {
            moves: sum(|counts| counts.moves),
            deferred: sum(|counts| counts.deferred),
            received: sum(|counts| counts.received),
            ..CpuActivity::default()
        };
        let activity = counts.since(&self.moves.1);
        self.moves = (now, counts);
        if activity.moves == 0 && activity.deferred == 0 {
            return None;
        }
        let text = format!(
            "{} moves and {} packets deferred among {} in the last {} s",
            grouped(activity.moves),
            grouped(activity.deferred),
            grouped(activity.received),
            since.as_secs().max(1)
        );
        let event = NewEvent::new(EventKind::Moves, text).with("moves", activity.moves);
        Some(event.with("deferred", activity.deferred).with("received", activity.received))
    }
}
