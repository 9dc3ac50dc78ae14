//! The XDP program that hands frames to the sockets. It is attached while this lives, and at most until the process ends.

use super::error::XdpError;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{ErrorKind, Link, MapCore, MapFlags, MapHandle, Xdp, XdpFlags, set_print};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

mod skeleton {
    #![allow(clippy::all, clippy::undocumented_unsafe_blocks, unreachable_pub, missing_docs)]
    include!(concat!(env!("OUT_DIR"), "/sockets.skel.rs"));
}

/// How the driver runs the XDP program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XdpMode {
    /// In the driver, before a socket buffer is allocated.
    Native,
    /// In the kernel's generic receive path, with a socket buffer. It works everywhere, but saves less.
    Generic,
}

impl std::fmt::Display for XdpMode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            XdpMode::Native => "native",
            XdpMode::Generic => "generic",
        })
    }
}

/// A program on one interface. The kernel removes the link with its last descriptor, also when the process is killed.
#[derive(Debug)]
pub(super) struct Program {
    link: Link,
    sockets: MapHandle,
    pub(super) mode: XdpMode,
}

impl Program {
    /// Attaches the program to the interface of this index, for RX queues below `queues`. It runs in the driver if
    /// possible.
    pub(super) fn attach(name: &str, ifindex: u32, queues: u32) -> Result<Program, XdpError> {
        // libbpf must not print errors, since ours reports them.
        let before = set_print(None);
        let attached = Program::try_attach(name, ifindex, queues);
        set_print(before);
        attached
    }

    fn try_attach(name: &str, ifindex: u32, queues: u32) -> Result<Program, XdpError> {
        let load = |error: libbpf_rs::Error| match error.kind() {
            ErrorKind::PermissionDenied => XdpError::NoPermission("load an XDP program"),
            _ => XdpError::Load(error),
        };
        let mut memory = MaybeUninit::uninit();
        let mut open = skeleton::SocketsSkelBuilder::default().open(&mut memory).map_err(load)?;
        open.maps.sockets.set_max_entries(queues.max(1)).map_err(load)?;
        let skeleton = open.load().map_err(load)?;
        let index = i32::try_from(ifindex).unwrap_or(i32::MAX);
        let xdp = Xdp::new(skeleton.progs.to_socket.as_fd());
        let link = skeleton.progs.to_socket.attach_xdp(index).map_err(|error| {
            let other = xdp.query_id(index, XdpFlags::NONE).unwrap_or(0);
            match error.kind() {
                ErrorKind::PermissionDenied => XdpError::NoPermission("attach an XDP program"),
                _ if other != 0 => XdpError::OtherProgram(name.to_owned(), other),
                // The alternate form contains the error of the system call.
                _ => XdpError::Attach(name.to_owned(), format!("{error:#}")),
            }
        })?;
        let mode = match xdp.query(index, XdpFlags::NONE) {
            Ok(info) if u32::from(info.attach_mode) == libbpf_rs::libbpf_sys::XDP_ATTACHED_SKB => {
                XdpMode::Generic
            }
            _ => XdpMode::Native,
        };
        let sockets = MapHandle::try_from(&skeleton.maps.sockets).map_err(XdpError::Load)?;
        Ok(Program { link, sockets, mode })
    }

    /// Redirects frames of this RX queue to `socket` from now on.
    pub(super) fn redirect(&self, queue: u32, socket: &OwnedFd) -> Result<(), XdpError> {
        let (key, value) = (queue.to_ne_bytes(), socket.as_raw_fd().to_ne_bytes());
        self.sockets.update(&key, &value, MapFlags::ANY).map_err(XdpError::Load)
    }

    /// Lets the host receive frames of this RX queue again.
    pub(super) fn pass(&self, queue: u32) {
        // The entry does not exist if this was done before.
        let _ = self.sockets.delete(&queue.to_ne_bytes());
    }

    /// Whether frames of its interface still pass through it: not if the interface is gone, or another process detached
    /// the program.
    pub(super) fn is_attached(&self) -> bool {
        use libbpf_rs::query::LinkTypeInfo;
        self.link.info().is_ok_and(|info| match info.info {
            LinkTypeInfo::Xdp(xdp) => xdp.ifindex != 0,
            _ => true,
        })
    }
}
