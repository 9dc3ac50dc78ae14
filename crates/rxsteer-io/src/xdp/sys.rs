//! System calls for AF_XDP sockets, and memory that is shared with the kernel.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;

/// Mapped memory, unmapped when this is dropped.
#[derive(Debug)]
pub(super) struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the memory belongs to the process, on any thread; all access goes through raw pointers or atomics.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Zeroed anonymous memory of `len` bytes.
    pub(super) fn anonymous(len: usize) -> io::Result<Mapping> {
        Mapping::map(len, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0)
    }

    /// Maps `len` bytes of the socket's shared memory from `offset`: one of its rings.
    pub(super) fn of_socket(
        socket: BorrowedFd<'_>,
        len: usize,
        offset: u64,
    ) -> io::Result<Mapping> {
        let flags = libc::MAP_SHARED | libc::MAP_POPULATE;
        Mapping::map(len, flags, socket.as_raw_fd(), offset as libc::off_t)
    }

    fn map(len: usize, flags: i32, fd: i32, offset: libc::off_t) -> io::Result<Mapping> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at a place that the kernel chooses; nothing else uses it.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), len, access, flags, fd, offset) };
        match NonNull::new(start.cast::<u8>()) {
            Some(start) if start.as_ptr().cast() != libc::MAP_FAILED => Ok(Mapping { start, len }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// The address `offset` bytes into it.
    pub(super) fn at(&self, offset: usize) -> *mut u8 {
        assert!(offset < self.len, "a place of the mapping");
        // SAFETY: within the mapping.
        unsafe { self.start.as_ptr().add(offset) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `map`, and not used any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

fn checked(result: i32) -> io::Result<i32> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// A new AF_XDP socket.
pub(super) fn socket() -> io::Result<OwnedFd> {
    // SAFETY: no memory is passed.
    let fd =
        checked(unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) })?;
    // SAFETY: the call returned a descriptor that nothing else has.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Sets an option whose value is plain numbers.
pub(super) fn set<T: Copy>(socket: &OwnedFd, level: i32, name: i32, value: &T) -> io::Result<()> {
    let length = size_of::<T>() as libc::socklen_t;
    let value = std::ptr::from_ref(value).cast();
    // SAFETY: the value is valid for its length, and is only read.
    checked(unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, value, length) }).map(drop)
}

/// Gets an option of SOL_XDP whose value is plain numbers.
///
/// # Safety
/// All-zero bytes and any numbers must be valid for `T`.
unsafe fn get<T: Copy>(socket: &OwnedFd, level: i32, name: i32) -> io::Result<T> {
    let mut value = MaybeUninit::<T>::zeroed();
    let mut length = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes, which the value has.
    checked(unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            level,
            name,
            value.as_mut_ptr().cast(),
            &raw mut length,
        )
    })?;
    // SAFETY: zero, or what the kernel wrote; the caller says that both are valid.
    Ok(unsafe { value.assume_init() })
}

/// The offsets of the parts of the rings in the socket's shared memory.
pub(super) fn ring_offsets(socket: &OwnedFd) -> io::Result<libc::xdp_mmap_offsets> {
    // SAFETY: plain numbers.
    unsafe { get(socket, libc::SOL_XDP, libc::XDP_MMAP_OFFSETS) }
}

/// The socket's counts since it was opened.
pub(super) fn statistics(socket: &OwnedFd) -> io::Result<libc::xdp_statistics> {
    // SAFETY: plain numbers.
    unsafe { get(socket, libc::SOL_XDP, libc::XDP_STATISTICS) }
}

/// Whether the driver writes into our memory itself.
pub(super) fn is_zero_copy(socket: &OwnedFd) -> io::Result<bool> {
    // SAFETY: plain numbers.
    let options: libc::xdp_options = unsafe { get(socket, libc::SOL_XDP, libc::XDP_OPTIONS) }?;
    Ok(options.flags & libc::XDP_OPTIONS_ZEROCOPY != 0)
}

/// The error that the kernel recorded on the socket, if any: `ENETDOWN` once its interface is gone.
pub(super) fn error_of(socket: &OwnedFd) -> io::Result<Option<io::Error>> {
    // SAFETY: a plain number.
    let error: i32 = unsafe { get(socket, libc::SOL_SOCKET, libc::SO_ERROR) }?;
    Ok((error != 0).then(|| io::Error::from_raw_os_error(error)))
}

/// Binds the socket to an RX queue, with `flags`. If they include XDP_SHARED_UMEM, `shared` has the memory.
pub(super) fn bind(
    socket: &OwnedFd,
    ifindex: u32,
    queue: u32,
    flags: u16,
    shared: Option<&OwnedFd>,
) -> io::Result<()> {
    let address = libc::sockaddr_xdp {
        sxdp_family: libc::AF_XDP as u16,
        sxdp_flags: flags,
        sxdp_ifindex: ifindex,
        sxdp_queue_id: queue,
        sxdp_shared_umem_fd: shared.map_or(0, |fd| fd.as_raw_fd() as u32),
    };
    let length = size_of::<libc::sockaddr_xdp>() as libc::socklen_t;
    // SAFETY: the address is valid for its length, and is only read.
    checked(unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) })
        .map(drop)
}

/// Makes the kernel send the frames in the TX ring.
pub(super) fn kick_send(socket: &OwnedFd) -> io::Result<()> {
    let fd = socket.as_raw_fd();
    // SAFETY: an empty message: no memory is read.
    let sent =
        unsafe { libc::sendto(fd, std::ptr::null(), 0, libc::MSG_DONTWAIT, std::ptr::null(), 0) };
    checked(sent as i32).map(drop)
}

/// Makes the kernel continue receiving: it checks the fill ring.
pub(super) fn kick_receive(socket: &OwnedFd) -> io::Result<()> {
    let (fd, none) = (socket.as_raw_fd(), std::ptr::null_mut());
    // SAFETY: an empty buffer: no memory is written.
    let got = unsafe {
        libc::recvfrom(fd, none, 0, libc::MSG_DONTWAIT, std::ptr::null_mut(), std::ptr::null_mut())
    };
    checked(got as i32).map(drop)
}

/// Waits until one of the sockets is ready, or `timeout_ms` have passed.
pub(super) fn wait<'a>(
    sockets: impl Iterator<Item = &'a OwnedFd>,
    timeout_ms: u32,
) -> io::Result<()> {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let mut sockets: Vec<PollFd<'_>> =
        sockets.map(|socket| PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::IN)).collect();
    let timeout = Timespec {
        tv_sec: i64::from(timeout_ms / 1000),
        tv_nsec: i64::from(timeout_ms % 1000) * 1_000_000,
    };
    match poll(&mut sockets, Some(&timeout)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
