//! The system calls for which no library used here has a safe form.

use libbpf_rs::libbpf_sys;
use rxsteer_core::ThreadClass;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Runs a program of the type `syscall`, and returns its return value.
pub(crate) fn run_program(program: BorrowedFd<'_>) -> io::Result<u32> {
    let mut options = libbpf_sys::bpf_test_run_opts {
        sz: size_of::<libbpf_sys::bpf_test_run_opts>() as libbpf_sys::size_t,
        ..Default::default()
    };
    // SAFETY: the descriptor is open while it is borrowed, and the options live until the call is over.
    let error =
        unsafe { libbpf_sys::bpf_prog_test_run_opts(program.as_raw_fd(), &raw mut options) };
    if error < 0 { Err(io::Error::from_raw_os_error(-error)) } else { Ok(options.retval) }
}

/// Where the XDP program gets its frames from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// From the driver, before a socket buffer exists.
    Native,
    /// From the kernel's generic receive path, with a socket buffer. It works with every driver, but saves less.
    Generic,
}

impl std::fmt::Display for Mode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Mode::Native => "native",
            Mode::Generic => "generic",
        })
    }
}

/// Attaches an XDP program to an interface by a BPF link. The program is detached when the descriptor is closed.
pub(crate) fn link_xdp(program: BorrowedFd<'_>, ifindex: u32, mode: Mode) -> io::Result<OwnedFd> {
    let flags = match mode {
        Mode::Native => libbpf_sys::XDP_FLAGS_DRV_MODE,
        Mode::Generic => libbpf_sys::XDP_FLAGS_SKB_MODE,
    };
    let options = libbpf_sys::bpf_link_create_opts {
        sz: size_of::<libbpf_sys::bpf_link_create_opts>() as libbpf_sys::size_t,
        flags,
        ..Default::default()
    };
    // SAFETY: the descriptor is open while it is borrowed, and the options live until the call is over.
    let fd = unsafe {
        libbpf_sys::bpf_link_create(
            program.as_raw_fd(),
            ifindex as i32,
            libbpf_sys::BPF_XDP,
            &options,
        )
    };
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(-fd));
    }
    // SAFETY: the call returned a descriptor that nothing else has.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The interface that an XDP link is attached to; 0 when it is no longer attached.
pub(crate) fn link_ifindex(link: BorrowedFd<'_>) -> io::Result<u32> {
    let mut info = libbpf_sys::bpf_link_info::default();
    let mut length = size_of::<libbpf_sys::bpf_link_info>() as u32;
    // SAFETY: the descriptor is open, and `info` has the length that is given.
    let error = unsafe {
        libbpf_sys::bpf_obj_get_info_by_fd(
            link.as_raw_fd(),
            (&raw mut info).cast(),
            &raw mut length,
        )
    };
    if error < 0 {
        return Err(io::Error::from_raw_os_error(-error));
    }
    // SAFETY: the link is an XDP link, so this is the member that was written; it is a number.
    Ok(unsafe { info.__bindgen_anon_1.xdp.ifindex })
}

/// Puts the thread `pid` into a scheduling class (sched_setattr(2)).
pub(crate) fn set_class(pid: u32, class: ThreadClass) -> io::Result<()> {
    let (policy, nice, priority) = crate::threads::kernel_values(class);
    let attributes = libc::sched_attr {
        size: size_of::<libc::sched_attr>() as u32,
        sched_policy: policy,
        sched_flags: 0,
        sched_nice: nice,
        sched_priority: priority,
        sched_runtime: 0,
        sched_deadline: 0,
        sched_period: 0,
    };
    // SAFETY: the structure is valid for the call and contains its own size; the kernel only reads it.
    let error =
        unsafe { libc::syscall(libc::SYS_sched_setattr, pid, &raw const attributes, 0_u32) };
    if error == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
