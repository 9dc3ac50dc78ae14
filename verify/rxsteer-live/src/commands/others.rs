//! CPU time of processes other than ours: a turn during which a compiler ran is not a valid measurement.
//!
//! Kernel threads are not counted, since those that work for us cannot be distinguished from others. A child's time
//! counts when its parent waits for it, so a child that began and ended in between is included. Some of its time may be
//! from before the turn, which can only discard a valid turn.

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

/// `getconf CLK_TCK`: the unit of /proc, on every architecture for which the programs are built.
const TICK: Duration = Duration::from_millis(10);
/// `PF_KTHREAD` of the kernel.
const KERNEL_THREAD: u64 = 0x0020_0000;

/// The CPU time that other processes had taken at one moment.
pub(crate) struct Others {
    at: Instant,
    /// By process.
    ticks: BTreeMap<u32, u64>,
}

/// The needed fields of a line of /proc/PID/stat.
struct Stat {
    parent: u32,
    flags: u64,
    /// Its own time, and the time of its children that have ended.
    ticks: u64,
}

impl Others {
    /// Reads all processes except this one and its children.
    pub(crate) fn now() -> Others {
        let own = std::process::id();
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let ticks = entries.filter_map(|entry| {
            let process: u32 = entry.file_name().to_str()?.parse().ok()?;
            let stat = Stat::of(&fs::read_to_string(entry.path().join("stat")).ok()?)?;
            let is_other = process != own && stat.parent != own && stat.flags & KERNEL_THREAD == 0;
            is_other.then_some((process, stat.ticks))
        });
        Others { at: Instant::now(), ticks: ticks.collect() }
    }

    /// The share of one CPU that other processes took since `before`.
    pub(crate) fn share_since(&self, before: &Others) -> f64 {
        let more = |(process, ticks): (&u32, &u64)| {
            ticks.saturating_sub(before.ticks.get(process).copied().unwrap_or(0))
        };
        let ticks: u64 = self.ticks.iter().map(more).sum();
        let time = TICK.as_secs_f64() * ticks as f64;
        time / self.at.saturating_duration_since(before.at).as_secs_f64().max(1e-3)
    }
}

impl Stat {
    fn of(line: &str) -> Option<Stat> {
        // The fields follow the name in brackets, and the name may itself contain brackets.
        let fields: Vec<&str> = line.rsplit_once(')')?.1.split_whitespace().collect();
        let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        let ticks = (14..=17).map(|number| field(number).unwrap_or(0)).sum();
        Some(Stat { parent: field(4)? as u32, flags: field(9)?, ticks })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};
    use std::process::Stdio;

    #[test]
    fn line_of_a_process_is_read() {
        let line = "4711 (a ) b) S 4242 1 1 0 -1 4194560 100 0 0 0 7 5 3 2 20 0 1 0 99 0 0";
        let stat = Stat::of(line).unwrap();
        assert_eq!((stat.parent, stat.flags, stat.ticks), (4242, 4_194_560, 17));
        assert!(Stat::of("no line").is_none());
    }

    #[test]
    fn cpu_time_of_others_is_reported_and_what_ended_is_left_out() {
        let at = Instant::now();
        let before = Others { at, ticks: [(1, 100), (2, 50), (3, 9)].into() };
        let after =
            Others { at: at + Duration::from_secs(1), ticks: [(1, 110), (2, 50), (4, 5)].into() };
        assert!((after.share_since(&before) - 0.15).abs() < 1e-9);
    }

    #[test]
    fn busy_neighbour_is_noticed_and_we_are_not() {
        let before = Others::now();
        assert!(!before.ticks.contains_key(&std::process::id()));
        // A grandchild does not count as ours, since its parent is a shell. It ends with the shell's standard input.
        let script = "(while :; do :; done) & echo $!; read -r end; kill $!";
        let mut shell = std::process::Command::new("sh")
            .args(["-c", script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(shell.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let neighbour: u32 = line.trim().parse().unwrap();
        let started = Instant::now();
        let now = loop {
            let now = Others::now();
            if now.ticks.get(&neighbour).is_some_and(|ticks| *ticks > 0) {
                break now;
            }
            assert!(started.elapsed() < Duration::from_secs(60), "{neighbour} had no CPU time");
            std::thread::sleep(TICK);
        };
        assert!(now.share_since(&before) > 0.0);
        drop(shell.stdin.take());
        shell.wait().unwrap();
    }
}
