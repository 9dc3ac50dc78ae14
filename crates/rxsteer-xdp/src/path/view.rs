//! What the owner of a path publishes to its views, and does to flow statistics when an interface
//! goes.

use super::Path;
use super::attach::DeviceId;
use crate::live::RxCounts;
use crate::load::LoadError;
use crate::view::{Known, View};
use rxsteer_core::CpuId;

impl Path {
    /// A view of this path, for another thread.
    ///
    /// # Errors
    /// When a map can't be mapped.
    pub fn view(&self) -> Result<View, LoadError> {
        View::new(&self.loaded, self.grace.another()?, self.known.clone(), self.ended.clone())
    }

    /// Publishes to views what holds now.
    pub(super) fn publish(&self) {
        self.known.set(Known {
            settings: self.settings.clone(),
            is_unguarded: self.is_unguarded(),
            devices: self.known_devices(),
        });
    }

    /// What each CPU counted of an interface, where it received any frame. Costs no grace period.
    #[must_use]
    pub fn received(&self, device: DeviceId) -> Vec<(CpuId, RxCounts)> {
        let interfaces = self.loaded.sizes.interfaces;
        let row =
            |cpu| RxCounts::of(self.loaded.counts.get(cpu * interfaces + u32::from(device.0)));
        let rows = (0..self.loaded.sizes.cpus).map(|cpu| (crate::live::cpu_of(cpu), row(cpu)));
        rows.filter(|(_, counts)| counts.is_used()).collect()
    }

    /// Frames of an interface that passed because their checksum is not complete. Costs no grace period.
    #[must_use]
    pub fn partial_checksums(&self, device: DeviceId) -> u64 {
        let interfaces = self.loaded.sizes.interfaces;
        let indices = (0..self.loaded.sizes.cpus).map(|cpu| cpu * interfaces + u32::from(device.0));
        indices.map(|index| self.loaded.counts.get(index).partial_checksums).sum()
    }

    /// Ends the flows of an interface that is detached, since a grace period or longer, and empties its tables.
    pub(super) fn end_flows(&mut self, device: DeviceId, first_table: u32, queues: u32) {
        let log = self.loaded.sizes.flow_log;
        let (mut flows, mut packets, mut cleared) = (0, 0, 0);
        for index in first_table << log..(first_table + queues) << log {
            if let Some(line) = self.loaded.lines.line(index) {
                flows += 1;
                if self.loaded.lines.is_current(&line) {
                    packets += line.packets();
                    self.ended.push(line);
                } else {
                    cleared += line.packets();
                }
            }
            self.loaded.lines.empty(index);
        }
        // No program counts for it any more.
        let row = u32::from(device.0);
        let mut counts = self.loaded.counts.get(row);
        counts.flows_ended += flows;
        counts.flow_packets_ended += packets;
        counts.flow_packets_cleared += cleared;
        self.loaded.counts.set(row, counts);
    }
}
