//! Generic netlink. The kernel assigns the numbers of families when it starts, so a request by name finds them.

use super::{Netlink, Query, attribute, emitted};
use netlink_packet_core::DefaultNla;
use netlink_sys::protocols::NETLINK_GENERIC;
use std::io;

// include/uapi/linux/genetlink.h
const GENL_ID_CTRL: u16 = 16;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;
const HEADER: usize = 4;

/// A family of generic netlink.
pub(super) struct Family {
    netlink: Netlink,
    id: u16,
}

impl Family {
    /// Finds the family `name`; an error if this kernel does not have it.
    pub(super) fn open(name: &str) -> io::Result<Family> {
        let mut netlink = Netlink::open(NETLINK_GENERIC)?;
        let mut value = name.as_bytes().to_vec();
        value.push(0);
        let body = request(CTRL_CMD_GETFAMILY, &[DefaultNla::new(CTRL_ATTR_FAMILY_NAME, value)]);
        let answers = netlink.query(Query::One, GENL_ID_CTRL, &body)?;
        let id = answers.iter().find_map(|answer| {
            let value = attribute(answer.get(HEADER..)?, CTRL_ATTR_FAMILY_ID)?;
            Some(u16::from_ne_bytes(value.try_into().ok()?))
        });
        let id = id.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        Ok(Family { netlink, id })
    }

    /// Sends `command` with these attributes; returns the attributes of the first answer.
    pub(super) fn query(&mut self, command: u8, with: &[DefaultNla]) -> io::Result<Vec<u8>> {
        let answers = self.exchange(Query::One, command, with)?;
        answers.into_iter().next().ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
    }

    /// Sends `command` with these attributes; returns the attributes of each entry of the listing.
    pub(super) fn list(&mut self, command: u8, with: &[DefaultNla]) -> io::Result<Vec<Vec<u8>>> {
        self.exchange(Query::All, command, with)
    }

    fn exchange(
        &mut self,
        which: Query,
        command: u8,
        with: &[DefaultNla],
    ) -> io::Result<Vec<Vec<u8>>> {
        let answers = self.netlink.query(which, self.id, &request(command, with))?;
        let body = |answer: Vec<u8>| answer.get(HEADER..).unwrap_or_default().to_vec();
        Ok(answers.into_iter().map(body).collect())
    }
}

fn request(command: u8, with: &[DefaultNla]) -> Vec<u8> {
    // Command, version of the family's interface, two bytes reserved.
    let mut body = vec![command, 1, 0, 0];
    body.extend(emitted(with));
    body
}
