//! The queues that an interface uses, and the RX queues that the kernel itself steers.

use crate::files;
use crate::link::Link;
use crate::netlink::ethtool;
use serde::Serialize;
use std::fs;
use std::path::{Path, PathBuf};

/// An RX queue whose packets the kernel's own steering handles after rxsteer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SteeredQueue {
    /// Its number.
    pub queue: u32,
    /// `rps_cpus`, without leading zeroes; empty if only RFS is on.
    pub rps_cpus: String,
    /// Entries of its flow table (RFS).
    pub rps_flow_cnt: u64,
}

impl Link {
    /// The number of RX queues in use, if sysfs reports it.
    pub fn rx_queues(&self) -> Option<u32> {
        dir_of(self).map(|dir| received_on(&dir).len() as u32)
    }

    /// The same, as reported by its driver (`ethtool -l`), which does not depend on the network namespace that sysfs
    /// shows.
    pub fn rx_queues_of_driver(&self) -> Option<u32> {
        let channels = ethtool::channels(self.index).ok()?;
        Some(channels.used).filter(|used| *used > 0)
    }

    /// The number of RX queues in use, as reported by sysfs or else by the driver; 1 if neither reports it.
    pub fn rx_queues_in_use(&self) -> u32 {
        self.rx_queues().or_else(|| self.rx_queues_of_driver()).unwrap_or(1).max(1)
    }

    /// The number of TX queues in use; if sysfs does not report it, the most that the interface can have.
    pub fn tx_queues(&self) -> Option<u32> {
        let used = dir_of(self).map(|dir| numbered(&dir, "tx-").len() as u32);
        used.or(self.max_tx_queues)
    }
}

/// The interface's queues in sysfs. A mount of sysfs shows the network namespace in which it was mounted, which may not
/// be ours. There, the same name may belong to another interface, or to none.
pub(crate) fn dir_of(link: &Link) -> Option<PathBuf> {
    let dir = Path::new("/sys/class/net").join(&link.name);
    let address: Vec<String> = link.address.iter().map(|byte| format!("{byte:02x}")).collect();
    let same = files::number(dir.join("ifindex")) == Some(link.index)
        && files::text(dir.join("address")).unwrap_or_default() == address.join(":");
    let queues = dir.join("queues");
    (same && queues.is_dir()).then_some(queues)
}

/// The RX queues in use: their numbers and directories, in ascending order.
pub(crate) fn received_on(queues: &Path) -> Vec<(u32, PathBuf)> {
    numbered(queues, "rx-")
}

/// The entries of a folder whose name is `prefix` and a number, in ascending order of the numbers.
pub(crate) fn numbered(folder: &Path, prefix: &str) -> Vec<(u32, PathBuf)> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut found: Vec<(u32, PathBuf)> = entries
        .filter_map(|entry| {
            let number = entry.file_name().to_str()?.strip_prefix(prefix)?.parse().ok()?;
            Some((number, entry.path()))
        })
        .collect();
    found.sort_unstable();
    found
}

/// The RX queues of an interface that the kernel's own RPS or RFS steers; `None` where sysfs shows another network
/// namespace.
pub fn steered_by_kernel(link: &Link) -> Option<Vec<SteeredQueue>> {
    Some(steered(&dir_of(link)?))
}

/// The queues that the kernel steers: by RPS if they have a CPU map; by RFS if they have a flow table and there is a
/// sock flow table. The size of the latter is visible only in the first network namespace; elsewhere it is assumed to
/// exist.
pub(crate) fn steered(queues: &Path) -> Vec<SteeredQueue> {
    steered_with(queues, files::number("/proc/sys/net/core/rps_sock_flow_entries"))
}

fn steered_with(queues: &Path, sock_entries: Option<u64>) -> Vec<SteeredQueue> {
    let queue = |(queue, dir): (u32, PathBuf)| {
        let mask = files::text(dir.join("rps_cpus")).unwrap_or_default();
        let rps_cpus = mask.trim_start_matches(['0', ',']).to_owned();
        let rps_flow_cnt: u64 = files::number(dir.join("rps_flow_cnt")).unwrap_or_default();
        let active = !rps_cpus.is_empty() || (rps_flow_cnt > 0 && sock_entries != Some(0));
        active.then_some(SteeredQueue { queue, rps_cpus, rps_flow_cnt })
    };
    received_on(queues).into_iter().filter_map(queue).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_are_counted_and_steered_ones_named() {
        let dir = tempfile::tempdir().unwrap();
        let queues = [
            ("rx-0", "00000000,00000000", "0"),
            ("rx-10", "00000000,00000f00", "0"),
            ("rx-2", "0", "512"),
            ("tx-0", "f", "0"),
        ];
        for (name, mask, entries) in queues {
            let queue = dir.path().join(name);
            fs::create_dir(&queue).unwrap();
            fs::write(queue.join("rps_cpus"), format!("{mask}\n")).unwrap();
            fs::write(queue.join("rps_flow_cnt"), format!("{entries}\n")).unwrap();
        }
        let numbers: Vec<u32> = received_on(dir.path()).iter().map(|(number, _)| *number).collect();
        assert_eq!(numbers, [0, 2, 10]);
        let ten = SteeredQueue { queue: 10, rps_cpus: "f00".to_owned(), rps_flow_cnt: 0 };
        assert_eq!(steered_with(dir.path(), Some(0)), std::slice::from_ref(&ten));
        let two = SteeredQueue { queue: 2, rps_cpus: String::new(), rps_flow_cnt: 512 };
        assert_eq!(steered_with(dir.path(), Some(32768)), [two.clone(), ten.clone()]);
        assert_eq!(steered_with(dir.path(), None), [two, ten]);
        assert_eq!(steered_with(&dir.path().join("nothing"), None), []);
    }
}
