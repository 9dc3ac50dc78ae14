//! When frames go without a slot: `bpf/steer_unguarded.h`.
//!
//! Under policies without state, a flow has one target as long as the settings are active. Once nothing is under way
//! anywhere else, the order guard has nothing to defer, and the programs ignore the slots (*unguarded*).
//!
//! **Before.** The same rules are active, with the guard. In some tick a snapshot is taken, and frames that do not go
//! to their target (*off target*) are counted. Once all rings have drained past the snapshot, and no frame has gone off
//! target since, nothing is under way elsewhere: all frames sent before the snapshot are delivered, and all frames sent
//! after it went to their target. No frame can go off target any more either: a slot that names another ring has a
//! number from before the snapshot, which is marked delivered, and the slot is unset (2³¹ frames later, it would
//! compare as under way). If a frame goes off target until this is done, the procedure starts again. Slots whose flows
//! have two targets take no part in this: their flows stay guarded.
//!
//! **After.** First, frames are guarded again, by the same rules. A grace period later, all unguarded frames are in
//! their rings. When each ring has drained past that moment, flows whose slot is unset have nothing under way, and the
//! other flows are guarded: a slot names the ring that all its flows had as their target, except for flows that were
//! guarded all the time. Now the rules may change.

use super::Path;
use crate::abi::{LastPacket, Mode, steer_slot};
use crate::load::LoadError;
use crate::rings::Snapshot;
use crate::setup::Settings;
use rxsteer_core::Policy;
use std::io;
use std::mem::offset_of;

/// Whether frames are guarded.
#[derive(Debug, Default)]
pub(super) struct Unguarded {
    /// Whether they are unguarded.
    holds: bool,
    /// Set when frames are guarded again: the snapshot past which rings must drain before rules may change.
    left: Option<Vec<Snapshot>>,
    /// Set on the way to unguarded frames: the snapshot, and the number of frames that had gone off target before it.
    approach: Option<(Vec<Snapshot>, u64)>,
    /// The number of frames that had gone off target at the last look.
    off_target: u64,
}

impl Settings {
    /// Whether a flow always has the same target, and its frames need no state.
    fn can_be_unguarded(&self) -> bool {
        // The receiving CPU replaces an offline CPU, and it may change.
        let is_fixed =
            self.policy != Policy::Rps || self.mapped_cpus().all(|cpu| self.is_online(cpu));
        let needs_guard =
            self.remember_flows() || self.shadow || self.flow_limit.is_some() || self.without_guard;
        is_fixed && !needs_guard
    }
}

impl Settings {
    /// Whether flows of a slot have two target CPUs by their hash, as in `steer_is_boundary_slot`, and therefore stay
    /// guarded. Flow tables have `1 << log` slots, and the CPU map has `map_len` entries.
    pub(crate) fn is_boundary_slot(&self, log: u32, slot: u32, map_len: usize) -> bool {
        let number = u64::from(slot) % (1 << log);
        let cpu_of = |hash: u64| (hash * map_len as u64) >> 32;
        self.policy == Policy::Rps
            && cpu_of(number << (32 - log)) != cpu_of(((number + 1) << (32 - log)) - 1)
    }
}

impl Path {
    /// Whether frames go without a slot. This begins some ticks after a change under `none`, `rps` and `bound`: in
    /// native mode, without a flow limit, not in shadow mode, and under `rps` only while all its CPUs are online.
    #[must_use]
    pub fn is_unguarded(&self) -> bool {
        self.unguarded.holds
    }

    /// Guards all frames from the moment this returns.
    pub(super) fn guard_again(&mut self) -> io::Result<()> {
        self.unguarded.approach = None;
        if self.unguarded.holds {
            self.decide_by(&self.settings.clone())?;
            self.unguarded.holds = false;
            self.unguarded.left = Some(self.loaded.rings.lock().snapshot(|| Ok(()))?);
        }
        Ok(())
    }

    /// Whether something waits for rings to drain past a snapshot.
    pub(super) fn waits_for_rings(&self) -> bool {
        self.unguarded.left.is_some() || self.unguarded.approach.is_some()
    }

