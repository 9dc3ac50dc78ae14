//! Finds frames that rings lost: by gaps in the sequence numbers, and by more frames under way than a ring has room for.

use super::{Rings, Sent};
use crate::abi::{GENERATIONS, steer_pair};
use crate::waits::{Reading, Waits};
use std::mem::offset_of;
use std::time::{Duration, Instant};

/// What is known about a ring's frames.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Account {
    /// Frames that the ring refused.
    pub(super) lost: u64,
    /// At the last check: the number of frames sent to the ring, and the sum over all RX CPUs of the last number seen.
    pub(super) sent: u64,
    pub(super) seen: u64,
}

/// The shortest time between two checks for lost frames.
pub(super) const CHECK_INTERVAL: Duration = Duration::from_millis(1);

/// The frames in a bulk queue, and the frames that a thread takes from its ring at a time.
pub(super) const BULK: u32 = 8;

impl Rings {
    /// Reads what was sent to the rings and what they have seen, and finds the frames lost since the last check: gaps
    /// in the numbers, and frames under way beyond the room in the ring. It does nothing right after another check: a
    /// thread's counts become visible here independently of each other, after a moment.
    pub(crate) fn check_losses(&self) {
        if self.checked.get().is_some_and(|checked| checked.elapsed() < CHECK_INTERVAL) {
            return;
        }
        self.checked.set(Some(Instant::now()));
        let has_ring = |ring: &u32| {
            self.sizes[(ring / GENERATIONS) as usize][(ring % GENERATIONS) as usize] != 0
        };
        // A deleted ring is skipped once all its frames are accounted for.
        let is_open = |ring: &u32| {
            let account = self.accounts[*ring as usize].get();
            account.sent != account.lost + self.ring_states.get(*ring).passed
        };
        let all = 0..self.ring_states.len();
        all.filter(|ring| has_ring(ring) || is_open(ring))
            .for_each(|ring| self.check_losses_of(ring));
    }

    fn check_losses_of(&self, ring: u32) {
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
    /// the bulk queue that each RX CPU holds until its poll ends, plus the frame that finds this queue full.
    fn room(&self, ring: u32) -> u64 {
        let size = self.sizes[(ring / GENERATIONS) as usize][(ring % GENERATIONS) as usize];
        u64::from(size + BULK + (BULK + 1) * self.cpus())
    }

    /// Of the frames sent to `ring` until the last check, how many are lost, and how many are under way. The number of
    /// lost frames never decreases; [`Rings::find_lost`] finds the last ones.
    pub(crate) fn lost_and_waiting(&self, ring: u32) -> (u64, u64) {
        let account = self.accounts[ring as usize].get();
        let passed = self.ring_states.get(ring).passed;
        (account.lost, account.sent.saturating_sub(passed + account.lost).min(self.room(ring)))
    }

    /// What has been sent to each ring that has not seen all of it, for [`Rings::find_lost`] a grace period later.
    pub(crate) fn short(&self) -> Vec<Sent> {
        let is_short = |ring: &u32| self.lost_and_waiting(*ring).1 != 0;
        (0..self.ring_states.len()).filter(is_short).map(|ring| self.sent_by_now(ring)).collect()
    }

    /// Finds the last lost frames: nothing is under way in the ring, and the ring has not seen them. `short` must be a
    /// grace period old. A frame that is counted as lost stays counted, so the count is too high if the frame arrives
    /// after all. That can happen only if the state of a thread cannot be read and the thread does not run for long.
    pub(crate) fn find_lost(&self, short: Vec<Sent>) {
        for ring in self.drained_since(short) {
            self.check_losses_of(ring.ring);
            let mut account = self.accounts[ring.ring as usize].get();
            // Frames sent after the ring was found drained are excluded.
            let later = sum(&ring.tails).wrapping_sub(account.sent as u32) as i32;
            let sent = account.sent.saturating_add_signed(i64::from(later));
            account.lost =
                account.lost.max(sent.saturating_sub(self.ring_states.get(ring.ring).passed));
            self.accounts[ring.ring as usize].set(account);
        }
    }

    /// Notes how long the ring's thread ran and waited since the last reading, and what the ring lost meanwhile.
    pub(super) fn read_thread(&self, ring: u32) {
        let Some(scheduled) = self.threads.scheduled(ring) else { return };
        let (lost, waiting) = self.lost_and_waiting(ring);
        let passed = self.ring_states.get(ring).passed;
        // The account counts a gap only when fewer frames arrive than were lost, which is too late to find the cause.
        // Reads in this order show gaps at once. On machines that reorder reads, the result may be slightly too high. The
        // account remains the authoritative count.
        let lost = lost.max(self.accounts[ring as usize].get().seen.saturating_sub(passed));
        let reading =
            Reading { at: self.started.elapsed(), scheduled, passed, is_waiting: waiting != 0 };
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
