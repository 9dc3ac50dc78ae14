//! Receives from one RX queue.

use super::frames::Batch;
use super::program::Program;
use super::queue::Queue;
use super::ring::{Consumer, Producer};
use super::sys;
use crate::Lent;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// The socket of one RX queue, for the receiving thread.
#[derive(Debug)]
pub struct XdpReceiver {
    queue: Arc<Queue>,
    /// Attached until the last receiver of the interface is gone.
    program: Arc<Program>,
    fill: Producer<u64>,
    rx: Consumer<libc::xdp_desc>,
    home: u32,
    /// Frames of this queue that neither the kernel nor a worker has. The last one is still in the cache.
    free: Vec<u32>,
    /// The places of the frames that were received last. It is kept to reuse its memory.
    received: Vec<(u32, u32)>,
}

/// Frames that were received together.
#[derive(Debug)]
pub struct Received<'a> {
    /// The memory that contains them. It returns to the kernel when this is dropped.
    pub lent: Lent,
    /// The offset in that memory and the length of each frame, in bytes.
    pub frames: &'a [(u32, u32)],
}

/// The kernel's counts of a socket since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct XdpStatistics {
    /// Frames dropped because no frame was free to receive them, or because they were too long.
    pub rx_dropped: u64,
    /// Frames dropped because the RX ring was full.
    pub rx_ring_full: u64,
    /// How often the kernel found the fill ring empty. If the kernel copies frames, this is the number of such frames in
    /// `rx_dropped`; if the driver receives without copying, it is the number of attempts.
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

    /// The socket, for waiting.
    pub(super) fn socket(&self) -> &OwnedFd {
        &self.queue.socket
    }

    /// Takes up to `most` received frames; `None` if there are none. Gives free memory to the kernel.
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
        // SAFETY: the memory stays mapped while `batch` has `frames`. The kernel gave up these frames with their entries.
        // It gets each of them again only through `free`, after `batch` is gone. Only these frames are named.
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
            // The driver waits for frames. If this fails, the next wait reports the error.
            let _ = sys::kick_receive(&self.queue.socket);
        }
    }

    /// Returns frames that were sent from this queue to their homes, for times when no sender does so.
    pub fn collect_sent(&self) {
        self.queue.collect_sent();
    }

    /// Whether the kernel has almost no frames for receiving, because workers hold them.
    #[must_use]
    pub fn is_short(&mut self) -> bool {
        self.free.is_empty() && self.fill.room() > self.fill.size() / 2
    }

    /// Lets the host receive new frames again. Frames that the kernel has already received for this socket can still be
    /// taken; a driver may still be processing its last few frames when this returns.
    pub fn withdraw(&mut self) {
        self.program.pass(self.queue.number);
    }

    /// The kernel's counts.
    ///
    /// # Errors
    /// The error of the system call.
    pub fn statistics(&self) -> io::Result<XdpStatistics> {
        let counted = sys::statistics(&self.queue.socket)?;
        Ok(XdpStatistics {
            rx_dropped: counted.rx_dropped,
            rx_ring_full: counted.rx_ring_full,
            rx_fill_ring_empty: counted.rx_fill_ring_empty_descs,
        })
    }

    /// Why no more frames will be received, if that is so: the interface is gone, or another process detached the
    /// program.
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
/// The error of poll(2).
pub fn wait(receivers: &[XdpReceiver], timeout_ms: u32) -> io::Result<()> {
    sys::wait(receivers.iter().map(XdpReceiver::socket), timeout_ms)
}
