//! Live interfaces with all of their RX queues: numbers the queues, opens a source for each, and has the ports that packets
//! are sent by.
//!
//! ```text
//!  interfaces ─► open ─┬─► one Source per RX queue ─► one RX thread each
//!                      └─► one LivePort per interface ─► the Forwarder of each worker
//! ```

use super::Source;
use super::packet::{FilterInstruction, LiveError, PacketOptions, PacketSource};
use crate::forward::{LivePort, PacketPort};
use rxsteer_core::{CpuId, CpuSet, MAX_RX_QUEUES};
use rxsteer_packet::LinkType;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

/// How frames are received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LiveIo {
    /// By packet sockets (AF_PACKET): copies, which the host's stack also receives.
    Packet,
    /// By AF_XDP sockets: the host's stack does not receive the frames. This requires the cargo feature `xdp`.
    Xdp,
}

impl LiveIo {
    /// Its name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            LiveIo::Packet => "packet",
            LiveIo::Xdp => "xdp",
        }
    }

    /// How many RX threads, each with an RX queue of the pipeline, an interface needs that uses `rx_queues` RX queues. Packet
    /// sockets on one interface each see all of its packets, so more sockets than `rx_cpus` CPUs to receive on only add cost.
    #[must_use]
    pub fn rx_threads(self, rx_queues: u32, rx_cpus: usize) -> u32 {
        match self {
            LiveIo::Packet => rx_queues.clamp(1, u32::try_from(rx_cpus).unwrap_or(u32::MAX).max(1)),
            LiveIo::Xdp => rx_queues.max(1),
        }
    }
}

/// An interface to receive from, made by [`interfaces`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LiveInterface {
    /// Its name.
    pub name: String,
    /// The numbers of its RX queues in the pipeline. Each queue has an RX thread.
    pub rx_queues: Range<u16>,
    /// A classic BPF program for packet sockets: only frames for which it returns more than 0 are received.
    pub filter: Vec<FilterInstruction>,
}

impl LiveInterface {
    /// The number of its RX queues.
    #[must_use]
    pub fn queue_count(&self) -> u16 {
        self.rx_queues.end - self.rx_queues.start
    }
}

/// Numbers the RX queues of interfaces, given by name and number of RX queues, one after the other.
///
/// For AF_XDP the number must be that of the RX queues in use (`ethtool -l`), since the frames of other queues are not
/// received. For packet sockets it is the number of RX threads, which share the frames by RX queue
/// ([`LiveIo::rx_threads`]).
///
/// # Errors
/// [`LiveError::NoName`], [`LiveError::Twice`] and [`LiveError::TooManyQueues`].
pub fn interfaces<N: Into<String>>(
    named: impl IntoIterator<Item = (N, u32)>,
) -> Result<Vec<LiveInterface>, LiveError> {
    let mut all: Vec<LiveInterface> = Vec::new();
    for (name, queues) in named {
        let name = name.into();
        if name.is_empty() {
            return Err(LiveError::NoName);
        }
        if all.iter().any(|other| other.name == name) {
            return Err(LiveError::Twice(name));
        }
        let start = all.last().map_or(0, |last| last.rx_queues.end);
        let end = u32::from(start).saturating_add(queues.max(1));
        let end = u16::try_from(end).ok().filter(|end| *end <= MAX_RX_QUEUES);
        let end = end.ok_or(LiveError::TooManyQueues)?;
        all.push(LiveInterface { name, rx_queues: start..end, filter: Vec::new() });
    }
    Ok(all)
}

