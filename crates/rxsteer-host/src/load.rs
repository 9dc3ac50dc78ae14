//! How busy the CPUs are with receiving, according to the kernel's own counts.
//!
//! Whether steering helps depends on load, which only two readings some time apart can show: [`Load::read`], wait, read
//! again, [`Load::since`]. The counts of CPUs cover the whole host; those of frames cover this network namespace.

use crate::root::Root;
use serde::Serialize;
use std::collections::BTreeMap;

/// What one CPU did, since boot or between two readings. The kernel's counts have 32 bits and wrap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CpuLoad {
    /// The CPU's id.
    pub cpu: u32,
    /// Frames that it processed.
    pub processed: u32,
    /// Packets that its full backlog refused.
    pub dropped: u32,
    /// How often it stopped polling although work was left.
    pub squeezed: u32,
    /// How often another CPU woke it for packets that RPS sent here.
    pub received_rps: u32,
    /// Packets that the flow limit dropped.
    pub flow_limited: u32,
    /// How it spent its time.
    pub ticks: Ticks,
}

/// A CPU's time, in the ticks of `/proc/stat`; all 0 if unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Ticks {
    /// In softirqs.
    pub softirq: u64,
    /// Idle, including waits for disks.
    pub idle: u64,
    /// All of its time.
    pub all: u64,
}

/// What all CPUs did, and what interfaces received.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Load {
    /// By CPU.
    pub cpus: Vec<CpuLoad>,
    /// By interface of this network namespace: frames received.
    pub received: BTreeMap<String, u64>,
}

impl Load {
    /// Reads the counts since the host started; `None` if the kernel does not report them.
    pub fn read() -> Option<Load> {
        Self::read_in(&Root::host())
    }

    /// The same for the host below `root`.
    pub fn read_in(root: &Root) -> Option<Load> {
        let mut load = Self::parse(&root.text("/proc/net/softnet_stat")?)?;
        let stat = root.text("/proc/stat").unwrap_or_default();
        for cpu in &mut load.cpus {
            cpu.ticks = Ticks::of(cpu.cpu, &stat).unwrap_or_default();
        }
        load.received = received(&root.text("/proc/net/dev").unwrap_or_default());
        Some(load)
    }

    /// Parses `/proc/net/softnet_stat`: a line for each online CPU, in hexadecimal.
    fn parse(text: &str) -> Option<Load> {
        let line = |(row, line): (usize, &str)| {
            let field = |index| u32::from_str_radix(line.split_whitespace().nth(index)?, 16).ok();
            // Since Linux 5.10, each line contains the number of its CPU.
            let cpu = field(12).or(u32::try_from(row).ok())?;
            let (processed, dropped, squeezed) = (field(0)?, field(1)?, field(2)?);
            Some(CpuLoad {
                cpu,
                processed,
                dropped,
                squeezed,
                received_rps: field(9).unwrap_or(0),
                flow_limited: field(10).unwrap_or(0),
                ticks: Ticks::default(),
            })
        };
        let cpus = text.lines().enumerate().map(line).collect::<Option<_>>()?;
        Some(Load { cpus, received: BTreeMap::new() })
    }

    /// What was done since an earlier reading, by the CPUs that are in both.
    #[must_use]
    pub fn since(&self, earlier: &Load) -> Load {
        let difference = |now: &CpuLoad| {
            let then = earlier.cpus.iter().find(|then| then.cpu == now.cpu)?;
            Some(CpuLoad {
                cpu: now.cpu,
                processed: now.processed.wrapping_sub(then.processed),
                dropped: now.dropped.wrapping_sub(then.dropped),
                squeezed: now.squeezed.wrapping_sub(then.squeezed),
                received_rps: now.received_rps.wrapping_sub(then.received_rps),
                flow_limited: now.flow_limited.wrapping_sub(then.flow_limited),
                ticks: Ticks {
                    softirq: now.ticks.softirq.saturating_sub(then.ticks.softirq),
                    idle: now.ticks.idle.saturating_sub(then.ticks.idle),
                    all: now.ticks.all.saturating_sub(then.ticks.all),
                },
            })
        };
        let frames = self.received.iter().filter_map(|(name, now)| {
            Some((name.clone(), now.saturating_sub(*earlier.received.get(name)?)))
        });
        Load { cpus: self.cpus.iter().filter_map(difference).collect(), received: frames.collect() }
    }
}

impl Ticks {
    /// Parses the line of a CPU in `/proc/stat`: user, nice, system, idle, iowait, irq, softirq, steal. The fields
    /// after these are already included in them.
    fn of(cpu: u32, stat: &str) -> Option<Ticks> {
        let name = format!("cpu{cpu}");
        let line = stat.lines().find(|line| line.split_whitespace().next() == Some(&name))?;
        let fields = line.split_whitespace().skip(1).map(str::parse);
        let fields: Vec<u64> = fields.take(8).collect::<Result<_, _>>().ok()?;
        let (idle, iowait) = (fields.get(3)?, fields.get(4)?);
        Some(Ticks { softirq: *fields.get(6)?, idle: idle + iowait, all: fields.iter().sum() })
    }
}

/// Parses `/proc/net/dev`: after the name the bytes, then the frames.
fn received(text: &str) -> BTreeMap<String, u64> {
    let line = |line: &str| {
        let (name, counts) = line.split_once(':')?;
        let frames = counts.split_whitespace().nth(1)?.parse().ok()?;
        Some((name.trim().to_owned(), frames))
    };
    text.lines().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_and_subtracted() {
        let line = |counts: &str, cpu: &str| format!("{counts} 0 0 0 0 0 0 0 0 0 {cpu} 0 0\n");
        let then = Load::parse(&(line("ffffffff 1 0", "0") + &line("10 0 0", "5"))).unwrap();
        let now =
            Load::parse(&(line("00000001 4 2", "0") + &line("30 0 0", "5") + &line("1 1 1", "7")));
        let expected = [
            CpuLoad { cpu: 0, processed: 2, dropped: 3, squeezed: 2, ..CpuLoad::default() },
            CpuLoad { cpu: 5, processed: 32, ..CpuLoad::default() },
        ];
        assert_eq!(now.unwrap().since(&then).cpus, expected);
        assert_eq!(Load::parse("1 2 3\n").unwrap().cpus[0].squeezed, 3, "without the CPU's id");
        assert_eq!(Load::parse("1 2\n"), None);
        assert_eq!(Load::parse("x y z\n"), None);
    }

    #[test]
    fn time_of_a_cpu_is_read() {
        let stat = "cpu  9 9 9 9 9 9 9 9 9 9\ncpu1 1 2 3 40 5 6 7 8 9 9\ncpu11 0 0 0 0 0 0 1 0 0 0\nintr 5\n";
        assert_eq!(Ticks::of(1, stat), Some(Ticks { softirq: 7, idle: 45, all: 72 }));
        assert_eq!((Ticks::of(2, stat), Ticks::of(0, "cpu0 1 2")), (None, None));
    }

    #[test]
    fn frames_received_are_read() {
        let text = "Inter-|   Receive\n face |bytes    packets\n  eth0: 100 7 0 0 0 0 0 0 5 5\n lo:1 2 0\n";
        let expected = [("eth0".to_owned(), 7), ("lo".to_owned(), 2)];
        assert_eq!(received(text), expected.into());
    }
}
