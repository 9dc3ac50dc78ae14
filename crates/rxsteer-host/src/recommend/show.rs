//! Prints a recommendation as text.

use super::{Action, Recommendation};
use crate::mask::CpuMask;
use std::fmt;

/// The sentences, then the sets and the commands.
impl fmt::Display for Recommendation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for sentence in &self.sentences {
            writeln!(f, "{sentence}")?;
        }
        if let Action::KernelSteering(sets) = &self.action {
            let mut rows: Vec<(u32, u32, String)> = Vec::new();
            for ((queue, set), mask) in sets.rps.iter().zip(&sets.masks) {
                let shown = format!("{} ({mask})", CpuMask(Some(set.clone())));
                match rows.last_mut() {
                    Some((_, last, same)) if *same == shown && *last + 1 == *queue => {
                        *last = *queue
                    }
                    _ => rows.push((*queue, *queue, shown)),
                }
            }
            for (first, last, set) in rows {
                let queues =
                    if first == last { format!("{first}") } else { format!("{first}-{last}") };
                writeln!(f, "  rps_cpus of RX queue {queues}: {set}")?;
            }
            if let Some((entries, count)) = sets.rfs {
                writeln!(
                    f,
                    "  rps_sock_flow_entries: {entries}; rps_flow_cnt of each RX queue: {count}"
                )?;
            }
        }
        for command in &self.commands {
            writeln!(f, "  -> {command}")?;
        }
        Ok(())
    }
}
