//! Sends lists of frames that packet sockets received through a packet socket, with one system call per list.

use crate::frames::SEND_HEADER;
use crate::interface_out::PacketSender;
use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// The number of frames per system call.
const MAX: usize = 64;
/// After this many system calls without progress, a frame is given up.
const TRIES: u32 = 64;
/// The header for a frame that arrived without one: it is sent unchanged.
const AS_IT_IS: [u8; SEND_HEADER] = [0; SEND_HEADER];

/// A packet socket that sends lists of frames on one interface, for one thread.
///
/// When [`ListSender::send`] returns, the driver has the frames, in order. Their TX queue depends on the CPU that sends:
/// frames that two CPUs send one after the other stay in order only if the interface has one TX queue.
#[derive(Debug)]
pub struct ListSender {
    socket: PacketSender,
    /// The parts of the present call, two for each frame: its header and its bytes. Empty between calls.
    parts: Vec<libc::iovec>,
    /// The messages of the present call; they point into `parts`. Empty between calls.
    messages: Vec<libc::mmsghdr>,
}

// SAFETY: only the pointers prevent Send, and there are none between calls of `send`, which borrows `self` mutably.
unsafe impl Send for ListSender {}

impl ListSender {
    /// A sender for the interface of this name.
    ///
    /// # Errors
    /// The kernel's error: `EPERM` without CAP_NET_RAW, `ENODEV` if there is no such interface.
    pub fn new(name: &str) -> io::Result<ListSender> {
        let socket = PacketSender::new(name)?;
        socket.take_headers()?;
        let (parts, messages) = (Vec::with_capacity(2 * MAX), Vec::with_capacity(MAX));
        Ok(ListSender { socket, parts, messages })
    }

    /// Sends frames in order, each with the [`SEND_HEADER`] bytes that it arrived with, if any. Returns how many the
    /// driver took. It has no room for the others, they are too long for it, or it is down.
    ///
    /// # Panics
    /// If a header has another length.
    pub fn send<'a>(
        &mut self,
        frames: impl IntoIterator<Item = (Option<&'a [u8]>, &'a [u8])>,
    ) -> u64 {
        let mut frames = frames.into_iter();
        let mut taken = 0;
        loop {
            for (header, frame) in frames.by_ref().take(MAX) {
                let header = header.unwrap_or(&AS_IT_IS);
                assert_eq!(header.len(), SEND_HEADER, "the header of a frame to be sent");
                self.parts.extend([part(header), part(frame)]);
            }
            if self.parts.is_empty() {
                return taken;
            }
            for parts in self.parts.chunks_exact_mut(2) {
                // SAFETY: numbers and pointers, for which zero is valid.
                let mut message: libc::mmsghdr = unsafe { std::mem::zeroed() };
                message.msg_hdr.msg_iov = parts.as_mut_ptr();
                // The type differs between C libraries.
                message.msg_hdr.msg_iovlen = 2 as _;
                self.messages.push(message);
            }
            taken += self.send_messages();
            self.messages.clear();
            self.parts.clear();
        }
    }

    /// Sends the messages in `messages`. Returns how many were taken.
    fn send_messages(&mut self) -> u64 {
        let (mut next, mut taken, mut tries) = (0, 0, 0);
        while next < self.messages.len() {
            let left = &mut self.messages[next..];
            let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
            // SAFETY: this many messages, whose parts are the frames that the caller of `send` lends; the kernel reads
            // them, and writes only the lengths in the messages.
            let sent = unsafe {
                let fd = self.socket.as_fd().as_raw_fd();
                libc::sendmmsg(fd, left.as_mut_ptr(), left.len() as u32, flags as _)
            };
            if let Ok(sent @ 1..) = usize::try_from(sent) {
                next += sent;
                taken += sent as u64;
                tries = 0;
                continue;
            }
            match io::Error::last_os_error().raw_os_error() {
                Some(libc::EINTR) => {}
                // The driver or the socket has no room at present, and the frame was not sent.
                Some(libc::ENOBUFS | libc::EAGAIN) if tries < TRIES => {
                    tries += 1;
                    std::thread::yield_now();
                }
                // This frame can't be sent: it is too long, or the interface does not accept it.
                Some(libc::ENOBUFS | libc::EAGAIN | libc::EMSGSIZE | libc::EINVAL) => next += 1,
                // The interface is down or gone.
                _ => break,
            }
        }
        taken
    }
}

fn part(bytes: &[u8]) -> libc::iovec {
    libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() }
}
