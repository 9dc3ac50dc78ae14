//! Compiled rules: they find the first rule that matches a packet.

use super::{Facts, InterfaceName, MAX_RULES, PacketRule, Prefix, Side, Term, TunnelNumber};
use crate::sync::{AtomicU64, Ordering};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::ops::RangeInclusive;

/// A set of rules, with a bit for each rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Set(pub(super) [u64; MAX_RULES / 64]);

impl Set {
    const NONE: Set = Set([0; MAX_RULES / 64]);

    fn of(rules: &[PacketRule], is_in: impl Fn(&PacketRule) -> bool) -> Set {
        let mut set = Set::NONE;
        for (index, rule) in rules.iter().enumerate() {
            set.0[index / 64] |= u64::from(is_in(rule)) << (index % 64);
        }
        set
    }

    #[inline(always)]
    pub(super) fn and(self, other: Set) -> Set {
        Set(core::array::from_fn(|word| self.0[word] & other.0[word]))
    }

    #[inline(always)]
    pub(super) fn or(self, other: Set) -> Set {
        Set(core::array::from_fn(|word| self.0[word] | other.0[word]))
    }

    #[inline(always)]
    pub(super) fn first(self) -> Option<u16> {
        let word = self.0.iter().position(|word| *word != 0)?;
        Some((word * 64) as u16 + self.0[word].trailing_zeros() as u16)
    }
}

/// The values of a field, sorted, each with its set of rules; all other values have the set `rest`.
#[derive(Debug)]
pub(super) struct Values<K> {
    pub(super) sets: Box<[(K, Set)]>,
    pub(super) rest: Set,
}

impl<K: Copy + Ord> Values<K> {
    /// `value_of` returns the value that a rule requires of the field; `None` if it requires none.
    fn new(rules: &[PacketRule], value_of: impl Fn(&Term) -> Option<K>) -> Option<Values<K>> {
        let required = |rule: &PacketRule| rule.terms.iter().find_map(&value_of);
        let mut keys: Vec<K> = rules.iter().filter_map(required).collect();
        keys.sort_unstable();
        keys.dedup();
        let set = |key: K| Set::of(rules, |rule| required(rule).is_none_or(|of| of == key));
        (!keys.is_empty()).then(|| Values {
            sets: keys.iter().map(|key| (*key, set(*key))).collect(),
            rest: Set::of(rules, |rule| required(rule).is_none()),
        })
    }

    #[inline(always)]
    pub(super) fn find(&self, value: Option<K>) -> Set {
        let index = value.and_then(|of| self.sets.binary_search_by_key(&of, |(key, _)| *key).ok());
        index.map_or(self.rest, |index| self.sets[index].1)
    }
}

/// Ranges of ports: all ports from one start to the next have the same set of rules.
#[derive(Debug)]
pub(super) struct Ports {
    side: Side,
    ranges: Box<[(u16, Set)]>,
    pub(super) rest: Set,
}

impl Ports {
    fn new(rules: &[PacketRule], side: Side) -> Option<Ports> {
        let required = |rule: &PacketRule| -> Option<Vec<(u16, u16)>> {
            rule.terms.iter().find_map(|term| match term {
                Term::Port(of, ranges) if *of == side => Some(ranges.clone()),
                _ => None,
            })
        };
        let all: Vec<(u16, u16)> = rules.iter().filter_map(required).flatten().collect();
        let ends = all.iter().filter_map(|(_, high)| high.checked_add(1));
        let mut starts: Vec<u16> = all.iter().map(|(low, _)| *low).chain(ends).chain([0]).collect();
        starts.sort_unstable();
        starts.dedup();
        let has = |rule: &PacketRule, port: u16| {
            let of = required(rule);
            of.is_none_or(|of| of.iter().any(|(low, high)| (*low..=*high).contains(&port)))
        };
        (!all.is_empty()).then(|| Ports {
            side,
            ranges: starts
                .iter()
                .map(|port| (*port, Set::of(rules, |rule| has(rule, *port))))
                .collect(),
            rest: Set::of(rules, |rule| required(rule).is_none()),
        })
    }

