//! The state that the receiver and the senders of one RX queue share.

use super::frames::{Frames, Sent};
use super::ring::Consumer;
use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex};

/// An RX queue as its receiver and its senders share it.
#[derive(Debug)]
pub(super) struct Queue {
    pub(super) socket: OwnedFd,
    pub(super) ifindex: u32,
    pub(super) number: u32,
    pub(super) frames: Arc<Frames>,
    /// Where the memory registered by the socket begins, in bytes from the start of all memory.
    pub(super) base: u64,
    /// The frames that have been sent. The lock is taken once per list, and no thread waits for it.
    pub(super) completions: Mutex<Completions>,
    /// The number of senders whose frames the driver does not take.
    pub(super) stalled: AtomicU32,
}

/// The ring of sent frames, and its reader.
#[derive(Debug)]
pub(super) struct Completions {
    pub(super) ring: Consumer<u64>,
    pub(super) sent: Sent,
}

impl Queue {
    /// Returns sent frames to their homes, unless another thread does so now.
    pub(super) fn collect_sent(&self) {
        let Ok(mut completions) = self.completions.try_lock() else { return };
        let Completions { ring, sent } = &mut *completions;
        let ready = ring.ready();
        if ready == 0 {
            return;
        }
        for _ in 0..ready {
            sent.add(&self.frames, ring.pop() + self.base);
        }
        ring.release();
        sent.give_back(&self.frames);
    }
}
