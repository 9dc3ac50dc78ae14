//! How busy the CPUs are with receiving, by the kernel's own counts.
//!
//! Whether steering helps depends on load, which only two looks some time apart can tell: [`Load::look`], wait,
//! look again, [`Load::since`]. The counts are of the whole host, not of one interface or network namespace.

use crate::files;
use serde::Serialize;

/// What one CPU did, up to now or between two looks. The kernel's counts have 32 bits and wrap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CpuLoad {
    /// The CPU's id.
    pub cpu: u32,
    /// Frames it took up.
    pub processed: u32,
    /// Packets its backlog was too full for.
    pub dropped: u32,
    /// How often it had to stop with work left over.
    pub squeezed: u32,
}

/// What all CPUs did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Load(pub Vec<CpuLoad>);

impl Load {
    /// Looks at what was done since the host was started; `None` where the kernel does not say.
    pub fn look() -> Option<Load> {
        Self::read(&files::text("/proc/net/softnet_stat")?)
    }

    /// Reads `/proc/net/softnet_stat`: a line for each online CPU, in hexadecimal.
    fn read(text: &str) -> Option<Load> {
        let line = |(row, line): (usize, &str)| {
            let field = |index| u32::from_str_radix(line.split_whitespace().nth(index)?, 16).ok();
            // Lines say which CPU they are of since Linux 5.10.
            let cpu = field(12).or(u32::try_from(row).ok())?;
            Some(CpuLoad { cpu, processed: field(0)?, dropped: field(1)?, squeezed: field(2)? })
        };
        text.lines().enumerate().map(line).collect::<Option<_>>().map(Load)
    }

    /// What was done since an earlier look, by the CPUs that were there both times.
    #[must_use]
    pub fn since(&self, earlier: &Load) -> Load {
        let difference = |now: &CpuLoad| {
            let then = earlier.0.iter().find(|then| then.cpu == now.cpu)?;
            Some(CpuLoad {
                cpu: now.cpu,
                processed: now.processed.wrapping_sub(then.processed),
                dropped: now.dropped.wrapping_sub(then.dropped),
                squeezed: now.squeezed.wrapping_sub(then.squeezed),
            })
        };
        Load(self.0.iter().filter_map(difference).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_and_subtracted() {
        let line = |counts: &str, cpu: &str| format!("{counts} 0 0 0 0 0 0 0 0 0 {cpu} 0 0\n");
        let then = Load::read(&(line("ffffffff 1 0", "0") + &line("10 0 0", "5"))).unwrap();
        let now =
            Load::read(&(line("00000001 4 2", "0") + &line("30 0 0", "5") + &line("1 1 1", "7")));
        let expected = [
            CpuLoad { cpu: 0, processed: 2, dropped: 3, squeezed: 2 },
            CpuLoad { cpu: 5, processed: 32, ..CpuLoad::default() },
        ];
        assert_eq!(now.unwrap().since(&then).0, expected);
        assert_eq!(Load::read("1 2 3\n").unwrap().0[0].squeezed, 3, "without the CPU's id");
        assert_eq!(Load::read("1 2\n"), None);
        assert_eq!(Load::read("x y z\n"), None);
    }
}