    /// Calls `each` with each range of ports and its rules, in ascending order.
    pub(super) fn each_range(&self, mut each: impl FnMut(RangeInclusive<usize>, Set)) {
        let starts = self.ranges.iter().map(|(start, _)| usize::from(*start));
        let ends = starts.skip(1).map(|next| next - 1).chain([usize::from(u16::MAX)]);
        for ((start, set), end) in self.ranges.iter().zip(ends) {
            each(usize::from(*start)..=end, *set);
        }
    }

    #[inline(always)]
    fn of_port(&self, port: u16) -> Set {
        // The first range starts at 0.
        let next = self.ranges.partition_point(|(start, _)| *start <= port);
        self.ranges[next.saturating_sub(1)].1
    }

    #[inline(always)]
    fn find(&self, ports: Option<[u16; 2]>) -> Set {
        let Some([source, destination]) = ports else { return self.rest };
        match self.side {
            Side::Source => self.of_port(source),
            Side::Destination => self.of_port(destination),
            Side::Either => self.of_port(source).or(self.of_port(destination)),
        }
    }
}

/// The networks of one length, by their first address.
type OfLength<K> = (u8, Box<[(K, Set)]>);
type ByLength<K> = Box<[OfLength<K>]>;

/// Networks by length, longest first. The longest network that contains an address has the rules of all that contain it.
#[derive(Debug)]
pub(super) struct Nets {
    side: Side,
    v4: ByLength<u32>,
    v6: ByLength<u128>,
    pub(super) rest: Set,
}

impl Nets {
    fn new(rules: &[PacketRule], side: Side) -> Option<Nets> {
        let required = |rule: &PacketRule| -> Option<Prefix> {
            rule.terms.iter().find_map(|term| match term {
                Term::Net(of, prefix) if *of == side => Some(*prefix),
                _ => None,
            })
        };
        let all: Vec<Prefix> = rules.iter().filter_map(required).collect();
        let set = |prefix: &Prefix| {
            Set::of(rules, |rule| required(rule).is_none_or(|of| of.covers(prefix)))
        };
        let v4 = |prefix: &Prefix| match prefix.address {
            IpAddr::V4(address) => Some((prefix.length, address.to_bits(), set(prefix))),
            IpAddr::V6(_) => None,
        };
        let v6 = |prefix: &Prefix| match prefix.address {
            IpAddr::V6(address) => Some((prefix.length, address.to_bits(), set(prefix))),
            IpAddr::V4(_) => None,
        };
        (!all.is_empty()).then(|| Nets {
            side,
            v4: by_length(all.iter().filter_map(v4).collect()),
            v6: by_length(all.iter().filter_map(v6).collect()),
            rest: Set::of(rules, |rule| required(rule).is_none()),
        })
    }

    /// The networks of all rules.
    pub(super) fn prefixes(&self) -> impl Iterator<Item = Prefix> + '_ {
        let v4 = self.v4.iter().flat_map(|(length, nets)| {
            nets.iter().map(|(net, _)| Prefix {
                address: Ipv4Addr::from_bits(*net).into(),
                length: *length,
            })
        });
        let v6 = self.v6.iter().flat_map(|(length, nets)| {
            nets.iter().map(|(net, _)| Prefix {
                address: Ipv6Addr::from_bits(*net).into(),
                length: *length,
            })
        });
        v4.chain(v6)
    }

    /// The rules for the addresses of a network, outside of smaller networks of rules.
    pub(super) fn of_prefix(&self, prefix: &Prefix) -> Set {
        let found = match prefix.address {
            IpAddr::V4(address) => longest_up_to(&self.v4, prefix.length, |length| {
                address.to_bits() & u32::MAX.checked_shl(32 - length).unwrap_or(0)
            }),
            IpAddr::V6(address) => longest_up_to(&self.v6, prefix.length, |length| {
                address.to_bits() & u128::MAX.checked_shl(128 - length).unwrap_or(0)
            }),
        };
        found.unwrap_or(self.rest)
    }

    #[inline(always)]
    fn of_address(&self, address: IpAddr) -> Set {
        let found = match address {
            IpAddr::V4(address) => longest(&self.v4, |length| {
                address.to_bits() & u32::MAX.checked_shl(32 - length).unwrap_or(0)
            }),
            IpAddr::V6(address) => longest(&self.v6, |length| {
                address.to_bits() & u128::MAX.checked_shl(128 - length).unwrap_or(0)
            }),
        };
        found.unwrap_or(self.rest)
    }

    #[inline(always)]
    fn find(&self, facts: &Facts) -> Set {
        match self.side {
            Side::Source => self.of_address(facts.source),
            Side::Destination => self.of_address(facts.destination),
            Side::Either => self.of_address(facts.source).or(self.of_address(facts.destination)),
        }
    }
}