/// Options for receiving from live interfaces.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LiveOptions {
    /// How frames are received. The default is by packet sockets.
    pub io: LiveIo,
    /// The memory for frames of each interface in bytes, divided among its RX queues: 32 MiB by default.
    pub ring_bytes: u64,
    /// Copy each frame: for handlers that keep packets for long.
    pub copy: bool,
    /// Enable promiscuous mode until the [`LiveSources`] are dropped.
    pub promiscuous: bool,
    /// Whether a [`Forwarder`](crate::forward::Forwarder) sends frames on. The interfaces are then in promiscuous mode,
    /// too.
    pub forwards: bool,
    /// How many frames may be received, by all sources together.
    pub limit: Option<u64>,
    /// A flag that ends all sources when it is set.
    pub stop: Arc<AtomicBool>,
    /// Packet sockets only: also receive the frames that this host sends.
    pub outgoing: bool,
    /// Packet sockets only: steer by the hash of the kernel or the NIC ([`PacketOptions::nic_hash`]).
    pub nic_hash: bool,
    /// AF_XDP only: `Some(true)` refuses drivers that copy; `Some(false)` makes all drivers copy.
    pub zero_copy: Option<bool>,
    /// AF_XDP only: how many microseconds a thread polls the driver itself when no frame has been received.
    pub busy_poll_us: Option<u32>,
}

impl Default for LiveOptions {
    fn default() -> LiveOptions {
        LiveOptions {
            io: LiveIo::Packet,
            ring_bytes: 32 << 20,
            copy: false,
            promiscuous: false,
            forwards: false,
            limit: None,
            stop: Arc::default(),
            outgoing: false,
            nic_hash: false,
            zero_copy: None,
            busy_poll_us: None,
        }
    }
}

/// Opened interfaces. They receive from now on.
#[non_exhaustive]
pub struct LiveSources {
    /// One source for each RX queue, by the number of the queue.
    pub sources: Vec<Box<dyn Source>>,
    /// For each interface, the link type of its frames.
    pub links: Vec<LinkType>,
    /// For each interface, a description of how its frames are received.
    pub modes: Vec<String>,
    /// For each interface, the port to send by, for a [`Forwarder`](crate::forward::Forwarder) if
    /// [`LiveOptions::forwards`] is set.
    pub ports: Vec<LivePort>,
    /// Undone when this is dropped.
    #[cfg(feature = "xdp")]
    _promiscuous: Vec<super::packet::Promiscuous>,
}

impl std::fmt::Debug for LiveSources {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LiveSources").field("modes", &self.modes).finish_non_exhaustive()
    }
}

/// Opens a source on each RX queue of `interfaces`.
///
/// # Errors
/// [`LiveError`] if an interface can't be received from, or can't send what another one received. Then nothing has
/// changed.
pub fn open(interfaces: &[LiveInterface], options: &LiveOptions) -> Result<LiveSources, LiveError> {
    let limit = options.limit.map(|limit| Arc::new(AtomicU64::new(limit)));
    let opened = match options.io {
        LiveIo::Packet => open_packet(interfaces, options, &limit),
        #[cfg(feature = "xdp")]
        LiveIo::Xdp => by_xdp::open(interfaces, options, &limit),
        #[cfg(not(feature = "xdp"))]
        LiveIo::Xdp => Err(LiveError::WithoutXdp),
    }?;
    if options.forwards {
        check_same_link(interfaces, &opened.links)?;
    }
    Ok(opened)
}

fn open_packet(
    interfaces: &[LiveInterface],
    live: &LiveOptions,
    limit: &Option<Arc<AtomicU64>>,
) -> Result<LiveSources, LiveError> {
    let mut sources: Vec<Box<dyn Source>> = Vec::new();
    let (mut links, mut modes, mut ports) = (Vec::new(), Vec::new(), Vec::new());
    for interface in interfaces {
        let LiveInterface { name, rx_queues, filter } = interface;
        let sockets = interface.queue_count();
        let mut options = PacketOptions {
            ring_bytes: live.ring_bytes / u64::from(sockets),
            copy: live.copy,
            promiscuous: live.promiscuous || live.forwards,
            forwards: live.forwards,
            outgoing: live.outgoing,
            nic_hash: live.nic_hash,
            filter: filter.clone(),
            limit: limit.clone(),
            stop: live.stop.clone(),
            ..PacketOptions::default()
        };
        for (rx_queue, own) in rx_queues.clone().zip(0..) {
            options.rx_queue = rx_queue;
            options.share = (own, sockets.into());
            let source = PacketSource::with(name, options.clone());
            let source = source.map_err(|error| error.on(name))?;
            if own == 0 {
                links.push(source.link());
            }
            sources.push(Box::new(source));
        }
        modes.push(match sockets {
            1 => "packet sockets".to_owned(),
            _ => format!("packet sockets, {sockets} receiving threads"),
        });
        let port = PacketPort { name: name.clone(), rx_queues: sockets.into() };
        ports.push(LivePort::from(port));
    }
    Ok(LiveSources {
        sources,
        links,
        modes,
        ports,
        #[cfg(feature = "xdp")]
        _promiscuous: Vec::new(),
    })
}

