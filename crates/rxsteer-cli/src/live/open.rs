//! Chooses how packets are received, and opens a source for each RX queue.

use super::args::{Io, LiveArgs};
use super::filter;
use super::opened::{Named, Opened, Outgoing};
use crate::{check, output};
use anyhow::{Context, bail, ensure};
use rxsteer_host::Link;
use rxsteer_user::core::MAX_RX_QUEUES;
use rxsteer_user::forward::{Bridge, Forwarder, PacketPort};
use rxsteer_user::source::Source;
use rxsteer_user::source::packet::{PacketOptions, PacketSource};
use rxsteer_user::{PipelineConfig, printable};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

/// How packets are received, once that is decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// Packet sockets: copies; the host's stack also receives the packets.
    Packet,
    /// AF_XDP sockets: the host's stack does not receive the packets.
    Xdp,
}

impl Way {
    /// Chooses by the arguments: `auto` never takes packets away from the host, unless they should be sent on.
    pub(super) fn of(args: &LiveArgs) -> anyhow::Result<Way> {
        match (args.io, &args.bridge) {
            (Io::Packet, _) | (Io::Auto, None) => {
                let left_out =
                    [("--zero-copy", args.zero_copy), ("--busy-poll", args.busy_poll.is_some())];
                if let Some((option, _)) = left_out.iter().find(|(_, given)| *given) {
                    bail!("{option} requires AF_XDP sockets; leave it out, or use --io xdp");
                }
                Ok(Way::Packet)
            }
            (Io::Xdp, _) | (Io::Auto, Some(_)) => {
                let left_out = [
                    ("--filter", args.filter.is_some()),
                    ("--outgoing", args.outgoing),
                    ("--nic-hash", args.nic_hash),
                ];
                if let Some((option, _)) = left_out.iter().find(|(_, given)| *given) {
                    bail!("{option} requires packet sockets; leave it out, or use --io packet");
                }
                Ok(Way::Xdp)
            }
        }
    }

    /// Its name in reports.
    pub(super) fn name(self) -> &'static str {
        match self {
            Way::Packet => "packet",
            Way::Xdp => "xdp",
        }
    }
}

/// The interfaces of the arguments, with their RX queues: for packet sockets at most one for each of `rx_cpus` CPUs.
pub(super) fn interfaces(args: &LiveArgs, way: Way, rx_cpus: usize) -> anyhow::Result<Vec<Named>> {
    let given: Vec<&String> = args.interfaces.iter().chain(&args.bridge).collect();
    for (index, name) in given.iter().enumerate() {
        ensure!(
            !given[..index].contains(name),
            "{} is named twice; its packets would count twice",
            printable(name)
        );
    }
    let links = rxsteer_host::links()?;
    let names: Vec<String> = given.into_iter().cloned().collect();
    // A misspelt name is refused, with the nearest valid one.
    let chosen = check::chosen(&names, &links)?;
    ensure!(
        args.bridge.is_none() || chosen.len() == 2,
        "--bridge joins two interfaces: name exactly one other interface"
    );
    let mut first = 0_u16;
    let mut all = Vec::new();
    for link in chosen {
        check::note_down(link);
        let name = &link.name;
        let queues = match way {
            // Each socket's filter sees all packets of the interface, so more sockets than threads only add cost.
            Way::Packet => link.rx_queues().unwrap_or(1).clamp(1, (rx_cpus as u32).max(1)),
            Way::Xdp => rx_queues_of(name)?,
        };
        let end = u32::from(first) + queues;
        let end = u16::try_from(end).ok().filter(|end| *end <= MAX_RX_QUEUES);
        let end = end.with_context(|| {
            format!("the interfaces have more than {MAX_RX_QUEUES} RX queues, which is the limit; name fewer \
                     interfaces")
        })?;
        all.push(Named { name: name.clone(), rx_queues: first..end });
        first = end;
    }
    Ok(all)
}

#[cfg(feature = "xdp")]
fn rx_queues_of(name: &str) -> anyhow::Result<u32> {
    let link = super::xdp::link(name)?;
    let used = link.rx_queues().or_else(|| link.rx_queues_of_driver());
    Ok(used.unwrap_or(1).max(1))
}

#[cfg(not(feature = "xdp"))]
fn rx_queues_of(_: &str) -> anyhow::Result<u32> {
    bail!(
        "AF_XDP sockets are not built into this rxsteer (cargo feature xdp, which requires clang and libelf); use --io \
         packet, without --bridge"
    )
}

