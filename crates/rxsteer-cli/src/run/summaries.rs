//! Events that sum up what frames did: moves, and drops that are many, with their cause.
//!
//! The event thread calls [`Summaries::look`] once a second. Moves are summed up over a minute. Drops are reported after
//! the second in which they became many, and then once a minute as long as they are.

use super::losses;
use crate::output::table::{grouped, percent};
use crate::words::plural;
use rxsteer_status::{Counts, CpuStatus, Drops, EventKind, Happened, SettingsShown, ThreadShown};
use rxsteer_user::core::counters::LiveCpuCounter;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How often counts are looked at.
pub(crate) const LOOK: Duration = Duration::from_secs(1);
/// The time that one summary covers.
const SUMMARY: Duration = Duration::from_secs(60);
/// Fewer drops than this are not reported.
const LEAST_DROPS: u64 = 10;
/// Drops are reported from this share of the CPU's packets on: one of so many.
const ONE_OF: u64 = 1000;

/// What one CPU did, as far as events need it: cumulative counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lately {
    /// What it received.
    pub(crate) received: u64,
    pub(crate) moves: u64,
    pub(crate) deferred: u64,
    pub(crate) flow_limit: u64,
    /// What was delivered on it, and what never arrived.
    pub(crate) delivered: u64,
    pub(crate) lost: u64,
    pub(crate) alloc: u64,
    /// What its ring's thread did meanwhile.
    pub(crate) while_waiting: u64,
    pub(crate) while_busy: u64,
    pub(crate) in_bursts: u64,
    pub(crate) waited_ns: u64,
    /// Not cumulative.
    pub(crate) longest_wait_ns: u64,
    pub(crate) class: Option<String>,
}

impl Lately {
    /// What was counted after `before`. The counts of an interface that was detached since are missing, so a count may
    /// be lower than before.
    fn since(&self, before: &Lately) -> Lately {
        let difference = |count: fn(&Lately) -> u64| count(self).saturating_sub(count(before));
        Lately {
            received: difference(|counts| counts.received),
            moves: difference(|counts| counts.moves),
            deferred: difference(|counts| counts.deferred),
            flow_limit: difference(|counts| counts.flow_limit),
            delivered: difference(|counts| counts.delivered),
            lost: difference(|counts| counts.lost),
            alloc: difference(|counts| counts.alloc),
            while_waiting: difference(|counts| counts.while_waiting),
            while_busy: difference(|counts| counts.while_busy),
            in_bursts: difference(|counts| counts.in_bursts),
            waited_ns: difference(|counts| counts.waited_ns),
            longest_wait_ns: self.longest_wait_ns,
            class: self.class.clone(),
        }
    }

    fn drops(&self) -> u64 {
        self.lost + self.alloc + self.flow_limit
    }

    /// Whether so many were dropped that it is reported.
    fn is_over(&self) -> bool {
        let are_many = |drops: u64, of: u64| drops >= LEAST_DROPS && drops * ONE_OF >= of;
        let lost = self.lost + self.alloc;
        are_many(lost, self.delivered + lost) || are_many(self.flow_limit, self.received)
    }
}

/// What was counted on a CPU when its drops were last looked at.
#[derive(Debug, Default)]
struct Before {
    counts: Lately,
    /// When drops were last reported.
    said: Option<Instant>,
}

/// What was counted at the last looks.
#[derive(Debug)]
pub(crate) struct Summaries {
    drops: BTreeMap<u16, Before>,
    moves: (Instant, Lately),
}

impl Summaries {
    pub(crate) fn new(now: Instant) -> Summaries {
        Summaries { drops: BTreeMap::new(), moves: (now, Lately::default()) }
    }

    /// The events since the last call.
    pub(crate) fn look(
        &mut self,
        now: Instant,
        cpus: &BTreeMap<u16, Lately>,
        settings: &SettingsShown,
    ) -> Vec<Happened> {
        let mut say: Vec<Happened> = cpus
            .iter()
            .filter_map(|(cpu, counts)| self.dropped(now, *cpu, counts, settings))
            .collect();
        say.extend(self.moved(now, cpus));
        say
    }

