//! Namespaces joined by veth pairs.
//!
//! Each pair has a sending end, with transmit checksum offload off (its frames must carry
//! checksums: a frame that was redirected has nobody else to make one), and a receiving end, the
//! one that is steered. Addresses and neighbours are given, so no frame but ours is on the wire.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::error::Result;
use crate::namespace::Namespace;
use crate::process::typed;

/// How a pair is made.
#[derive(Debug, Clone, Copy)]
pub struct LinkOptions {
    /// Queues of each direction.
    pub queues: usize,
    /// Whether the receiving end merges packets before the stack sees them, UDP ones too.
    pub gro: bool,
    /// Largest packet.
    pub mtu: usize,
}

impl Default for LinkOptions {
    fn default() -> Self {
        Self { queues: 1, gro: false, mtu: 1500 }
    }
}

/// One end of a pair.
#[derive(Debug, Clone)]
pub struct End {
    /// Name of the interface.
    pub name: String,
    /// Its number, in its namespace.
    pub index: u32,
    /// Its address on the wire.
    pub mac: [u8; 6],
    /// Its IPv4 address, of a /24.
    pub ipv4: Ipv4Addr,
    /// Its IPv6 address, of a /64.
    pub ipv6: Ipv6Addr,
}

/// A pair: `near` in the namespace that sends, `far` in the one that receives.
#[derive(Debug, Clone)]
pub struct Link {
    /// The sending end.
    pub near: End,
    /// The receiving end.
    pub far: End,
}

/// Namespaces in a row, each joined to the next; everything goes when this is dropped.
#[derive(Debug)]
pub struct Testbed {
    /// The namespaces, in their order.
    pub namespaces: Vec<Namespace>,
    /// `links[i]` joins namespace i to namespace i + 1.
    pub links: Vec<Link>,
}

impl Testbed {
    /// Two hosts: the first sends to the second.
    pub fn hosts(options: LinkOptions) -> Result<Self> {
        let mut testbed =
            Self { namespaces: vec![Namespace::new()?, Namespace::new()?], links: vec![] };
        testbed.join(0, options)?;
        Ok(testbed)
    }

    /// Two hosts with a router between them, that forwards.
    pub fn router(options: LinkOptions) -> Result<Self> {
        let namespaces = vec![Namespace::new()?, Namespace::new()?, Namespace::new()?];
        let mut testbed = Self { namespaces, links: vec![] };
        testbed.join(0, options)?;
        testbed.join(1, LinkOptions { gro: true, ..options })?;
        let [first, router, last] = [0, 1, 2].map(|index| &testbed.namespaces[index]);
        router.run("sysctl -q -w net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1")?;
        let [here, there] = [&testbed.links[0], &testbed.links[1]];
        first.ip(&format!("route add default via {}", here.far.ipv4))?;
        first.ip(&format!("-6 route add default via {}", here.far.ipv6))?;
        last.ip(&format!("route add default via {}", there.near.ipv4))?;
        last.ip(&format!("-6 route add default via {}", there.near.ipv6))?;
        Ok(testbed)
    }

    /// The namespace that sends, of [`Testbed::hosts`].
    pub fn sender(&self) -> &Namespace {
        &self.namespaces[0]
    }

    /// The namespace that receives on the first link.
    pub fn receiver(&self) -> &Namespace {
        &self.namespaces[1]
    }

    /// The first link.
    pub fn link(&self) -> &Link {
        &self.links[0]
    }

    /// Joins two more interfaces of the first two namespaces: link `links.len() - 1`.
    pub fn another_link(&mut self, options: LinkOptions) -> Result<&Link> {
        let number = self.links.len();
        self.join_pair(0, 1, number, options)?;
        Ok(&self.links[number])
    }

    fn join(&mut self, index: usize, options: LinkOptions) -> Result<()> {
        self.join_pair(index, index + 1, index, options)
    }

    fn join_pair(
        &mut self,
        from: usize,
        to: usize,
        number: usize,
        options: LinkOptions,
    ) -> Result<()> {
        let (a, b) = (&self.namespaces[from], &self.namespaces[to]);
        let LinkOptions { queues, gro, mtu } = options;
        let (out, into) = (format!("out{number}"), format!("in{number}"));
        let of_queues = format!("mtu {mtu} numrxqueues {queues} numtxqueues {queues}");
        typed(&format!(
            "ip link add {out} netns {} {of_queues} type veth peer name {into} netns {} {of_queues}",
            a.name(),
            b.name()
        ))?;
        a.run(&format!("ethtool -K {out} tx off"))?;
        let gro = if gro { "gro on rx-gro-list on" } else { "gro off" };
        b.run(&format!("ethtool -K {into} tx off {gro}"))?;
        let near = self.bring_up(from, &out, number, 1)?;
        let far = self.bring_up(to, &into, number, 2)?;
        know(&self.namespaces[from], &near, &far)?;
        know(&self.namespaces[to], &far, &near)?;
        self.links.push(Link { near, far });
        Ok(())
    }

    /// Gives an interface its addresses. Those of the wire are chosen, so that nobody need ask.
    fn bring_up(&self, index: usize, name: &str, number: usize, host: u8) -> Result<End> {
        let namespace = &self.namespaces[index];
        let wire = u8::try_from(number + 1).unwrap_or(u8::MAX);
        let end = End {
            name: name.to_owned(),
            index: 0,
            mac: [2, 0x52, 0x58, 0, wire, host],
            ipv4: Ipv4Addr::new(10, 77, wire, host),
            ipv6: Ipv6Addr::new(0xfd77, 0, 0, u16::from(wire), 0, 0, 0, u16::from(host)),
        };
        // Neither router solicitations nor reports of multicast groups: only frames that are counted.
        namespace.run(&format!(
            "sysctl -q -w net.ipv6.conf.{name}.accept_dad=0 \
             net.ipv6.conf.{name}.addr_gen_mode=1 net.ipv6.conf.{name}.router_solicitations=0"
        ))?;
        namespace.ip(&format!("link set {name} address {} up", shown_mac(end.mac)))?;
        namespace.ip(&format!("addr add {}/24 dev {name}", end.ipv4))?;
        namespace.ip(&format!("addr add {}/64 dev {name} nodad", end.ipv6))?;
        let shown = namespace.ip(&format!("-o link show {name}"))?;
        let index = shown.split(':').next().and_then(|number| number.trim().parse().ok());
        Ok(End { index: index.unwrap_or_default(), ..end })
    }
}

/// Tells a namespace where its neighbour is.
fn know(namespace: &Namespace, own: &End, neighbour: &End) -> Result<()> {
    let mac = shown_mac(neighbour.mac);
    for address in [neighbour.ipv4.to_string(), neighbour.ipv6.to_string()] {
        namespace
            .ip(&format!("neigh replace {address} lladdr {mac} dev {} nud permanent", own.name))?;
    }
    Ok(())
}

fn shown_mac(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}
