//! A flow record as it is written: with the addresses that may be shown, and a hash to join by.

use super::anonymize::Anonymize;
use rxsteer_user::core::FlowKey;
use rxsteer_user::flows::{CpuTotals, FlowRecord};
use siphasher::sip::SipHasher24;
use std::hash::Hasher;
use std::net::IpAddr;

/// A record with its key as it may be shown.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row<'a> {
    /// The flow; its addresses are masked where that is asked for.
    pub(crate) key: FlowKey,
    pub(crate) record: &'a FlowRecord,
}

impl<'a> Row<'a> {
    pub(crate) fn new(record: &'a FlowRecord, anonymize: &Anonymize) -> Row<'a> {
        Row { key: anonymize.key(record.key), record }
    }

    /// The two addresses as text; empty for the key that has none.
    pub(crate) fn addresses(&self) -> [String; 2] {
        let text = |address: Option<IpAddr>| address.map_or_else(String::new, |a| a.to_string());
        [text(self.key.src_addr()), text(self.key.dst_addr())]
    }

    /// What each CPU counted of the flow, in ascending order, so that records can be compared.
    pub(crate) fn per_cpu(&self) -> Vec<CpuTotals> {
        let mut per_cpu = self.record.per_cpu.clone();
        per_cpu.sort_unstable_by_key(|cpu| cpu.cpu);
        per_cpu
    }

    /// Why the flow ended.
    pub(crate) fn end(&self) -> Option<&'static str> {
        self.record.end.map(rxsteer_user::flows::FlowEnd::name)
    }

    /// The flow's hash, as [`hash`] gives it, in hex digits.
    pub(crate) fn hash(&self) -> String {
        format!("{:016x}", hash(self.key))
    }
}

/// What records of all captures, boxes and versions are joined and partitioned by: SipHash-2-4 with
/// a key of zeros over the canonical key, so that both directions of a connection have the same. The
/// hash that packets are steered by would not do: its secret is another in each run.
///
/// The bytes hashed are IP version, protocol, and for each end its address (16 bytes, IPv4 in the
/// first four) and port (big endian), the lower end first.
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

    /// Data sets outlive versions of rxsteer: this number may never change.
    #[test]
    fn the_hash_is_what_it_was_and_the_same_for_both_directions() {
        assert_eq!(format!("{:016x}", hash(key())), "65172979ac0ec451");
        assert_eq!(hash(key()), hash(key().reversed()));
        let crossed = FlowKey { src_port: 443, dst_port: 40000, ..key() };
        assert_ne!(hash(key()), hash(crossed));
    }
}
