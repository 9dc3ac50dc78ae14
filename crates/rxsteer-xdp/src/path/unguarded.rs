//! When the programs steer frames without a slot: the user-space side of `bpf/steer_unguarded.h`.
//!
//! Under policies without state, a flow has one target as long as the settings are active. Once none of its frames is
//! under way elsewhere, the order guard has nothing to defer, and the programs ignore the slots (*unguarded*).
//!
//! **Before.** The same rules are active, with the guard. A tick takes a snapshot, and counts frames that do not go
//! to their target (*off target*). Once all rings have drained past the snapshot, and no frame has gone off
//! target since, nothing is under way elsewhere: all frames sent before the snapshot are delivered, and all frames sent
//! after it went to their target. Nor can a frame go off target later: a slot that names another ring has a
//! number from before the snapshot, which is marked delivered, and the tick unsets the slot (2³¹ frames later, it would
//! compare as under way). If a frame goes off target before all this is done, the procedure starts again. Boundary slots,
//! whose flows have two targets, are excluded: their flows stay guarded.
//!
//! **After.** First, the tick unsets slots that were set meanwhile: frames with a tag set them, and 2³¹ frames may have
//! passed since. Then it activates the guard again, with the same rules. A grace period later, all unguarded frames are in
//! their rings. When each ring has drained past that moment, flows whose slot is unset have nothing under way. The
//! other flows are guarded: a slot names the ring that is the target of all its flows, except for boundary slots, which
//! were guarded all the time. Now the rules may change.

use super::Path;
use crate::abi::{LastPacket, Mode, steer_slot};
use crate::grace::Ticket;
use crate::load::LoadError;
use crate::rings::{DrainSearch, Rings, Sent, Snapshot};
use crate::setup::Settings;
use rxsteer_core::Policy;
use std::io;
use std::mem::offset_of;

/// Whether frames are guarded.
#[derive(Debug, Default)]
pub(super) struct Unguarded {
    /// Whether they are unguarded.
    holds: bool,
    /// Whether the guard is active again, and programs may still use the configuration without it.
    ends: bool,
    /// Set when frames are guarded again: the snapshot past which rings must drain before rules may change.
    left: Option<Vec<Snapshot>>,
    /// Set while the path approaches unguarded frames: the step, and the number of frames that had gone off target before.
    approach: Option<(Approach, u64)>,
    /// The search for rings that have drained past one of these snapshots.
    search: DrainSearch,
    /// The number of frames that had gone off target at the last search.
    off_target: u64,
}

/// The steps towards unguarded frames. They take three grace periods, and a tick never waits for one.
#[derive(Debug)]
enum Approach {
    /// The tick read how many frames had gone off target. A grace period later, these frames have their numbers.
    Counted(Ticket),
    /// The first half of the snapshot was taken.
    Sent(Vec<Sent>, Ticket),
    /// Rings have to drain past the snapshot.
    Snapshot(Vec<Snapshot>),
    /// Stale slots were unset. A program that read a slot before may count until the grace period is over.
    Unset(Vec<Snapshot>, Ticket),
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
    /// Whether the programs steer frames without a slot. This begins some ticks after a change, under the policies `none`,
    /// `rps` and `bound`, in native mode, without a flow limit, and not in shadow mode. Under `rps` all its CPUs must be
    /// online.
    #[must_use]
    pub fn is_unguarded(&self) -> bool {
        self.unguarded.holds
    }

    /// Guards all frames; returns whether all are guarded. The caller repeats this until it returns true.
    pub(super) fn guard_again(&mut self) -> io::Result<bool> {
        if let Some((Approach::Unset(_, ticket), _)) = &mut self.unguarded.approach {
            if !self.graces.has_passed(ticket)? {
                return Ok(false);
            }
            self.note_unrecorded();
        }
        self.unguarded.approach = None;
        if self.unguarded.holds {
            if !self.are_readers_gone()? {
                return Ok(false);
            }
            self.unset_slots(|_, _| false);
            if !self.activate(&self.settings.clone(), false)? {
                return Ok(false);
            }
            (self.unguarded.holds, self.unguarded.ends) = (false, true);
        }
        if self.unguarded.ends {
            if !self.are_readers_gone()? {
                return Ok(false);
            }
            self.unguarded.ends = false;
            self.note_unrecorded();
        }
        Ok(true)
    }

    /// Notes that flows may have frames under way that no slot records. Everything sent until now must be delivered before
    /// rules change.
    fn note_unrecorded(&mut self) {
        let rings = self.loaded.rings.lock();
        self.unguarded.left = Some(rings.snapshot_since(rings.sent_to_all()));
    }

    /// Whether something waits for rings to drain past a snapshot.
    pub(super) fn waits_for_rings(&self) -> bool {
        let Unguarded { ends, left, approach, .. } = &self.unguarded;
        *ends || left.is_some() || approach.is_some()
    }

