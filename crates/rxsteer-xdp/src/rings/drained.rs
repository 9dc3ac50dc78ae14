//! Finds which rings are drained, and which snapshots they have drained past.

use super::Rings;
use crate::abi::{GENERATIONS, steer_pair};
use crate::grace::{Graces, Ticket};
use std::io;
use std::mem::offset_of;

/// What had been sent to a ring at one moment: the last sequence number from each RX CPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sent {
    pub(crate) ring: u32,
    pub(super) tails: Box<[u32]>,
}

/// A snapshot of a ring. It takes a grace period: when `after` was noted, the ring had accepted or refused all frames in
/// `before`.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    before: Sent,
    after: Sent,
}

/// The search for drained rings. It takes a grace period: after that, every poll that was under way has ended, and the
/// bulk queues are empty.
#[derive(Debug, Default)]
pub(crate) struct DrainSearch(Option<(Ticket, Vec<Sent>)>);

impl DrainSearch {
    /// Begins to search the `wanted` rings, if there are any, unless the last search is still under way.
    pub(crate) fn begin(&mut self, rings: &Rings, wanted: Vec<u32>, graces: &Graces) {
        if self.0.is_none() && !wanted.is_empty() {
            let before = wanted.into_iter().map(|ring| rings.sent_by_now(ring)).collect();
            self.0 = Some((graces.begin(), before));
        }
    }

    /// Ends the search if its grace period is over. Returns those of its rings that are drained, with what had been
    /// sent to them; none while the search is under way.
    pub(crate) fn end(&mut self, rings: &Rings, graces: &Graces) -> io::Result<Vec<Sent>> {
        match self.0.take() {
            Some((ticket, before)) if !graces.is_over(ticket)? => {
                self.0 = Some((ticket, before));
                Ok(Vec::new())
            }
            Some((_, before)) => Ok(rings.drained_since(before)),
            None => Ok(Vec::new()),
        }
    }
}

/// If the state of a thread cannot be read, the thread counts as asleep after this many searches in a row without
/// progress.
pub(super) const STILL: u32 = 20;

/// Whether a ring's thread sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sleep {
    No,
    /// Its state cannot be read, and nothing has moved for long.
    Seeming,
    Sure,
}

impl Rings {
    /// Whether the kernel thread sleeps. It sleeps only when its ring is empty and all frames that it took from the
    /// ring are delivered. A thread that never had work counts as asleep. If the state cannot be read (the pid is
    /// unknown before the ring's first frames, and in another PID namespace), the thread counts as asleep when nothing
    /// has moved for long.
    fn sleep_of(&self, ring: u32, pid: u32) -> Sleep {
        let is_there =
            self.sizes[(ring / GENERATIONS) as usize][(ring % GENERATIONS) as usize] != 0;
        if !is_there || self.sent(ring) == self.sent_when_made[ring as usize] {
            return Sleep::Sure;
        }
        let before = self.before[ring as usize];
        // If frames were sent since the last tick, the ring has not been still for long.
        let is_still = before.times >= STILL && before.sent == self.sent(ring);
        let it_seems = if is_still { Sleep::Seeming } else { Sleep::No };
        if pid == 0 {
            return it_seems;
        }
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // The state follows the name in brackets, and the name may itself contain brackets.
        match stat.rsplit_once(')') {
            Some((name, state)) if name.contains("(cpumap/") => {
                let is_asleep = matches!(state.trim_start().chars().next(), Some('S' | 'I'));
                if is_asleep { Sleep::Sure } else { Sleep::No }
            }
            _ => it_seems,
        }
    }

    /// The drained rings of `before` to which nothing was sent since. `before` must be a grace period old.
    pub(crate) fn drained_since(&self, before: Vec<Sent>) -> Vec<Sent> {
        let is_drained = |ring: &Sent| {
            // The order matters: first whether the thread sleeps, then whether frames were sent meanwhile.
            self.sleep_of(ring.ring, self.ring_states.get(ring.ring).pid) != Sleep::No
                && self.sent_by_now(ring.ring) == *ring
        };
        before.into_iter().filter(is_drained).collect()
    }

    /// What has been sent to all rings, for [`Rings::snapshot_since`] a grace period later.
    pub(crate) fn sent_to_all(&self) -> Vec<Sent> {
        self.existing().map(|ring| self.sent_by_now(ring)).collect()
    }

    /// A snapshot of the rings in `before`, which must be a grace period old.
    pub(crate) fn snapshot_since(&self, before: Vec<Sent>) -> Vec<Snapshot> {
        let after = |before: Sent| Snapshot { after: self.sent_by_now(before.ring), before };
        before.into_iter().map(after).collect()
    }

