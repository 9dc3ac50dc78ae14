//! Two threads that receive the frames of an interface by packet sockets: rxsteer's userspace path, compared with loops
//! without it.

use crate::channels::{self, Channels, LIST, spend};
use crate::cpus::pin;
use crate::error::{LabError, Result};
use crate::live::{LiveFrames, Traffic};
use crate::testbed::Testbed;
use nix::sys::socket::{
    AddressFamily, MsgFlags, MultiHeaders, SockFlag, SockProtocol, SockType, recvmmsg, setsockopt,
    socket, sockopt,
};
use rxsteer_core::{CpuId, Policy};
use rxsteer_io::packet::{Fanout, FanoutBy, PacketSocket, RingOptions};
use rxsteer_user::source::packet::{PacketOptions, PacketSource};
use rxsteer_user::source::{Fill, Source, SourceIssue};
use rxsteer_user::{Block, OnFull, PacketList, PipelineConfig, Speed};
use std::io::IoSliceMut;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Frames that wait in a ring before reading begins. The ring has room for more.
pub(crate) const IN_RING: u64 = 100_000;
/// Blocks of a ring in which frames wait. The kernel passes one on every millisecond even if it is not full, so the
/// sender may take half a second.
const BLOCKS: u32 = 512;
/// Frames that have not arrived after this time are lost.
const TIMEOUT: Duration = Duration::from_secs(10);
/// How often to check whether reading may begin, or has ended.
const POLL_INTERVAL: Duration = Duration::from_micros(100);
/// How many ports to try to find two flows that fanout puts on one thread.
const PORTS: u16 = 64;

/// Packets that each of two threads has finished.
pub type Seen = [AtomicU64; 2];

fn total(seen: &Seen) -> u64 {
    seen.iter().map(|of| of.load(Ordering::Relaxed)).sum()
}

/// Holds readers, whose sockets are open, until their rings are full.
#[derive(Debug, Default)]
pub struct Gate {
    is_held: AtomicBool,
    /// Whether a reader waits. It has opened all sockets of its method before.
    is_ready: AtomicBool,
}

impl Gate {
    /// Whether a reader must still wait.
    fn holds(&self) -> bool {
        let holds = self.is_held.load(Ordering::Acquire);
        if holds {
            self.is_ready.store(true, Ordering::Release);
        }
        holds
    }

    /// Waits until reading may begin.
    fn wait(&self) {
        while self.holds() {
            sleep(POLL_INTERVAL);
        }
    }
}

/// What to send, and the work for each packet.
#[derive(Clone, Copy, Debug)]
pub struct Receiving<'a> {
    /// Two hosts.
    pub testbed: &'a Testbed,
    /// Frames in one turn.
    pub frames: u64,
    /// What the receiver does for each packet.
    pub work: Duration,
    /// Where readers wait: [`Receiving::drained`] holds them.
    pub gate: &'a Gate,
}

/// A source that delivers nothing while it is held.
struct Held<'a> {
    source: PacketSource,
    gate: &'a Gate,
}

impl Source for Held<'_> {
    fn fill(&mut self, block: &mut Block) -> Fill {
        if self.gate.holds() {
            sleep(POLL_INTERVAL);
            return Fill::More;
        }
        self.source.fill(block)
    }

    fn take_issues(&mut self) -> Vec<SourceIssue> {
        self.source.take_issues()
    }

    fn stop_waiting(&self) -> Option<Arc<AtomicBool>> {
        self.source.stop_waiting()
    }

    fn kernel_drops(&self) -> u64 {
        self.source.kernel_drops()
    }
}

