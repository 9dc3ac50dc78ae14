//! Why AF_XDP sockets can't be opened.

use std::io;
use thiserror::Error;

/// Why sockets can't be opened, and the remedy. Nothing that was set up before the error remains.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum XdpError {
    /// A capability is missing; holds the attempted operation.
    #[error(
        "the process may not {0}: AF_XDP requires the capabilities CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF (run as root, or \
         give them to the program with setcap)"
    )]
    NoPermission(&'static str),
    /// The kernel has no support for AF_XDP.
    #[error("this kernel has no AF_XDP sockets (CONFIG_XDP_SOCKETS); use AF_PACKET (--io packet)")]
    NoSockets,
    /// The interface does not exist.
    #[error("there is no interface {0}")]
    NoInterface(String),
    /// Another XDP program is attached; holds the interface and the program's number.
    #[error(
        "another XDP program (id {1}) is attached to {0}, and rxsteer does not replace it; detach it (ip link set \
         {0} xdp off), or use \
         AF_PACKET (--io packet)"
    )]
    OtherProgram(String, u32),
    /// Another AF_XDP socket has the queue; holds interface and RX queue.
    #[error(
        "another AF_XDP socket uses RX queue {1} of {0}; end its process, or use AF_PACKET (--io packet)"
    )]
    OtherSocket(String, u32),
    /// There is no memory for frames; holds the requested size, and the limit of locked memory in bytes.
    #[error(
        "can't allocate {:.1} MiB of memory for frames{}; use less, or raise the limit of locked memory (ulimit -l, \
         LimitMEMLOCK= of systemd)",
        mib(*.0), .1.map_or(String::new(), |limit| format!(" (RLIMIT_MEMLOCK is {:.1} MiB)", mib(limit)))
    )]
    NoMemory(u64, Option<u64>),
    /// The frames' 32-bit addresses do not reach this much memory.
    #[error("{:.1} MiB of memory for frames is more than 4096 MiB; use less for each queue", mib(*.0))]
    TooMuchMemory(u64),
    /// Frames of this MTU don't fit.
    #[error(
        "an MTU of {1} on {0} is more than a frame of AF_XDP holds ({2}); lower it (ip link set {0} mtu {2}), or use \
         AF_PACKET (--io packet)"
    )]
    Mtu(String, u32, u32),
    /// Zero copy was requested, but the driver does not write into our memory itself.
    #[error(
        "the driver of {0} can't receive without copying (RX queue {1}: {2}); leave out zero-copy"
    )]
    NoZeroCopy(String, u32, #[source] io::Error),
    /// The program can't be attached.
    #[error(
        "the kernel refused to attach an XDP program to {0}: {1}. Drivers refuse a large MTU, and a veth refuses if it has \
         fewer RX queues than its peer has TX queues; change that (ip link set, ethtool -L), or use AF_PACKET (--io packet)"
    )]
    Attach(String, String),
    /// The program can't be loaded.
    #[error("the kernel refused the XDP program: {0}")]
    Load(#[source] libbpf_rs::Error),
    /// A system call failed; holds its purpose.
    #[error("{0}: {1}")]
    System(&'static str, #[source] io::Error),
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

impl XdpError {
    /// A system call for `what` failed.
    pub(super) fn of(what: &'static str, error: io::Error) -> XdpError {
        match error.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => XdpError::NoPermission(what),
            Some(libc::EAFNOSUPPORT) => XdpError::NoSockets,
            _ => XdpError::System(what, error),
        }
    }
}