    fn dropped(
        &mut self,
        now: Instant,
        cpu: u16,
        counts: &Lately,
        settings: &SettingsShown,
    ) -> Option<Happened> {
        let before = self.drops.entry(cpu).or_default();
        if before.said.is_some_and(|said| now.saturating_duration_since(said) < SUMMARY) {
            return None;
        }
        let lately = counts.since(&before.counts);
        before.counts = counts.clone();
        if !lately.is_over() {
            before.said = None;
            return None;
        }
        let seconds = if before.said.is_some() { SUMMARY.as_secs() } else { LOOK.as_secs() };
        before.said = Some(now);
        Some(drops_event(cpu, &lately, seconds, settings))
    }

    fn moved(&mut self, now: Instant, cpus: &BTreeMap<u16, Lately>) -> Option<Happened> {
        if now.saturating_duration_since(self.moves.0) < SUMMARY {
            return None;
        }
        let sum = |count: fn(&Lately) -> u64| cpus.values().map(count).sum();
        let counts = Lately {
            moves: sum(|counts| counts.moves),
            deferred: sum(|counts| counts.deferred),
            received: sum(|counts| counts.received),
            ..Lately::default()
        };
        let lately = counts.since(&self.moves.1);
        self.moves = (now, counts);
        if lately.moves == 0 && lately.deferred == 0 {
            return None;
        }
        let text = format!(
            "{} moves and {} packets deferred among {} in the last {} s",
            grouped(lately.moves),
            grouped(lately.deferred),
            grouped(lately.received),
            SUMMARY.as_secs()
        );
        let event = Happened::new(EventKind::Moves, text).with("moves", lately.moves);
        Some(event.with("deferred", lately.deferred).with("received", lately.received))
    }
}

fn drops_event(cpu: u16, lately: &Lately, seconds: u64, settings: &SettingsShown) -> Happened {
    let mut parts = Vec::new();
    if lately.lost > 0 {
        let thread = ThreadShown::new(lately.class.clone(), |counter| match counter {
            LiveCpuCounter::LostWaiting => lately.while_waiting,
            LiveCpuCounter::LostBusy => lately.while_busy,
            LiveCpuCounter::LostBurst => lately.in_bursts,
            LiveCpuCounter::ThreadWaited => lately.waited_ns,
            LiveCpuCounter::LongestWait => lately.longest_wait_ns,
            _ => 0,
        });
        let drops = Drops { ring_full: lately.lost, ..Drops::default() };
        let counts = Counts { drops, ..Counts::default() };
        let status = CpuStatus { cpu, counts, thread, delay: None, would: None };
        let (what, remedy) = (losses::what(&status, settings), losses::remedy(&status, settings));
        parts.push(format!("{what} -> {remedy}"));
    }
    if lately.alloc > 0 {
        let frames = plural(usize::try_from(lately.alloc).unwrap_or(usize::MAX), "frame");
        parts.push(format!(
            "CPU {cpu} dropped {frames} because the kernel had no memory for socket buffers"
        ));
    }
    if lately.flow_limit > 0 {
        let share = percent(lately.flow_limit, lately.received);
        parts.push(format!(
            "the flow limit dropped {} frames that CPU {cpu} received ({share}): one flow filled half of a queue that \
             was half full",
            grouped(lately.flow_limit)
        ));
    }
    let text = format!("in the last {}: {}", plural(seconds as usize, "second"), parts.join("; "));
    let fields = [
        ("cpu", u64::from(cpu)),
        ("seconds", seconds),
        ("drops", lately.drops()),
        ("queue_full", lately.lost),
        ("while_waiting", lately.while_waiting),
        ("while_busy", lately.while_busy),
        ("in_bursts", lately.in_bursts),
        ("no_memory", lately.alloc),
        ("flow_limit", lately.flow_limit),
        ("delivered", lately.delivered),
    ];
    let event = Happened::new(EventKind::Drops, text);
    fields.into_iter().fold(event, |event, (name, value)| event.with(name, value))
}