fn by_length<K: Copy + Ord>(mut all: Vec<(u8, K, Set)>) -> ByLength<K> {
    all.sort_unstable_by_key(|(length, key, _)| (core::cmp::Reverse(*length), *key));
    all.dedup_by_key(|(length, key, _)| (*length, *key));
    let lengths = all.chunk_by(|(a, ..), (b, ..)| a == b);
    lengths.map(|of| (of[0].0, of.iter().map(|(_, key, set)| (*key, *set)).collect())).collect()
}

/// The same among networks with at most `most` leading bits.
fn longest_up_to<K: Copy + Ord>(
    nets: &[OfLength<K>],
    most: u8,
    masked: impl Fn(u32) -> K,
) -> Option<Set> {
    let first = nets.iter().position(|(length, _)| *length <= most)?;
    longest(&nets[first..], masked)
}

/// The set of the longest network; `masked` cuts the address to a length.
#[inline(always)]
fn longest<K: Copy + Ord>(nets: &[OfLength<K>], masked: impl Fn(u32) -> K) -> Option<Set> {
    nets.iter().find_map(|(length, nets)| {
        let key = masked(u32::from(*length));
        Some(nets[nets.binary_search_by_key(&key, |(net, _)| *net).ok()?].1)
    })
}

/// Compiled rules, and how many packets each matched.
#[derive(Debug)]
pub struct Matcher {
    rules: Box<[PacketRule]>,
    pub(super) all: Set,
    pub(super) versions: Option<Values<u8>>,
    pub(super) protocols: Option<Values<u8>>,
    pub(super) nets: [Option<Nets>; 3],
    pub(super) ports: [Option<Ports>; 3],
    pub(super) vlans: Option<Values<u16>>,
    pub(super) dscps: Option<Values<u8>>,
    pub(super) tunnels: Option<Values<(u8, u32)>>,
    pub(super) interfaces: Option<Values<InterfaceName>>,
    /// For each rule, the packets that it matched, by producer. Matchers with the same rule share them.
    hits: Box<[Arc<[Hits]>]>,
}

/// The packets of one producer, which alone writes them, on a separate cache line.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Hits(AtomicU64);

impl Matcher {
    /// Compiles rules for up to `producers` producers, numbered from 0. Rules beyond [`MAX_RULES`] are ignored;
    /// [`crate::SteerConfig::check`] refuses them.
    #[must_use]
    pub fn new(rules: &[PacketRule], producers: u16) -> Matcher {
        Matcher::next(rules, None, producers)
    }

