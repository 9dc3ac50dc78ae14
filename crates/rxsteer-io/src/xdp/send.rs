//! Sends frames from where they are stored: one TX ring for each thread and queue.
//!
//! Senders of one queue share its completion ring and its place in the driver. So frames that one sender hands over leave
//! before those that another hands over later: order across threads holds on the wire.

use super::error::XdpError;
use super::frames::Batch;
use super::queue::Queue;
use super::ring::Producer;
use super::sys::{self, Mapping};
use crate::Lent;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The number of entries of a TX ring.
const SEND_RING: u32 = 1024;

/// After this many system calls without progress, a sender no longer waits for the driver.
const TRIES: u32 = 64;

/// The memory of the socket buffers that the kernel copies frames into, in bytes: enough for the frames of a TX ring and
/// a completion ring.
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
    /// Whether the interface was removed: the frames in the ring will never be sent.
    is_gone: bool,
}

/// Frames in lent memory that are being written into a TX ring.
#[derive(Debug)]
pub struct Sending<'a> {
    sender: &'a mut XdpSender,
    batch: &'a Batch,
}

impl Sending<'_> {
    /// Writes the frame of `len` bytes at `offset` into the ring; `false` if there is no room. [`XdpSender::flush`] sends
    /// it.
    ///
    /// # Panics
    /// If the frame is beyond the memory.
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

/// The result of handing over frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flushed {
    /// Frames that the driver dropped because it had no room.
    pub dropped: u32,
    /// Whether frames wait in the ring that the driver has not taken: it is down, or has had no room for long.
    pub waits: bool,
}

impl XdpSender {
    pub(super) fn open(queue: Arc<Queue>) -> Result<XdpSender, XdpError> {
        let of = |error| XdpError::of("open an AF_XDP socket to send", error);
        let socket = sys::socket().map_err(of)?;
        sys::set(&socket, libc::SOL_XDP, libc::XDP_TX_RING, &SEND_RING).map_err(of)?;
        // Without this setting the default limit stops the sender at a few hundred frames in flight. It requires
        // CAP_NET_ADMIN, as the sockets do.
        sys::set(&socket, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &SEND_MEMORY).map_err(of)?;
        let offsets = sys::ring_offsets(&socket).map_err(of)?;
        let bytes = offsets.tx.desc as usize + SEND_RING as usize * size_of::<libc::xdp_desc>();
        let memory = Mapping::of_socket(socket.as_fd(), bytes, libc::XDP_PGOFF_TX_RING as u64);
        let ring = Producer::new(memory.map_err(of)?, &offsets.tx, SEND_RING);
        let shared = Some(&queue.socket);
        sys::bind(&socket, queue.ifindex, queue.number, libc::XDP_SHARED_UMEM, shared)
            .map_err(of)?;
        Ok(XdpSender { queue, socket, ring, room: SEND_RING, is_stalled: false, is_gone: false })
    }

    /// Prepares to send frames that lie in `lent`; `None` if they can't be sent from here, since the sockets that
    /// received them were opened separately.
    pub fn frames_of<'a>(&'a mut self, lent: &'a Lent) -> Option<Sending<'a>> {
        let batch = lent.owner().downcast_ref::<Batch>()?;
        if !batch.is_of(&self.queue.frames) {
            return None;
        }
        self.room = self.ring.room();
        // ORDER: Acquire; pairs with the Release in `flush`. Frames of another thread wait, maybe of the same flows, and
        // they wait because there is no room.
        let others_stall = !self.is_stalled && self.queue.stalled.load(Ordering::Acquire) != 0;
        if others_stall || self.is_gone {
            self.room = 0;
        }
        Some(Sending { sender: self, batch })
    }

    /// Hands the written frames over to the driver, and returns sent frames to their homes. Frames that other threads
    /// hand over after this returns leave later. If [`Flushed::waits`], other threads hand over none.
    pub fn flush(&mut self) -> Flushed {
        self.ring.publish();
        let mut flushed = Flushed::default();
        let (mut tries, mut taken) = (0, self.ring.taken());
        while !self.ring.is_taken() && tries < TRIES {
            if let Err(error) = sys::kick_send(&self.socket) {
                match error.raw_os_error() {
                    // The frame was taken, and dropped because there was no room.
                    Some(libc::EBUSY) => flushed.dropped += 1,
                    // Some frames are sent, or others must be sent first.
                    Some(libc::EAGAIN | libc::ENOBUFS | libc::EINTR) => {}
                    // The socket has lost its interface (net/xdp/xsk.c, `xsk_check_common`).
                    Some(libc::ENXIO) => {
                        if !std::mem::replace(&mut self.is_gone, true) {
                            flushed.dropped += self.ring.waiting();
                        }
                        tries = TRIES;
                    }
                    // The interface is down.
                    _ => tries = TRIES,
                }
            }
            self.queue.collect_sent();
            if self.ring.taken() == taken {
                // A call takes up to 32 frames, and the kernel publishes its position when it has taken all frames that it
                // saw (net/xdp/xsk_queue.h, `xskq_cons_get_entries`). So a first call without progress is normal, and a
                // yield then would give the CPU to another thread once for each list.
                if tries > 0 {
                    std::thread::yield_now();
                }
                tries += 1;
            }
            taken = self.ring.taken();
        }
        flushed.waits = !self.ring.is_taken();
        if flushed.waits != self.is_stalled {
            self.is_stalled = flushed.waits;
            // ORDER: Release; pairs with the Acquire in `frames_of`. A thread that gets packets of our flows later has
            // seen our completion of the packets before them, which comes after this.
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