#[cfg(test)]
mod tests {
    use super::super::instance::tests::{instance, link};
    use super::*;

    struct Watched {
        summaries: Summaries,
        settings: SettingsShown,
        now: Instant,
        cpu: Lately,
    }

    impl Watched {
        fn begin() -> Watched {
            let now = Instant::now();
            let settings = instance(&["a"], &[link(1, "a")]).shown();
            let cpu = Lately { class: Some("other".to_owned()), ..Lately::default() };
            Watched { summaries: Summaries::new(now), settings, now, cpu }
        }

        /// One second later.
        fn look(&mut self, change: impl FnOnce(&mut Lately)) -> Vec<Happened> {
            change(&mut self.cpu);
            self.now += LOOK;
            let cpus = BTreeMap::from([(1, self.cpu.clone())]);
            self.summaries.look(self.now, &cpus, &self.settings)
        }
    }

    #[test]
    fn drops_are_reported_with_their_cause_and_once_a_minute() {
        let mut watched = Watched::begin();
        assert_eq!(watched.look(|cpu| cpu.delivered += 100_000), []);
        let few =
            |cpu: &mut Lately| (cpu.delivered, cpu.lost) = (cpu.delivered + 100_000, cpu.lost + 99);
        assert_eq!(watched.look(few), [], "less than one of a thousand");
        assert_eq!(watched.look(|cpu| cpu.lost += 9), [], "few");
        let say = watched.look(|cpu| {
            (cpu.delivered, cpu.lost) = (cpu.delivered + 1000, cpu.lost + 500);
            cpu.while_waiting += 400;
            cpu.in_bursts += 100;
        });
        let [event] = &say[..] else { panic!("one event: {say:?}") };
        assert_eq!((event.kind, &event.fields["drops"]), (EventKind::Drops, &500.into()));
        assert_eq!(
            (&event.fields["cpu"], &event.fields["while_waiting"]),
            (&1.into(), &400.into())
        );
        for part in [
            "in the last 1 second: CPU 1 lost 500 frames: 400 while",
            "-> rxsteer set threads=fifo:1",
        ] {
            assert!(event.text.contains(part), "{part} in {}", event.text);
        }
        let mut drops = 0;
        let mut events = 0;
        for _ in 0..120 {
            for event in watched.look(|cpu| cpu.lost += 100) {
                drops += event.fields["drops"].as_u64().unwrap();
                events += 1;
                assert_eq!(event.fields["seconds"], 60);
            }
        }
        assert_eq!((events, drops), (2, 12_000), "every drop is in one of them");
        for _ in 0..120 {
            assert_eq!(watched.look(|_| ()), []);
        }
        let say = watched.look(|cpu| cpu.alloc += 10);
        assert!(
            say[0].text.contains("dropped 10 frames because the kernel had no memory"),
            "{say:?}"
        );
        assert_eq!(say[0].fields["seconds"], 1);
    }

    #[test]
    fn drops_by_the_flow_limit_are_those_of_the_receiving_cpu() {
        let mut watched = Watched::begin();
        let say = watched.look(|cpu| (cpu.received, cpu.flow_limit) = (1000, 20));
        assert!(
            say[0].text.contains("the flow limit dropped 20 frames that CPU 1 received (2.0"),
            "{say:?}"
        );
    }

    #[test]
    fn moves_are_summed_up_over_a_minute() {
        let mut watched = Watched::begin();
        let mut said = Vec::new();
        for _ in 0..180 {
            said.extend(watched.look(|cpu| {
                cpu.received += 50;
                cpu.moves += 2;
            }));
        }
        assert_eq!(said.len(), 3);
        assert!(said.iter().all(|event| event.fields["moves"] == 120), "{said:?}");
        assert_eq!(said[0].text, "120 moves and 0 packets deferred among 3 000 in the last 60 s");
        // An interface went away with its counts.
        for _ in 0..120 {
            assert_eq!(watched.look(|cpu| (cpu.received, cpu.moves) = (10, 0)), []);
        }
    }
}
