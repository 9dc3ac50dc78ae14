//! Sending frames from where they lie: one TX ring for each thread and queue.
//!
//! Senders of one queue share its completion ring and its place in the driver, so what one has handed over goes out
//! before what another hands over later: order across threads holds on the wire.

use super::error::XdpError;
use super::frames::Batch;
use super::queue::Queue;
use super::ring::Producer;
use super::sys::{self, Mapping};
use crate::Lent;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Entries of a TX ring.
const SEND_RING: u32 = 1024;

/// System calls without progress after which a sender does not wait for the driver any longer.
const TRIES: u32 = 64;

/// Memory of the socket buffers that the kernel copies frames into, in bytes: as many as a TX and a completion ring hold.
const SEND_MEMORY: i32 = 8 << 20;

/// A TX ring, for one thread.
#[derive(Debug)]
pub struct XdpSender {
    queue: Arc<Queue>,
    socket: OwnedFd,
    ring: Producer<libc::xdp_desc>,
    room: u32,
    /// Whether the ring holds frames that the driver does not take.
    is_stalled: bool,
}

/// Frames of one piece of lent memory, on their way into a TX ring.
#[derive(Debug)]
pub struct Sending<'a> {
    sender: &'a mut XdpSender,
    batch: &'a Batch,
}

impl Sending<'_> {
    /// Writes the frame of `len` bytes at `offset` into the ring; `false` where there is no room. It goes out with
    /// [`XdpSender::flush`].
    ///
    /// # Panics
    /// When the place is beyond the memory.
    #[inline]
    #[must_use = "a full ring does not take the frame"]
    pub fn push(&mut self, offset: u32, len: u32) -> bool {
        let address = u64::from(offset);
        if self.sender.room == 0 || !self.batch.begins_sending(address) {
            return false;
        }
        let addr = address - self.sender.queue.base;
        self.sender.ring.push(libc::xdp_desc { addr, len, options: 0 });
        self.sender.room -= 1;
        true
    }
}

/// What became of frames that were handed over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flushed {
    /// Frames that the driver had no room for, and dropped.
    pub dropped: u32,
    /// Whether frames wait in the ring that the driver has not taken: it is down, or has no room for long.
    pub waits: bool,
}

impl XdpSender {
    pub(super) fn open(queue: Arc<Queue>) -> Result<XdpSender, XdpError> {
        let of = |error| XdpError::of("open an AF_XDP socket to send", error);
        let socket = sys::socket().map_err(of)?;
        sys::set(&socket, libc::SOL_XDP, libc::XDP_TX_RING, &SEND_RING).map_err(of)?;
        // Without this a few hundred frames on their way stop it; it takes CAP_NET_ADMIN, as the sockets do.
        sys::set(&socket, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &SEND_MEMORY).map_err(of)?;
        let offsets = sys::ring_offsets(&socket).map_err(of)?;
        let bytes = offsets.tx.desc as usize + SEND_RING as usize * size_of::<libc::xdp_desc>();
        let memory = Mapping::of_socket(socket.as_fd(), bytes, libc::XDP_PGOFF_TX_RING as u64);
        let ring = Producer::new(memory.map_err(of)?, &offsets.tx, SEND_RING);
        let shared = Some(&queue.socket);
        sys::bind(&socket, queue.ifindex, queue.number, libc::XDP_SHARED_UMEM, shared)
            .map_err(of)?;
        Ok(XdpSender { queue, socket, ring, room: SEND_RING, is_stalled: false })
    }

    /// Sends frames that lie in `lent`; `None` where they can't be sent from here, since sockets that were opened
    /// otherwise received them.
    pub fn frames_of<'a>(&'a mut self, lent: &'a Lent) -> Option<Sending<'a>> {
        let batch = lent.owner().downcast_ref::<Batch>()?;
        if !batch.is_of(&self.queue.frames) {
            return None;
        }
        self.room = self.ring.room();
        // ORDER: Acquire; pairs with the Release in `flush`. Another thread's frames wait, maybe of these flows; and they
        // wait because there is no room.
        if !self.is_stalled && self.queue.stalled.load(Ordering::Acquire) != 0 {
            self.room = 0;
        }
        Some(Sending { sender: self, batch })
    }

    /// Hands what was written over to the driver, and gives back frames that have been sent. When it returns, frames
    /// that other threads hand over go out later, unless [`Flushed::waits`]: then others hand over none.
    pub fn flush(&mut self) -> Flushed {
        self.ring.publish();
        let mut flushed = Flushed::default();
        let (mut tries, mut taken) = (0, self.ring.taken());
        while !self.ring.is_taken() && tries < TRIES {
            if let Err(error) = sys::kick_send(&self.socket) {
                match error.raw_os_error() {
                    // Taken, and dropped for want of room.
                    Some(libc::EBUSY) => flushed.dropped += 1,
                    // A part has gone, or something has to go first.
                    Some(libc::EAGAIN | libc::ENOBUFS | libc::EINTR) => {}
                    // The interface is down.
                    _ => tries = TRIES,
                }
            }
            self.queue.collect_sent();
            if self.ring.taken() == taken {
                tries += 1;
                std::thread::yield_now();
            }
            taken = self.ring.taken();
        }
        flushed.waits = !self.ring.is_taken();
        if flushed.waits != self.is_stalled {
            self.is_stalled = flushed.waits;
            // ORDER: Release; pairs with the Acquire in `frames_of`. A thread that gets packets of our flows later has
            // seen our completion of those before them, which comes after this.
            let change = if flushed.waits { 1 } else { u32::MAX };
            self.queue.stalled.fetch_add(change, Ordering::Release);
        }
        flushed
    }
}

impl Drop for XdpSender {
    fn drop(&mut self) {
        if self.is_stalled {
            self.queue.stalled.fetch_sub(1, Ordering::Release);
        }
    }
}
