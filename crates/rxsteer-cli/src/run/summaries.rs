//! The messages about many drops, with their cause. `crate::summaries` decides when they are printed.

use super::losses;
use crate::summaries::CpuActivity;
use crate::words::plural;
use rxsteer_status::figures::{grouped, percent};
use rxsteer_status::{Counts, CpuStatus, EventKind, NewEvent, SettingsShown, ThreadShown};
use rxsteer_user::core::counters::LiveCpuCounter;

/// The event of a CPU that dropped many frames.
pub(super) fn dropped(
    cpu: u16,
    activity: &CpuActivity,
    seconds: u64,
    settings: &SettingsShown,
) -> NewEvent {
    let drops = &activity.drops;
    let mut parts = Vec::new();
    if drops.ring_full > 0 {
        let thread = ThreadShown::new(activity.class.clone(), |counter| match counter {
            LiveCpuCounter::LostWaiting => activity.while_waiting,
            LiveCpuCounter::LostBusy => activity.while_busy,
            LiveCpuCounter::LostBurst => activity.in_bursts,
            LiveCpuCounter::ThreadWaited => activity.waited_ns,
            LiveCpuCounter::LongestWait => activity.longest_wait_ns,
            _ => 0,
        });
        let counts = Counts { drops: *drops, ..Counts::default() };
        let status = CpuStatus { cpu, counts, thread, delay: None, would: None };
        let (what, remedy) =
            (losses::describe(&status, settings), losses::remedy(&status, settings));
        parts.push(format!("{what} -> {remedy}"));
    }
    if drops.alloc > 0 {
        let frames = plural(usize::try_from(drops.alloc).unwrap_or(usize::MAX), "frame");
        parts.push(format!(
            "CPU {cpu} dropped {frames} because the kernel had no memory for socket buffers"
        ));
    }
    if drops.flow_limit > 0 {
        let share = percent(drops.flow_limit, activity.received);
        parts.push(format!(
            "the flow limit dropped {} frames that CPU {cpu} received ({share}): one flow filled half of a queue that \
             was half full",
            grouped(drops.flow_limit)
        ));
    }
    let text = format!("in the last {}: {}", plural(seconds as usize, "second"), parts.join("; "));
    let fields = [
        ("cpu", u64::from(cpu)),
        ("seconds", seconds),
        ("drops", drops.total()),
        ("queue_full", drops.ring_full),
        ("while_waiting", activity.while_waiting),
        ("while_busy", activity.while_busy),
        ("in_bursts", activity.in_bursts),
        ("no_memory", drops.alloc),
        ("flow_limit", drops.flow_limit),
        ("delivered", activity.delivered),
    ];
    let event = NewEvent::new(EventKind::Drops, text);
    fields.into_iter().fold(event, |event, (name, value)| event.with(name, value))
}

#[cfg(test)]
mod tests {
    use super::super::instance::tests::{instance, link};
    use super::*;
    use crate::summaries::{POLL_INTERVAL, Summaries};
    use std::collections::BTreeMap;
    use std::time::Instant;

    struct Watched {
        summaries: Summaries,
        settings: SettingsShown,
        now: Instant,
        cpu: CpuActivity,
    }

    impl Watched {
        fn begin() -> Watched {
            let now = Instant::now();
            let settings = instance(&["a"], &[link(1, "a")]).shown();
            let cpu = CpuActivity { class: Some("other".to_owned()), ..CpuActivity::default() };
            Watched { summaries: Summaries::new(now), settings, now, cpu }
        }

        /// Updates one second later.
        fn update(&mut self, change: impl FnOnce(&mut CpuActivity)) -> Vec<NewEvent> {
            change(&mut self.cpu);
            self.now += POLL_INTERVAL;
            let cpus = BTreeMap::from([(1, self.cpu.clone())]);
            let describe =
                |cpu, activity: &_, seconds| dropped(cpu, activity, seconds, &self.settings);
            self.summaries.update(self.now, &cpus, describe)
        }
    }

    #[test]
    fn drops_are_reported_with_their_cause_and_once_a_minute() {
        let mut watched = Watched::begin();
        assert_eq!(watched.update(|cpu| cpu.delivered += 100_000), []);
        let few = |cpu: &mut CpuActivity| {
            (cpu.delivered, cpu.drops.ring_full) =
                (cpu.delivered + 100_000, cpu.drops.ring_full + 99)
        };
        assert_eq!(watched.update(few), [], "less than one of a thousand");
        assert_eq!(watched.update(|cpu| cpu.drops.ring_full += 9), [], "few");
        let events = watched.update(|cpu| {
            (cpu.delivered, cpu.drops.ring_full) =
                (cpu.delivered + 1000, cpu.drops.ring_full + 500);
            cpu.while_waiting += 400;
            cpu.in_bursts += 100;
        });
        let [event] = &events[..] else { panic!("one event: {events:?}") };
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
            for event in watched.update(|cpu| cpu.drops.ring_full += 100) {
                drops += event.fields["drops"].as_u64().unwrap();
                events += 1;
                assert_eq!(event.fields["seconds"], 60);
            }
        }
        assert_eq!((events, drops), (2, 12_000), "every drop is in one of them");
        for _ in 0..120 {
            assert_eq!(watched.update(|_| ()), []);
        }
        let events = watched.update(|cpu| cpu.drops.alloc += 10);
        assert!(
            events[0].text.contains("dropped 10 frames because the kernel had no memory"),
            "{events:?}"
        );
        assert_eq!(events[0].fields["seconds"], 1);
    }

    #[test]
    fn drops_by_the_flow_limit_are_those_of_the_receiving_cpu() {
        let mut watched = Watched::begin();
        let events = watched.update(|cpu| (cpu.received, cpu.drops.flow_limit) = (1000, 20));
        assert!(
            events[0].text.contains("the flow limit dropped 20 frames that CPU 1 received (2.0"),
            "{events:?}"
        );
    }

    #[test]
    fn moves_are_summed_up_over_a_minute() {
        let mut watched = Watched::begin();
        let mut events = Vec::new();
        for _ in 0..180 {
            events.extend(watched.update(|cpu| {
                cpu.received += 50;
                cpu.moves += 2;
            }));
        }
        assert_eq!(events.len(), 3);
        assert!(events.iter().all(|event| event.fields["moves"] == 120), "{events:?}");
        assert_eq!(events[0].text, "120 moves and 0 packets deferred among 3 000 in the last 60 s");
        // An interface was removed with its counts.
        for _ in 0..120 {
            assert_eq!(watched.update(|cpu| (cpu.received, cpu.moves) = (10, 0)), []);
        }
    }
}