impl Receiving<'_> {
    /// Packets received per second of sending, including those that arrive a little later.
    pub fn empty(
        &self,
        source: &LiveFrames,
        receive: impl FnOnce(&Arc<Seen>, &Arc<AtomicBool>) -> Result<()> + Send,
    ) -> Result<f64> {
        let (_, all, took) = self.turn(source, self.frames, receive)?;
        Ok(all as f64 / took.as_secs_f64())
    }

    /// Packets finished per second while the sender sends; and those of each thread.
    pub fn working(
        &self,
        source: &LiveFrames,
        receive: impl FnOnce(&Arc<Seen>, &Arc<AtomicBool>) -> Result<()> + Send,
    ) -> Result<(f64, [u64; 2])> {
        let (seen, _, took) = self.turn(source, self.frames, receive)?;
        Ok((seen.iter().sum::<u64>() as f64 / took.as_secs_f64(), seen))
    }

    /// Packets finished per second, of those that wait in the ring when reading begins; and those of each thread. The
    /// sender uses no CPU meanwhile.
    pub fn drained(
        &self,
        source: &LiveFrames,
        receive: impl FnOnce(&Arc<Seen>, &Arc<AtomicBool>) -> Result<()> + Send,
    ) -> Result<(f64, [u64; 2])> {
        let (seen, end) = (Arc::new(Seen::default()), Arc::new(AtomicBool::new(false)));
        self.gate.is_ready.store(false, Ordering::Relaxed);
        self.gate.is_held.store(true, Ordering::Release);
        std::thread::scope(|scope| {
            let receiver = self.testbed.receiver();
            let thread = scope.spawn(|| receiver.inside(|| receive(&seen, &end)));
            let started = Instant::now();
            while !self.gate.is_ready.load(Ordering::Acquire)
                && !thread.is_finished()
                && started.elapsed() < TIMEOUT
            {
                sleep(POLL_INTERVAL);
            }
            let sent = source.send(self.testbed.sender(), 0, IN_RING);
            // By then the kernel has passed on the block that was being filled.
            sleep(Duration::from_millis(20));
            let started = Instant::now();
            self.gate.is_held.store(false, Ordering::Release);
            while total(&seen) < IN_RING && !thread.is_finished() && started.elapsed() < TIMEOUT {
                sleep(POLL_INTERVAL);
            }
            let took = started.elapsed();
            end.store(true, Ordering::Relaxed);
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            sent?;
            if total(&seen) < IN_RING {
                let why = format!("{} of {IN_RING} frames came out of the ring", total(&seen));
                return Err(LabError::Load { why });
            }
            let done = [0, 1].map(|thread: usize| seen[thread].load(Ordering::Relaxed));
            Ok((IN_RING as f64 / took.as_secs_f64(), done))
        })
    }

    /// The counts when the sender ended, and a little later.
    fn turn(
        &self,
        source: &LiveFrames,
        frames: u64,
        receive: impl FnOnce(&Arc<Seen>, &Arc<AtomicBool>) -> Result<()> + Send,
    ) -> Result<([u64; 2], u64, Duration)> {
        let (seen, end) = (Arc::new(Seen::default()), Arc::new(AtomicBool::new(false)));
        let receiver = self.testbed.receiver();
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| receiver.inside(|| receive(&seen, &end)));
            // The ring exists by then.
            sleep(Duration::from_millis(100));
            let sent = source.send(self.testbed.sender(), 0, frames);
            let at_end = [0, 1].map(|thread: usize| seen[thread].load(Ordering::Relaxed));
            sleep(Duration::from_millis(60));
            let all = total(&seen);
            end.store(true, Ordering::Relaxed);
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            Ok((at_end, all, sent?))
        })
    }

    /// The number of blocks of each ring: larger if frames wait there.
    fn blocks(&self) -> u32 {
        let waits = self.gate.is_held.load(Ordering::Relaxed);
        if waits { BLOCKS } else { RingOptions::default().blocks }
    }

    fn open(&self, fanout: Option<Fanout>) -> Result<PacketSocket> {
        let mut options = RingOptions::default();
        options.blocks = self.blocks();
        options.fanout = fanout;
        let socket = PacketSocket::open(self.testbed.link().far.index, &options);
        socket.map_err(|why| LabError::Unreadable {
            who: "a packet socket".to_owned(),
            why: why.to_string(),
        })
    }

    /// Threads with a channel of lists each. One more thread, on CPU 1, reads the ring, and sends each packet to the
    /// channel of its flow.
    pub fn channels(&self, seen: &Seen, end: &AtomicBool) -> Result<()> {
        let mut socket = self.open(None)?;
        std::thread::scope(|scope| {
            pin(1)?;
            // All packets that wait in the ring must come out.
            let waits = self.gate.is_held.load(Ordering::Relaxed);
            let (mut channels, receivers) = Channels::new(seen.len(), waits);
            for ((cpu, lists), done) in receivers.into_iter().enumerate().zip(seen) {
                scope.spawn(move || channels::work(cpu, lists, self.work, done));
            }
            self.gate.wait();
            while !end.load(Ordering::Relaxed) {
                let Some(mut block) = socket.next_block() else {
                    let _ = socket.wait(Duration::from_millis(10));
                    continue;
                };
                let memory = block.lent();
                while let Some(frame) = block.next_frame() {
                    let bytes = memory.slice(frame.offset as usize, frame.len as usize);
                    channels.send(bytes, frame.wire_len);
                    if end.load(Ordering::Relaxed) {
                        break;
                    }
                }
                channels.flush();
            }
            Ok(())
        })
    }

    /// A loop over the blocks of a ring, on CPU 1.
    pub fn bare(&self, seen: &Seen, end: &AtomicBool) -> Result<()> {
        pin(1)?;
        let socket = self.open(None)?;
        self.read(socket, &seen[0], end, Duration::ZERO);
        Ok(())
    }

    /// Two such loops in a fanout group, which work for each packet.
    pub fn fanout(&self, by: FanoutBy, seen: &Seen, end: &AtomicBool) -> Result<()> {
        let fanout = Some(Fanout { group: 7, by });
        let sockets = [self.open(fanout)?, self.open(fanout)?];
        std::thread::scope(|scope| {
            for (cpu, (socket, seen)) in sockets.into_iter().zip(seen).enumerate() {
                scope.spawn(move || {
                    // The first thread, which gets everything with fanout by CPU and rollover, has CPU 1 to itself.
                    let _ = pin(1 - cpu);
                    self.read(socket, seen, end, self.work);
                });
            }
        });
        Ok(())
    }

    /// The receive path of rxsteer, with the RX thread on CPU 1.
    pub fn rxsteer(
        &self,
        policy: &Policy,
        cpus: &str,
        work: Duration,
        seen: &Arc<Seen>,
        end: &Arc<AtomicBool>,
    ) -> Result<()> {
        let unreadable = |why: String| LabError::Unreadable { who: "rxsteer".to_owned(), why };
        let cpus = cpus.parse().map_err(|_| unreadable("CPUs".to_owned()))?;
        let mut config = PipelineConfig::new(policy.clone(), cpus);
        config.rx_cpus = CpuId::new(1).into_iter().collect();
        // All packets that wait in the ring must come out, so the ring needs room for all of them.
        if self.gate.is_held.load(Ordering::Relaxed) {
            config.on_full = OnFull::Wait;
        }
        let mut options = PacketOptions::default();
        options.stop = end.clone();
        let ring = RingOptions::default();
        options.ring_bytes = u64::from(ring.block_size) * u64::from(self.blocks());
        let source = PacketSource::with(&self.testbed.link().far.name, options);
        let source = source.map_err(|why| unreadable(why.to_string()))?;
        let mut sources = [Held { source, gate: self.gate }];
        let handler = |cpu: CpuId| {
            let seen = seen.clone();
            move |list: &PacketList<'_>| {
                spend(work, list.len() as u64);
                seen[cpu.index()].fetch_add(list.len() as u64, Ordering::Relaxed);
            }
        };
        let stop = AtomicBool::new(false);
        rxsteer_user::run(&config, &mut sources, Speed::Max, &stop, handler, |_, _| {})
            .map(drop)
            .map_err(|why| unreadable(why.to_string()))
    }

    /// A packet socket without a ring, read 64 packets at a time, on CPU 1.
    pub fn recvmmsg(&self, seen: &Seen, end: &AtomicBool) -> Result<()> {
        let failed = |why: nix::Error| LabError::Unreadable {
            who: "a packet socket".to_owned(),
            why: why.to_string(),
        };
        pin(1)?;
        let flags = SockFlag::SOCK_CLOEXEC;
        let socket = socket(AddressFamily::Packet, SockType::Raw, flags, SockProtocol::EthAll)
            .map_err(failed)?;
        setsockopt(&socket, sockopt::RcvBufForce, &(32 << 20)).map_err(failed)?;
        let wait = nix::sys::time::TimeVal::new(0, 10_000);
        setsockopt(&socket, sockopt::ReceiveTimeout, &wait).map_err(failed)?;
        let mut headers = MultiHeaders::<()>::preallocate(LIST, None);
        let mut buffers = vec![[0_u8; 2048]; LIST];
        while !end.load(Ordering::Relaxed) {
            let mut slices: Vec<_> =
                buffers.iter_mut().map(|buffer| [IoSliceMut::new(&mut buffer[..])]).collect();
            let flags = MsgFlags::MSG_WAITFORONE;
            if let Ok(messages) =
                recvmmsg(socket.as_raw_fd(), &mut headers, slices.iter_mut(), flags, None)
            {
                seen[0].fetch_add(messages.count() as u64, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    /// Reads every frame of every block, and works for `work` on each.
    fn read(&self, mut socket: PacketSocket, seen: &AtomicU64, end: &AtomicBool, work: Duration) {
        self.gate.wait();
        let mut bytes = 0;
        while !end.load(Ordering::Relaxed) {
            let Some(mut block) = socket.next_block() else {
                let _ = socket.wait(Duration::from_millis(10));
                continue;
            };
            let mut waiting = 0;
            while let Some(frame) = block.next_frame() {
                bytes += u64::from(frame.wire_len);
                waiting += 1;
                if waiting == LIST as u64 {
                    spend(work, waiting);
                    seen.fetch_add(std::mem::take(&mut waiting), Ordering::Relaxed);
                }
                if end.load(Ordering::Relaxed) {
                    break;
                }
            }
            spend(work, waiting);
            seen.fetch_add(waiting, Ordering::Relaxed);
        }
        std::hint::black_box(bytes);
    }

    /// Two flows that fanout by hash assigns to the thread that has a CPU to itself.
    pub fn two_flows_on_one_thread(&self) -> Result<Traffic> {
        let found = (10_000..10_000 + PORTS).find_map(|source_port| {
            let traffic = Traffic { flows: 2, length: 64, source_port, ..Traffic::default() };
            let probe = || -> Result<bool> {
                let source = LiveFrames::new(self.testbed.link(), &traffic)?;
                let receive = |seen: &Arc<Seen>, end: &Arc<AtomicBool>| {
                    self.fanout(FanoutBy::Hash, seen, end)
                };
                let mut by_thread = [0, 0];
                self.turn(&source, 1000, |seen, end| {
                    receive(seen, end)?;
                    by_thread = [0, 1].map(|thread: usize| seen[thread].load(Ordering::Relaxed));
                    Ok(())
                })?;
                // A few other frames are on the wire.
                Ok(by_thread[0] >= 900 && by_thread[1] < 100)
            };
            probe().map(|is_one| is_one.then_some(traffic.clone())).transpose()
        });
        found.ok_or_else(|| LabError::Load { why: "no two flows fall on one thread".to_owned() })?
    }
}
