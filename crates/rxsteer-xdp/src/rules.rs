//! Writes the rules before the policy to the maps of the programs: the counterpart of `bpf/steer_match.h`.
//!
//! The tables are the core's ([`Tables`]). Each of the two configurations has its own tables, so that those of the inactive
//! one can be written.

use crate::abi::{
    Array, CONFIG_FLUSHING, RULE_COUNTERS, RULE_SETS, rule_fields as fields, steer_matcher,
    steer_net_key, steer_rule_end, steer_rule_hits, steer_tunnel_key, zeroed,
};
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapMut};
use rxsteer_core::matching::{
    End, Ends, Interfaces, Matcher, PacketRule, Prefix, Tables, TunnelNumber, Tunnels,
};
use rxsteer_packet::TunnelKind;
use std::array::from_fn;
use std::io;
use std::mem::offset_of;
use std::net::IpAddr;

const _: () = assert!(offset_of!(steer_matcher, interface).is_multiple_of(8), "see name_interface");

/// The number of bits before the address in a key of the trie.
const BITS_BEFORE_ADDRESS: u32 = 32;

/// The compiled rules of `rules`; none without rules.
pub(crate) fn tables_of(rules: &[PacketRule]) -> Option<Tables> {
    (!rules.is_empty()).then(|| Matcher::new(rules, 0).tables())
}

/// Whether there is room for the tables of `rules`; if not, the number of sets that they need.
pub(crate) fn fit(rules: &[PacketRule]) -> Result<(), usize> {
    let sets = tables_of(rules).map_or(0, |tables| tables.sets.len());
    if sets <= RULE_SETS { Ok(()) } else { Err(sets) }
}

/// The rules of one configuration, as they are in the maps.
#[derive(Debug, Default)]
struct Part {
    /// Each rule with its counter.
    rules: Vec<(PacketRule, u16)>,
    nets: Vec<steer_net_key>,
    tunnels: Vec<steer_tunnel_key>,
    /// The sets of interfaces, where rules name interfaces.
    interfaces: Option<Interfaces>,
    /// The names of interfaces that these sets were written for, by number.
    names: Vec<String>,
}

impl Part {
    fn has(&self, rules: &[PacketRule], names: &[String]) -> bool {
        let by_name = self.interfaces.is_some();
        self.rules.iter().map(|(rule, _)| rule).eq(rules) && (!by_name || self.names == names)
    }
}

/// The maps of rules.
#[derive(Debug)]
pub(crate) struct RuleMaps {
    matchers: Array<steer_matcher>,
    hits: Array<steer_rule_hits>,
    nets: MapHandle,
    tunnels: MapHandle,
    parts: [Part; CONFIG_FLUSHING as usize],
}

impl RuleMaps {
    pub(crate) fn new(
        matchers: &impl MapCore,
        hits: &impl MapCore,
        nets: &MapMut<'_>,
        tunnels: &MapMut<'_>,
    ) -> Result<RuleMaps, libbpf_rs::Error> {
        Ok(RuleMaps {
            matchers: Array::new(matchers)?,
            hits: Array::new(hits)?,
            nets: MapHandle::try_from(nets)?,
            tunnels: MapHandle::try_from(tunnels)?,
            parts: Default::default(),
        })
    }

    /// Writes the rules of configuration `part`, which must be inactive. A rule that the other configuration also has keeps
    /// its counter; all others begin at 0. `names` has the name of each interface by its number, and an empty one for
    /// a number without an interface.
    ///
    /// # Errors
    /// When the kernel has no memory. The caller must not activate the configuration then.
    pub(crate) fn write(
        &mut self,
        part: u32,
        rules: &[PacketRule],
        names: Vec<String>,
    ) -> io::Result<()> {
        let [own, other] = [part as usize, 1 - part as usize];
        if self.parts[own].has(rules, &names) && self.parts[other].has(rules, &names) {
            return Ok(());
        }
        let counters = counters(&self.parts[other].rules, rules, |counter| {
            (0..self.hits.len()).for_each(|rx_cpu| self.hits.set_word(rx_cpu, counter, 0));
        });
        self.remove(part)?;
        self.parts[own].rules = rules.iter().cloned().zip(counters).collect();
        self.parts[own].names = names;
        match tables_of(rules) {
            Some(tables) => self.fill(part, &tables),
            None => Ok(()),
        }
    }

