//! How many live frames per second applications can receive: through rxsteer, and with plain sockets.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{JoinHandle, sleep};
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use rxsteer_core::{CpuId, Policy};
use rxsteer_io::xdp::{Port, XdpOptions, XdpPort, open, wait};
use rxsteer_lab::{
    End, LinkOptions, LiveFrames, Namespace, Pass, Testbed, Traffic, online_cpus, pin,
};
use rxsteer_user::source::xdp::{XdpQueue, XdpSource};
use rxsteer_user::{PacketList, PipelineConfig, Speed};
use serde_json::Value;

use super::rounds::{Plan, Variant, measure};

/// Sends live frames from CPU 0, which are received into an empty handler: by rxsteer's sources, by simple loops over
/// the same sockets, and by recvmmsg.
///
/// Prints packets per second as quartiles, and their ratio within a round.
#[derive(Args)]
#[command(after_help = "Example:\n  rxsteer-lab receive-cost --rounds 15")]
pub(crate) struct Options {
    #[command(flatten)]
    plan: Plan,
    /// Number of flows.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    flows: u32,
    /// Packets of one flow in a row.
    #[arg(long, value_name = "N", default_value_t = 1)]
    train: u32,
    /// The policy of rxsteer.
    #[arg(long, default_value = "rps")]
    policy: Policy,
}

impl Options {
    /// The defaults, with this plan.
    pub(crate) fn of(plan: Plan) -> Options {
        Options { plan, flows: 1000, train: 1, policy: Policy::Rps }
    }
}

/// Threads that receive, and the count of what they received.
pub(super) struct Receiving {
    received: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Drop for Receiving {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // A thread that panicked has printed its message.
            let _ = thread.join();
        }
    }
}

impl Receiving {
    /// Makes `work` receive in a new thread, until its flag is set.
    pub(super) fn start(
        work: impl FnOnce(&AtomicU64, Arc<AtomicBool>) -> Result<()> + Send + 'static,
    ) -> Receiving {
        let (received, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (count, flag) = (received.clone(), stop.clone());
        let thread = std::thread::spawn(move || {
            if let Err(why) = work(&count, flag) {
                panic!("a receiver ended: {why:#}");
            }
        });
        Receiving { received, stop, threads: vec![thread] }
    }

    /// One turn: frames received per second of sending by CPU 0.
    pub(super) fn turn(&self, source: &LiveFrames, sender: &Namespace, frames: u64) -> Result<f64> {
        let before = self.received.load(Ordering::Relaxed);
        let took = source.send(sender, 0, frames)?;
        sleep(Duration::from_millis(20));
        Ok((self.received.load(Ordering::Relaxed) - before) as f64 / took.as_secs_f64())
    }
}

/// AF_XDP sockets in copy mode on the only RX queue of an interface.
fn xdp_port(namespace: &Namespace, end: &End) -> Result<XdpPort> {
    let port = Port { name: end.name.clone(), ifindex: end.index, queues: 1, mtu: 1500 };
    let opened = namespace.inside(|| Ok(open(&[port], &XdpOptions::default())))?;
    opened?.pop().context("one port was opened")
}

/// The minimum that a reader does: it takes the available frames, reads each one, and returns it.
fn bare_xdp(port: XdpPort) -> Receiving {
    Receiving::start(move |received, stop| {
        pin(1)?;
        let mut receivers = port.receivers;
        while !stop.load(Ordering::Relaxed) {
            let Some(frames) = receivers[0].receive(64) else {
                wait(&receivers, 10)?;
                continue;
            };
            let first_bytes =
                frames.frames.iter().map(|(at, _)| frames.lent.slice(*at as usize, 1)[0]);
            std::hint::black_box(first_bytes.map(u64::from).sum::<u64>());
            received.fetch_add(frames.frames.len() as u64, Ordering::Relaxed);
        }
        Ok(())
    })
}

/// recvmmsg on a packet socket of the namespace, in which only the frames of one link reach the stack.
fn by_recvmmsg(namespace: &Namespace) -> Result<Receiving> {
    use nix::sys::socket::{
        AddressFamily, MsgFlags, MultiHeaders, SockFlag, SockProtocol, SockType, recvmmsg, socket,
    };
    let open = || {
        let (flag, protocol) = (SockFlag::SOCK_CLOEXEC, SockProtocol::EthAll);
        Ok(socket(AddressFamily::Packet, SockType::Raw, flag, protocol))
    };
    let socket = namespace.inside(open)??;
    Ok(Receiving::start(move |received, stop| {
        use std::os::fd::AsRawFd;
        pin(1)?;
        let mut buffers = vec![[0_u8; 2048]; 64];
        let mut headers = MultiHeaders::<()>::preallocate(buffers.len(), None);
        while !stop.load(Ordering::Relaxed) {
            let mut slices: Vec<_> =
                buffers.iter_mut().map(|buffer| [std::io::IoSliceMut::new(buffer)]).collect();
            let got = recvmmsg(
                socket.as_raw_fd(),
                &mut headers,
                slices.iter_mut(),
                MsgFlags::MSG_DONTWAIT,
                None,
            );
            match got {
                Ok(results) => received.fetch_add(results.count() as u64, Ordering::Relaxed),
                Err(nix::errno::Errno::EAGAIN) => {
                    use std::os::fd::AsFd;
                    let mut ready =
                        [nix::poll::PollFd::new(socket.as_fd(), nix::poll::PollFlags::POLLIN)];
                    nix::poll::poll(&mut ready, 10_u8)?;
                    0
                }
                Err(why) => return Err(why.into()),
            };
        }
        Ok(())
    }))
}

/// The whole path, which receives on CPU `rx`, with an empty handler on CPU `worker`.
fn by_rxsteer(port: XdpPort, policy: Policy, rx: u16, worker: u16) -> Receiving {
    Receiving::start(move |received, stop| {
        let cpu = |number| CpuId::new(number).context("a CPU");
        let mut config = PipelineConfig::new(policy, worker.to_string().parse()?);
        config.rx_cpus = vec![cpu(rx)?];
        let queues = port.receivers.into_iter().map(|receiver| XdpQueue {
            receiver,
            interface: port.name.clone(),
            rx_queue: 0,
        });
        let mut sources = [XdpSource::new(queues.collect(), stop.clone())];
        // Workers outlive the borrow of the count.
        let count = Arc::new(AtomicU64::new(0));
        let shown = count.clone();
        let handler = |_| {
            let count = count.clone();
            move |list: &PacketList<'_>| {
                count.fetch_add(list.len() as u64, Ordering::Relaxed);
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    received.store(shown.load(Ordering::Relaxed), Ordering::Relaxed);
                    sleep(Duration::from_millis(5));
                }
            });
            rxsteer_user::run(&config, &mut sources, Speed::Max, &stop, handler, |_, _| {})
        })?;
        Ok(())
    })
}

