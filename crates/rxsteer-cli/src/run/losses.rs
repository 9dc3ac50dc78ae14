//! Why rings lost frames, and what to do about it, as text.

use crate::output::lines::field;
use rxsteer_status::figures::grouped;
use rxsteer_status::{CpuStatus, SettingsShown, Status};
use rxsteer_user::core::counters::LiveCpuCounter;
use rxsteer_user::core::limits::MAX_QUEUE_SIZE;
use rxsteer_user::core::{CpuSet, ThreadClass};

/// "412 ms"
pub(super) fn milliseconds(ns: u64) -> String {
    format!("{} ms", grouped(ns.div_ceil(1_000_000)))
}

/// A paragraph for each CPU whose ring lost frames.
pub(super) fn losses(status: &Status) -> String {
    let mut text = String::new();
    for cpu in status.cpus.iter().filter(|cpu| cpu.counts.drops.ring_full != 0) {
        field(&mut text, "full queue", 13, &describe(cpu, &status.settings));
        field(&mut text, "", 13, &format!("-> {}", remedy(cpu, &status.settings)));
    }
    text
}

/// "CPU 1 lost 12 345 frames: 12 000 while its thread waited for the CPU (812 ms in all, 412 ms at a time)"
pub(super) fn describe(cpu: &CpuStatus, settings: &SettingsShown) -> String {
    let thread = |counter| cpu.thread.get(counter);
    let lost = cpu.counts.drops.ring_full;
    let mut causes = Vec::new();
    let waiting = thread(LiveCpuCounter::LostWaiting);
    if waiting != 0 {
        causes.push(format!(
            "{} while its thread was ready and waited for the CPU ({} in all, up to {} at a time)",
            grouped(waiting),
            milliseconds(thread(LiveCpuCounter::ThreadWaited)),
            milliseconds(thread(LiveCpuCounter::LongestWait))
        ));
    }
    let busy = thread(LiveCpuCounter::LostBusy);
    if busy != 0 {
        causes.push(format!("{} while its thread used the CPU without a pause", grouped(busy)));
    }
    let burst = thread(LiveCpuCounter::LostBurst);
    if burst != 0 {
        let size = grouped(u64::from(settings.queue_size));
        causes
            .push(format!("{} in bursts of more than the {size} frames it holds", grouped(burst)));
    }
    let unknown = lost.saturating_sub(waiting + busy + burst);
    if unknown != 0 {
        causes.push(format!("{} for a reason that was not measured", grouped(unknown)));
    }
    format!("CPU {} lost {} frames: {}", cpu.cpu, grouped(lost), causes.join(", "))
}

/// The remedy for the cause of most losses.
pub(super) fn remedy(cpu: &CpuStatus, settings: &SettingsShown) -> String {
    let thread = |counter| cpu.thread.get(counter);
    let [waiting, busy, burst] =
        [LiveCpuCounter::LostWaiting, LiveCpuCounter::LostBusy, LiveCpuCounter::LostBurst]
            .map(thread);
    let without = settings
        .cpus
        .parse::<CpuSet>()
        .ok()
        .and_then(|cpus| CpuSet::new(cpus.iter().filter(|other| other.get() != cpu.cpu)));
    let other_cpus = match without {
        Some(cpus) => format!("leave it out: rxsteer set cpus={cpus}"),
        None => "steer to more CPUs: rxsteer set cpus=LIST".to_owned(),
    };
    let is_first = cpu.thread.class.as_deref().is_some_and(|class| class.starts_with("fifo"));
    if waiting >= busy.max(burst) && waiting != 0 {
        return match is_first {
            true => format!("interrupts or real-time threads use this CPU; {other_cpus}"),
            false => format!("rxsteer set threads={}", ThreadClass::DEFAULT),
        };
    }
    if busy >= burst && busy != 0 {
        return "this CPU can't keep up; steer to more CPUs: rxsteer set cpus=LIST".to_owned();
    }
    match settings.queue_size.saturating_mul(4).min(MAX_QUEUE_SIZE) {
        larger if larger > settings.queue_size => {
            format!("a longer queue: rxsteer set queue-size={larger}")
        }
        _ => other_cpus,
    }
}

#[cfg(all(test, feature = "xdp"))]
mod tests {
    use super::super::instance::tests::{instance, link, status};
    use super::*;
    use rxsteer_status::{Counts, Drops, ThreadShown};

    /// A CPU that lost frames while its thread waited, was busy, and in bursts.
    fn advice_for(class: Option<&str>, lost: [u64; 3], queue_size: u32) -> String {
        let mut status = status(&mut instance(&["a"], &[link(1, "a")]));
        status.settings.queue_size = queue_size;
        let drops = Drops { ring_full: lost.iter().sum::<u64>() + 1, ..Drops::default() };
        let thread = ThreadShown::new(class.map(str::to_owned), |counter| match counter {
            LiveCpuCounter::LostWaiting => lost[0],
            LiveCpuCounter::LostBusy => lost[1],
            LiveCpuCounter::LostBurst => lost[2],
            LiveCpuCounter::ThreadWaited => 3_000_000_000,
            LiveCpuCounter::LongestWait => 412_300_000,
            _ => 0,
        });
        let counts = Counts { drops, ..Counts::default() };
        status.cpus = vec![CpuStatus { cpu: 1, counts, thread, delay: None, would: None }];
        losses(&status)
    }

    #[test]
    fn cause_and_remedy_are_reported() {
        let text = advice_for(Some("other"), [5000, 10, 0], 2048);
        for part in [
            "CPU 1 lost 5 011 frames: 5 000 while its thread was ready and waited",
            "(3 000 ms in all, up to 413 ms at a time), 10 while",
            "1 for a reason that was not measured",
            "-> rxsteer set threads=fifo:1",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
        let text = advice_for(Some("fifo:1"), [5, 0, 0], 2048);
        assert!(text.contains("interrupts") && text.contains("set cpus=0\n"), "{text}");
        assert!(advice_for(Some("fifo:1"), [1, 9, 0], 2048).contains("set cpus=LIST"));
        assert!(advice_for(None, [0, 0, 9], 2048).contains("set queue-size=8192"));
        assert!(advice_for(None, [0, 0, 9], 16384).contains("set cpus=0\n"), "it can't be longer");
    }

    #[test]
    fn where_nothing_is_lost_nothing_is_reported() {
        assert_eq!(losses(&status(&mut instance(&["a"], &[link(1, "a")]))), "");
    }
}
