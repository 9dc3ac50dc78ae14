//! Interfaces as outputs: a tap that is created for the run, or an existing interface.

use super::SinkError;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rxsteer_io::{PacketSender, Tap};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::time::Duration;

/// How long to wait for a full interface that does not report when it has room.
const PAUSE: Duration = Duration::from_micros(200);
const MAX_PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };

/// Error numbers of Linux, the same on every architecture that rxsteer is built for.
mod errno {
    pub(super) const EPERM: i32 = rustix::io::Errno::PERM.raw_os_error();
    pub(super) const EACCES: i32 = rustix::io::Errno::ACCESS.raw_os_error();
    pub(super) const EIO: i32 = rustix::io::Errno::IO.raw_os_error();
    pub(super) const EBUSY: i32 = rustix::io::Errno::BUSY.raw_os_error();
    pub(super) const EINVAL: i32 = rustix::io::Errno::INVAL.raw_os_error();
    pub(super) const ENODEV: i32 = rustix::io::Errno::NODEV.raw_os_error();
    pub(super) const ENOENT: i32 = rustix::io::Errno::NOENT.raw_os_error();
    pub(super) const EAGAIN: i32 = rustix::io::Errno::AGAIN.raw_os_error();
    pub(super) const ENOBUFS: i32 = rustix::io::Errno::NOBUFS.raw_os_error();
    pub(super) const EMSGSIZE: i32 = rustix::io::Errno::MSGSIZE.raw_os_error();
}

/// The result of sending a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    Whole,
    /// There is no room now.
    NoRoom,
    /// The interface never accepts it: it is too long or too short.
    Length,
}

/// Whether there is a tap or tun of this name.
fn is_tap(name: &str) -> bool {
    Path::new("/sys/class/net").join(name).join("tun_flags").exists()
}

/// An interface that accepts Ethernet frames.
#[derive(Debug)]
pub(super) enum Interface {
    Tap(Tap),
    Packet(PacketSender),
}

impl Interface {
    /// Creates a tap.
    pub(super) fn tap(name: &str) -> Result<Interface, SinkError> {
        Tap::new(name).map(Interface::Tap).map_err(|error| {
            let message = match error.raw_os_error() {
                Some(errno::EPERM | errno::EACCES) => {
                    "a tap requires CAP_NET_ADMIN; run rxsteer as root, or give it that capability"
                        .to_owned()
                }
                Some(errno::EBUSY) if is_tap(name) => {
                    "a tap of this name exists; remove it (ip link delete), or choose another name"
                        .to_owned()
                }
                Some(errno::EBUSY | errno::EINVAL) => {
                    "an interface of this name exists; choose another name".to_owned()
                }
                Some(errno::ENOENT | errno::ENODEV) => {
                    "there is no /dev/net/tun; load the kernel module tun (modprobe tun)".to_owned()
                }
                _ => format!("the tap can't be made: {error}"),
            };
            SinkError::Interface { name: name.to_owned(), message }
        })
    }

    /// Opens an existing interface.
    pub(super) fn packet(name: &str) -> Result<Interface, SinkError> {
        PacketSender::new(name).map(Interface::Packet).map_err(|error| {
            let message = match error.raw_os_error() {
                Some(errno::EPERM | errno::EACCES) => {
                    "sending on an interface requires CAP_NET_RAW; run rxsteer as root, or give it that capability"
                        .to_owned()
                }
                Some(errno::ENODEV) => "there is no such interface; make it, or check the name".to_owned(),
                _ => format!("can't be sent on: {error}"),
            };
            SinkError::Interface { name: name.to_owned(), message }
        })
    }

    /// Sends one frame.
    pub(super) fn send(&self, frame: &[u8]) -> io::Result<Sent> {
        let sent = match self {
            Interface::Tap(tap) => tap.send(frame),
            Interface::Packet(socket) => socket.send(frame),
        };
        match sent {
            Ok(()) => Ok(Sent::Whole),
            Err(error) => match error.raw_os_error() {
                Some(errno::EAGAIN | errno::ENOBUFS) => Ok(Sent::NoRoom),
                Some(errno::EMSGSIZE | errno::EINVAL) => Ok(Sent::Length),
                // A tap that is down returns this error.
                Some(errno::EIO) => Err(rustix::io::Errno::NETDOWN.into()),
                _ => Err(error),
            },
        }
    }

    /// Waits a little, or until the interface has room.
    pub(super) fn wait(&self) {
        let fd = self.as_fd();
        // poll does not detect a full ring of a driver, and returns at once.
        std::thread::sleep(PAUSE);
        let _ = poll(&mut [PollFd::new(&fd, PollFlags::OUT)], Some(&MAX_PAUSE));
    }
}

impl AsFd for Interface {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Interface::Tap(tap) => tap.as_fd(),
            Interface::Packet(socket) => socket.as_fd(),
        }
    }
}
