//! Interfaces that frames are written to: taps, which are created here, and any interface through a packet socket.

use crate::sys;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// A tap interface, which receives the frames that are written to it. It is removed when this is dropped, or when the
/// process ends in any way.
#[derive(Debug)]
pub struct Tap {
    fd: OwnedFd,
}

impl Tap {
    /// Creates an interface of this name and brings it up, without IPv6, so that the host itself sends nothing on it.
    ///
    /// # Errors
    /// The kernel's error: `EPERM` without CAP_NET_ADMIN, `EBUSY` if a tap of this name exists and is in use, `EINVAL` if
    /// another interface has the name, `ENOENT` without `/dev/net/tun`.
    pub fn new(name: &str) -> io::Result<Tap> {
        let flags = libc::O_RDWR | libc::O_NONBLOCK | libc::O_CLOEXEC;
        // SAFETY: a path that ends in NUL, and no memory beside it.
        let fd = owned(unsafe { libc::open(c"/dev/net/tun".as_ptr(), flags) })?;
        let mut request = request(name)?;
        // TUN_EXCL: a tap of another process is not taken over.
        let kind = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_TUN_EXCL;
        request.ifr_ifru.ifru_flags = kind as libc::c_short;
        ioctl(fd.as_raw_fd(), libc::TUNSETIFF, &mut request)?;
        // A kernel without IPv6 has no such file.
        let _ = std::fs::write(format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6"), "1");
        let tap = Tap { fd };
        bring_up(name)?;
        Ok(tap)
    }

    /// Writes one frame, which the interface then receives.
    ///
    /// # Errors
    /// The kernel's error: `EINVAL` for less than an Ethernet header, `EIO` while the interface is down.
    pub fn send(&self, frame: &[u8]) -> io::Result<()> {
        // SAFETY: the kernel reads `frame` and no more.
        whole(unsafe { libc::write(self.fd.as_raw_fd(), frame.as_ptr().cast(), frame.len()) })
    }
}

impl AsFd for Tap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// A packet socket that sends on one interface and receives nothing.
#[derive(Debug)]
pub struct PacketSender {
    fd: OwnedFd,
}

impl PacketSender {
    /// A socket for the interface of this name. Frames go to the driver without a queueing discipline, so that the sender
    /// notices a full ring.
    ///
    /// # Errors
    /// The kernel's error: `EPERM` without CAP_NET_RAW, `ENODEV` if there is no such interface.
    pub fn new(name: &str) -> io::Result<PacketSender> {
        let c_name = CString::new(name)?;
        // SAFETY: a name that ends in NUL.
        let index = unsafe { libc::if_nametoindex(c_name.as_ptr()) };
        let index = i32::try_from(index).ok().filter(|index| *index > 0);
        let index = index.ok_or_else(|| io::Error::from_raw_os_error(libc::ENODEV))?;
        let kind = libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        // SAFETY: three numbers. Protocol 0: no frame is received.
        let fd = owned(unsafe { libc::socket(libc::AF_PACKET, kind, 0) })?;
        let yes: libc::c_int = 1;
        sys::set_option(fd.as_fd(), libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, &yes)?;
        // SAFETY: a structure of numbers, for which zero is valid.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_ifindex = index;
        let len = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        // SAFETY: an address of this length.
        zero(unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), len) })?;
        Ok(PacketSender { fd })
    }

    /// Requires that each frame is preceded by its [`SEND_HEADER`](crate::packet::SEND_HEADER).
    pub(crate) fn take_headers(&self) -> io::Result<()> {
        let yes: libc::c_int = 1;
        sys::set_option(self.fd.as_fd(), libc::SOL_PACKET, libc::PACKET_VNET_HDR, &yes)
    }

    /// Sends one frame.
    ///
    /// # Errors
    /// The kernel's error: `ENOBUFS` or `EAGAIN` if there is no room, `EMSGSIZE` beyond the MTU, `ENETDOWN` while the
    /// interface is down, `ENXIO` once it is gone.
    pub fn send(&self, frame: &[u8]) -> io::Result<()> {
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        // SAFETY: the kernel reads `frame` and no more.
        whole(unsafe { libc::send(self.fd.as_raw_fd(), frame.as_ptr().cast(), frame.len(), flags) })
    }
}

impl AsFd for PacketSender {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn bring_up(name: &str) -> io::Result<()> {
    // SAFETY: three numbers.
    let socket =
        owned(unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) })?;
    let mut request = request(name)?;
    // musl's numbers are `int`, and the crate declares these two as `unsigned long` everywhere.
    ioctl(socket.as_raw_fd(), libc::SIOCGIFFLAGS as libc::Ioctl, &mut request)?;
    // SAFETY: the kernel has just written the flags.
    unsafe { request.ifr_ifru.ifru_flags |= libc::IFF_UP as libc::c_short };
    ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS as libc::Ioctl, &mut request)
}

/// A request about the interface of this name.
fn request(name: &str) -> io::Result<libc::ifreq> {
    // SAFETY: a structure of numbers and a union of numbers, for which zero is valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // The last byte stays NUL.
    if name.len() >= request.ifr_name.len() {
        return Err(io::Error::from_raw_os_error(libc::ENAMETOOLONG));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    Ok(request)
}

fn ioctl(fd: RawFd, number: libc::Ioctl, request: &mut libc::ifreq) -> io::Result<()> {
    // SAFETY: every number that is used here reads and writes an `ifreq`.
    zero(unsafe { libc::ioctl(fd, number, request) })
}

fn owned(fd: RawFd) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it was just opened, and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn zero(result: libc::c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// A frame is sent whole or not at all.
fn whole(sent: isize) -> io::Result<()> {
    if sent >= 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