    /// Whether all frames sent before the snapshots are delivered or dropped. There are two signs of this: a frame that
    /// was numbered after the snapshot is delivered, so all earlier frames in the ring are delivered too; or nothing is
    /// under way in the ring. `search` finds the rings of the latter kind.
    pub(crate) fn have_drained_past(
        &self,
        snapshots: &[Snapshot],
        search: &mut DrainSearch,
        graces: &Graces,
    ) -> io::Result<bool> {
        let has_gone_on = |snapshot: &Snapshot| {
            let delivered =
                |rx_cpu: u32| self.pairs.get(snapshot.after.ring * self.cpus() + rx_cpu).delivered;
            let mut tails = (0..).zip(&snapshot.after.tails);
            tails.any(|(rx_cpu, tail)| (delivered(rx_cpu).wrapping_sub(*tail) as i32) > 0)
        };
        let drained = search.end(self, graces)?;
        let is_drained = |wanted: &u32| drained.iter().any(|ring| ring.ring == *wanted);
        let rest = snapshots.iter().filter(|snapshot| !has_gone_on(snapshot));
        let rest: Vec<u32> = rest.map(|snapshot| snapshot.after.ring).collect();
        if rest.iter().all(is_drained) {
            return Ok(true);
        }
        search.begin(self, rest, graces);
        Ok(false)
    }

    /// Marks as delivered the frames sent before the snapshots. All rings must have drained past these, so the frames
    /// are in fact delivered or lost.
    pub(crate) fn mark_snapshots_delivered(&self, snapshots: &[Snapshot]) {
        snapshots.iter().for_each(|snapshot| self.mark_delivered(&snapshot.before));
    }

    /// Whether sequence number `seq` from `rx_cpu` to `ring` is later than the snapshots. A ring without a snapshot was
    /// created later, or was deleted before, when everything sent to it was delivered.
    pub(crate) fn is_after(
        &self,
        snapshots: &[Snapshot],
        (rx_cpu, ring): (u32, u32),
        seq: u32,
    ) -> bool {
        let snapshot = snapshots.iter().find(|snapshot| snapshot.before.ring == ring);
        let Some(snapshot) = snapshot else { return self.existing().any(|other| other == ring) };
        let tail = snapshot.before.tails.get(rx_cpu as usize);
        tail.is_none_or(|tail| seq.wrapping_sub(*tail).wrapping_sub(1) < 1 << 30)
    }

    /// Whether the frames sent before the snapshots are marked as delivered.
    pub(crate) fn are_delivered(&self, snapshots: &[Snapshot]) -> bool {
        let delivered =
            |ring: u32, rx_cpu: u32| self.pairs.get(ring * self.cpus() + rx_cpu).delivered;
        snapshots.iter().all(|snapshot| {
            let mut tails = (0..).zip(&snapshot.before.tails);
            tails.all(|(rx_cpu, tail)| {
                delivered(snapshot.before.ring, rx_cpu).wrapping_sub(*tail) as i32 >= 0
            })
        })
    }

    /// Marks as delivered all frames that were sent to a ring until it was found drained; they are in fact delivered or
    /// lost. A flow whose last packets were refused by a full ring then need not wait for another packet. Frames sent
    /// since then are excluded (a flow that waits for its last packets still goes to this ring).
    pub(crate) fn mark_delivered(&self, ring: &Sent) {
        for (rx_cpu, tail) in (0..).zip(&ring.tails) {
            let index = ring.ring * self.cpus() + rx_cpu;
            self.pairs.raise_number(index, offset_of!(steer_pair, delivered), *tail);
        }
    }

    /// Marks as delivered the frames of rings that have been at rest for at least one tick. A flow whose last frames
    /// carried no number can then move without first sending a frame with one. The thread must be seen to sleep, and no
    /// frame may be missing: only then has the thread certainly no frame left to deliver.
    ///
    /// This takes two calls, since `search` takes a grace period.
    pub(crate) fn mark_idle_delivered(
        &self,
        search: &mut DrainSearch,
        graces: &Graces,
    ) -> io::Result<()> {
        search.end(self, graces)?.iter().for_each(|ring| self.mark_delivered(ring));
        let is_undelivered = |ring: u32, rx_cpu: u32| {
            let delivered = self.pairs.get(ring * self.cpus() + rx_cpu).delivered;
            self.tail(rx_cpu, ring).wrapping_sub(delivered) as i32 > 0
        };
        let is_at_rest = |ring: &u32| {
            // A thread that only seems to sleep does not suffice: frames counted as lost may still be in the ring.
            self.before[*ring as usize].times > 0
                && self.sleep_of(*ring, self.ring_states.get(*ring).pid) == Sleep::Sure
                && (0..self.cpus()).any(|rx_cpu| is_undelivered(*ring, rx_cpu))
                && self.lost_and_waiting(*ring).1 == 0
        };
        search.begin(self, self.existing().filter(is_at_rest).collect(), graces);
        Ok(())
    }
}