    /// Whether no frame is under way that no slot records. Call [`Path::guard_again`] first.
    pub(super) fn are_unguarded_delivered(&mut self) -> io::Result<bool> {
        let rings = self.loaded.rings.lock();
        let Unguarded { left, search, .. } = &mut self.unguarded;
        if let Some(snapshots) = left
            && rings.have_drained_past(snapshots, search, &self.graces)?
        {
            *left = None;
        }
        Ok(left.is_none())
    }

    /// Continues towards unguarded frames, if the settings allow that. The tick calls this when nothing else is in
    /// progress.
    pub(super) fn approach_unguarded(&mut self) -> Result<(), LoadError> {
        let is_generic = self.mode == Mode::Generic;
        if self.unguarded.holds || is_generic || !self.settings.can_be_unguarded() {
            return Ok(());
        }
        // A sleeping ring thread is the best sign that its ring has drained past a snapshot.
        self.attach_switches()?;
        let now = self.off_target();
        let is_quiet = now == std::mem::replace(&mut self.unguarded.off_target, now);
        match self.unguarded.approach.take() {
            Some((approach, off_target)) => {
                let approach = self.advance(approach, off_target)?;
                self.unguarded.approach = approach.map(|approach| (approach, off_target));
            }
            // Starting is pointless as long as flows still move.
            None if !is_quiet => {}
            None => self.unguarded.approach = Some((Approach::Counted(self.graces.begin()), now)),
        }
        Ok(())
    }

    /// Takes the next step if it is time for it.
    fn advance(&mut self, approach: Approach, off_target: u64) -> io::Result<Option<Approach>> {
        Ok(Some(match approach {
            Approach::Counted(ticket) if self.graces.is_over(ticket)? => {
                let sent = self.loaded.rings.lock().sent_to_all();
                Approach::Sent(sent, self.graces.begin())
            }
            Approach::Sent(sent, ticket) if self.graces.is_over(ticket)? => {
                self.unguarded.search = DrainSearch::default();
                Approach::Snapshot(self.loaded.rings.lock().snapshot_since(sent))
            }
            Approach::Snapshot(snapshots) => {
                let rings = self.loaded.rings.lock();
                let search = &mut self.unguarded.search;
                if !rings.have_drained_past(&snapshots, search, &self.graces)? {
                    return Ok(Some(Approach::Snapshot(snapshots)));
                }
                rings.mark_snapshots_delivered(&snapshots);
                drop(rings);
                // This is done even if frames went off target, since stale slots cause that. Frames sent since the
                // snapshot are at their flow's target, or went off target; their slots stay as they are.
                self.unset_slots(|rings, last| {
                    rings.is_after(&snapshots, (last.rx_cpu, last.ring()), last.seq)
                });
                Approach::Unset(snapshots, self.graces.begin())
            }
            Approach::Unset(snapshots, ticket) => match self.graces.is_over(ticket) {
                Ok(false) => Approach::Unset(snapshots, ticket),
                // That slots were unset must not be forgotten, so the wait is repeated.
                Err(_) => Approach::Unset(snapshots, self.graces.begin()),
                Ok(true) if matches!(self.are_readers_gone(), Ok(true)) => {
                    self.end_approach(&snapshots, off_target)?;
                    return Ok(None);
                }
                Ok(true) => Approach::Unset(snapshots, ticket),
            },
            waits => waits,
        }))
    }

    /// No frame can go off target from now on. If none did since the snapshot, this turns the guard off.
    fn end_approach(&mut self, snapshots: &[Snapshot], off_target: u64) -> io::Result<()> {
        let are_delivered = self.loaded.rings.lock().are_delivered(snapshots);
        if !are_delivered || self.off_target() != off_target {
            self.note_unrecorded();
            return Ok(());
        }
        let activated = self.activate(&self.settings.clone(), true);
        if !matches!(activated, Ok(true)) {
            // That slots were unset must not be forgotten.
            self.note_unrecorded();
            return activated.map(|_| ());
        }
        self.unguarded = Unguarded { holds: true, ..Unguarded::default() };
        self.switches = None;
        Ok(())
    }

    /// Unsets the slots, except where `stays` holds, and except slots whose flows have two targets.
    fn unset_slots(&self, stays: impl Fn(&Rings, &LastPacket) -> bool) {
        let (slots, rings) = (&self.loaded.lines.slots, self.loaded.rings.lock());
        let log = self.loaded.sizes.flow_log;
        let used = (0..).zip(&self.tables).filter(|(_, is_used)| **is_used);
        for table in used.map(|(table, _): (u32, _)| table) {
            let map_len = self.map_len(table);
            for slot in table << log..(table + 1) << log {
                let seq = slots.get_number(slot, offset_of!(steer_slot, last_seq));
                let packed = slots.get_number(slot, offset_of!(steer_slot, packed));
                let Some(last) = LastPacket::of_words([seq, packed]) else { continue };
                if !self.settings.is_boundary_slot(log, slot, map_len) && !stays(&rings, &last) {
                    slots.exchange_word(slot, u64::from(packed) << 32 | u64::from(seq), 0);
                }
            }
        }
    }

    fn off_target(&self) -> u64 {
        (0..self.loaded.counts.len()).map(|index| self.loaded.counts.get(index).off_target).sum()
    }
}