#[cfg(feature = "xdp")]
mod by_xdp {
    use super::super::packet::{Promiscuous, interface_index};
    use super::super::xdp::{self, Port, XdpOptions, XdpPort, XdpQueue, XdpSource};
    use super::*;
    use rxsteer_io::packet::{PacketError, interface_mtu, interface_type};

    /// ARPHRD_ETHER (linux/if_arp.h).
    const ETHERNET: u16 = 1;

    /// Memory of a frame in bytes, for the size of rings.
    const FRAME_BYTES: u64 = 2048;

    /// Finds an interface of Ethernet frames.
    fn port(interface: &LiveInterface) -> Result<Port, LiveError> {
        let name = &interface.name;
        let system = |what| move |error| PacketError::System(what, error);
        let ifindex = interface_index(name)?;
        let hardware = interface_type(name).map_err(system("ask for the interface's link type"))?;
        if hardware != ETHERNET {
            return Err(LiveError::NotEthernet(name.clone()));
        }
        let mtu = interface_mtu(name).map_err(system("ask for the interface's MTU"))?;
        Ok(Port { name: name.clone(), ifindex, queues: interface.queue_count().into(), mtu })
    }

    pub(super) fn open(
        interfaces: &[LiveInterface],
        live: &LiveOptions,
        limit: &Option<Arc<AtomicU64>>,
    ) -> Result<LiveSources, LiveError> {
        let ports = interfaces.iter().map(port).collect::<Result<Vec<_>, _>>()?;
        let promiscuous = ports.iter().filter(|_| live.promiscuous || live.forwards);
        let promiscuous = promiscuous.map(|port| {
            let promiscuous = Promiscuous::on(port.ifindex);
            promiscuous.map_err(|error| LiveError::from(error).on(&port.name))
        });
        let promiscuous = promiscuous.collect::<Result<Vec<_>, _>>()?;
        let mut options = XdpOptions::default();
        options.frames = u32::try_from(live.ring_bytes / FRAME_BYTES).unwrap_or(u32::MAX);
        options.forwards = live.forwards;
        options.busy_poll_us = live.busy_poll_us;
        options.zero_copy = live.zero_copy;
        let mut opened = xdp::open(&ports, &options)?;
        let mut sources: Vec<Box<dyn Source>> = Vec::new();
        for (port, interface) in opened.iter_mut().zip(interfaces) {
            for (receiver, rx_queue) in port.receivers.drain(..).zip(interface.rx_queues.clone()) {
                let interface = interface.name.clone();
                let queue = XdpQueue { receiver, interface, rx_queue };
                let source = XdpSource::new(vec![queue], live.stop.clone());
                sources.push(Box::new(source.with_limit(limit.clone()).copying(live.copy)));
            }
        }
        Ok(LiveSources {
            sources,
            links: vec![LinkType::Ethernet; opened.len()],
            modes: opened.iter().map(mode).collect(),
            ports: opened.into_iter().map(LivePort::from).collect(),
            _promiscuous: promiscuous,
        })
    }

    fn mode(port: &XdpPort) -> String {
        let copies = if port.zero_copy { "zero-copy" } else { "copy mode" };
        let queues = port.queue_count();
        let queues =
            if queues == 1 { "1 RX queue".to_owned() } else { format!("{queues} RX queues") };
        format!("AF_XDP, {} XDP, {copies}, {queues}", port.mode)
    }
}