/// Opens sources on `interfaces`, which end when `end` is set.
pub(super) fn open(
    args: &LiveArgs,
    way: Way,
    interfaces: &[Named],
    end: &Arc<AtomicBool>,
) -> anyhow::Result<Opened> {
    let limit = args.count.map(|count| Arc::new(AtomicU64::new(count)));
    match way {
        Way::Packet => open_packet(args, interfaces, &limit, end),
        #[cfg(feature = "xdp")]
        Way::Xdp => super::xdp::open(args, interfaces, &limit, end),
        #[cfg(not(feature = "xdp"))]
        Way::Xdp => rx_queues_of("").map(|_| unreachable!("it is refused")),
    }
}

fn open_packet(
    args: &LiveArgs,
    interfaces: &[Named],
    limit: &Option<Arc<AtomicU64>>,
    end: &Arc<AtomicBool>,
) -> anyhow::Result<Opened> {
    let (mut sources, mut links): (Vec<Box<dyn Source>>, _) = (Vec::new(), Vec::new());
    let mut modes = Vec::new();
    for Named { name, rx_queues } in interfaces {
        let sockets = u32::from(rx_queues.end - rx_queues.start);
        let mut options = PacketOptions::default();
        options.ring_bytes = (args.ring_size << 20) / u64::from(sockets);
        options.copy = args.copy;
        // A bridge also passes on packets for other hosts.
        options.promiscuous = args.promiscuous || args.bridge.is_some();
        options.forwards = args.bridge.is_some();
        options.outgoing = args.outgoing;
        options.nic_hash = args.nic_hash;
        options.limit.clone_from(limit);
        options.stop = end.clone();
        if let Some(expression) = &args.filter {
            options.filter = filter::compile(expression, name)?;
        }
        for (rx_queue, own) in rx_queues.clone().zip(0..) {
            options.rx_queue = rx_queue;
            options.share = (own, sockets);
            let source = PacketSource::with(name, options.clone())
                .with_context(|| format!("can't receive from {}", printable(name)))?;
            if own == 0 {
                links.push(source.link().name());
            }
            sources.push(Box::new(source));
        }
        modes.push(match sockets {
            1 => "packet sockets".to_owned(),
            _ => format!("packet sockets, {sockets} receiving threads"),
        });
    }
    let outgoing = args.bridge.is_some().then(|| bridge(interfaces, &links)).transpose()?;
    Ok(Opened { sources, links, modes, outgoing, _kept: Vec::new() })
}

/// Sends what one interface received on the other one, with packet sockets.
fn bridge(interfaces: &[Named], links: &[&str]) -> anyhow::Result<Outgoing> {
    if let ([one, other], [link, other_link]) = (interfaces, links) {
        ensure!(
            link == other_link,
            "{} has {link} frames and {} has {other_link} frames, so neither can send what the other receives; join \
             interfaces of one kind",
            printable(&one.name),
            printable(&other.name)
        );
    }
    output::note(
        "rxsteer: packet sockets receive copies, so this host also answers and forwards the packets; remove the \
         addresses of both interfaces, and turn forwarding off (ip addr flush dev IFACE; sysctl net.ipv4.ip_forward=0)",
    );
    let port = |named: &Named| PacketPort {
        name: named.name.clone(),
        rx_queues: usize::from(named.rx_queues.end - named.rx_queues.start),
    };
    let ports: Vec<PacketPort> = interfaces.iter().map(port).collect();
    Ok(Box::new(move || Ok(Box::new(Forwarder::new(Bridge::between(&ports), &ports)?))))
}

/// Why no flow may move to another CPU, if so: a bridge with packet sockets could send its packets on two TX queues.
/// The kernel chooses the queue by the sending CPU, and packets in another queue may be overtaken.
pub(super) fn why_none_may_move(args: &LiveArgs, way: Way, named: &[Named]) -> Option<String> {
    if way != Way::Packet || args.bridge.is_none() {
        return None;
    }
    // If interfaces cannot be listed, none was named.
    let links = rxsteer_host::links().unwrap_or_default();
    named.iter().find_map(|Named { name, .. }| {
        let link = links.iter().find(|link| link.name == *name);
        let queues = link.and_then(Link::tx_queues).unwrap_or(1);
        (queues > 1).then(|| {
            format!(
                "{} has {queues} TX queues, and packet sockets send by the queue of the CPU: a flow that moves to \
                 another CPU could be overtaken there",
                printable(name)
            )
        })
    })
}

/// Whether flows can move to other CPUs although the settings stay the same.
pub(super) fn flows_can_move(config: &PipelineConfig) -> bool {
    config.policy.moves_flows() || !config.packet_rules.is_empty() || !config.pins()
}