    /// Gives interface `number` a name, in the rules of both configurations. No frame of the interface is steered yet.
    pub(crate) fn name_interface(&mut self, number: usize, name: &str) {
        for (part, rules) in (0..).zip(&mut self.parts) {
            if rules.names.len() <= number {
                rules.names.resize(number + 1, String::new());
            }
            name.clone_into(&mut rules.names[number]);
            if let Some(interfaces) = &rules.interfaces {
                // The sets of four interfaces are a word.
                let first = number & !3;
                let name = |number: usize| rules.names.get(number).map_or("", String::as_str);
                let sets: [u16; 4] = from_fn(|index| interfaces.set_of(name(first + index)));
                let word = (offset_of!(steer_matcher, interface) + 2 * first) / 8;
                let sets = bytemuck::cast(sets);
                self.matchers.set_word(part, word, sets);
            }
        }
    }

    /// Whether the rules of configuration `part` match tunnel numbers.
    pub(crate) fn read_tunnels(&self, part: u32) -> bool {
        !self.parts[part as usize].tunnels.is_empty()
    }

    /// The rules of configuration `part`, each with its counter.
    pub(crate) fn rules(&self, part: u32) -> &[(PacketRule, u16)] {
        &self.parts[part as usize].rules
    }

    /// The packets of all CPUs that the rule with this counter matched.
    pub(crate) fn hits(&self, counter: u16) -> u64 {
        hits_of(&self.hits, counter)
    }

    /// Removes the prefixes and tunnels of a configuration.
    fn remove(&mut self, part: u32) -> io::Result<()> {
        let part = &mut self.parts[part as usize];
        for key in part.nets.drain(..) {
            gone(self.nets.delete(bytemuck::bytes_of(&key)))?;
        }
        for key in part.tunnels.drain(..) {
            gone(self.tunnels.delete(bytemuck::bytes_of(&key)))?;
        }
        part.rules.clear();
        part.interfaces = None;
        Ok(())
    }

    fn fill(&mut self, part: u32, tables: &Tables) -> io::Result<()> {
        let mut matcher = zeroed::<steer_matcher>();
        let mut has = |field: fields| matcher.fields |= field.0;
        if tables.versions.is_some() {
            has(fields::STEER_RULE_VERSION);
        }
        if tables.protocols.is_some() {
            has(fields::STEER_RULE_PROTOCOL);
        }
        if tables.dscps.is_some() {
            has(fields::STEER_RULE_DSCP);
        }
        if tables.vlans.is_some() {
            has(fields::STEER_RULE_VLAN);
        }
        if tables.ports.is_some() {
            has(fields::STEER_RULE_PORT);
        }
        let ends = [fields::STEER_RULE_SRC_NET, fields::STEER_RULE_DST_NET];
        for (field, nets) in ends.into_iter().zip(tables.nets.iter().flat_map(|nets| &nets.of)) {
            // Without prefixes on one side, no rule matches addresses of that side.
            if !nets.is_empty() {
                has(field);
            }
        }
        if tables.tunnels.is_some() {
            has(fields::STEER_RULE_TUNNEL);
        }
        if tables.interfaces.is_some() {
            has(fields::STEER_RULE_INTERFACE);
        }
        matcher.version = tables.versions.unwrap_or_default();
        if let Some(protocols) = &tables.protocols {
            matcher.protocol = **protocols;
        }
        matcher.dscp = tables.dscps.unwrap_or([0; 64]);
        if let Some(vlans) = &tables.vlans {
            matcher.vlan[..vlans.len()].copy_from_slice(vlans);
        }
        if let Some(Ends { of, otherwise }) = &tables.ports {
            matcher.no_port = otherwise.map(end);
            for (to, from) in matcher.port.iter_mut().zip(of) {
                to.iter_mut().zip(from).for_each(|(to, from)| *to = end(*from));
            }
        }
        for (to, from) in matcher.set.iter_mut().zip(&tables.sets) {
            *to = *from;
        }
        if let Some(Ends { of, otherwise }) = &tables.nets {
            matcher.no_net = otherwise.map(end);
            for (side, nets) in (0..).zip(of) {
                for (prefix, sets) in nets {
                    let key = net_key(part, side, prefix);
                    self.parts[part as usize].nets.push(key);
                    let (key, value) = (bytemuck::bytes_of(&key), end(*sets));
                    self.nets.update(key, bytemuck::bytes_of(&value), MapFlags::ANY).map_err(io)?;
                }
            }
        }
        if let Some(Tunnels { of, otherwise }) = &tables.tunnels {
            matcher.no_tunnel = *otherwise;
            for (kind, number, set) in of {
                let kind = match kind {
                    TunnelNumber::Spi => TunnelKind::Esp,
                    TunnelNumber::Teid => TunnelKind::Gtp,
                    TunnelNumber::Vni => TunnelKind::Vxlan,
                };
                let (config, kind) = (part as u8, kind as u8);
                let key = steer_tunnel_key { config, kind, reserved: 0, number: *number };
                self.parts[part as usize].tunnels.push(key);
                let (key, set) = (bytemuck::bytes_of(&key), u32::from(*set).to_ne_bytes());
                self.tunnels.update(key, &set, MapFlags::ANY).map_err(io)?;
            }
        }
        if let Some(interfaces) = &tables.interfaces {
            let Part { names, interfaces: own, .. } = &mut self.parts[part as usize];
            let names = names.iter().map(String::as_str).chain(std::iter::repeat(""));
            for (to, name) in matcher.interface.iter_mut().zip(names) {
                *to = interfaces.set_of(name);
            }
            *own = Some(interfaces.clone());
        }
        for (to, (_, counter)) in matcher.counter.iter_mut().zip(&self.parts[part as usize].rules) {
            *to = *counter;
        }
        self.matchers.write(part, &matcher);
        Ok(())
    }
}

