//! News of the host: interfaces that come, go or change, and CPUs that do.

use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use rxsteer_host::cpus;
use rxsteer_user::core::{CpuId, CpuSet};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;

/// RTNLGRP_LINK (include/uapi/linux/rtnetlink.h).
const LINK_GROUP: u32 = 1;

/// Notices when an interface changes. What changed is then looked up: news can be lost when many
/// come at once, the state can't.
pub(crate) struct LinkNews(Socket);

impl LinkNews {
    /// `None` where the kernel does not say.
    pub(crate) fn open() -> Option<LinkNews> {
        let mut socket = Socket::new(NETLINK_ROUTE).ok()?;
        socket.bind(&SocketAddr::new(0, 0)).ok()?;
        socket.add_membership(LINK_GROUP).ok()?;
        socket.set_non_blocking(true).ok()?;
        Some(LinkNews(socket))
    }

    /// Whether there is any; forgets it.
    pub(crate) fn take(&self) -> bool {
        let mut any = false;
        let mut buffer = Vec::with_capacity(64 << 10);
        loop {
            buffer.clear();
            match self.0.recv(&mut buffer, 0) {
                Ok(_) => any = true,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return any,
                // Some was lost, so there was some.
                Err(_) => return true,
            }
        }
    }
}

impl AsFd for LinkNews {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The CPUs online that frames can be sent to.
pub(crate) fn online() -> Option<CpuSet> {
    reachable(&cpus::online()?)
}

/// The CPUs that could be.
pub(crate) fn possible() -> Option<CpuSet> {
    reachable(&cpus::possible()?)
}

fn reachable(cpus: &CpuSet) -> Option<CpuSet> {
    CpuSet::new(cpus.iter().filter(|cpu: &CpuId| cpu.get() <= cpus::HIGHEST))
}

/// The network namespace of this process, by its inode.
pub(crate) fn network_namespace() -> Option<u64> {
    Some(std::fs::metadata("/proc/self/ns/net").ok()?.ino())
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