/// Checks that all interfaces have frames of one kind, so that each can send what another one received.
fn check_same_link(interfaces: &[LiveInterface], links: &[LinkType]) -> Result<(), LiveError> {
    let mut both = interfaces.iter().zip(links);
    let Some((first, link)) = both.next() else { return Ok(()) };
    match both.find(|(_, other)| *other != link) {
        Some((interface, other)) => Err(LiveError::LinkTypes(
            (first.name.clone(), link.name()),
            (interface.name.clone(), other.name()),
        )),
        None => Ok(()),
    }
}

/// With at least this many CPUs per RX queue, receiving CPUs get no other packets, see [`apart`]. A worker on the CPU of
/// an RX thread gets as many packets as any other, but has less time for them: under an even load 16 workers on 16 CPUs
/// did 0.48 to 0.71 times as many packets of 1 µs as 15 (docs/results/lab-16/workers.md, where full backlogs wait). The
/// number was chosen, not measured.
const CPUS_FOR_APART: usize = 4;

/// The CPUs that packets are spread over, and those that `queues` RX threads use in turn, if the user names neither: with
/// at least four CPUs for each RX queue, the first CPUs only receive.
#[must_use]
pub fn apart(all: CpuSet, queues: u16) -> (CpuSet, Vec<CpuId>) {
    let receiving: Vec<CpuId> = all.iter().take(usize::from(queues)).collect();
    let others = CpuSet::new(all.iter().skip(receiving.len()));
    match others {
        Some(others) if all.len() >= CPUS_FOR_APART * usize::from(queues) => (others, receiving),
        _ => {
            let receiving = all.iter().collect();
            (all, receiving)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_that_receive_are_apart_where_there_are_enough() {
        let of = |count, queues| {
            let (cpus, receiving) = apart(CpuSet::first(count).unwrap(), queues);
            let receiving: Vec<u16> = receiving.iter().map(|cpu| cpu.get()).collect();
            (cpus.to_string(), receiving)
        };
        assert_eq!(of(1, 1), ("0".to_owned(), vec![0]));
        assert_eq!(of(3, 1), ("0-2".to_owned(), vec![0, 1, 2]));
        assert_eq!(of(4, 1), ("1-3".to_owned(), vec![0]));
        assert_eq!(of(16, 2), ("2-15".to_owned(), vec![0, 1]));
        assert_eq!(of(7, 2), ("0-6".to_owned(), vec![0, 1, 2, 3, 4, 5, 6]));
    }

    #[test]
    fn queues_are_numbered_one_after_the_other() {
        let ranges = |named: &[(&'static str, u32)]| {
            interfaces(named.iter().copied())
                .map(|all| all.into_iter().map(|one| one.rx_queues).collect::<Vec<_>>())
                .map_err(|error| error.to_string())
        };
        assert_eq!(ranges(&[]), Ok(Vec::new()));
        assert_eq!(ranges(&[("a", 2), ("b", 0), ("c", 3)]), Ok(vec![0..2, 2..3, 3..6]));
        assert!(ranges(&[("a", u32::from(MAX_RX_QUEUES))]).is_ok());
        for queues in [u32::from(MAX_RX_QUEUES), u32::MAX] {
            let error = ranges(&[("a", 1), ("b", queues)]).unwrap_err();
            assert!(error.contains("RX queues, which is the limit"), "{error}");
        }
        let error = ranges(&[("a", 1), ("b", 1), ("a", 1)]).unwrap_err();
        assert_eq!(error, "a is named twice; its packets would count twice");
    }

    #[test]
    fn interfaces_of_different_links_can_not_send_for_each_other() {
        let all = interfaces([("a", 1), ("b", 1), ("c", 1)]).unwrap();
        let (ethernet, raw) = (LinkType::Ethernet, LinkType::Raw);
        assert!(check_same_link(&all, &[raw, raw, raw]).is_ok());
        let error = check_same_link(&all, &[ethernet, ethernet, raw]).unwrap_err().to_string();
        assert!(error.starts_with("a has ethernet frames and c has raw frames"), "{error}");
        assert!(check_same_link(&[], &[]).is_ok());
    }
}
