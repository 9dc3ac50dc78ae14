//! Detects changes of the host: interfaces that appear, disappear or change, and CPUs that go offline or come online.

use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use rxsteer_host::cpus;
use rxsteer_user::core::{CpuId, CpuSet};
use std::os::fd::{AsFd, BorrowedFd};

/// RTNLGRP_LINK (include/uapi/linux/rtnetlink.h).
const LINK_GROUP: u32 = 1;

/// Reports that an interface has changed. The caller then reads the state: messages can be lost when many arrive at
/// once, but the state cannot.
pub(crate) struct LinkMonitor(Socket);

impl LinkMonitor {
    /// `None` if the kernel does not report changes.
    pub(crate) fn open() -> Option<LinkMonitor> {
        let mut socket = Socket::new(NETLINK_ROUTE).ok()?;
        socket.bind(&SocketAddr::new(0, 0)).ok()?;
        socket.add_membership(LINK_GROUP).ok()?;
        socket.set_non_blocking(true).ok()?;
        Some(LinkMonitor(socket))
    }

    /// Whether there were messages; discards them.
    pub(crate) fn take(&self) -> bool {
        let mut any = false;
        let mut buffer = Vec::with_capacity(64 << 10);
        loop {
            buffer.clear();
            match self.0.recv(&mut buffer, 0) {
                Ok(_) => any = true,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return any,
                // Messages were lost, so there were some.
                Err(_) => return true,
            }
        }
    }
}

impl AsFd for LinkMonitor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The online CPUs to which frames can be sent.
pub(crate) fn online() -> Option<CpuSet> {
    reachable(&cpus::online()?)
}

/// The possible CPUs to which frames can be sent.
pub(crate) fn possible() -> Option<CpuSet> {
    reachable(&cpus::possible()?)
}

fn reachable(cpus: &CpuSet) -> Option<CpuSet> {
    CpuSet::new(cpus.iter().filter(|cpu: &CpuId| cpu.get() <= cpus::HIGHEST))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_host_can_be_watched() {
        assert!(online().is_some_and(|cpus| cpus.lowest().get() <= cpus::HIGHEST));
        let high = "1,1023,1024,4000".parse().unwrap();
        assert_eq!(reachable(&high), "1,1023".parse().ok());
    }
}
