//! When frames go without a slot: `bpf/steer_unguarded.h`.
//!
//! Under policies that remember nothing a flow has one target as long as the settings hold. Once nothing is
//! under way anywhere else, the order guard has nothing to hold, and the programs leave slots alone (*unguarded*).
//!
//! **Before.** The same rules hold, with the guard. In some tick a snapshot is taken, and frames that went elsewhere
//! than to their targets (*off target*) are counted. Once all rings have drained past the snapshot, and no frame
//! went off target since, nothing is under way elsewhere: what was sent before the snapshot is delivered, and what
//! was sent after it went to its target. Nor can a frame go off target any more: a slot that names another ring
//! names a number before the snapshot, which is declared delivered, and the slot is unset (for 2³¹ frames later it
//! would seem to be under way). Should a frame go off target until that is done, all begins again. Slots whose flows
//! have two targets are left out of all this: their flows stay guarded.
//!
//! **After.** First frames are guarded again, by the same rules. A grace period later all that were not are in their
//! rings. When each ring has drained past that, flows whose slot is unset have nothing under way, and those of others
//! are guarded: a slot names the ring that all its flows had as their target, but for flows that were guarded all the
//! while. Now the rules may change.

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
    /// They are not.
    holds: bool,
    /// They are again: the snapshot past which rings must drain before rules may change.
    left: Option<Vec<Snapshot>>,
    /// On the way there: the snapshot, and the frames that had gone off target before it.
    approach: Option<(Vec<Snapshot>, u64)>,
    /// Frames that had gone off target at the last look.
    off_target: u64,
}

impl Settings {
    /// Whether a flow always has the same target, and nothing else needs to be known of its frames.
    fn can_be_unguarded(&self) -> bool {
        // In place of an offline CPU stands the receiving one, which may change.
        let is_fixed =
            self.policy != Policy::Rps || self.mapped_cpus().all(|cpu| self.is_online(cpu));
        let needs_guard = self.policy.remembers_flows()
            || self.shadow
            || self.flow_limit.is_some()
            || self.without_guard;
        is_fixed && !needs_guard
    }
}

impl Settings {
    /// As `steer_is_boundary_slot`: whether flows of a slot, of tables with `1 << log`, have two target CPUs by
    /// their hash, and stay guarded, where the CPU map has so many entries.
    pub(crate) fn is_boundary_slot(&self, log: u32, slot: u32, map_len: usize) -> bool {
        let number = u64::from(slot) % (1 << log);
        let cpu_of = |hash: u64| (hash * map_len as u64) >> 32;
        self.policy == Policy::Rps
            && cpu_of(number << (32 - log)) != cpu_of(((number + 1) << (32 - log)) - 1)
    }
}

impl Path {
    /// Whether frames go without a slot, as they do some ticks after a change under `none`, `rps` and `bound`: in
    /// native mode, without a flow limit, not in shadow, nor under `rps` while one of its CPUs is offline.
    #[must_use]
    pub fn is_unguarded(&self) -> bool {
        self.unguarded.holds
    }

    /// From when this returns all frames are guarded.
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

    /// Whether rules have to wait until no frame is under way that no slot knows of.
    pub(super) fn is_guarded_again(&self) -> bool {
        self.unguarded.left.is_some()
    }

    /// Whether no frame is under way that no slot knows of. To be asked after [`Path::guard_again`].
    pub(super) fn are_unguarded_delivered(&mut self) -> io::Result<bool> {
        let rings = self.loaded.rings.lock();
        if let Some(snapshots) = &self.unguarded.left
            && rings.have_drained_past(snapshots, || self.grace.wait())?
        {
            self.unguarded.left = None;
        }
        Ok(self.unguarded.left.is_none())
    }

    /// Goes on towards frames without a slot, where the settings allow that. To be called in each tick in which
    /// nothing else is under way.
    pub(super) fn approach_unguarded(&mut self) -> Result<(), LoadError> {
        let is_generic = self.mode == Mode::Generic;
        if self.unguarded.holds || is_generic || !self.settings.can_be_unguarded() {
            return Ok(());
        }
        // Whether rings drain past a snapshot shows best by their threads' sleep.
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
            // As long as flows go over there is no point.
            None if !is_quiet => {}
            None => {
                // What was counted until now has its number before the snapshot.
                self.grace.wait()?;
                let snapshots = self.loaded.rings.lock().snapshot(|| self.grace.wait())?;
                self.unguarded.approach = Some((snapshots, now));
            }
        }
        Ok(())
    }

    /// Sees that no frame goes elsewhere than to its target from now on; whether none did since the snapshot, past
    /// which all rings have drained.
    fn is_on_target(&mut self, snapshots: &[Snapshot], off_target: u64) -> io::Result<bool> {
        self.loaded.rings.lock().mark_snapshots_delivered(snapshots);
        // Also where frames went off target: stale slots make them.
        self.unset_slots(snapshots);
        // A program that looked before that may count only now.
        self.grace.wait()?;
        let is_so =
            self.loaded.rings.lock().are_delivered(snapshots) && self.off_target() == off_target;
        if !is_so {
            // Some flows with something under way may be without their slot: before rules change, that is delivered.
            self.unguarded.left = Some(self.loaded.rings.lock().snapshot(|| Ok(()))?);
        }
        Ok(is_so)
    }

    /// Unsets the slots that name a number before the snapshot: it is delivered. What was sent since is where the
    /// flow its target, or it went off target; its slot stays as it is.
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