    /// Compiles rules that replace those of `old`: a rule that is in both keeps its count.
    fn next(rules: &[PacketRule], old: Option<&Matcher>, producers: u16) -> Matcher {
        let rules = &rules[..rules.len().min(MAX_RULES)];
        let sides = [Side::Source, Side::Destination, Side::Either];
        let number = |of: fn(&Term) -> Option<u8>| Values::new(rules, of);
        let mut kept: Vec<(&PacketRule, &Arc<[Hits]>)> =
            old.into_iter().flat_map(|old| old.rules.iter().zip(&old.hits)).collect();
        let mut hits_of = |rule: &PacketRule| match kept.iter().position(|(old, _)| *old == rule) {
            Some(at) => Arc::clone(kept.remove(at).1),
            None => (0..producers).map(|_| Hits::default()).collect(),
        };
        Matcher {
            all: Set::of(rules, |_| true),
            versions: number(|term| match term {
                Term::Version(version) => Some(*version),
                _ => None,
            }),
            protocols: number(|term| match term {
                Term::Protocol(protocol) => Some(*protocol),
                _ => None,
            }),
            nets: sides.map(|side| Nets::new(rules, side)),
            ports: sides.map(|side| Ports::new(rules, side)),
            vlans: Values::new(rules, |term| match term {
                Term::Vlan(vlan) => Some(*vlan),
                _ => None,
            }),
            dscps: number(|term| match term {
                Term::Dscp(dscp) => Some(*dscp),
                _ => None,
            }),
            tunnels: Values::new(rules, |term| match term {
                Term::Tunnel(kind, number) => Some((*kind as u8, *number)),
                _ => None,
            }),
            interfaces: Values::new(rules, |term| match term {
                Term::Interface(name) => Some(*name),
                _ => None,
            }),
            hits: rules.iter().map(&mut hits_of).collect(),
            rules: rules.into(),
        }
    }

    /// The compiled rules, if there are any; `old` if it has the same rules.
    pub(crate) fn of(
        rules: &[PacketRule],
        old: Option<&Arc<Matcher>>,
        producers: u16,
    ) -> Option<Arc<Matcher>> {
        match old {
            Some(old) if old.rules() == rules => Some(Arc::clone(old)),
            old => {
                let old = old.map(|old| &**old);
                (!rules.is_empty()).then(|| Arc::new(Matcher::next(rules, old, producers)))
            }
        }
    }

    /// The rules, in order.
    #[must_use]
    pub fn rules(&self) -> &[PacketRule] {
        &self.rules
    }

    /// Whether a rule reads tunnel numbers, so that [`Facts::tunnel`] is needed.
    #[must_use]
    pub fn reads_tunnels(&self) -> bool {
        self.tunnels.is_some()
    }

    /// The index of the first rule that matches.
    #[must_use]
    pub fn find(&self, facts: &Facts) -> Option<u16> {
        let mut set = self.all;
        let version = if facts.source.is_ipv4() { 4 } else { 6 };
        let mut keep = |of: Option<Set>| {
            if let Some(of) = of {
                set = set.and(of);
            }
        };
        keep(self.versions.as_ref().map(|of| of.find(Some(version))));
        keep(self.protocols.as_ref().map(|of| of.find(Some(facts.protocol))));
        for nets in &self.nets {
            keep(nets.as_ref().map(|of| of.find(facts)));
        }
        for ports in &self.ports {
            keep(ports.as_ref().map(|of| of.find(facts.ports)));
        }
        keep(self.vlans.as_ref().map(|of| of.find(facts.vlan)));
        keep(self.dscps.as_ref().map(|of| of.find(Some(facts.dscp))));
        let number = facts.tunnel.map(|(kind, number): (TunnelNumber, u32)| (kind as u8, number));
        keep(self.tunnels.as_ref().map(|of| of.find(number)));
        keep(self.interfaces.as_ref().map(|of| of.find(facts.interface)));
        set.first()
    }

    /// Counts a packet of `producer` that the rule with this index matched.
    #[inline(always)]
    pub fn count(&self, producer: u16, rule: u16) {
        let of_rule = self.hits.get(usize::from(rule));
        if let Some(Hits(hits)) = of_rule.and_then(|hits| hits.get(usize::from(producer))) {
            // ORDER: Relaxed; only this producer writes it, and the number carries all of the information.
            hits.store(hits.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
    }

    /// How many packets each rule matched since it was set.
    #[must_use]
    pub fn hits(&self) -> Vec<u64> {
        // ORDER: Relaxed; as above.
        let read = |Hits(hits): &Hits| hits.load(Ordering::Relaxed);
        self.hits.iter().map(|of_rule| of_rule.iter().map(read).sum()).collect()
    }
}
