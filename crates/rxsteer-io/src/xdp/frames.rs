//! The frames of all sockets: one memory area (UMEM), of which each RX queue has a share, and the return of frames that
//! other threads release.
//!
//! ```text
//!          ┌────────────── fill ring ◄── free ◄──────────────┐ whole batches, without a lock
//!  kernel ─┤                                                 │
//!          └─► RX ring ─► Batch (Lent) ─► workers read ──────┤ the last one lets go
//!                                   └─► TX ring ─► kernel ───┘ and it has been sent
//! ```
//!
//! Invariant: a frame is in one place. It returns when its batch is dropped *and* it is in no TX ring. Only the socket
//! that received it, its *home*, gives it to the kernel again. So no thread can still read a frame that the kernel
//! writes.

use super::sys::Mapping;
use crossbeam_queue::ArrayQueue;
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

/// A bit of [`Frames::state`]: the frame's batch is gone, and the thread that takes the frame off the last TX ring
/// returns it.
const RELEASED: u8 = 1 << 7;

/// The largest number of TX rings that a frame can be in at the same time.
const MAX_SENDS: u8 = RELEASED - 1;

/// The memory of all sockets of an instance.
#[derive(Debug)]
pub(super) struct Frames {
    memory: Mapping,
    /// log2 of the size of a frame in bytes.
    frame_log: u32,
    /// The first frame of each home; the last element is the number of all frames.
    first: Box<[u32]>,
    /// The home of each frame.
    home: Box<[u16]>,
    /// For each frame, the number of TX rings it is in, and [`RELEASED`].
    state: Box<[AtomicU8]>,
    /// For each home, the released frames. There is room for all frames, so a push never fails.
    returned: Box<[ArrayQueue<Vec<u32>>]>,
    /// Emptied lists, for reuse.
    lists: ArrayQueue<Vec<u32>>,
}

impl Frames {
    /// Creates this many frames of `frame_bytes` (a power of two) for each RX queue.
    pub(super) fn new(frame_bytes: u32, shares: &[u32]) -> io::Result<Frames> {
        assert!(frame_bytes.is_power_of_two() && !shares.is_empty() && !shares.contains(&0));
        let (mut first, mut home) = (vec![0], Vec::new());
        for (number, share) in (0..).zip(shares) {
            first.push(first.last().copied().unwrap_or(0) + share);
            home.extend((0..*share).map(|_| number));
        }
        let frames = home.len();
        let state = (0..frames).map(|_| AtomicU8::new(0)).collect();
        Ok(Frames {
            memory: Mapping::anonymous(frames * frame_bytes as usize)?,
            frame_log: frame_bytes.ilog2(),
            first: first.into(),
            home: home.into(),
            state,
            returned: shares.iter().map(|share| ArrayQueue::new(*share as usize)).collect(),
            lists: ArrayQueue::new(frames),
        })
    }

    pub(super) fn bytes(&self) -> usize {
        self.memory.len()
    }

    pub(super) fn start(&self) -> NonNull<u8> {
        self.memory.start()
    }

    pub(super) fn frame_bytes(&self) -> u32 {
        1 << self.frame_log
    }

    /// The frames that belong to `home`.
    pub(super) fn share_of(&self, home: u32) -> std::ops::Range<u32> {
        self.first[home as usize]..self.first[home as usize + 1]
    }

    /// The offset of a frame in the memory, in bytes.
    #[inline(always)]
    pub(super) fn address(&self, frame: u32) -> u64 {
        u64::from(frame) << self.frame_log
    }

    /// The frame that contains an address.
    #[inline(always)]
    pub(super) fn frame_at(&self, address: u64) -> u32 {
        (address >> self.frame_log) as u32
    }

    /// An empty list of frames, with room from earlier use.
    pub(super) fn list(&self) -> Vec<u32> {
        self.lists.pop().unwrap_or_default()
    }

    /// Keeps an emptied list for later use.
    fn keep_list(&self, mut list: Vec<u32>) {
        list.clear();
        // There are never more lists than frames; one more would only be freed.
        let _ = self.lists.push(list);
    }

