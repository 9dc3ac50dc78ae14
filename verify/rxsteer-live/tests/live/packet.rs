//! Packet sockets as a source of the receive path: all numbered frames arrive, in order, whatever changes; a handler
//! that hangs stops only its own packets.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rxsteer_lab::{LinkOptions, LiveFrames, Pass, Testbed, Traffic, slice};
use rxsteer_user::core::{CpuId, Policy};
use rxsteer_user::source::packet::{PacketOptions, PacketSource, STUCK_FOR};
use rxsteer_user::{Control, PacketList, PipelineConfig, Report, Speed, SteerChange};

/// The offset of a frame's number: after Ethernet, IPv4 and UDP.
const NUMBER: usize = 14 + 20 + 8;

/// What the handlers of all CPUs have seen of each flow.
pub(crate) struct Order {
    /// One more than the highest number.
    next: Vec<AtomicU64>,
    late: AtomicU64,
    seen: AtomicU64,
}

impl Order {
    pub(crate) fn of(flows: u32) -> Arc<Order> {
        let next = (0..flows).map(|_| AtomicU64::new(0)).collect();
        Arc::new(Order { next, late: AtomicU64::new(0), seen: AtomicU64::new(0) })
    }

    /// The number of frames, and how many of them arrived after a later frame of their flow.
    pub(crate) fn seen(&self) -> (u64, u64) {
        (self.seen.load(Ordering::SeqCst), self.late.load(Ordering::SeqCst))
    }

    fn see(&self, frame: &[u8]) {
        let number =
            |at: usize| frame.get(at..at + 8).map(|b| u64::from_be_bytes(b.try_into().unwrap()));
        let (Some(flow), Some(sequence)) = (number(NUMBER), number(NUMBER + 8)) else { return };
        self.count(flow & 0xffff_ffff, sequence);
    }

    pub(crate) fn count(&self, flow: u64, sequence: u64) {
        let Some(next) = self.next.get(flow as usize) else { return };
        self.seen.fetch_add(1, Ordering::SeqCst);
        if next.fetch_max(sequence + 1, Ordering::SeqCst) > sequence {
            self.late.fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// Receives on `in0` what `send` sends, with one handler per CPU.
fn receive<H: FnMut(&PacketList<'_>) + Send + 'static>(
    testbed: &Testbed,
    config: &PipelineConfig,
    options: PacketOptions,
    mut handler: impl FnMut(CpuId) -> H + Send,
    send: impl FnOnce(&Control) + Send,
) -> Report<H> {
    let _pass = Pass::attach(testbed.receiver(), &testbed.link().far).unwrap();
    // Neither host sends anything by itself, so only the sent frames arrive.
    for (host, interface) in [(testbed.sender(), "out0"), (testbed.receiver(), "in0")] {
        host.run(&format!("sysctl -q -w net.ipv6.conf.{interface}.disable_ipv6=1")).unwrap();
    }
    let end = options.stop.clone();
    let inside = || {
        let mut sources = [PacketSource::with("in0", options).unwrap()];
        let stop = AtomicBool::new(false);
        let (give, take) = std::sync::mpsc::channel();
        Ok(std::thread::scope(|scope| {
            scope.spawn(move || {
                let control = take.recv().unwrap();
                send(&control);
                end.store(true, Ordering::Relaxed);
            });
            let started = |_: &[_], control: Control| give.send(control).unwrap();
            rxsteer_user::run(config, &mut sources, Speed::Max, &stop, &mut handler, started)
                .unwrap()
        }))
    };
    testbed.receiver().inside(inside).unwrap()
}

fn config(policy: &str, cpus: &str) -> PipelineConfig {
    let mut config = PipelineConfig::new(policy.parse::<Policy>().unwrap(), cpus.parse().unwrap());
    config.standby = Some("0-1".parse().unwrap());
    config.check_order = true;
    config
}

fn accounted<H>(report: &Report<H>, sent: u64) {
    assert_eq!(report.packets, report.delivered + report.drops.total(), "{:?}", report.drops);
    assert_eq!(
        report.packets + report.kernel_drops,
        sent,
        "{} dropped by the kernel",
        report.kernel_drops
    );
}

/// Sends frames of some flows while CPUs and policies change all the time; all must arrive in order.
fn in_order(test: &str, policy: &str, options: PacketOptions) {
    let Some(_alone) = super::ready(test, &[], 2) else { return };
    let frames = slice(100_000, 10_000_000);
    let testbed = Testbed::hosts(LinkOptions::default()).unwrap();
    let traffic =
        Traffic { flows: 8, train: 4, pace: Duration::from_micros(2), ..Traffic::default() };
    let source = LiveFrames::new(testbed.link(), &traffic).unwrap();
    let order = Order::of(traffic.flows);
    let (config, home) = (config(policy, "0-1"), policy.parse::<Policy>().unwrap());
    let handler = |_| {
        let order = order.clone();
        move |list: &PacketList<'_>| {
            for packet in list.iter() {
                order.see(packet.bytes());
            }
        }
    };
    let changed = AtomicU64::new(0);
    let report = receive(&testbed, &config, options, handler, |control| {
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let others = [Policy::Rps, "sparse".parse().unwrap(), home.clone()];
                let mut turns = ["0", "1", "0-1"].iter().cycle().zip(others.iter().cycle());
                while !done.load(Ordering::Relaxed) {
                    let (cpus, policy) = turns.next().unwrap();
                    let change = SteerChange {
                        policy: Some(policy.clone()),
                        cpus: Some(cpus.parse().unwrap()),
                        ..SteerChange::default()
                    };
                    control.change(&change).unwrap();
                    changed.fetch_add(1, Ordering::Relaxed);
                    std::thread::sleep(Duration::from_millis(2));
                }
            });
            source.send(testbed.sender(), 0, frames).unwrap();
            done.store(true, Ordering::Relaxed);
        });
    });
    accounted(&report, frames);
    assert_eq!((order.seen().1, report.reordered), (0, 0));
    assert!(changed.into_inner() > 10 && report.delivered > frames / 10, "{}", report.delivered);
    let busy = report.per_cpu.iter().filter(|cpu| cpu.packets > 0).count();
    assert_eq!(busy, 2, "both CPUs had packets");
}

