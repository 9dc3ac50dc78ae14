//! How many packets a second an application receives from a live interface.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;
use nix::sys::socket::{
    AddressFamily, MsgFlags, MultiHeaders, SockFlag, SockProtocol, SockType, recvmmsg, setsockopt,
    socket, sockopt,
};
use rxsteer_core::Policy;
use rxsteer_io::packet::{Fanout, FanoutBy, PacketSocket, RingOptions};
use rxsteer_lab::{LinkOptions, LiveFrames, Pass, Testbed, Traffic, pin};
use rxsteer_user::source::Source;
use rxsteer_user::source::packet::{PacketOptions, PacketSource};
use rxsteer_user::{PacketList, PipelineConfig, Speed};
use serde_json::{Value, json};
use std::io::IoSliceMut;
use std::os::fd::AsRawFd;

use super::rounds::{Plan, Variant, measure};

/// Packets after which a reader without rxsteer does the work for them.
const LIST: u64 = 64;
/// Ports that are tried for two flows that fanout puts on one thread.
const PORTS: u16 = 64;

/// Live frames from CPU 0 into an application: rxsteer beside loops without steering, and beside fanout.
///
/// "empty": the handler does nothing. A bare loop over the ring's blocks, rxsteer with one worker, recvmmsg; all on CPU 1.
/// "many_flows" and "two_flows": two threads that work for each packet; fanout by hash, CPU and rollover, and rxsteer. The two
/// flows are two that fanout by hash puts on the thread of CPU 1. The sender takes as much of CPU 0 as it gets, so what is
/// left for two threads is about one and a half CPUs. Packets a second as quartiles, and their ratio within a round.
#[derive(Args)]
#[command(after_help = "Example:\n  rxsteer-lab live-sources --rounds 5")]
pub(crate) struct Options {
    #[command(flatten)]
    plan: Plan,
    /// The policy of rxsteer where handlers work.
    #[arg(long, default_value = "sparse")]
    policy: Policy,
    /// What each packet takes there, in nanoseconds.
    #[arg(long, value_name = "NS", default_value_t = 1000)]
    work_ns: u64,
}

pub(crate) fn run(options: &Options) -> Result<Value> {
    let testbed = Testbed::hosts(LinkOptions::default())?;
    let _pass = Pass::attach(testbed.receiver(), &testbed.link().far)?;
    let work = Duration::from_nanos(options.work_ns);
    let bench = Bench { testbed: &testbed, frames: options.plan.frames, work };
    let many = Traffic { flows: 1000, length: 64, ..Traffic::default() };
    let two = bench.two_flows_on_one_thread()?;
    let compare = |traffic: &Traffic| -> Result<Value> {
        let source = &LiveFrames::new(testbed.link(), traffic)?;
        let fanout = |name, by| Variant {
            name,
            turn: Box::new(move || {
                Ok(bench.working(source, |seen, end| bench.fanout(by, seen, end))?.0)
            }),
        };
        let rxsteer = || {
            bench
                .working(source, |seen, end| bench.rxsteer(&options.policy, "0-1", work, seen, end))
        };
        let mut variants = [
            fanout("fanout_hash", FanoutBy::Hash),
            fanout("fanout_cpu", FanoutBy::Cpu),
            fanout("fanout_rollover", FanoutBy::Rollover),
            Variant { name: "rxsteer", turn: Box::new(move || Ok(rxsteer()?.0)) },
        ];
        Ok(measure(&mut variants, &options.plan)?.report("fanout_hash"))
    };
    let source = &LiveFrames::new(testbed.link(), &many)?;
    let mut empty = [
        Variant {
            name: "bare",
            turn: Box::new(|| bench.empty(source, |seen, end| bench.bare(seen, end))),
        },
        Variant {
            name: "rxsteer",
            turn: Box::new(|| {
                bench.empty(source, |seen, end| {
                    bench.rxsteer(&Policy::Rps, "1-1", Duration::ZERO, seen, end)
                })
            }),
        },
        Variant {
            name: "recvmmsg",
            turn: Box::new(|| bench.empty(source, |seen, end| bench.recvmmsg(seen, end))),
        },
    ];
    Ok(json!({
        "empty": measure(&mut empty, &options.plan)?.report("bare"),
        "many_flows": compare(&many)?,
        "two_flows": compare(&two)?,
    }))
}

/// Packets that each of two threads is done with.
type Seen = [AtomicU64; 2];

fn total(seen: &Seen) -> u64 {
    seen.iter().map(|of| of.load(Ordering::Relaxed)).sum()
}

#[derive(Clone, Copy)]
struct Bench<'a> {
    testbed: &'a Testbed,
    frames: u64,
    work: Duration,
}

