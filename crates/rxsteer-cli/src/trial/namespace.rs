//! A veth pair between two network namespaces that belong to threads. When the threads end, the kernel removes the
//! namespaces and the pair. Nothing has a name, so nothing can remain.

use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use nix::sched::{CloneFlags, unshare};
use std::fs::File;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::AsRawFd;

/// Moves this thread into a new network namespace. Needs CAP_SYS_ADMIN.
pub(super) fn enter_new() -> io::Result<()> {
    Ok(unshare(CloneFlags::CLONE_NEWNET)?)
}

/// The network namespace of this thread.
pub(super) fn current() -> io::Result<File> {
    File::open("/proc/thread-self/ns/net")
}

/// The indices of the interfaces, far above those that new namespaces begin with.
pub(super) const NEAR: u32 = 901;
/// See [`NEAR`].
pub(super) const FAR: u32 = 902;

// include/uapi/linux/rtnetlink.h, if.h, if_link.h, if_addr.h and veth.h
const RTM_NEWLINK: u16 = 16;
const RTM_NEWADDR: u16 = 20;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;
const NLM_F_EXCL: u16 = 0x200;
const NLM_F_CREATE: u16 = 0x400;
const NLMSG_ERROR: u16 = 2;
const HEADER: usize = 16;
const IFLA_IFNAME: u16 = 3;
const IFLA_LINKINFO: u16 = 18;
const IFLA_NET_NS_FD: u16 = 28;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_DATA: u16 = 2;
const VETH_INFO_PEER: u16 = 1;
const IFF_UP: u32 = 1;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const AF_INET: u8 = 2;
const PREFIX: u8 = 24;

/// Creates a pair: one end here, the other in `other`.
pub(super) fn add_pair(other: &File) -> io::Result<()> {
    let mut peer = link_header(FAR, 0);
    peer.extend(attribute(IFLA_IFNAME, b"far\0"));
    peer.extend(attribute(IFLA_NET_NS_FD, &other.as_raw_fd().to_ne_bytes()));
    let data = attribute(IFLA_INFO_DATA, &attribute(VETH_INFO_PEER, &peer));
    let info = [attribute(IFLA_INFO_KIND, b"veth\0"), data].concat();
    let mut body = link_header(NEAR, 0);
    body.extend(attribute(IFLA_IFNAME, b"near\0"));
    body.extend(attribute(IFLA_LINKINFO, &info));
    ask(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, &body)
}

/// Gives an interface of this namespace an address in a /24 network, and brings it up.
pub(super) fn bring_up(index: u32, address: Ipv4Addr) -> io::Result<()> {
    let mut body = vec![AF_INET, PREFIX, 0, 0];
    body.extend(index.to_ne_bytes());
    body.extend(attribute(IFA_LOCAL, &address.octets()));
    body.extend(attribute(IFA_ADDRESS, &address.octets()));
    ask(RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL, &body)?;
    ask(RTM_NEWLINK, 0, &link_header(index, IFF_UP))
}

/// `struct ifinfomsg`, with the flags to set.
fn link_header(index: u32, flags: u32) -> Vec<u8> {
    let mut header = vec![0; 4];
    for word in [index, flags, flags] {
        header.extend(word.to_ne_bytes());
    }
    header
}

fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut bytes = ((value.len() + 4) as u16).to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// Sends a request, and waits for its acknowledgement.
fn ask(kind: u16, flags: u16, body: &[u8]) -> io::Result<()> {
    let mut socket = Socket::new(NETLINK_ROUTE)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    let mut message = ((HEADER + body.len()) as u32).to_ne_bytes().to_vec();
    message.extend(kind.to_ne_bytes());
    message.extend((NLM_F_REQUEST | NLM_F_ACK | flags).to_ne_bytes());
    // Sequence number and port.
    message.extend([1u32, 0].map(u32::to_ne_bytes).concat());
    message.extend(body);
    socket.send(&message, 0)?;
    let (answer, _) = socket.recv_from_full()?;
    match error_in(&answer) {
        Some(0) => Ok(()),
        Some(error) => Err(io::Error::from_raw_os_error(-error)),
        None => Err(io::Error::new(io::ErrorKind::InvalidData, "netlink did not acknowledge")),
    }
}

/// The error code in an acknowledgement; 0 means success.
fn error_in(answer: &[u8]) -> Option<i32> {
    let kind = u16::from_ne_bytes(answer.get(4..6)?.try_into().ok()?);
    let error = i32::from_ne_bytes(answer.get(HEADER..HEADER + 4)?.try_into().ok()?);
    (kind == NLMSG_ERROR).then_some(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_padded_and_nested() {
        assert_eq!(attribute(3, b"near\0").len(), 12);
        let nested = attribute(2, &attribute(1, b"x"));
        assert_eq!(nested[..2], 12u16.to_ne_bytes());
        assert_eq!(nested[4..6], 5u16.to_ne_bytes());
    }

    #[test]
    fn acknowledgements_are_read() {
        let mut answer = vec![0; 36];
        answer[4..6].copy_from_slice(&NLMSG_ERROR.to_ne_bytes());
        assert_eq!(error_in(&answer), Some(0));
        answer[HEADER..HEADER + 4].copy_from_slice(&(-17i32).to_ne_bytes());
        assert_eq!(error_in(&answer), Some(-17));
        assert_eq!(error_in(&answer[..18]), None);
    }
}
