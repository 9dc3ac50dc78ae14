//! Namespaces joined by veth pairs, or by NICs of this machine.
//!
//! Each pair has a sending end and a receiving end, which is the one that is steered. The sending end has transmit
//! checksum offload turned off: its frames must have complete checksums, since nothing computes them after a redirect.
//! Addresses and neighbours are configured statically, so the link has only the test's frames.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

use crate::cards::{self, Cards};
use crate::cpus::online_cpus;
use crate::error::{LabError, Result};
use crate::lent::Lent;
use crate::namespace::Namespace;
use crate::process::typed;

/// The properties of a pair.
#[derive(Debug, Clone, Copy)]
pub struct LinkOptions {
    /// The number of queues in each direction.
    pub queues: usize,
    /// Whether the receiving end merges packets before the stack gets them, including UDP packets.
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
    /// The name of the interface.
    pub name: String,
    /// Its index in its namespace.
    pub index: u32,
    /// Its MAC address.
    pub mac: [u8; 6],
    /// Its IPv4 address, in a /24 network.
    pub ipv4: Ipv4Addr,
    /// Its IPv6 address, in a /64 network.
    pub ipv6: Ipv6Addr,
}

/// A pair: `near` in the sending namespace, `far` in the receiving one.
#[derive(Debug, Clone)]
pub struct Link {
    /// The sending end.
    pub near: End,
    /// The receiving end.
    pub far: End,
}

/// Namespaces in a row, each joined to the next; everything is removed when this is dropped.
#[derive(Debug)]
pub struct Testbed {
    /// The namespaces, in order.
    pub namespaces: Vec<Namespace>,
    /// `links[i]` joins namespace i to namespace i + 1.
    pub links: Vec<Link>,
    /// Interfaces of this machine, which are restored when this is dropped.
    cards: Vec<Lent>,
}

/// The timeout for a NIC to detect its link.
const TO_LINK: Duration = Duration::from_secs(20);

impl Drop for Testbed {
    fn drop(&mut self) {
        self.cards.iter().for_each(Lent::give_back);
    }
}

impl Testbed {
    /// Two hosts: the first sends to the second. If [`cards::use_cards`] has set interfaces, these join the hosts;
    /// otherwise a veth pair does.
    pub fn hosts(options: LinkOptions) -> Result<Self> {
        Self::in_a_row(2, cards::chosen_cards(), options)
    }

    /// Two hosts. If `RXSTEER_CARDS` names two NICs ("SENDING RECEIVING") that are joined outside of the machine, these
    /// join the hosts; otherwise a veth pair does. NICs keep their settings.
    pub fn cards_or_pair(options: LinkOptions) -> Result<Self> {
        Self::in_a_row(2, named_cards()?.as_ref(), options)
    }

    /// Three hosts, of which the second and the third are joined by a veth pair. The first and the second are joined as by
    /// [`Testbed::cards_or_pair`], the second by the receiving NIC.
    pub fn cards_or_pair_in_a_row(options: LinkOptions) -> Result<Self> {
        let cards = named_cards()?;
        let mut testbed = Self::in_a_row(3, cards.as_ref(), options)?;
        testbed.join(1, options)?;
        Ok(testbed)
    }

    /// Creates namespaces and joins the first two.
    fn in_a_row(count: usize, cards: Option<&Cards>, options: LinkOptions) -> Result<Self> {
        let namespaces = (0..count).map(|_| Namespace::new()).collect::<Result<_>>()?;
        let mut testbed = Self { namespaces, links: vec![], cards: vec![] };
        match cards {
            Some(cards) => testbed.join_by(cards)?,
            None => testbed.join(0, options)?,
        }
        Ok(testbed)
    }