    /// Moves the frames that were returned to `home` to `free`.
    pub(super) fn take_returned(&self, home: u32, free: &mut Vec<u32>) {
        while let Some(list) = self.returned[home as usize].pop() {
            free.extend_from_slice(&list);
            self.keep_list(list);
        }
    }

    /// Returns unused frames to their home.
    fn give_back(&self, home: u32, frames: Vec<u32>) {
        if frames.is_empty() {
            self.keep_list(frames);
            return;
        }
        let pushed = self.returned[home as usize].push(frames);
        debug_assert!(pushed.is_ok(), "each list has a frame, and there is room for all frames");
    }

    /// Records that a frame whose batch is held enters a TX ring.
    #[inline]
    fn begins_sending(&self, frame: u32) -> bool {
        let state = &self.state[frame as usize];
        // ORDER: Relaxed; the end of the batch (its `Arc`) publishes the work of its readers.
        if state.load(Ordering::Relaxed) >= MAX_SENDS {
            return false;
        }
        state.fetch_add(1, Ordering::Relaxed);
        true
    }

    /// Records that a frame came out of a TX ring. Returns whether it must be returned now.
    #[inline]
    fn has_been_sent(&self, frame: u32) -> bool {
        let state = &self.state[frame as usize];
        // ORDER: AcqRel; pairs with that of `release`: the last one sees what the others did before.
        if state.fetch_sub(1, Ordering::AcqRel) != RELEASED | 1 {
            return false;
        }
        // ORDER: Relaxed; the queue that returns the frame publishes this.
        state.store(0, Ordering::Relaxed);
        true
    }

    /// Records that a frame's batch is gone. Returns whether the frame must be returned now.
    #[inline]
    fn release(&self, frame: u32) -> bool {
        let state = &self.state[frame as usize];
        // ORDER: Acquire; pairs with `has_been_sent`. No send can begin any more, since a send needs the batch.
        if state.load(Ordering::Acquire) == 0 {
            return true;
        }
        // ORDER: AcqRel, as above.
        if state.fetch_or(RELEASED, Ordering::AcqRel) != 0 {
            return false;
        }
        state.store(0, Ordering::Relaxed);
        true
    }
}

/// Frames that were received together. They return to their home when this is dropped, except those that are being sent.
#[derive(Debug)]
pub(super) struct Batch {
    frames: Arc<Frames>,
    home: u32,
    held: Vec<u32>,
}

impl Batch {
    /// A batch of these frames of `home`, which the kernel does not write any more.
    pub(super) fn new(frames: Arc<Frames>, home: u32, held: Vec<u32>) -> Batch {
        Batch { frames, home, held }
    }

    /// Whether its frames are in this memory.
    #[inline]
    pub(super) fn is_of(&self, frames: &Arc<Frames>) -> bool {
        Arc::ptr_eq(&self.frames, frames)
    }

    /// Records that the frame at `address` enters a TX ring; `false` if it is in too many.
    ///
    /// # Panics
    /// If no frame of this memory is at the address.
    #[inline]
    pub(super) fn begins_sending(&self, address: u64) -> bool {
        self.frames.begins_sending(self.frames.frame_at(address))
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        let mut held = std::mem::take(&mut self.held);
        held.retain(|frame| self.frames.release(*frame));
        self.frames.give_back(self.home, held);
    }
}

/// Collects sent frames, to return them to their homes.
#[derive(Debug)]
pub(super) struct Sent {
    by_home: Vec<Vec<u32>>,
}

impl Sent {
    pub(super) fn new(frames: &Frames) -> Sent {
        Sent { by_home: frames.returned.iter().map(|_| Vec::new()).collect() }
    }

    /// Records that the frame at `address` came out of a TX ring.
    #[inline]
    pub(super) fn add(&mut self, frames: &Frames, address: u64) {
        let frame = frames.frame_at(address);
        if frames.has_been_sent(frame) {
            self.by_home[usize::from(frames.home[frame as usize])].push(frame);
        }
    }

    /// Returns all of them to their homes.
    pub(super) fn give_back(&mut self, frames: &Frames) {
        for (home, list) in (0..).zip(&mut self.by_home) {
            if !list.is_empty() {
                frames.give_back(home, std::mem::replace(list, frames.list()));
            }
        }
    }
}

#[cfg(test)]
#[path = "frames_tests.rs"]
mod tests;
