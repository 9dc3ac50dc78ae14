//! Millions of numbered frames: an XDP program makes them, and the other end of a veth pair receives them natively.
//!
//! The kernel runs the program 64 times before it flushes (its default for live frames). Each call takes some 24 ms
//! before the first frame, so a call requests a million frames.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use libbpf_rs::{Link as BpfLink, MapCore, MapFlags, Object, ProgramInput};
use rustix::time::{ClockId, clock_gettime};

use crate::cpus::pin;
use crate::error::{Bpf, Result};
use crate::namespace::Namespace;
use crate::numbers::LAB_SPARE;
use crate::objects::{ObjectSpec, map, program, words};
use crate::testbed::{End, Link};

pub(crate) static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/live.o"));
/// `BPF_F_TEST_XDP_LIVE_FRAMES`.
const LIVE_FRAMES: u32 = 1 << 1;
/// The most frames that a call requests.
const MAX_FRAMES_PER_CALL: u64 = 1_000_000;
/// The bytes that the programs cut off each frame; lab.h has the reason.
pub(crate) const SPARE: usize = LAB_SPARE as usize;
/// The destination of frames without a listener: the receiver does not have this address, and drops them.
const ELSEWHERE: (Ipv4Addr, Ipv6Addr) =
    (Ipv4Addr::new(198, 18, 0, 1), Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1));

/// The protocol above IP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// Datagrams.
    Udp,
    /// Segments of a connection that was never opened; generic receive offload merges them.
    Tcp,
}

/// The version of IP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// The properties of the frames to send.
#[derive(Debug, Clone)]
pub struct Traffic {
    /// The number of flows.
    pub flows: u32,
    /// Packets of one flow in a row.
    pub train: u32,
    /// Whether flows are in random order; otherwise they take turns.
    pub random: bool,
    /// Percent of the frames that belong to flow 0, in addition to its turns; 0 for equal flows.
    pub elephant: u8,
    /// The shortest time between two frames.
    pub pace: Duration,
    /// How far the source may be behind that pace: it catches up on this much, and skips the rest.
    pub catch_up: Duration,
    /// The number of flows that go to the receiver's address, each to its own port.
    pub listeners: u32,
    /// The destination of the other flows; by default it has no listener.
    pub elsewhere: Option<IpAddr>,
    /// Length of the frame.
    pub length: u32,
    /// Protocol above IP.
    pub protocol: Protocol,
    /// Version of IP.
    pub family: Family,
    /// Source port of the first flow.
    pub source_port: u16,
    /// Destination port of the first flow.
    pub destination_port: u16,
}

impl Default for Traffic {
    fn default() -> Self {
        Self {
            flows: 1,
            train: 1,
            random: false,
            elephant: 0,
            pace: Duration::ZERO,
            catch_up: Duration::ZERO,
            listeners: 0,
            elsewhere: None,
            length: 90,
            protocol: Protocol::Udp,
            family: Family::V4,
            source_port: 10_000,
            destination_port: 20_000,
        }
    }
}

impl Traffic {
    /// `struct lab_live_config` for frames from one end of a link to the other.
    pub(crate) fn settings(&self, link: &Link) -> Vec<u8> {
        let Link { near, far } = link;
        let (v4, v6) = match self.elsewhere {
            Some(IpAddr::V4(address)) => (address, ELSEWHERE.1),
            Some(IpAddr::V6(address)) => (ELSEWHERE.0, address),
            None => ELSEWHERE,
        };
        let address = |v4: Ipv4Addr, v6: Ipv6Addr| match self.family {
            Family::V4 => padded(&v4.octets()),
            Family::V6 => v6.octets(),
        };
        let mut bytes = Vec::new();
        for time in [self.pace, self.catch_up] {
            bytes.extend(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).to_ne_bytes());
        }
        let words = [near.index, self.flows, self.train, u32::from(self.random), self.listeners];
        bytes.extend(words.into_iter().chain([self.length]).flat_map(u32::to_ne_bytes));
        bytes.extend(
            [self.source_port, self.destination_port].into_iter().flat_map(u16::to_ne_bytes),
        );
        bytes.push(if self.family == Family::V4 { 4 } else { 6 });
        bytes.push(if self.protocol == Protocol::Tcp { 6 } else { 17 });
        bytes.extend(near.mac);
        bytes.extend(far.mac);
        bytes.push(self.elephant);
        bytes.extend([0; 5]);
        bytes.extend(address(near.ipv4, near.ipv6));
        bytes.extend(address(far.ipv4, far.ipv6));
        bytes.extend(address(v4, v6));
        bytes
    }
}