/// The packets of all CPUs that the rule with this counter matched.
pub(crate) fn hits_of(hits: &Array<steer_rule_hits>, counter: u16) -> u64 {
    (0..hits.len()).map(|rx_cpu| hits.get_word(rx_cpu, usize::from(counter))).sum()
}

/// A counter for each rule: that of the same rule in the other configuration, else one that the other configuration does
/// not use. `clear` sets a counter to 0.
fn counters(
    other: &[(PacketRule, u16)],
    rules: &[PacketRule],
    mut clear: impl FnMut(usize),
) -> Vec<u16> {
    let mut is_used = [false; RULE_COUNTERS];
    other.iter().for_each(|(_, counter)| is_used[usize::from(*counter)] = true);
    let mut kept: Vec<&(PacketRule, u16)> = other.iter().collect();
    let counter = |rule: &PacketRule| {
        if let Some(at) = kept.iter().position(|(known, _)| known == rule) {
            return kept.remove(at).1;
        }
        // Both configurations together have at most as many rules as there are counters.
        let free = is_used.iter().position(|is_used| !is_used).unwrap_or(0);
        is_used[free] = true;
        clear(free);
        free as u16
    };
    rules.iter().map(counter).collect()
}

fn end(End { own, either }: End) -> steer_rule_end {
    steer_rule_end { own, either }
}

/// The key of a prefix of source addresses (`side` 0) or destination addresses (1).
fn net_key(part: u32, side: u8, prefix: &Prefix) -> steer_net_key {
    let mut address = [0; 16];
    let version = match prefix.address {
        IpAddr::V4(v4) => {
            address[..4].copy_from_slice(&v4.octets());
            4
        }
        IpAddr::V6(v6) => {
            address = v6.octets();
            6
        }
    };
    let bits = BITS_BEFORE_ADDRESS + u32::from(prefix.length);
    steer_net_key { bits, config: part as u8, end: side, version, reserved: 0, address }
}

/// Treats a key that was never written as removed.
fn gone(removed: Result<(), libbpf_rs::Error>) -> io::Result<()> {
    match removed.map_err(io) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

fn io(error: libbpf_rs::Error) -> io::Error {
    let kind = match error.kind() {
        libbpf_rs::ErrorKind::NotFound => io::ErrorKind::NotFound,
        libbpf_rs::ErrorKind::OutOfMemory => io::ErrorKind::OutOfMemory,
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, format!("a table of rules: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_keeps_its_counter_and_a_new_one_begins_at_0() {
        let rules = |texts: &[&str]| -> Vec<PacketRule> {
            texts.iter().map(|text| text.parse().unwrap()).collect()
        };
        let (old, new) =
            (rules(&["tcp -> 1", "udp -> 2"]), rules(&["esp -> 1", "udp -> 2", "udp -> 2"]));
        let mut cleared = Vec::new();
        let first = counters(&[], &old, |counter| cleared.push(counter));
        assert_eq!((&first[..], &cleared[..]), (&[0, 1][..], &[0, 1][..]));
        cleared.clear();
        let active: Vec<_> = old.into_iter().zip(first).collect();
        let second = counters(&active, &new, |counter| cleared.push(counter));
        assert_eq!(second, [2, 1, 3], "the counter of the rule that is gone is still in use");
        assert_eq!(cleared, [2, 3]);
    }

    #[test]
    fn a_key_has_the_bits_in_front_of_the_address() {
        let prefix = |text: &str, length| Prefix { address: text.parse().unwrap(), length };
        let key = net_key(1, 0, &prefix("10.1.0.0", 16));
        assert_eq!((key.bits, key.config, key.end, key.version), (48, 1, 0, 4));
        assert_eq!(key.address[..5], [10, 1, 0, 0, 0]);
        assert_eq!(net_key(0, 1, &prefix("2001:db8::", 32)).bits, 64);
    }
}
