//! The compiled rules as plain tables, for a datapath outside this crate. For each value of a header field, a table gives
//! the number of the set of rules that accept the value.

use super::matcher::{Nets, Ports, Set};
use super::{Facts, InterfaceName, MAX_RULES, Matcher, Prefix, TunnelNumber};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use core::net::IpAddr;

/// The index of packets without a VLAN tag in [`Tables::vlans`].
pub const NO_VLAN: usize = 4096;

/// The sets for an address or a port: of the rules about this end of a packet, and of those about either end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct End {
    /// The set of the rules about the source (or the destination) alone.
    pub own: u16,
    /// The set of the rules about either end. A packet matches if one of its ends does.
    pub either: u16,
}

/// The tables of both ends, source first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ends<T> {
    /// For each end, the sets of its values.
    pub of: [T; 2],
    /// For each end, the sets of all other packets: addresses in no prefix, packets without ports.
    pub otherwise: [End; 2],
}

/// The tables of the tunnel numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tunnels {
    /// The kind of number, the number, and its set.
    pub of: Vec<(TunnelNumber, u32, u16)>,
    /// The set of all other packets.
    pub otherwise: u16,
}

/// The sets of interfaces that rules name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interfaces {
    /// Each name and its set.
    pub of: Vec<(InterfaceName, u16)>,
    /// The set of all other interfaces.
    pub otherwise: u16,
}

impl Interfaces {
    /// The set of the interface with this name.
    #[must_use]
    pub fn set_of(&self, name: &str) -> u16 {
        let found = self.of.iter().find(|(of, _)| of.as_str() == name);
        found.map_or(self.otherwise, |(_, set)| *set)
    }
}

/// Compiled rules as tables of set numbers. A field that no rule examines has no table.
///
/// A packet matches the first rule that is in the sets of all its fields. Of the two `either` sets of its ends, the rule
/// must be in at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tables {
    /// The sets, with a bit for each rule in order. Set 0 has all rules.
    pub sets: Vec<[u64; MAX_RULES / 64]>,
    /// By IP version: IPv4, IPv6.
    pub versions: Option<[u16; 2]>,
    /// By protocol.
    pub protocols: Option<Box<[u16; 256]>>,
    /// By differentiated services code point.
    pub dscps: Option<[u16; 64]>,
    /// By VLAN id, 0 to 4095, and at [`NO_VLAN`] without a tag.
    pub vlans: Option<Vec<u16>>,
    /// By port, 0 to 65535.
    pub ports: Option<Ends<Vec<End>>>,
    /// By prefix. The longest prefix that contains an address applies.
    pub nets: Option<Ends<Vec<(Prefix, End)>>>,
    /// By the number of the outermost tunnel.
    pub tunnels: Option<Tunnels>,
    /// By the name of the interface.
    pub interfaces: Option<Interfaces>,
}

/// Numbers sets in the order in which they are first requested.
struct Numbers(BTreeMap<Set, u16>, Vec<[u64; MAX_RULES / 64]>);

impl Numbers {
    /// The number of a set. If there are more than 65,536 sets, the others all have the last number; [`Tables::sets`]
    /// shows that.
    fn of(&mut self, set: Set) -> u16 {
        let Numbers(known, sets) = self;
        *known.entry(set).or_insert_with(|| {
            sets.push(set.0);
            (sets.len() - 1).min(usize::from(u16::MAX)) as u16
        })
    }
}

impl Matcher {
    /// The tables of the rules.
    #[must_use]
    pub fn tables(&self) -> Tables {
        let mut numbers = Numbers(BTreeMap::new(), Vec::new());
        numbers.of(self.all);
        let mut of = |set: Set| numbers.of(set);
        let tables = Tables {
            sets: Vec::new(),
            versions: self.versions.as_ref().map(|table| [4, 6].map(|v| of(table.find(Some(v))))),
            protocols: self.protocols.as_ref().map(|table| {
                Box::new(core::array::from_fn(|number| of(table.find(Some(number as u8)))))
            }),
            dscps: self
                .dscps
                .as_ref()
                .map(|table| core::array::from_fn(|number| of(table.find(Some(number as u8))))),
            vlans: self.vlans.as_ref().map(|table| {
                let ids = (0..NO_VLAN as u16).map(|id| table.find(Some(id)));
                ids.chain([table.find(None)]).map(&mut of).collect()
            }),
            ports: self.port_tables(&mut of),
            nets: self.net_tables(&mut of),
            tunnels: self.tunnels.as_ref().map(|table| {
                let kinds = [TunnelNumber::Spi, TunnelNumber::Teid, TunnelNumber::Vni];
                let kind = |number: u8| kinds.into_iter().find(|kind| *kind as u8 == number);
                let values = table
                    .sets
                    .iter()
                    .filter_map(|((number, id), set)| Some((kind(*number)?, *id, of(*set))));
                Tunnels { of: values.collect(), otherwise: of(table.rest) }
            }),
            interfaces: self.interfaces.as_ref().map(|table| Interfaces {
                of: table.sets.iter().map(|(name, set)| (*name, of(*set))).collect(),
                otherwise: of(table.rest),
            }),
        };
        Tables { sets: numbers.1, ..tables }
    }