fn padded(address: &[u8; 4]) -> [u8; 16] {
    let mut all = [0; 16];
    all[..4].copy_from_slice(address);
    all
}

/// A source of numbered frames. Its numbers continue from one call to the next.
#[derive(Debug)]
pub struct LiveFrames {
    object: Object,
    flows: u32,
    length: usize,
}

impl LiveFrames {
    /// Creates a source of frames from `link.near` to `link.far`.
    pub fn new(link: &Link, traffic: &Traffic) -> Result<Self> {
        let settings = traffic.settings(link);
        let spec = ObjectSpec {
            bytes: OBJECT,
            programs: &["live_frame"],
            settings: &settings,
            map: ("live_sequences", traffic.flows),
        };
        Ok(Self { object: spec.load()?, flows: traffic.flows, length: traffic.length as usize })
    }

    /// Sends frames on `cpu` from the namespace of the near end; returns the time for this, without the start-up time.
    pub fn send(&self, from: &Namespace, cpu: usize, frames: u64) -> Result<Duration> {
        from.inside(|| {
            pin(cpu)?;
            let mut left = frames;
            let mut took = Duration::ZERO;
            while left > 0 {
                let now = left.min(MAX_FRAMES_PER_CALL);
                took += self.call(now)?;
                left -= now;
            }
            Ok(took)
        })
    }

    /// Sends frames on `cpu`, `at_once` per call, until stopped.
    pub fn send_until(
        &self,
        from: &Namespace,
        cpu: usize,
        at_once: u64,
        stop: &AtomicBool,
    ) -> Result<()> {
        from.inside(|| {
            pin(cpu)?;
            while !stop.load(Ordering::Relaxed) {
                self.call(at_once)?;
            }
            Ok(())
        })
    }

    fn call(&self, frames: u64) -> Result<Duration> {
        let program = program(&self.object, "live_frame")?;
        let started = map(&self.object, "live_begun")?;
        let zero = 0_u32.to_ne_bytes();
        let reset = started.update(&zero, &0_u64.to_ne_bytes(), MapFlags::ANY);
        reset.bpf(|| "write live_begun".to_owned())?;
        run(&program, &vec![0; self.length + SPARE], frames)?;
        let now = clock_gettime(ClockId::Monotonic);
        let now = Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs() as u32);
        let started = words(&started, 0)?.first().copied().unwrap_or(0);
        Ok(now.saturating_sub(Duration::from_nanos(started)))
    }

    /// The number of frames made for each flow.
    pub fn sent(&self) -> Result<Vec<u64>> {
        let map = map(&self.object, "live_sequences")?;
        (0..self.flows).map(|flow| Ok(words(&map, flow)?.first().copied().unwrap_or(0))).collect()
    }
}

/// Runs a program `frames` times, each time on a frame that begins with `frame`; the resulting frame is sent.
pub(crate) fn run(program: &libbpf_rs::ProgramMut<'_>, frame: &[u8], frames: u64) -> Result<()> {
    let input = ProgramInput {
        data_in: Some(frame),
        flags: LIVE_FRAMES,
        repeat: u32::try_from(frames).unwrap_or(u32::MAX),
        ..ProgramInput::default()
    };
    program.test_run(input).map(drop).bpf(|| format!("send {frames} live frames"))
}

/// An XDP program on an interface that passes everything: a veth end needs it to receive live frames without any
/// steering. It is detached when this is dropped.
#[derive(Debug)]
pub struct Pass {
    /// Detaches the program when it is dropped.
    link: BpfLink,
    _object: Object,
}

impl Pass {
    /// Attaches the program.
    pub fn attach(namespace: &Namespace, end: &End) -> Result<Self> {
        let settings = Traffic::default().settings(&Link { near: end.clone(), far: end.clone() });
        let spec = ObjectSpec {
            bytes: OBJECT,
            programs: &["live_pass"],
            settings: &settings,
            map: ("live_sequences", 1),
        };
        let object = spec.load()?;
        let index = i32::try_from(end.index).unwrap_or(i32::MAX);
        let link = namespace.inside(|| {
            let what = || format!("attach a program to {}", end.name);
            program(&object, "live_pass")?.attach_xdp(index).bpf(what)
        })?;
        Ok(Self { link, _object: object })
    }

    /// The BPF link that attaches the program.
    pub fn link(&self) -> std::os::fd::BorrowedFd<'_> {
        self.link.as_fd()
    }
}
