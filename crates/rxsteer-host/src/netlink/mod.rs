//! Queries the kernel over netlink: links and namespaces (route), offloads (ethtool), XDP features (netdev).
//!
//! This code reads messages attribute by attribute, by number, and skips unknown ones: other attributes of newer or
//! older kernels must not make the needed ones unreadable. Only [`ethtool::set_features`] changes anything.

pub(crate) mod ethtool;
mod generic;
pub(crate) mod netdev;
pub(crate) mod route;

use netlink_packet_core::{
    DefaultNla, Emitable, NLA_HEADER_SIZE, NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST,
    NetlinkDeserializable, NetlinkHeader, NetlinkMessage, NetlinkPayload, NetlinkSerializable,
    NlasIterator,
};
use netlink_sys::{Socket, SocketAddr};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use std::convert::Infallible;
use std::io;
use std::time::Duration;

/// How often a listing is requested again if it changed while it was read.
const ATTEMPTS: usize = 8;

/// How long to wait for an answer.
const REPLY_TIMEOUT: Duration = Duration::from_secs(2);

/// The kernel's mark of a listing that changed meanwhile (include/uapi/linux/netlink.h).
const NLM_F_DUMP_INTR: u16 = 16;

/// The kind of a request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Query {
    One,
    All,
}

/// A message whose content other code reads.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Raw {
    kind: u16,
    bytes: Vec<u8>,
}

impl NetlinkSerializable for Raw {
    fn message_type(&self) -> u16 {
        self.kind
    }

    fn buffer_len(&self) -> usize {
        self.bytes.len()
    }

    fn serialize(&self, buffer: &mut [u8]) {
        buffer.copy_from_slice(&self.bytes);
    }
}

impl NetlinkDeserializable for Raw {
    type Error = Infallible;

    fn deserialize(header: &NetlinkHeader, payload: &[u8]) -> Result<Raw, Infallible> {
        Ok(Raw { kind: header.message_type, bytes: payload.to_vec() })
    }
}

/// A netlink socket.
struct Netlink {
    socket: Socket,
    sequence: u32,
}

impl Netlink {
    fn open(protocol: isize) -> io::Result<Netlink> {
        let mut socket = Socket::new(protocol)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        // The kernel answers at once, but a substitute for it (a sandbox) may not know the request.
        set_socket_timeout(&socket, Timeout::Recv, Some(REPLY_TIMEOUT))?;
        Ok(Netlink { socket, sequence: 0 })
    }

    /// Sends one request and returns the content of all answers.
    fn query(&mut self, which: Query, kind: u16, bytes: &[u8]) -> io::Result<Vec<Vec<u8>>> {
        for _ in 1..ATTEMPTS {
            if let (answers, false) = self.query_once(which, kind, bytes)? {
                return Ok(answers);
            }
        }
        // The listing keeps changing: the present answer is as good as any.
        self.query_once(which, kind, bytes).map(|(answers, _)| answers)
    }

    /// Also returns whether the listing changed while it was read.
    fn query_once(
        &mut self,
        which: Query,
        kind: u16,
        bytes: &[u8],
    ) -> io::Result<(Vec<Vec<u8>>, bool)> {
        self.sequence += 1;
        let mut message = NetlinkMessage::new(
            NetlinkHeader::default(),
            NetlinkPayload::InnerMessage(Raw { kind, bytes: bytes.to_vec() }),
        );
        // The answers always have an end: the end of the listing, or the acknowledgement.
        message.header.flags =
            NLM_F_REQUEST | if which == Query::All { NLM_F_DUMP } else { NLM_F_ACK };
        message.header.sequence_number = self.sequence;
        message.finalize();
        let mut buffer = vec![0; message.buffer_len()];
        message.serialize(&mut buffer);
        self.socket.send(&buffer, 0)?;
        self.answers()
    }

    fn answers(&mut self) -> io::Result<(Vec<Vec<u8>>, bool)> {
        let (mut answers, mut changed) = (Vec::new(), false);
        loop {
            let (datagram, _) = self.socket.recv_from_full()?;
            let mut rest = &datagram[..];
            while !rest.is_empty() {
                let message = NetlinkMessage::<Raw>::deserialize(rest).map_err(unreadable)?;
                let length = (message.header.length as usize).next_multiple_of(4);
                rest = rest.get(length..).unwrap_or(&[]);
                if message.header.sequence_number != self.sequence {
                    continue;
                }
                changed |= message.header.flags & NLM_F_DUMP_INTR != 0;
                match message.payload {
                    NetlinkPayload::InnerMessage(raw) => answers.push(raw.bytes),
                    NetlinkPayload::Done(_) => return Ok((answers, changed)),
                    NetlinkPayload::Error(error) if error.code.is_none() => {
                        return Ok((answers, changed));
                    }
                    NetlinkPayload::Error(error) => return Err(error.to_io()),
                    _ => {}
                }
            }
        }
    }
}

fn unreadable(error: impl std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error.to_string())
}

/// The attributes in `bytes` as (number, value), up to the first one that cannot be parsed.
fn attributes(bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    NlasIterator::new(bytes).map_while(Result::ok).map(|attribute| {
        let (kind, length) = (attribute.kind(), usize::from(attribute.length()));
        (kind, attribute.into_inner().get(NLA_HEADER_SIZE..length).unwrap_or_default())
    })
}

/// The value of the first attribute with this number.
fn attribute(bytes: &[u8], number: u16) -> Option<&[u8]> {
    attributes(bytes).find(|(kind, _)| *kind == number).map(|(_, value)| value)
}

/// The attributes as bytes to send.
fn emitted(attributes: &[DefaultNla]) -> Vec<u8> {
    let mut bytes = vec![0; attributes.buffer_len()];
    attributes.emit(&mut bytes);
    bytes
}

fn u32_of(value: &[u8]) -> Option<u32> {
    Some(u32::from_ne_bytes(value.try_into().ok()?))
}

/// A number of 32 or 64 bits (NLA_UINT).
fn uint_of(value: &[u8]) -> Option<u64> {
    let long = || Some(u64::from_ne_bytes(value.try_into().ok()?));
    u32_of(value).map(u64::from).or_else(long)
}

fn text_of(value: &[u8]) -> String {
    let end = value.iter().position(|byte| *byte == 0).unwrap_or(value.len());
    String::from_utf8_lossy(&value[..end]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_round_trip_and_a_cut_off_one_ends_them() {
        let bytes = emitted(&[
            DefaultNla::new(1, b"veth0\0".to_vec()),
            DefaultNla::new(5, 7u32.to_ne_bytes().to_vec()),
        ]);
        assert_eq!(attribute(&bytes, 1).map(text_of).as_deref(), Some("veth0"));
        assert_eq!(attribute(&bytes, 5).and_then(u32_of), Some(7));
        assert_eq!(attribute(&bytes, 2), None);
        for length in 0..bytes.len() {
            assert_eq!(attribute(&bytes[..length], 5), None, "{length} bytes");
        }
    }
}
