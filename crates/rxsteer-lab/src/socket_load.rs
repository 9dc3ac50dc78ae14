//! Paced datagrams between connected sockets: the load of a server that also does other work.
//!
//! ```text
//!   sender, CPU 0, SCHED_FIFO: like a NIC, it is not delayed by processes
//!     └─ 200 flows ─► veth ─► [which CPU?] ─► 200 connected sockets ─► a reader on each CPU, ordinary class
//! ```

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::set_socket_recv_buffer_size_force;
use rustix::thread::gettid;

use crate::cpus::pin;
use crate::delay::{Delays, monotonic_ns, sent_at, stamped};
use crate::error::{LabError, Result, Tried};
use crate::process::typed;
use crate::testbed::Testbed;

const SOURCE_PORT: u16 = 10_000;
const PORT: u16 = 20_000;
/// The receive buffer of each socket, so that slow readers lose nothing.
const RECEIVE_BUFFER: usize = 8 << 20;
/// The time between two bursts of the sender.
const PACE: Duration = Duration::from_micros(100);

/// The sockets of all flows, and their readers.
#[derive(Debug)]
pub struct SocketLoad {
    sending: Vec<UdpSocket>,
    stop: Arc<AtomicBool>,
    received: Arc<AtomicU64>,
    readers: Vec<JoinHandle<Result<()>>>,
    delays: Vec<Arc<std::sync::Mutex<Delays>>>,
}

impl SocketLoad {
    /// Opens sockets on both ends of the first link for `flows` flows, and starts a reader on each of `cpus`.
    pub fn start(testbed: &Testbed, flows: u16, cpus: &[usize]) -> Result<Self> {
        let (near, far) = (testbed.link().near.ipv4, testbed.link().far.ipv4);
        let open = |local: SocketAddr, remote: SocketAddr| {
            let socket = UdpSocket::bind(local).tried(|| format!("open a socket at {local}"))?;
            socket.connect(remote).tried(|| format!("connect to {remote}"))?;
            Ok(socket)
        };
        let ends = |flow: u16| {
            (SocketAddr::from((near, SOURCE_PORT + flow)), SocketAddr::from((far, PORT + flow)))
        };
        let sending = testbed.sender().inside(|| {
            (0..flows).map(|flow| open(ends(flow).0, ends(flow).1)).collect::<Result<Vec<_>>>()
        })?;
        let mut load = Self {
            sending,
            stop: Arc::default(),
            received: Arc::default(),
            readers: Vec::new(),
            delays: Vec::new(),
        };
        for (index, cpu) in cpus.iter().copied().enumerate() {
            let own = (0..flows).filter(|flow| usize::from(*flow) % cpus.len() == index);
            let sockets = testbed.receiver().inside(|| {
                own.map(|flow| {
                    let socket = open(ends(flow).1, ends(flow).0)?;
                    socket
                        .set_nonblocking(true)
                        .tried(|| "set a socket non-blocking".to_owned())?;
                    set_socket_recv_buffer_size_force(&socket, RECEIVE_BUFFER)
                        .tried(|| "enlarge a socket's buffer".to_owned())?;
                    Ok(socket)
                })
                .collect::<Result<Vec<_>>>()
            })?;
            let (stop, received) = (Arc::clone(&load.stop), Arc::clone(&load.received));
            let delays = Arc::<std::sync::Mutex<Delays>>::default();
            load.delays.push(Arc::clone(&delays));
            load.readers.push(std::thread::spawn(move || {
                pin(cpu)?;
                read(&sockets, &stop, &received, &delays)
            }));
        }
        Ok(load)
    }

    /// Sends at a rate on `cpu`, from a thread that has priority over ordinary threads; returns how many datagrams were
    /// sent, and how long that took.
    pub fn send(&self, cpu: usize, per_second: u32, time: Duration) -> Result<(u64, Duration)> {
        std::thread::scope(|scope| {
            let sender = scope.spawn(|| {
                pin(cpu)?;
                typed(&format!("chrt -f -p {SENDER_PRIORITY} {}", gettid().as_raw_nonzero()))?;
                Ok(self.send_paced(per_second, time))
            });
            sender.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    fn send_paced(&self, per_second: u32, time: Duration) -> (u64, Duration) {
        let started = Instant::now();
        let (mut tried, mut sent) = (0_u64, 0);
        loop {
            let elapsed = started.elapsed();
            if elapsed >= time {
                return (sent, elapsed);
            }
            let due = (elapsed.as_secs_f64() * f64::from(per_second)) as u64;
            // The catch-up is limited if the CPU is too slow, since the other threads on the CPU have to run.
            for _ in 0..due.saturating_sub(tried).min(u64::from(per_second) / 1000 + 1) {
                let flow = (tried % self.sending.len() as u64) as usize;
                let payload = stamped(flow as u32, monotonic_ns());
                // A datagram that the system refuses was not sent, so it is not lost on the way.
                sent += u64::from(self.sending[flow].send(&payload).is_ok());
                tried += 1;
            }
            tried = tried.max(due.saturating_sub(u64::from(per_second) / 100));
            std::thread::sleep(PACE);
        }
    }

    /// The number of datagrams that the readers have read.
    pub fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    /// The delays from send to read of all datagrams that were read since the last call.
    pub fn take_delays(&self) -> Delays {
        let mut all = Delays::default();
        for delays in &self.delays {
            let mut of_reader = delays.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            all.merge(&std::mem::take(&mut of_reader));
        }
        all
    }

    /// Ends the readers.
    pub fn finish(mut self) -> Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        let panicked = || LabError::Unreadable {
            who: "a reader".to_owned(),
            why: "its thread panicked".to_owned(),
        };
        let readers = std::mem::take(&mut self.readers);
        readers.into_iter().try_for_each(|reader| reader.join().map_err(|_| panicked())?)
    }
}

impl Drop for SocketLoad {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// A higher priority than that of the rings' threads, like that of interrupts.
pub const SENDER_PRIORITY: u32 = 2;

fn read(
    sockets: &[UdpSocket],
    stop: &AtomicBool,
    received: &AtomicU64,
    delays: &std::sync::Mutex<Delays>,
) -> Result<()> {
    let mut ready: Vec<PollFd<'_>> =
        sockets.iter().map(|socket| PollFd::new(socket, PollFlags::IN)).collect();
    let timeout = Timespec::try_from(Duration::from_millis(50)).ok();
    let mut bytes = [0; 64];
    while !stop.load(Ordering::Relaxed) {
        if poll(&mut ready, timeout.as_ref()).tried(|| "wait for datagrams".to_owned())? == 0 {
            continue;
        }
        let mut found = Delays::default();
        let mut count = 0;
        for (socket, ready) in sockets.iter().zip(&ready) {
            if ready.revents().is_empty() {
                continue;
            }
            // Limited, so that one socket does not delay the others.
            for _ in 0..64 {
                let Ok(length) = socket.recv(&mut bytes) else { break };
                if let Some(at) = sent_at(&bytes[..length]) {
                    found.add(monotonic_ns().saturating_sub(at));
                    count += 1;
                }
            }
        }
        received.fetch_add(count, Ordering::Relaxed);
        delays.lock().unwrap_or_else(std::sync::PoisonError::into_inner).merge(&found);
    }
    Ok(())
}
