//! A flow record as it is written: the fields that distinguish flows, masked addresses, and a hash for joins.

use crate::anonymize::Anonymize;
use rxsteer_core::FlowKey;
use rxsteer_flows::{CpuTotals, FlowMask, FlowRecord};
use siphasher::sip::SipHasher24;
use std::hash::Hasher;
use std::net::IpAddr;

/// Which part of a flow's key is shown.
pub struct View {
    /// The fields that distinguish flows. The other fields are omitted, not shown as 0.
    pub mask: FlowMask,
    /// How addresses are masked.
    pub anonymize: Anonymize,
    /// The interface of each RX queue, where packets come from live interfaces.
    pub interfaces: Vec<Interface>,
}

/// An interface that packets are received on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its name at that time.
    pub name: String,
    /// Its index (`ifindex`); 0 if it is not known.
    pub index: u32,
}

impl View {
    /// The record in the form that may be shown.
    pub fn row<'a>(&'a self, record: &'a FlowRecord) -> Row<'a> {
        // The mask comes last: pseudonyms of networks, and of addresses that were left out, have other bits set.
        let key = self.mask.apply(&self.anonymize.key(record.key));
        let interface = self.interfaces.get(usize::from(record.totals.rx_queue));
        Row { key, mask: &self.mask, record, interface }
    }

    /// The record of a flow of an interface.
    pub fn row_of<'a>(&'a self, record: &'a FlowRecord, interface: &'a Interface) -> Row<'a> {
        Row { interface: Some(interface), ..self.row(record) }
    }
}

/// A record with its key in the form that may be shown.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    /// The key of the flow, with masked addresses if the mode requires that.
    pub(crate) key: FlowKey,
    mask: &'a FlowMask,
    /// The record itself, with its key as counted.
    pub record: &'a FlowRecord,
    interface: Option<&'a Interface>,
}

/// One end of a flow, limited to the fields that distinguish flows.
#[derive(Clone, Copy, Debug)]
pub struct End {
    /// The address, or its network.
    pub address: Option<IpAddr>,
    /// How many bits of the address distinguish flows.
    pub prefix: u32,
    /// The port.
    pub port: Option<u16>,
}

impl Row<'_> {
    /// The key of the flow in the form that may be shown. Fields that do not distinguish flows are 0.
    pub fn key(&self) -> FlowKey {
        self.key
    }

    /// The source and the destination.
    pub fn ends(&self) -> [End; 2] {
        let Row { key, mask, .. } = self;
        let end = |address: Option<IpAddr>, prefix, port| End {
            address: address.filter(|_| prefix > 0),
            prefix,
            port,
        };
        let src_port = mask.has_src_port().then_some(key.src_port);
        let dst_port = mask.has_dst_port().then_some(key.dst_port);
        [
            end(key.src_addr(), mask.src_prefix(key.ip_version), src_port),
            end(key.dst_addr(), mask.dst_prefix(key.ip_version), dst_port),
        ]
    }

    /// The protocol, if it distinguishes flows.
    pub fn protocol(&self) -> Option<u8> {
        self.mask.has_protocol().then_some(self.key.protocol)
    }

    /// The counts of each CPU, in ascending order of CPUs, so that records can be compared.
    pub fn per_cpu(&self) -> Vec<CpuTotals> {
        let mut per_cpu = self.record.per_cpu.clone();
        per_cpu.sort_unstable_by_key(|cpu| cpu.cpu);
        per_cpu
    }

    /// The name of the interface on which the flow's first packet was received, if it is known.
    pub fn interface(&self) -> Option<&str> {
        self.interface.map(|interface| interface.name.as_str()).filter(|name| !name.is_empty())
    }

    /// The index of that interface; 0 if it is not known.
    pub(crate) fn interface_index(&self) -> u32 {
        self.interface.map_or(0, |interface| interface.index)
    }

    /// Why the flow ended.
    pub fn end(&self) -> Option<&'static str> {
        self.record.end.map(rxsteer_flows::FlowEnd::name)
    }

    /// The hash of the flow, as the function `hash` computes it, in hex digits.
    pub fn hash(&self) -> String {
        format!("{:016x}", hash(self.key))
    }
}

/// The hash for joining and partitioning records of all captures, machines and versions: SipHash-2-4 with a key of
/// zeros over the canonical key, so that both directions of a connection have the same hash. The steering hash is
/// not suitable: its secret differs in each run.
///
/// The hashed bytes are the IP version, the protocol, and for each end its address (16 bytes, IPv4 in the first
/// four) and its port (big endian), the lower end first.
pub(crate) fn hash(key: FlowKey) -> u64 {
    let key = key.canonical();
    let mut hasher = SipHasher24::new();
    hasher.write(&[key.ip_version, key.protocol]);
    for (address, port) in [(key.src, key.src_port), (key.dst, key.dst_port)] {
        hasher.write(&address);
        hasher.write(&port.to_be_bytes());
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> FlowKey {
        let mut key = FlowKey { src_port: 40000, dst_port: 443, ..FlowKey::default() };
        (key.protocol, key.ip_version) = (6, 4);
        key.src[..4].copy_from_slice(&[10, 0, 0, 1]);
        key.dst[..4].copy_from_slice(&[192, 0, 2, 7]);
        key
    }

    /// This also holds for pseudonyms, which set bits that do not distinguish flows.
    #[test]
    fn what_does_not_count_is_not_shown_and_networks_stay_networks() {
        let mut record = FlowRecord::default();
        record.key = key();
        for mode in [None, Some("pseudonym".parse().unwrap())] {
            let anonymize = Anonymize::new(mode, None).unwrap();
            let view = View {
                mask: "src/24,dst-port".parse().unwrap(),
                anonymize,
                interfaces: Vec::new(),
            };
            let row = view.row(&record);
            let [src, dst] = row.ends();
            assert!(src.address.unwrap().to_string().ends_with(".0"), "{src:?}");
            assert_eq!((src.prefix, src.port), (24, None));
            assert_eq!((dst.address, dst.port), (None, Some(443)));
            assert_eq!((row.protocol(), row.key.dst), (None, [0; 16]));
        }
    }

    /// Data sets outlive versions of rxsteer: this number must never change.
    #[test]
    fn hash_is_what_it_was_and_the_same_for_both_directions() {
        assert_eq!(format!("{:016x}", hash(key())), "65172979ac0ec451");
        assert_eq!(hash(key()), hash(key().reversed()));
        let crossed = FlowKey { src_port: 443, dst_port: 40000, ..key() };
        assert_ne!(hash(key()), hash(crossed));
    }
}
