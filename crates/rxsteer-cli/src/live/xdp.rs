//! `--io xdp`: AF_XDP sockets on all RX queues of the interfaces, and `--bridge`.

use super::args::LiveArgs;
use super::opened::{Named, Opened, Outgoing};
use crate::output;
use anyhow::{Context, ensure};
use rxsteer_host::{ETHERNET, Interface, Link, Peer};
use rxsteer_user::forward::{Bridge, Forwarder};
use rxsteer_user::printable;
use rxsteer_user::source::Source;
use rxsteer_user::source::packet::Promiscuous;
use rxsteer_user::source::xdp::{self, Port, XdpOptions, XdpPort, XdpQueue, XdpSource};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

/// Memory of a frame in bytes, for the size of rings.
const FRAME_BYTES: u64 = 2048;

/// The interface of that name.
pub(super) fn link(name: &str) -> anyhow::Result<Link> {
    let links = rxsteer_host::links()?;
    let found = links.into_iter().find(|link| link.name == name);
    let link = found.with_context(|| {
        format!(
            "there is no interface '{}' in this network namespace; `ip link` lists them",
            printable(name)
        )
    })?;
    ensure!(
        link.hardware_type == ETHERNET,
        "{} is not Ethernet, and AF_XDP sockets receive Ethernet frames; use --io packet",
        printable(name)
    );
    Ok(link)
}

/// Sources on `interfaces`, one for each RX queue.
pub(super) fn open(
    args: &LiveArgs,
    interfaces: &[Named],
    limit: &Option<Arc<AtomicU64>>,
    end: &Arc<AtomicBool>,
) -> anyhow::Result<Opened> {
    let mut ports = Vec::new();
    let mut kept: Vec<Box<dyn Send>> = Vec::new();
    for Named { name, rx_queues } in interfaces {
        let link = link(name)?;
        // A bridge also passes on packets for other hosts.
        if args.promiscuous || args.bridge.is_some() {
            let promiscuous = Promiscuous::on(link.index)
                .with_context(|| format!("can't receive from {}", printable(name)))?;
            kept.push(Box::new(promiscuous));
        }
        if args.bridge.is_some() {
            note_checksums(name);
        }
        let queues = u32::from(rx_queues.end - rx_queues.start);
        ports.push(Port {
            name: name.clone(),
            ifindex: link.index,
            queues,
            mtu: link.mtu.unwrap_or(1500),
        });
    }
    let mut options = XdpOptions::default();
    options.frames = u32::try_from((args.ring_size << 20) / FRAME_BYTES).unwrap_or(u32::MAX);
    options.forwards = args.bridge.is_some();
    options.busy_poll_us = args.busy_poll;
    options.zero_copy = args.zero_copy.then_some(true);
    let mut opened = xdp::open(&ports, &options).context("can't receive by AF_XDP")?;
    // Not before the sockets are attached: if that fails, the host continues to receive.
    interfaces.iter().for_each(|named| note_taken(&named.name));
    let modes = opened.iter().map(mode).collect();
    let mut sources: Vec<Box<dyn Source>> = Vec::new();
    for (port, named) in opened.iter_mut().zip(interfaces) {
        for (receiver, rx_queue) in port.receivers.drain(..).zip(named.rx_queues.clone()) {
            let queue = XdpQueue { receiver, interface: named.name.clone(), rx_queue };
            let source = XdpSource::new(vec![queue], end.clone());
            sources.push(Box::new(source.with_limit(limit.clone()).copying(args.copy)));
        }
    }
    let outgoing = args.bridge.is_some().then(|| bridge(opened));
    let links = interfaces.iter().map(|_| "ethernet").collect();
    Ok(Opened { sources, links, modes, outgoing, _kept: kept })
}

/// Sends what one interface received on the other one.
fn bridge(ports: Vec<XdpPort>) -> Outgoing {
    Box::new(move || {
        let forwarder = Forwarder::new(Bridge::between(&ports), &ports);
        Ok(Box::new(forwarder.context("can't send by AF_XDP")?))
    })
}

fn mode(port: &XdpPort) -> String {
    let copies = if port.zero_copy { "zero-copy" } else { "copy mode" };
    let queues = port.queue_count();
    let queues = if queues == 1 { "1 RX queue".to_owned() } else { format!("{queues} RX queues") };
    format!("AF_XDP, {} XDP, {copies}, {queues}", port.mode)
}

/// The note when packets are taken away from the host.
fn note_taken(name: &str) {
    output::note(&format!(
        "rxsteer: this host no longer receives what comes in at {}: AF_XDP takes packets before its stack. Use --io packet to \
         receive copies.",
        printable(name)
    ));
}

/// The note before a bridge sends frames on.
fn note_checksums(name: &str) {
    let shown = printable(name);
    let Ok(interface) = Interface::read(name) else { return };
    let leaves_checksums = match &interface.peer {
        Some(Peer::Here { offloads, .. }) => offloads.is_none_or(|offloads| offloads.tx_checksum),
        Some(_) => true,
        None => false,
    };
    if leaves_checksums {
        output::note(&format!(
            "rxsteer: the other end of {shown} may leave checksums to a device, and receivers drop frames that are \
             forwarded without one; turn that off there: ethtool -K PEER tx off"
        ));
    }
}