#[test]
fn order_holds_under_rps() {
    in_order("packet::order_holds_under_rps", "rps", PacketOptions::default());
}

#[test]
fn order_holds_under_sparse() {
    in_order("packet::order_holds_under_sparse", "sparse", PacketOptions::default());
}

#[test]
fn order_holds_under_rfs_and_sparse() {
    in_order("packet::order_holds_under_rfs_and_sparse", "rfs+sparse", PacketOptions::default());
}

#[test]
fn order_holds_when_bound() {
    in_order("packet::order_holds_when_bound", "bound:0=1", PacketOptions::default());
}

#[test]
fn order_holds_of_copies() {
    let mut options = PacketOptions::default();
    options.copy = true;
    in_order("packet::order_holds_of_copies", "sparse", options);
}

#[test]
fn a_handler_that_hangs_stops_its_own_packets_only() {
    let test = "packet::a_handler_that_hangs_stops_its_own_packets_only";
    let Some(_alone) = super::ready(test, &[], 2) else { return };
    let testbed = Testbed::hosts(LinkOptions::default()).unwrap();
    let pace = Duration::from_micros(5);
    let traffic = Traffic { flows: 64, length: 1400, pace, ..Traffic::default() };
    let source = LiveFrames::new(testbed.link(), &traffic).unwrap();
    let mut options = PacketOptions::default();
    // The ring has four blocks of 256 KiB, with about 180 frames each.
    options.ring_bytes = 1 << 20;
    let released = Arc::new(AtomicBool::new(false));
    let others = Arc::new(AtomicU64::new(0));
    let hung = Arc::new(AtomicBool::new(false));
    let mut config = config("rps", "0-1");
    config.check_order = false;
    let handler = |cpu: CpuId| {
        let (released, others, hung) = (released.clone(), others.clone(), hung.clone());
        move |list: &PacketList<'_>| {
            if cpu.get() == 0 {
                others.fetch_add(list.len() as u64, Ordering::SeqCst);
                return;
            }
            // It holds a block of the ring, not a copy: only nearly empty blocks are copied.
            hung.store(true, Ordering::SeqCst);
            while !released.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    };
    let mut sent = 0;
    let report = receive(&testbed, &config, options, handler, |_| {
        let started = Instant::now();
        // More frames than many rings hold go to the other CPU, although a block is held all the time.
        while others.load(Ordering::SeqCst) < 50_000 && started.elapsed() < Duration::from_secs(60)
        {
            source.send(testbed.sender(), 0, 2000).unwrap();
            sent += 2000;
            std::thread::sleep(STUCK_FOR / 10);
        }
        assert!(hung.load(Ordering::SeqCst), "the other CPU had packets");
        released.store(true, Ordering::SeqCst);
    });
    assert!(others.load(Ordering::SeqCst) >= 50_000, "{}", others.load(Ordering::SeqCst));
    assert!(report.kernel_drops > 0, "a ring was stuck for a while");
    assert_eq!(report.packets, report.delivered + report.drops.total());
    // Frames that arrive while a new ring replaces a stuck one are in no count.
    let counted = report.packets + report.kernel_drops;
    assert!(counted <= sent && counted + 1000 > sent, "{counted} of {sent}");
}