    /// Whether a change of rules has to wait for frames that no slot records.
    pub(super) fn is_guarded_again(&self) -> bool {
        self.unguarded.left.is_some()
    }

    /// Whether no frame is under way that no slot records. Call [`Path::guard_again`] first.
    pub(super) fn are_unguarded_delivered(&mut self) -> io::Result<bool> {
        let rings = self.loaded.rings.lock();
        if let Some(snapshots) = &self.unguarded.left
            && rings.have_drained_past(snapshots, || self.grace.wait())?
        {
            self.unguarded.left = None;
        }
        Ok(self.unguarded.left.is_none())
    }

    /// Continues towards unguarded frames, if the settings allow that. The tick calls this when nothing else is under
    /// way.
    pub(super) fn approach_unguarded(&mut self) -> Result<(), LoadError> {
        let is_generic = self.mode == Mode::Generic;
        if self.unguarded.holds || is_generic || !self.settings.can_be_unguarded() {
            return Ok(());
        }
        // The sleep of the rings' threads is the best sign that rings drain past a snapshot.
        self.attach_switches()?;
        let now = self.off_target();
        let is_quiet = now == std::mem::replace(&mut self.unguarded.off_target, now);
        match self.unguarded.approach.take() {
            Some((snapshots, off_target)) => {
                if !self.loaded.rings.lock().have_drained_past(&snapshots, || self.grace.wait())? {
                    self.unguarded.approach = Some((snapshots, off_target));
                } else if self.is_on_target(&snapshots, off_target)? {
                    self.decide(&self.settings.clone(), true)?;
                    self.unguarded = Unguarded { holds: true, ..Unguarded::default() };
                    self.switches = None;
                }
            }
            // Starting is pointless as long as flows still move.
            None if !is_quiet => {}
            None => {
                // Frames that were counted until now have numbers from before the snapshot.
                self.grace.wait()?;
                let snapshots = self.loaded.rings.lock().snapshot(|| self.grace.wait())?;
                self.unguarded.approach = Some((snapshots, now));
            }
        }
        Ok(())
    }

    /// Ensures that no frame goes off target from now on; all rings have drained past the snapshot. Returns whether no
    /// frame went off target since the snapshot.
    fn is_on_target(&mut self, snapshots: &[Snapshot], off_target: u64) -> io::Result<bool> {
        self.loaded.rings.lock().mark_snapshots_delivered(snapshots);
        // This is done even if frames went off target, since stale slots cause that.
        self.unset_slots(snapshots);
        // A program that read a slot before may count only now.
        self.grace.wait()?;
        let is_so =
            self.loaded.rings.lock().are_delivered(snapshots) && self.off_target() == off_target;
        if !is_so {
            // Some flows with frames under way may have lost their slot. These frames must be delivered before the
            // rules change.
            self.unguarded.left = Some(self.loaded.rings.lock().snapshot(|| Ok(()))?);
        }
        Ok(is_so)
    }

    /// Unsets the slots whose number is from before the snapshot, since it is delivered. Frames sent since then are at
    /// their flow's target, or went off target; their slots stay as they are.
    fn unset_slots(&self, snapshots: &[Snapshot]) {
        let (slots, rings) = (&self.loaded.lines.slots, self.loaded.rings.lock());
        let log = self.loaded.sizes.flow_log;
        for table in self.devices().flat_map(|(_, first, queues)| first..first + queues) {
            let map_len = self.map_len(table);
            for slot in table << log..(table + 1) << log {
                let seq = slots.get_number(slot, offset_of!(steer_slot, last_seq));
                let packed = slots.get_number(slot, offset_of!(steer_slot, packed));
                let Some(last) = LastPacket::of_words([seq, packed]) else { continue };
                if !self.settings.is_boundary_slot(log, slot, map_len)
                    && !rings.is_after(snapshots, (last.rx_cpu, last.ring()), seq)
                {
                    slots.exchange_word(slot, u64::from(packed) << 32 | u64::from(seq), 0);
                }
            }
        }
    }

    fn off_target(&self) -> u64 {
        (0..self.loaded.counts.len()).map(|index| self.loaded.counts.get(index).off_target).sum()
    }
}
