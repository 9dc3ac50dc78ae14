//! An application that moves all the time: it reads numbered datagrams from connected UDP sockets, and changes its CPU
//! after a number of them. Receive flow steering follows it, so the CPUs of its flows change as well. The check is
//! whether each flow still arrives in order.
//!
//! The order in which a UDP socket is read is the order of delivery, so this check needs no BPF.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::cpus::pin;
use crate::error::{LabError, Result, Tried};
use crate::namespace::Namespace;

/// What an application has read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReadCounts {
    /// Datagrams read.
    pub datagrams: u64,
    /// Those with a lower number than an earlier one of their flow.
    pub late: u64,
    /// Those with the number of the one before.
    pub repeated: u64,
    /// Numbers that were skipped: datagrams that were lost on the way, or are late.
    pub skipped: u64,
    /// How often the reader changed CPU.
    pub moves: u64,
}

/// A reader in its own thread, which ends when this is dropped.
#[derive(Debug)]
pub struct MovingApplication {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<ReadCounts>>>,
}

impl MovingApplication {
    /// Opens a socket for each (local, remote) pair, and reads them all, on each CPU of `cpus` in turn for
    /// `packets_each` datagrams.
    pub fn start(
        namespace: &Namespace,
        pairs: &[(SocketAddr, SocketAddr)],
        cpus: &[usize],
        packets_each: u64,
    ) -> Result<Self> {
        let sockets: Vec<UdpSocket> =
            namespace.inside(|| pairs.iter().map(connected).collect::<Result<_>>())?;
        let stop = Arc::new(AtomicBool::new(false));
        let (report, cpus) = (Arc::clone(&stop), cpus.to_vec());
        let thread = std::thread::spawn(move || read(&sockets, &cpus, packets_each, &report));
        Ok(Self { stop, thread: Some(thread) })
    }

    /// Ends the application once it has read everything that is there.
    pub fn finish(mut self) -> Result<ReadCounts> {
        self.stop.store(true, Ordering::Relaxed);
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(counts)) => counts,
            _ => Err(LabError::Unreadable {
                who: "the application".to_owned(),
                why: "its thread panicked".to_owned(),
            }),
        }
    }
}

impl Drop for MovingApplication {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // Its result is no longer used.
            let _ = thread.join();
        }
    }
}

/// A non-blocking datagram socket at (local, remote).
pub(crate) fn connected((local, remote): &(SocketAddr, SocketAddr)) -> Result<UdpSocket> {
    let socket = UdpSocket::bind(local).tried(|| format!("listen on {local}"))?;
    socket.connect(remote).tried(|| format!("connect to {remote}"))?;
    socket.set_nonblocking(true).tried(|| "set a socket non-blocking".to_owned())?;
    Ok(socket)
}

/// Reads until it is stopped and nothing is left.
fn read(
    sockets: &[UdpSocket],
    cpus: &[usize],
    packets_each: u64,
    stop: &AtomicBool,
) -> Result<ReadCounts> {
    let mut counts = ReadCounts::default();
    let mut next = vec![0; sockets.len()];
    let mut moves = cpus.iter().cycle();
    let mut here_until = 0;
    loop {
        if counts.datagrams >= here_until {
            here_until = counts.datagrams + packets_each;
            if let Some(&cpu) = moves.next() {
                pin(cpu)?;
                counts.moves += 1;
            }
        }
        let mut ready: Vec<PollFd<'_>> =
            sockets.iter().map(|socket| PollFd::new(socket, PollFlags::IN)).collect();
        let timeout = Timespec::try_from(Duration::from_millis(50)).ok();
        let count = poll(&mut ready, timeout.as_ref()).tried(|| "wait for datagrams".to_owned())?;
        if count == 0 && stop.load(Ordering::Relaxed) {
            return Ok(counts);
        }
        let readable: Vec<bool> = ready.iter().map(|fd| !fd.revents().is_empty()).collect();
        for (index, socket) in sockets.iter().enumerate().filter(|(index, _)| readable[*index]) {
            take(socket, &mut next[index], &mut counts, here_until);
        }
    }
}

/// Reads a socket until it is empty, or it is time to move.
fn take(socket: &UdpSocket, next: &mut u64, counts: &mut ReadCounts, until: u64) {
    let mut bytes = [0; 2048];
    while counts.datagrams < until {
        // The socket reports an error once (a port that has no listener yet), and works afterwards.
        let Ok(length) = socket.recv(&mut bytes) else { return };
        let Some(number) = bytes[..length].get(8..16).and_then(|number| number.try_into().ok())
        else {
            continue;
        };
        let number = u64::from_be_bytes(number);
        counts.datagrams += 1;
        if number >= *next {
            counts.skipped += number - *next;
            *next = number + 1;
        } else if number + 1 == *next {
            counts.repeated += 1;
        } else {
            counts.late += 1;
        }
    }
}
