//! System calls.

use crate::filter::FilterInstruction;
use libc::{c_int, c_void, socklen_t};
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::time::Duration;

fn checked(result: c_int) -> io::Result<c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// A packet socket that receives nothing yet.
pub(crate) fn packet_socket() -> io::Result<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: takes numbers only.
    let fd = checked(unsafe { libc::socket(libc::AF_PACKET, kind, 0) })?;
    // SAFETY: it was just opened, and nothing else refers to it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Sets an option whose value is a plain C structure or number.
pub(crate) fn set_option<T: Copy>(
    fd: BorrowedFd<'_>,
    level: c_int,
    name: c_int,
    value: &T,
) -> io::Result<()> {
    let (value, len) = (std::ptr::from_ref(value).cast::<c_void>(), size_of::<T>() as socklen_t);
    // SAFETY: the kernel reads `len` bytes of the value, which lives here.
    checked(unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, value, len) }).map(|_| ())
}

/// Statistics of a packet socket, which reading sets to 0.
pub(crate) fn packet_statistics(
    fd: BorrowedFd<'_>,
    name: c_int,
) -> io::Result<libc::tpacket_stats_v3> {
    let mut value = libc::tpacket_stats_v3 { tp_packets: 0, tp_drops: 0, tp_freeze_q_cnt: 0 };
    let mut len = size_of_val(&value) as socklen_t;
    let place = (&raw mut value).cast::<c_void>();
    // SAFETY: the kernel writes at most `len` bytes of numbers into the value.
    checked(unsafe { libc::getsockopt(fd.as_raw_fd(), libc::SOL_PACKET, name, place, &mut len) })?;
    Ok(value)
}

/// The socket's pending error, which reading clears; 0 for none.
pub(crate) fn take_error(fd: BorrowedFd<'_>) -> io::Result<c_int> {
    let mut value: c_int = 0;
    let mut len = size_of_val(&value) as socklen_t;
    let place = (&raw mut value).cast::<c_void>();
    // SAFETY: the kernel writes at most `len` bytes into the number.
    checked(unsafe {
        libc::getsockopt(fd.as_raw_fd(), libc::SOL_SOCKET, libc::SO_ERROR, place, &mut len)
    })?;
    Ok(value)
}

/// Binds a packet socket to frames of `protocol` on an interface.
pub(crate) fn bind_packet(fd: BorrowedFd<'_>, index: u32, protocol: u16) -> io::Result<()> {
    let address = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: protocol.to_be(),
        sll_ifindex: index as c_int,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    let (place, len) = ((&raw const address).cast(), size_of_val(&address) as socklen_t);
    // SAFETY: the kernel reads `len` bytes of the address, which lives here.
    checked(unsafe { libc::bind(fd.as_raw_fd(), place, len) }).map(|_| ())
}

/// Installs a filter: the socket receives only the frames that the filter accepts.
pub(crate) fn attach_filter(fd: BorrowedFd<'_>, filter: &[FilterInstruction]) -> io::Result<()> {
    let instruction = |of: &FilterInstruction| libc::sock_filter {
        code: of.code,
        jt: of.jump_true,
        jf: of.jump_false,
        k: of.k,
    };
    let mut program: Vec<libc::sock_filter> = filter.iter().map(instruction).collect();
    let len =
        u16::try_from(program.len()).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
    // The kernel copies the instructions before the call ends.
    let filter = libc::sock_fprog { len, filter: program.as_mut_ptr() };
    set_option(fd, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &filter)
}

/// Waits until there is data to read or an error, at most for `timeout`. Returns whether there is.
pub(crate) fn poll_in(fd: BorrowedFd<'_>, timeout: Duration) -> io::Result<bool> {
    let mut poll = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let millis = c_int::try_from(timeout.as_millis()).unwrap_or(c_int::MAX);
    // SAFETY: one entry, which lives here.
    match checked(unsafe { libc::poll(&mut poll, 1, millis) }) {
        Ok(ready) => Ok(ready > 0),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(false),
        Err(error) => Err(error),
    }
}

/// The index of an interface.
pub(crate) fn interface_index(name: &str) -> Option<u32> {
    let name = CString::new(name).ok()?;
    // SAFETY: a string that ends with 0 and lives here.
    let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
    (index != 0).then_some(index)
}

/// The name of an interface.
pub(crate) fn interface_name(index: u32) -> Option<String> {
    let mut name = [0; libc::IF_NAMESIZE];
    // SAFETY: the buffer has the length that the function requires.
    let found = unsafe { libc::if_indextoname(index, name.as_mut_ptr()) };
    if found.is_null() {
        return None;
    }
    // SAFETY: the function has written a string that ends with 0.
    Some(unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned())
}

/// The hardware type of an interface (`ARPHRD_*`).
pub(crate) fn interface_type(name: &str) -> io::Result<u16> {
    let request = ask_interface(name, libc::SIOCGIFHWADDR as libc::Ioctl)?;
    // SAFETY: the call has written this member.
    Ok(unsafe { request.ifr_ifru.ifru_hwaddr.sa_family })
}

/// The MTU of an interface.
pub(crate) fn interface_mtu(name: &str) -> io::Result<u32> {
    let request = ask_interface(name, libc::SIOCGIFMTU as libc::Ioctl)?;
    // SAFETY: the call has written this member.
    Ok(unsafe { request.ifr_ifru.ifru_mtu }.try_into().unwrap_or_default())
}

/// Asks the kernel about an interface (netdevice(7)). musl's numbers of requests are `int`, and the crate `libc` declares
/// some of them as `unsigned long` everywhere.
fn ask_interface(name: &str, number: libc::Ioctl) -> io::Result<libc::ifreq> {
    // SAFETY: numbers, for which 0 is valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if name.len() >= request.ifr_name.len() {
        return Err(io::Error::from_raw_os_error(libc::ENODEV));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    // SAFETY: takes numbers only.
    let fd =
        checked(unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) })?;
    // SAFETY: it was just opened, and nothing else refers to it.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: the kernel reads the name and writes the rest of the request.
    checked(unsafe { libc::ioctl(fd.as_raw_fd(), number, &raw mut request) })?;
    Ok(request)
}

/// Memory that is shared with the kernel.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: it is an address range; its users ensure the order of reads and writes.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the memory of `fd` from its beginning, for reading and writing.
    pub(crate) fn shared(fd: BorrowedFd<'_>, len: usize) -> io::Result<Mapping> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at a place that the kernel chooses.
        let start = unsafe {
            libc::mmap(std::ptr::null_mut(), len, access, libc::MAP_SHARED, fd.as_raw_fd(), 0)
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or_else(io::Error::last_os_error)?;
        Ok(Mapping { start, len })
    }

    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `shared`, and nothing refers to it any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}