    /// Joins the first two namespaces by interfaces of this machine.
    fn join_by(&mut self, cards: &Cards) -> Result<()> {
        let mut ends = Vec::new();
        for (index, (home, name)) in
            [(&cards.peer, "out0"), (&cards.steered, "in0")].iter().enumerate()
        {
            let card = Lent::lend(home, self.namespaces[index].name(), name)?;
            self.cards.push(card);
            // It keeps its MAC address: QEMU's vmxnet3 receives nothing under another one.
            let shown = self.namespaces[index].ip(&format!("-o link show {name}"))?;
            let mac = own_mac(&shown);
            ends.push(self.bring_up(index, name, 0, if index == 0 { 1 } else { 2 }, mac)?);
        }
        let far = ends.remove(1);
        let near = ends.remove(0);
        know(&self.namespaces[0], &near, &far)?;
        know(&self.namespaces[1], &far, &near)?;
        self.linked()?;
        let [sender, receiver] = [&self.namespaces[0], &self.namespaces[1]];
        cards::joined((sender, near.ipv4), (receiver, far.ipv4), cards)?;
        self.links.push(Link { near, far });
        Ok(())
    }

    /// Waits until the NICs have detected their link.
    fn linked(&self) -> Result<()> {
        let started = Instant::now();
        for (namespace, Lent { name, .. }) in self.namespaces.iter().zip(&self.cards) {
            let shown = || namespace.ip(&format!("-o link show {name}"));
            while !shown()?.contains("LOWER_UP") {
                if started.elapsed() > TO_LINK {
                    return Err(LabError::Late {
                        what: format!("the card {name} found no link"),
                        seconds: TO_LINK.as_secs(),
                        stderr: shown()?,
                    });
                }
                std::thread::sleep(Duration::from_millis(50));
            }
        }
        Ok(())
    }

    /// Two hosts with a forwarding router between them.
    pub fn router(options: LinkOptions) -> Result<Self> {
        Self::router_between(options, LinkOptions { gro: true, ..options })
    }

    /// The same with one queue per CPU from the router to the second host; each CPU sends on its own queue.
    ///
    /// On a veth the CPU that sends also receives at the other end. With one queue, a single NAPI instance would
    /// receive there what all CPUs send, so one CPU would do the second host's work for all of them.
    pub fn router_with_tx_queues(options: LinkOptions) -> Result<Self> {
        let queues = online_cpus();
        let testbed = Self::router_between(options, LinkOptions { queues, gro: true, ..options })?;
        if queues > 1 {
            for cpu in 0..queues {
                let mask = rxsteer_host::mask::hex([cpu], cpu + 1);
                let path = format!("/sys/class/net/out1/queues/tx-{cpu}/xps_cpus");
                testbed.receiver().write_sys(&path, &mask)?;
            }
        }
        Ok(testbed)
    }

    fn router_between(options: LinkOptions, second: LinkOptions) -> Result<Self> {
        let mut testbed = Self::in_a_row(3, cards::chosen_cards(), options)?;
        testbed.join(1, second)?;
        let [first, router, last] = [0, 1, 2].map(|index| &testbed.namespaces[index]);
        router.run("sysctl -q -w net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1")?;
        let [here, there] = [&testbed.links[0], &testbed.links[1]];
        first.ip(&format!("route add default via {}", here.far.ipv4))?;
        first.ip(&format!("-6 route add default via {}", here.far.ipv6))?;
        last.ip(&format!("route add default via {}", there.near.ipv4))?;
        last.ip(&format!("-6 route add default via {}", there.near.ipv6))?;
        Ok(testbed)
    }

    /// Translates the source addresses of packets that leave the second namespace by an interface, as a home router
    /// does.
    pub fn masquerade(&self, interface: &str) -> Result<()> {
        let router = self.receiver();
        router.run("nft add table ip hide")?;
        router.run("nft add chain ip hide leaving { type nat hook postrouting priority 100 ; }")?;
        router.run(&format!("nft add rule ip hide leaving oifname {interface} masquerade"))?;
        Ok(())
    }

