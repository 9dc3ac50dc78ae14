//! Chooses how packets are received, and opens the interfaces.

use super::args::{Io, LiveArgs};
use super::filter;
use crate::{check, output};
use anyhow::{Context, bail, ensure};
use rxsteer_host::{Interface, Link, Peer};
use rxsteer_user::forward::{Bridge, Forwarder, LivePort, why_none_may_move};
use rxsteer_user::source::live::{self, LiveInterface, LiveIo, LiveOptions, LiveSources};
use rxsteer_user::source::packet::LiveError;
use rxsteer_user::{Handler, printable};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Chooses by the arguments: `auto` never takes packets away from the host, unless they should be sent on.
pub(super) fn io(args: &LiveArgs) -> anyhow::Result<LiveIo> {
    match (args.io, &args.bridge) {
        (Io::Packet, _) | (Io::Auto, None) => {
            let left_out =
                [("--zero-copy", args.zero_copy), ("--busy-poll", args.busy_poll.is_some())];
            if let Some((option, _)) = left_out.iter().find(|(_, given)| *given) {
                bail!("{option} requires AF_XDP sockets; leave it out, or use --io xdp");
            }
            Ok(LiveIo::Packet)
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
            Ok(LiveIo::Xdp)
        }
    }
}

/// The interfaces of the arguments, with their RX queues: for packet sockets at most one for each of `rx_cpus` CPUs.
pub(super) fn interfaces(
    args: &LiveArgs,
    io: LiveIo,
    rx_cpus: usize,
) -> anyhow::Result<Vec<LiveInterface>> {
    let given: Vec<&String> = args.interfaces.iter().chain(&args.bridge).collect();
    for (index, name) in given.iter().enumerate() {
        ensure!(!given[..index].contains(name), LiveError::Twice((*name).clone()));
    }
    let links = rxsteer_host::links()?;
    let names: Vec<String> = given.into_iter().cloned().collect();
    // A misspelt name is refused, with the nearest valid one.
    let chosen = check::chosen(&names, &links)?;
    ensure!(
        args.bridge.is_none() || chosen.len() == 2,
        "--bridge joins two interfaces: name exactly one other interface"
    );
    chosen.iter().for_each(|link| check::note_down(link));
    let mut interfaces = live::interfaces(
        chosen.iter().map(|link| (&link.name, io.rx_threads(link.rx_queues_in_use(), rx_cpus))),
    )?;
    if let Some(expression) = &args.filter {
        for interface in &mut interfaces {
            interface.filter = filter::compile(expression, &interface.name)?;
        }
    }
    Ok(interfaces)
}

/// Opens sources on `interfaces`, which end when `end` is set.
pub(super) fn open(
    args: &LiveArgs,
    io: LiveIo,
    interfaces: &[LiveInterface],
    end: &Arc<AtomicBool>,
) -> anyhow::Result<LiveSources> {
    let bridges = args.bridge.is_some();
    if bridges && io == LiveIo::Xdp {
        interfaces.iter().for_each(|interface| note_checksums(&interface.name));
    }
    let mut options = LiveOptions::default();
    options.io = io;
    options.ring_bytes = args.ring_size << 20;
    options.copy = args.copy;
    options.promiscuous = args.promiscuous;
    options.forwards = bridges;
    options.limit = args.count;
    options.stop = end.clone();
    options.outgoing = args.outgoing;
    options.nic_hash = args.nic_hash;
    options.zero_copy = args.zero_copy.then_some(true);
    options.busy_poll_us = args.busy_poll;
    let opened = live::open(interfaces, &options)?;
    match io {
        LiveIo::Packet if bridges => output::note(
            "rxsteer: packet sockets receive copies, so this host also answers and forwards the packets; remove the \
             addresses of both interfaces, and turn forwarding off (ip addr flush dev IFACE; sysctl \
             net.ipv4.ip_forward=0)",
        ),
        LiveIo::Packet => {}
        // Not before the sockets are attached: if that fails, the host continues to receive.
        LiveIo::Xdp => interfaces.iter().for_each(|interface| note_taken(&interface.name)),
    }
    Ok(opened)
}

/// The handlers of `count` CPUs, each of which sends on the second port what the first one received, and the reverse.
pub(super) fn bridges(ports: &[LivePort], count: usize) -> anyhow::Result<Vec<Box<dyn Handler>>> {
    (0..count)
        .map(|_| {
            let forwarder = Forwarder::new(Bridge::between(ports), ports);
            Ok(Box::new(forwarder.context("can't send")?) as Box<dyn Handler>)
        })
        .collect()
}

/// Why no flow may move to another CPU, if so: a bridge with packet sockets could send its packets on two TX queues.
pub(super) fn fixed_by(
    args: &LiveArgs,
    io: LiveIo,
    interfaces: &[LiveInterface],
) -> Option<String> {
    if io != LiveIo::Packet || args.bridge.is_none() {
        return None;
    }
    // If interfaces cannot be listed, none was named.
    let links = rxsteer_host::links().unwrap_or_default();
    interfaces.iter().find_map(|LiveInterface { name, .. }| {
        let link = links.iter().find(|link| link.name == *name);
        why_none_may_move(name, link.and_then(Link::tx_queues).unwrap_or(1))
    })
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
