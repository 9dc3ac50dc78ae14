//! Tests whether generic mode works on this kernel.
//!
//! On some kernels (6.12, 6.18) the CPUMAP delivers socket buffers that still begin with the Ethernet header: it takes
//! the header's length from `skb->mac_len`, which is not yet set at that point (`cpu_map_generic_redirect` in
//! kernel/bpf/cpumap.c). IP refuses such packets, and they are lost. So the trial first runs the same programs in
//! generic mode, and steers some UDP packets between two sockets on a veth pair in separate network namespaces.

use super::{NO_CPUS, namespace, obstacle, setup};
use crate::run::privileges::raise_memory_limit;
use rxsteer_host::{Host, Trial};
use rxsteer_user::core::{CpuSet, Policy};
use rxsteer_xdp::{Mode, Path, Settings};
use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

/// The number of packets, and the number of source ports, which spread the flows over several CPUs.
const PACKETS: usize = 64;
const PORTS: usize = 16;
/// Addresses for documentation only (RFC 5737): they belong to no host, least of all in these namespaces.
const HERE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const THERE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
/// How long the receiver waits for the next packet, once all are sent.
const FRAME_TIMEOUT: Duration = Duration::from_secs(2);

/// Whether every frame that generic mode redirects is delivered.
pub(crate) fn generic(host: &Host) -> Trial {
    if let Some(why) = obstacle(host) {
        return Trial::not_tried(why);
    }
    raise_memory_limit();
    // A namespace belongs to a thread.
    let tried = std::thread::scope(|scope| {
        let tried = scope.spawn(|| attempt(host)).join();
        tried.unwrap_or_else(|_| Err("the trial ended early".to_owned()))
    });
    match tried {
        Ok(PACKETS) => Trial::Works,
        Ok(arrived) => Trial::Fails {
            what: format!(
                "of {PACKETS} packets sent through a veth pair made for this trial {arrived} arrived"
            ),
            log: String::new(),
        },
        Err(why) => Trial::not_tried(why),
    }
}

/// How many packets arrive. The calling thread has to end afterwards.
fn attempt(host: &Host) -> Result<usize, String> {
    let failed = |what: &str| {
        let what = what.to_owned();
        move |error: io::Error| format!("{what}: {error}")
    };
    namespace::enter_new().map_err(failed("a network namespace requires CAP_SYS_ADMIN"))?;
    std::thread::scope(|scope| {
        let (to_sender, of_receiver) = channel();
        let (to_receiver, of_sender) = channel();
        scope.spawn(move || {
            // The receiver gives up when this end of the channel is dropped.
            let _ = send(&to_receiver, &of_receiver);
        });
        receive(host, &to_sender, &of_sender)
            .map_err(failed("a veth pair could not be made"))
            .and_then(|result| result)
    })
}

/// A message of the sending end.
enum Report {
    /// Its namespace.
    Namespace(File),
    /// All packets are sent.
    Sent,
}

/// The sending end, in its own namespace: first reports the namespace, then sends packets to each port that it
/// receives.
fn send(reports: &Sender<Report>, commands: &Receiver<u16>) -> io::Result<()> {
    namespace::enter_new()?;
    let gone = || io::Error::from(io::ErrorKind::BrokenPipe);
    reports.send(Report::Namespace(namespace::current()?)).map_err(|_| gone())?;
    // 0 means that the pair exists.
    commands.recv().map_err(|_| gone())?;
    namespace::bring_up(namespace::FAR, THERE)?;
    let sockets: Vec<UdpSocket> =
        (0..PORTS).map(|_| UdpSocket::bind((THERE, 0))).collect::<io::Result<_>>()?;
    for (batch, port) in (1..).zip(commands) {
        for (number, socket) in (0..PACKETS).zip(sockets.iter().cycle()) {
            socket.send_to(&[batch, number as u8], (HERE, port))?;
        }
        reports.send(Report::Sent).map_err(|_| gone())?;
    }
    Ok(())
}

/// The receiving end, which is steered. The outer error means that it could not be set up.
fn receive(
    host: &Host,
    reports: &Sender<u16>,
    commands: &Receiver<Report>,
) -> io::Result<Result<usize, String>> {
    let gone = || io::Error::other("the sending end gave up");
    let Ok(Report::Namespace(other)) = commands.recv() else { return Err(gone()) };
    namespace::add_pair(&other)?;
    namespace::bring_up(namespace::NEAR, HERE)?;
    reports.send(0).map_err(|_| gone())?;
    let socket = UdpSocket::bind((HERE, 0))?;
    socket.set_read_timeout(Some(FRAME_TIMEOUT))?;
    let port = socket.local_addr()?.port();
    let mut batch = 0;
    let mut arrivals = || -> io::Result<usize> {
        reports.send(port).map_err(|_| gone())?;
        let Ok(Report::Sent) = commands.recv() else { return Err(gone()) };
        batch += 1;
        Ok(count(&socket, batch))
    };
    // The first packets are sent without the programs. This resolves the neighbour, and if packets are lost already
    // here, the trial has no result.
    if arrivals()? != PACKETS && arrivals()? != PACKETS {
        return Ok(Err("packets are lost on a new veth pair even without the programs".to_owned()));
    }
    let (Some(setup), Some(cpus), Some(online)) =
        (setup(host, Mode::Generic), host.cpus.usable(&[]), &host.cpus.online)
    else {
        return Ok(Err(NO_CPUS.to_owned()));
    };
    let offline = CpuSet::new(setup.possible.iter().filter(|cpu| !online.contains(*cpu)));
    let settings = Settings { offline, ..Settings::new(Policy::Rps, cpus) };
    let mut path = match Path::load(&setup, &settings) {
        Ok(path) => path,
        Err(why) => return Ok(Err(why.to_string())),
    };
    if let Err(why) = path.attach(namespace::NEAR, "near", 1, false) {
        return Ok(Err(why.to_string()));
    }
    if let Err(why) = path.tick_until_done() {
        return Ok(Err(why.to_string()));
    }
    // A packet may be lost for another reason, so there is a second attempt.
    match arrivals()? {
        PACKETS => Ok(Ok(PACKETS)),
        _ => Ok(Ok(arrivals()?)),
    }
}

/// How many different packets of a batch arrive.
fn count(socket: &UdpSocket, batch: u8) -> usize {
    let mut seen = [false; PACKETS];
    let mut last = Instant::now();
    let mut buffer = [0; 8];
    while !seen.iter().all(|seen| *seen) && last.elapsed() < FRAME_TIMEOUT {
        if let Ok((2, _)) = socket.recv_from(&mut buffer)
            && buffer[0] == batch
            && let Some(seen) = seen.get_mut(usize::from(buffer[1]))
        {
            *seen = true;
            last = Instant::now();
        }
    }
    seen.iter().filter(|seen| **seen).count()
}