    /// The sending namespace of [`Testbed::hosts`].
    pub fn sender(&self) -> &Namespace {
        &self.namespaces[0]
    }

    /// The receiving namespace of the first link.
    pub fn receiver(&self) -> &Namespace {
        &self.namespaces[1]
    }

    /// The first link.
    pub fn link(&self) -> &Link {
        &self.links[0]
    }

    /// Joins two more interfaces of the first two namespaces; the new link is `links.len() - 1`.
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
        let near = self.bring_up(from, &out, number, 1, None)?;
        let far = self.bring_up(to, &into, number, 2, None)?;
        know(&self.namespaces[from], &near, &far)?;
        know(&self.namespaces[to], &far, &near)?;
        self.links.push(Link { near, far });
        Ok(())
    }

    /// Configures the addresses of an interface. Its MAC address is set, unless it must keep its own, so that no
    /// neighbour discovery is needed.
    fn bring_up(
        &self,
        index: usize,
        name: &str,
        number: usize,
        host: u8,
        mac: Option<[u8; 6]>,
    ) -> Result<End> {
        let namespace = &self.namespaces[index];
        let wire = u8::try_from(number + 1).unwrap_or(u8::MAX);
        let end = End {
            name: name.to_owned(),
            index: 0,
            mac: mac.unwrap_or([2, 0x52, 0x58, 0, wire, host]),
            ipv4: Ipv4Addr::new(10, 77, wire, host),
            ipv6: Ipv6Addr::new(0xfd77, 0, 0, u16::from(wire), 0, 0, 0, u16::from(host)),
        };
        // Turns router solicitations and multicast reports off, so that only counted frames are on the link.
        namespace.run(&format!(
            "sysctl -q -w net.ipv6.conf.{name}.accept_dad=0 \
             net.ipv6.conf.{name}.addr_gen_mode=1 net.ipv6.conf.{name}.router_solicitations=0"
        ))?;
        if mac.is_none() {
            namespace.ip(&format!("link set {name} address {}", shown_mac(end.mac)))?;
        }
        namespace.ip(&format!("link set {name} up"))?;
        namespace.ip(&format!("addr add {}/24 dev {name}", end.ipv4))?;
        namespace.ip(&format!("addr add {}/64 dev {name} nodad", end.ipv6))?;
        let shown = namespace.ip(&format!("-o link show {name}"))?;
        let index = shown.split(':').next().and_then(|number| number.trim().parse().ok());
        Ok(End { index: index.unwrap_or_default(), ..end })
    }
}

/// The NICs that `RXSTEER_CARDS` names, if it is set.
fn named_cards() -> Result<Option<Cards>> {
    let Ok(named) = std::env::var("RXSTEER_CARDS") else { return Ok(None) };
    let Some((peer, steered)) = named.split_once(' ') else {
        let why = format!("RXSTEER_CARDS={named:?} does not name two interfaces");
        return Err(LabError::Unreadable { who: "the environment".to_owned(), why });
    };
    Ok(Some(Cards { steered: steered.to_owned(), peer: peer.to_owned() }))
}

/// Sets a namespace's neighbour entry.
fn know(namespace: &Namespace, own: &End, neighbour: &End) -> Result<()> {
    let mac = shown_mac(neighbour.mac);
    for address in [neighbour.ipv4.to_string(), neighbour.ipv6.to_string()] {
        namespace
            .ip(&format!("neigh replace {address} lladdr {mac} dev {} nud permanent", own.name))?;
    }
    Ok(())
}

/// The MAC address in the output of `ip -o link`.
fn own_mac(shown: &str) -> Option<[u8; 6]> {
    let text = shown.split_once("link/ether ")?.1.split(' ').next()?;
    let bytes = text.split(':').map(|byte| u8::from_str_radix(byte, 16).ok());
    bytes.collect::<Option<Vec<u8>>>()?.try_into().ok()
}

fn shown_mac(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}
