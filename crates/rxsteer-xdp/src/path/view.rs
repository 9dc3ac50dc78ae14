//! What the owner of a path publishes to its views, and what happens to flow statistics when an interface is detached.

use super::Path;
use super::attach::Detached;
use crate::flows::EndedLine;
use crate::live::{Counters, DeviceId, RxCounts};
use crate::load::LoadError;
use crate::recorder::{FlowRecorder, Timeouts};
use crate::view::{Known, View};
use rxsteer_core::CpuId;
use rxsteer_core::matching::PacketRule;
use std::sync::Arc;

impl Path {
    /// Creates a view of this path for another thread.
    ///
    /// # Errors
    /// When a map cannot be mapped into memory.
    pub fn view(&self) -> Result<View, LoadError> {
        View::new(&self.loaded, self.graces.another()?, self.known.clone(), self.ended.clone())
    }

    /// Creates the recorder of this path's flows. From now on each packet of a flow is in one of its records, or is
    /// counted as lost. A path has at most one recorder.
    ///
    /// # Errors
    /// When a map cannot be mapped into memory.
    pub fn recorder(&self, timeouts: Timeouts) -> Result<FlowRecorder, LoadError> {
        self.ended.begin_to_record(self.loaded.sizes.slots());
        Ok(FlowRecorder::new(self.view()?, timeouts))
    }

    /// Publishes the present state to the views.
    pub(super) fn publish(&self) {
        let rules = match self.is_draining {
            // The drain ends with a configuration without rules. Views keep showing the hits of the last rules.
            true => self.known.get().rules.clone(),
            false => self.loaded.rules.rules(self.active_part()).to_vec(),
        };
        self.known.set(Known {
            settings: self.settings.clone(),
            is_unguarded: self.is_unguarded(),
            devices: self.known_devices(),
            buckets: self.buckets.clone(),
            rules,
        });
    }

    /// The active rules before the policy, and how many packets each has matched since it was set.
    #[must_use]
    pub fn rule_hits(&self) -> Vec<(PacketRule, u64)> {
        let rules = self.loaded.rules.rules(self.active_part()).iter();
        rules.map(|(rule, counter)| (rule.clone(), self.loaded.rules.hits(*counter))).collect()
    }

    /// All present counts. This does not wait for a grace period, so the last lost frames may not be found yet
    /// ([`View::counters`] finds them).
    #[must_use]
    pub fn counters(&self) -> Counters {
        let rings = self.loaded.rings.lock();
        Counters::of(&self.loaded.counts, &rings, self.loaded.sizes)
    }

    /// The counts of each CPU that received frames of an interface. This does not wait for a grace period.
    #[must_use]
    pub fn received(&self, device: DeviceId) -> Vec<(CpuId, RxCounts)> {
        let interfaces = self.loaded.sizes.interfaces;
        let row =
            |cpu| RxCounts::of(self.loaded.counts.get(cpu * interfaces + u32::from(device.0)));
        let rows = (0..self.loaded.sizes.cpus).map(|cpu| (crate::live::cpu_of(cpu), row(cpu)));
        rows.filter(|(_, counts)| counts.is_used()).collect()
    }

    /// Frames of an interface that passed because their checksum is not complete. This does not wait for a grace
    /// period.
    #[must_use]
    pub fn partial_checksums(&self, device: DeviceId) -> u64 {
        let interfaces = self.loaded.sizes.interfaces;
        let indices = (0..self.loaded.sizes.cpus).map(|cpu| cpu * interfaces + u32::from(device.0));
        indices.map(|index| self.loaded.counts.get(index).partial_checksums).sum()
    }

    /// Ends the flows of an interface that has been detached for at least a grace period, and empties its tables.
    pub(super) fn end_flows(&mut self, id: DeviceId, device: Detached) {
        let Detached { ifindex, name, first_table, queues } = device;
        let name: Arc<str> = name.into();
        let log = self.loaded.sizes.flow_log;
        let (mut flows, mut packets, mut cleared) = (0, 0, 0);
        for index in first_table << log..(first_table + queues) << log {
            if let Some(line) = self.loaded.lines.line(index) {
                flows += 1;
                if self.loaded.lines.is_current(&line) {
                    packets += line.packets();
                    let detached = Some(name.clone());
                    self.ended.push(EndedLine { line, index, ifindex, detached });
                } else {
                    cleared += line.packets();
                }
            }
            self.loaded.lines.empty(index);
        }
        // No program counts for the interface any more. The row of a CPU that received nothing is in no sum.
        let row = |cpu: u32| cpu * self.loaded.sizes.interfaces + u32::from(id.0);
        let is_used = |cpu: &u32| RxCounts::of(self.loaded.counts.get(row(*cpu))).is_used();
        let row = row((0..self.loaded.sizes.cpus).find(is_used).unwrap_or(0));
        let mut counts = self.loaded.counts.get(row);
        counts.flows_ended += flows;
        counts.flow_packets_ended += packets;
        counts.flow_packets_cleared += cleared;
        self.loaded.counts.set(row, counts);
    }
}
