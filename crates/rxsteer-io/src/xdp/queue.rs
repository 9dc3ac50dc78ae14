//! What the receiver and the senders of one RX queue share.

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
    /// Where the memory that the socket knows begins, in bytes from the start of all.
    pub(super) base: u64,
    /// What has been sent. A lock is taken once a list, and never waited for.
    pub(super) completions: Mutex<Completions>,
    /// Senders that the driver does not take frames from.
    pub(super) stalled: AtomicU32,
}

/// The ring of frames that were sent, and its reader.
#[derive(Debug)]
pub(super) struct Completions {
    pub(super) ring: Consumer<u64>,
    pub(super) sent: Sent,
}

impl Queue {
    /// Gives frames that were sent back to their homes, unless another thread does so now.
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