impl Bench<'_> {
    /// Packets received for each second of sending, all those among them that come a little later.
    fn empty(
        &self,
        source: &LiveFrames,
        receive: impl FnOnce(&Arc<Seen>, &Arc<AtomicBool>) -> rxsteer_lab::Result<()> + Send,
    ) -> Result<f64> {
        let (_, all, took) = self.turn(source, self.frames, receive)?;
        Ok(all as f64 / took.as_secs_f64())
    }

    /// Packets done with while the sender sends, for each second; and of each thread.
    fn working(
        &self,
        source: &LiveFrames,
        receive: impl FnOnce(&Arc<Seen>, &Arc<AtomicBool>) -> rxsteer_lab::Result<()> + Send,
    ) -> Result<(f64, [u64; 2])> {
        let (seen, _, took) = self.turn(source, self.frames, receive)?;
        Ok((seen.iter().sum::<u64>() as f64 / took.as_secs_f64(), seen))
    }

    /// What was seen when the sender was done, and a little later.
    fn turn(
        &self,
        source: &LiveFrames,
        frames: u64,
        receive: impl FnOnce(&Arc<Seen>, &Arc<AtomicBool>) -> rxsteer_lab::Result<()> + Send,
    ) -> Result<([u64; 2], u64, Duration)> {
        let (seen, end) = (Arc::new(Seen::default()), Arc::new(AtomicBool::new(false)));
        let receiver = self.testbed.receiver();
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| receiver.inside(|| receive(&seen, &end)));
            // The ring is there by then.
            sleep(Duration::from_millis(100));
            let sent = source.send(self.testbed.sender(), 0, frames);
            let at_end = [0, 1].map(|thread: usize| seen[thread].load(Ordering::Relaxed));
            sleep(Duration::from_millis(60));
            let all = total(&seen);
            end.store(true, Ordering::Relaxed);
            thread.join().map_err(|_| anyhow::anyhow!("a receiving thread panicked"))??;
            Ok((at_end, all, sent?))
        })
    }

    fn index(&self) -> u32 {
        self.testbed.link().far.index
    }

    /// A loop over the blocks of a ring, on CPU 1.
    fn bare(&self, seen: &Seen, end: &AtomicBool) -> rxsteer_lab::Result<()> {
        pin(1)?;
        let socket = open(self.index(), None)?;
        read(socket, &seen[0], end, Duration::ZERO);
        Ok(())
    }

    /// Two such loops that work for each packet, in a fanout group.
    fn fanout(&self, by: FanoutBy, seen: &Seen, end: &AtomicBool) -> rxsteer_lab::Result<()> {
        let fanout = Some(Fanout { group: 7, by });
        let sockets = [open(self.index(), fanout)?, open(self.index(), fanout)?];
        std::thread::scope(|scope| {
            for (cpu, (socket, seen)) in sockets.into_iter().zip(seen).enumerate() {
                scope.spawn(move || {
                    // The first thread, to which fanout by CPU and rollover give everything, has CPU 1 to itself.
                    let _ = pin(1 - cpu);
                    read(socket, seen, end, self.work);
                });
            }
        });
        Ok(())
    }

    /// The receive path of rxsteer, received on CPU 1.
    fn rxsteer(
        &self,
        policy: &Policy,
        cpus: &str,
        work: Duration,
        seen: &Arc<Seen>,
        end: &Arc<AtomicBool>,
    ) -> rxsteer_lab::Result<()> {
        let unreadable =
            |why: String| rxsteer_lab::LabError::Unreadable { who: "rxsteer".to_owned(), why };
        let cpus = cpus.parse().map_err(|_| unreadable("CPUs".to_owned()))?;
        let mut config = PipelineConfig::new(policy.clone(), cpus);
        config.rx_cpus = rxsteer_core::CpuId::new(1).into_iter().collect();
        let mut options = PacketOptions::default();
        options.stop = end.clone();
        let source = PacketSource::with(&self.testbed.link().far.name, options);
        let mut sources: [Box<dyn Source>; 1] =
            [Box::new(source.map_err(|why| unreadable(why.to_string()))?)];
        let handler = |cpu: rxsteer_core::CpuId| {
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
    fn recvmmsg(&self, seen: &Seen, end: &AtomicBool) -> rxsteer_lab::Result<()> {
        let failed = |why: nix::Error| rxsteer_lab::LabError::Unreadable {
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
        let mut headers = MultiHeaders::<()>::preallocate(LIST as usize, None);
        let mut buffers = vec![[0_u8; 2048]; LIST as usize];
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

    /// Two flows that fanout by hash puts on the thread that has a CPU to itself.
    fn two_flows_on_one_thread(&self) -> Result<Traffic> {
        let found = (10_000..10_000 + PORTS).find_map(|source_port| {
            let traffic = Traffic { flows: 2, length: 64, source_port, ..Traffic::default() };
            let look = || -> Result<bool> {
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
            look().map(|is_one| is_one.then_some(traffic.clone())).transpose()
        });
        found.context("no two flows fall on one thread")?
    }
}

fn open(index: u32, fanout: Option<Fanout>) -> rxsteer_lab::Result<PacketSocket> {
    let mut options = RingOptions::default();
    options.fanout = fanout;
    PacketSocket::open(index, &options).map_err(|why| rxsteer_lab::LabError::Unreadable {
        who: "a packet socket".to_owned(),
        why: why.to_string(),
    })
}

/// Reads every frame of every block, and works so long for each.
fn read(mut socket: PacketSocket, seen: &AtomicU64, end: &AtomicBool, work: Duration) {
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
            if waiting == LIST {
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

fn spend(work: Duration, packets: u64) {
    if work.is_zero() {
        return;
    }
    let until = Instant::now() + work * packets as u32;
    while Instant::now() < until {
        std::hint::spin_loop();
    }
}
