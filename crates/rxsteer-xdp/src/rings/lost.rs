//! Frames that rings lost: they are found by gaps in the numbers, and by frames under way beyond the room in a ring.

use super::{Rings, Sent};
use crate::abi::{GENERATIONS, steer_pair};
use crate::waits::{Reading, Waits};
use std::mem::offset_of;
use std::time::{Duration, Instant};

/// What is known of a ring's frames.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Account {
    /// Frames that the ring refused.
    pub(super) lost: u64,
    /// The frames sent to it, and the sum of the numbers seen from each source, at the last look.
    pub(super) sent: u64,
    pub(super) seen: u64,
}

/// The shortest time between two looks at lost frames.
pub(super) const BETWEEN_LOOKS: Duration = Duration::from_millis(1);

/// The frames in a bulk queue, and the frames that a thread takes from its ring at a time.
pub(super) const BULK: u32 = 8;

impl Rings {
    /// Reads what was sent to rings and what they have seen, and finds the frames lost since the last look: gaps in the
    /// numbers, and frames under way beyond the room in the ring. It does nothing right after another look, since each
    /// of a thread's counts may take a moment to become visible here, independently of the others.
    pub(crate) fn look(&self) {
        if self.looked.get().is_some_and(|looked| looked.elapsed() < BETWEEN_LOOKS) {
            return;
        }
        self.looked.set(Some(Instant::now()));
        let has_ring = |ring: &u32| {
            self.sizes[(ring / GENERATIONS) as usize][(ring % GENERATIONS) as usize] != 0
        };
        // A deleted ring needs no look once all its frames are accounted for.
        let is_open = |ring: &u32| {
            let account = self.accounts[*ring as usize].get();
            account.sent != account.lost + self.ring_states.get(*ring).passed
        };
        let all = 0..self.ring_states.len();
        all.filter(|ring| has_ring(ring) || is_open(ring)).for_each(|ring| self.look_at(ring));
    }

    fn look_at(&self, ring: u32) {
        let mut account = self.accounts[ring as usize].get();
        let passed = self.ring_states.get(ring).passed;
        let by_gaps = account.seen.saturating_sub(passed);
        let by_room = account.sent.saturating_sub(passed + self.room(ring));
        account.lost = account.lost.max(by_gaps).max(by_room);
        let since = |now: u32, before: u64| {
            u64::from((now.wrapping_sub(before as u32) as i32).max(0) as u32)
        };
        let dequeued = |rx_cpu| {
            self.pairs.get_number(ring * self.cpus() + rx_cpu, offset_of!(steer_pair, dequeued))
        };
        let seen = (0..self.cpus()).map(dequeued).fold(0, u32::wrapping_add);
        account.seen += since(seen, account.seen);
        account.sent += since(self.sent(ring), account.sent);
        self.accounts[ring as usize].set(account);
    }

    /// The most frames that can be under way to `ring`: in the ring, in the batch that its thread has taken out, and in
    /// the bulk queue that each source holds until its poll ends, with the frame that finds that queue full.
    fn room(&self, ring: u32) -> u64 {
        let size = self.sizes[(ring / GENERATIONS) as usize][(ring % GENERATIONS) as usize];
        u64::from(size + BULK + (BULK + 1) * self.cpus())
    }

    /// The frames that were sent to `ring` until the last look and got lost, and those that are under way. The number
    /// of lost frames never decreases; [`Rings::find_lost`] finds the last ones.
    pub(crate) fn lost_and_waiting(&self, ring: u32) -> (u64, u64) {
        let account = self.accounts[ring as usize].get();
        let passed = self.ring_states.get(ring).passed;
        (account.lost, account.sent.saturating_sub(passed + account.lost).min(self.room(ring)))
    }

    /// What had been sent to the rings that have not seen all of it, for [`Rings::find_lost`] a grace period later.
    pub(crate) fn short(&self) -> Vec<Sent> {
        let is_short = |ring: &u32| self.lost_and_waiting(*ring).1 != 0;
        (0..self.ring_states.len()).filter(is_short).map(|ring| self.sent_by_now(ring)).collect()
    }

    /// Finds the last lost frames: frames that were sent to a ring in which nothing is under way, and that the ring has
    /// not seen. `short` is from a grace period ago. Frames counted as lost are never recounted, so the count would be
    /// too high if such a frame arrived after all. That can only happen if the state of a thread cannot be read and the
    /// thread does not run for long.
    pub(crate) fn find_lost(&self, short: Vec<Sent>) {
        for ring in self.drained_since(short) {
            self.look_at(ring.ring);
            let mut account = self.accounts[ring.ring as usize].get();
            // Frames sent after the ring was found drained are excluded.
            let later = sum(&ring.tails).wrapping_sub(account.sent as u32) as i32;
            let sent = account.sent.saturating_add_signed(i64::from(later));
            account.lost =
                account.lost.max(sent.saturating_sub(self.ring_states.get(ring.ring).passed));
            self.accounts[ring.ring as usize].set(account);
        }
    }

    /// Notes what the ring's thread did since the last reading, and what the ring lost meanwhile.
    pub(super) fn read_thread(&self, ring: u32) {
        let Some(scheduled) = self.threads.scheduled(ring) else { return };
        let (lost, waiting) = self.lost_and_waiting(ring);
        let passed = self.ring_states.get(ring).passed;
        // The account counts a gap only when fewer frames arrive than were lost, which is too late to find the cause.
        // When read in this order, gaps show at once; on machines that reorder reads, the result may be slightly too
        // high. The account remains the authoritative count.
        let lost = lost.max(self.accounts[ring as usize].get().seen.saturating_sub(passed));
        let reading =
            Reading { at: self.begun.elapsed(), scheduled, passed, is_waiting: waiting != 0 };
        self.waits_of(ring, |waits| waits.note(reading, lost));
    }

    /// What the ring's thread did, and what the ring lost meanwhile.
    pub(crate) fn waits(&self, ring: u32) -> Waits {
        self.waits[ring as usize].get().by_now(self.accounts[ring as usize].get().lost)
    }

    pub(super) fn waits_of(&self, ring: u32, change: impl FnOnce(&mut Waits)) {
        let cell = &self.waits[ring as usize];
        let mut waits = cell.get();
        change(&mut waits);
        cell.set(waits);
    }
}

fn sum(counts: &[u32]) -> u32 {
    counts.iter().fold(0, |sum: u32, count| sum.wrapping_add(*count))
}