    fn port_tables(&self, of: &mut impl FnMut(Set) -> u16) -> Option<Ends<Vec<End>>> {
        let [source, destination, either] = &self.ports;
        if source.is_none() && destination.is_none() && either.is_none() {
            return None;
        }
        let mut end = |own: &Option<Ports>| {
            let mut values = vec![End::default(); 1 << 16];
            if let Some(ports) = own {
                ports.each_range(|range, set| {
                    let number = of(set);
                    values[range].iter_mut().for_each(|value| value.own = number);
                });
            }
            if let Some(ports) = either {
                ports.each_range(|range, set| {
                    let number = of(set);
                    values[range].iter_mut().for_each(|value| value.either = number);
                });
            }
            let rest = |ports: &Option<Ports>| ports.as_ref().map(|ports| ports.rest);
            let otherwise = End {
                own: rest(own).map_or(0, &mut *of),
                either: rest(either).map_or(0, &mut *of),
            };
            (values, otherwise)
        };
        let ((sources, no_source), (destinations, no_destination)) =
            (end(source), end(destination));
        Some(Ends { of: [sources, destinations], otherwise: [no_source, no_destination] })
    }

    fn net_tables(&self, of: &mut impl FnMut(Set) -> u16) -> Option<Ends<Vec<(Prefix, End)>>> {
        let [source, destination, either] = &self.nets;
        if source.is_none() && destination.is_none() && either.is_none() {
            return None;
        }
        let mut end = |own: &Option<Nets>| {
            let both = [own, either].into_iter().flatten();
            let mut prefixes: Vec<Prefix> = both.flat_map(|nets| nets.prefixes()).collect();
            prefixes.sort_unstable_by_key(|prefix| (prefix.address, prefix.length));
            prefixes.dedup();
            let mut number = |nets: &Option<Nets>, prefix: &Prefix| {
                nets.as_ref().map_or(0, |nets| of(nets.of_prefix(prefix)))
            };
            let values: Vec<_> = prefixes
                .iter()
                .map(|prefix| {
                    let end = End { own: number(own, prefix), either: number(either, prefix) };
                    (*prefix, end)
                })
                .collect();
            let rest = |nets: &Option<Nets>| nets.as_ref().map(|nets| nets.rest);
            let otherwise = End {
                own: rest(own).map_or(0, &mut *of),
                either: rest(either).map_or(0, &mut *of),
            };
            (values, otherwise)
        };
        let ((sources, no_source), (destinations, no_destination)) =
            (end(source), end(destination));
        Some(Ends { of: [sources, destinations], otherwise: [no_source, no_destination] })
    }
}

impl Tables {
    /// Finds the first rule that matches a packet by the tables alone, as another datapath does. It serves to check such
    /// a datapath: [`Matcher::find`] is faster.
    #[must_use]
    pub fn first(&self, facts: &Facts) -> Option<u16> {
        let set = |number: u16| Set(self.sets[usize::from(number)]);
        let both = |ends: [End; 2]| {
            let either = set(ends[0].either).or(set(ends[1].either));
            set(ends[0].own).and(set(ends[1].own)).and(either)
        };
        let ports = self.ports.as_ref().map(|ports| {
            both(match facts.ports {
                Some([source, destination]) => {
                    [ports.of[0][usize::from(source)], ports.of[1][usize::from(destination)]]
                }
                None => ports.otherwise,
            })
        });
        let nets = self.nets.as_ref().map(|nets| {
            let longest = |side: usize, address: IpAddr| {
                let all = nets.of[side].iter().filter(|(prefix, _)| prefix.contains(address));
                let found = all.max_by_key(|(prefix, _)| prefix.length);
                found.map_or(nets.otherwise[side], |(_, end)| *end)
            };
            both([longest(0, facts.source), longest(1, facts.destination)])
        });
        let version = usize::from(!facts.source.is_ipv4());
        let vlan = facts.vlan.map_or(NO_VLAN, usize::from);
        let tunnel = |tunnels: &Tunnels| {
            let is_it = |(kind, number, _): &&(TunnelNumber, u32, u16)| {
                facts.tunnel == Some((*kind, *number))
            };
            tunnels.of.iter().find(is_it).map_or(tunnels.otherwise, |(_, _, set)| *set)
        };
        let name = facts.interface.as_ref().map_or("", InterfaceName::as_str);
        let numbers = [
            self.versions.as_ref().map(|of| of[version]),
            self.protocols.as_ref().map(|of| of[usize::from(facts.protocol)]),
            self.dscps.as_ref().map(|of| of[usize::from(facts.dscp)]),
            self.vlans.as_ref().map(|of| of[vlan]),
            self.tunnels.as_ref().map(tunnel),
            self.interfaces.as_ref().map(|of| of.set_of(name)),
        ];
        let sets = numbers.into_iter().flatten().map(set).chain(ports).chain(nets);
        sets.fold(set(0), Set::and).first()
    }

    /// Whether a rule reads tunnel numbers.
    #[must_use]
    pub fn reads_tunnels(&self) -> bool {
        self.tunnels.is_some()
    }
}