pub(crate) fn run(options: &Options) -> Result<Value> {
    let mut testbed = Testbed::hosts(LinkOptions::default())?;
    for _ in 0..5 {
        testbed.another_link(LinkOptions::default())?;
    }
    let (sender, receiver) = (testbed.sender(), testbed.receiver());
    let traffic =
        Traffic { flows: options.flows, train: options.train, length: 64, ..Traffic::default() };
    let over = |link: usize| LiveFrames::new(&testbed.links[link], &traffic);
    let port = |link: usize| xdp_port(receiver, &testbed.links[link].far);
    let policy = || options.policy.clone();
    let last = &testbed.links[4];
    let _pass = Pass::attach(receiver, &last.far)?;
    let mut receiving = vec![
        ("bare AF_XDP", bare_xdp(port(0)?), over(0)?),
        ("xdp, RX CPU 1, worker CPU 1", by_rxsteer(port(1)?, policy(), 1, 1), over(1)?),
        ("xdp, RX CPU 0, worker CPU 1", by_rxsteer(port(2)?, policy(), 0, 1), over(2)?),
        ("xdp, RX CPU 1, worker CPU 0", by_rxsteer(port(3)?, policy(), 1, 0), over(3)?),
        ("recvmmsg", by_recvmmsg(receiver)?, over(4)?),
    ];
    // The sender has CPU 0. With a third CPU, neither thread competes with it.
    if online_cpus() > 2 {
        let apart = by_rxsteer(port(5)?, policy(), 1, 2);
        receiving.push(("xdp, RX CPU 1, worker CPU 2", apart, over(5)?));
    }
    let frames = options.plan.frames;
    let mut variants: Vec<Variant<'_>> = receiving
        .iter()
        .map(|(name, receiving, source)| Variant {
            name,
            turn: Box::new(move || receiving.turn(source, sender, frames)),
        })
        .collect();
    Ok(measure(&mut variants, &options.plan)?.report("bare AF_XDP"))
}
