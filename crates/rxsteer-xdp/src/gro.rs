//! How long the GRO of an interface may hold frames that pass.
//!
//! By default GRO passes on all its packets when a poll ends. If `gro_flush_timeout` is set, GRO keeps packets that are
//! younger than a jiffy until the next poll, which a timer starts at the latest. Later frames of the same flows must not
//! take another path before that time is over.
//!
//! This file reads the setting of the whole interface. It ignores settings of single queues, made over netlink (Linux
//! 6.13).

use std::fs;
use std::path::Path;
use std::time::Duration;

/// The longest wait, even if the interface has a longer timeout.
pub(crate) const MAX: Duration = Duration::from_secs(1);

/// The longest time that the GRO of these interfaces (by index) may hold a frame, if a second has `hz` jiffies. It is
/// zero if GRO holds none, or if the setting cannot be read.
pub(crate) fn longest_hold(indices: &[u32], hz: u32) -> Duration {
    let folders = fs::read_dir("/sys/class/net").into_iter().flatten().flatten();
    let timeouts = folders.filter_map(|folder| {
        let folder = folder.path();
        let index = number(&folder, "ifindex")?;
        indices.iter().any(|wanted| u64::from(*wanted) == index).then_some(())?;
        number(&folder, "gro_flush_timeout")
    });
    hold(timeouts.max().unwrap_or(0), hz)
}

fn number(folder: &Path, name: &str) -> Option<u64> {
    fs::read_to_string(folder.join(name)).ok()?.trim().parse().ok()
}

/// The timeout, one jiffy until a frame counts as old, and one more until the poll begins.
fn hold(timeout_ns: u64, hz: u32) -> Duration {
    if timeout_ns == 0 {
        return Duration::ZERO;
    }
    let jiffy = Duration::from_secs(1) / hz.max(1);
    Duration::from_nanos(timeout_ns).saturating_add(2 * jiffy).min(MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_timeout_makes_it_hold_and_never_for_long() {
        assert_eq!(hold(0, 250), Duration::ZERO);
        assert_eq!(hold(200_000, 250), Duration::from_micros(8200));
        assert_eq!(hold(u64::MAX, 100), MAX);
        assert_eq!(longest_hold(&[], 100), Duration::ZERO);
        assert_eq!(longest_hold(&[u32::MAX], 100), Duration::ZERO, "there is no such interface");
    }
}
