//! Receiving from one RX queue.

use super::frames::Batch;
use super::program::Program;
use super::queue::Queue;
use super::ring::{Consumer, Producer};
use super::sys;
use crate::Lent;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// The socket of one RX queue, for the one thread that receives.
#[derive(Debug)]
pub struct XdpReceiver {
    queue: Arc<Queue>,
    /// Attached until the last receiver of the interface is gone.
    program: Arc<Program>,
    fill: Producer<u64>,
    rx: Consumer<libc::xdp_desc>,
    home: u32,
    /// Frames of this queue that neither the kernel nor a worker has; the last one is still warm in the cache.
    free: Vec<u32>,
    /// Where the frames lie that were received last, kept for its memory.
    received: Vec<(u32, u32)>,
}

/// Frames that were received together.
#[derive(Debug)]
pub struct Received<'a> {
    /// The memory they lie in, which goes back when this is dropped.
    pub lent: Lent,
    /// Of each frame the place in that memory, and its length, in bytes.
    pub frames: &'a [(u32, u32)],
}

/// What the kernel counted of a socket since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct XdpStatistics {
    /// Frames dropped because no frame was free to receive them, or because they were too long.
    pub rx_dropped: u64,
    /// Frames dropped because the RX ring was full.
    pub rx_ring_full: u64,
    /// How often the kernel found the fill ring empty: how many of `rx_dropped` when it copies, how many tries when
    /// the driver receives without copying.
    pub rx_fill_ring_empty: u64,
}

impl XdpStatistics {
    /// Frames that the kernel dropped.
    #[must_use]
    pub fn drops(&self) -> u64 {
        self.rx_dropped + self.rx_ring_full
    }
}

impl XdpReceiver {
    pub(super) fn new(
        queue: Arc<Queue>,
        program: Arc<Program>,
        fill: Producer<u64>,
        rx: Consumer<libc::xdp_desc>,
        home: u32,
    ) -> XdpReceiver {
        let free = queue.frames.share_of(home).rev().collect();
        let mut receiver =
            XdpReceiver { queue, program, fill, rx, home, free, received: Vec::new() };
        receiver.refill();
        receiver
    }

    /// The socket, to wait for.
    pub(super) fn socket(&self) -> &OwnedFd {
        &self.queue.socket
    }

    /// Takes up to `most` frames that have been received; `None` when there are none. Gives free memory to the kernel.
    pub fn receive(&mut self, most: usize) -> Option<Received<'_>> {
        let count = self.rx.ready().min(most as u32);
        if count == 0 {
            self.refill();
            return None;
        }
        let frames = &self.queue.frames;
        let mut held = frames.list();
        self.received.clear();
        for _ in 0..count {
            let entry = self.rx.pop();
            let address = entry.addr + self.queue.base;
            held.push(frames.frame_at(address));
            self.received.push((address as u32, entry.len));
        }
        self.rx.release();
        let batch = Batch::new(frames.clone(), self.home, held);
        // SAFETY: the memory stays mapped while `batch` has `frames`. The kernel gave up these frames with their
        // entries, and gets each again from `free`, where it comes when `batch` is gone. Only they are named.
        let lent = unsafe { Lent::new(frames.start(), frames.bytes(), Arc::new(batch)) };
        self.refill();
        Some(Received { lent, frames: &self.received })
    }

    /// Gives free frames to the kernel.
    fn refill(&mut self) {
        self.queue.frames.take_returned(self.home, &mut self.free);
        let count = self.fill.room().min(self.free.len() as u32);
        if count > 0 {
            for _ in 0..count {
                let Some(frame) = self.free.pop() else { break };
                self.fill.push(self.queue.frames.address(frame) - self.queue.base);
            }
            self.fill.publish();
        }
        if self.fill.needs_wakeup() {
            // A driver that waits for frames; should this fail, the next wait says why.
            let _ = sys::kick_receive(&self.queue.socket);
        }
    }

    /// Gives frames that were sent from this queue back, for when no sender does so.
    pub fn collect_sent(&self) {
        self.queue.collect_sent();
    }

    /// Whether the kernel has hardly a frame to receive into, because workers hold them.
    #[must_use]
    pub fn is_short(&mut self) -> bool {
        self.free.is_empty() && self.fill.room() > self.fill.size() / 2
    }

    /// Has what comes from now on go to the host. What the kernel has received for this socket before can still be taken; a
    /// driver may be at its last few frames when this returns.
    pub fn withdraw(&mut self) {
        self.program.pass(self.queue.number);
    }

    /// What the kernel counted.
    ///
    /// # Errors
    /// That of the system call.
    pub fn statistics(&self) -> io::Result<XdpStatistics> {
        let counted = sys::statistics(&self.queue.socket)?;
        Ok(XdpStatistics {
            rx_dropped: counted.rx_dropped,
            rx_ring_full: counted.rx_ring_full,
            rx_fill_ring_empty: counted.rx_fill_ring_empty_descs,
        })
    }

    /// Why nothing will be received any more, where that is so: the interface is gone, or another process detached
    /// the program.
    #[must_use]
    pub fn end(&self) -> Option<&'static str> {
        if matches!(sys::error_of(&self.queue.socket), Ok(Some(_))) {
            return Some("the interface is gone");
        }
        (!self.program.is_attached()).then_some("another process detached the XDP program")
    }
}

/// Waits until one of `receivers` has a frame, or `timeout_ms` have passed.
///
/// # Errors
/// That of poll(2).
pub fn wait(receivers: &[XdpReceiver], timeout_ms: u32) -> io::Result<()> {
    sys::wait(receivers.iter().map(XdpReceiver::socket), timeout_ms)
}
