//! Frames of live interfaces by AF_XDP: a batch of received frames *is* the block that workers read.
//!
//! The frames do not reach the kernel's stack. Memory goes back to the kernel, in any order, when the last worker lets
//! go of a batch; while workers hold all of it the kernel drops, and counts ([`Source::kernel_drops`]).

use super::{Fill, IssueKind, Source, SourceIssue};
use crate::block::{BLOCK_FRAMES, Block, FrameInfo};
use rxsteer_io::xdp::{XdpReceiver, wait};
use rxsteer_packet::LinkType;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Frames that are received at a time.
const BATCH: usize = 128;
const _: () = assert!(BATCH <= BLOCK_FRAMES);

/// A wait for frames, in milliseconds; the same where workers hold nearly all memory, which they may return any time.
const WAIT_MS: u32 = 10;
const SHORT_WAIT_MS: u32 = 1;

/// After this long without a frame the thread that receives looks for other things to do.
const QUIET: Duration = Duration::from_millis(100);

/// How often the kernel is asked for its counts.
const BETWEEN_COUNTS: Duration = Duration::from_millis(100);

/// How often a quiet source looks whether its interfaces are still there.
const BETWEEN_LOOKS: Duration = Duration::from_millis(500);

/// An RX queue of an interface, and its number among all of the instance.
#[derive(Debug)]
pub struct XdpQueue {
    /// Its socket.
    pub receiver: XdpReceiver,
    /// The interface's name, for messages.
    pub interface: String,
    /// The RX queue's number in [`FrameInfo::rx_queue`].
    pub rx_queue: u16,
}

/// The RX queues that one thread receives.
#[derive(Debug)]
pub struct XdpSource {
    receivers: Vec<XdpReceiver>,
    /// Of each receiver the interface and the number of the RX queue.
    names: Vec<(String, u16)>,
    /// Whose turn it is.
    next: usize,
    stop: Arc<AtomicBool>,
    looked: Instant,
    issues: Vec<SourceIssue>,
    /// What the kernel dropped on queues that have ended.
    ended_drops: u64,
    /// What it dropped on all, when it was asked last.
    kernel_drops: u64,
    asked: Instant,
}

impl XdpSource {
    /// Receives from `queues` in turns, until `stop` is set or none is left.
    #[must_use]
    pub fn new(queues: Vec<XdpQueue>, stop: Arc<AtomicBool>) -> XdpSource {
        let (receivers, names) = queues
            .into_iter()
            .map(|queue| (queue.receiver, (queue.interface, queue.rx_queue)))
            .unzip();
        XdpSource {
            receivers,
            names,
            next: 0,
            stop,
            looked: Instant::now(),
            issues: Vec::new(),
            ended_drops: 0,
            kernel_drops: 0,
            asked: Instant::now(),
        }
    }

    /// Fills the block from the next queue that has frames; whether one had.
    #[inline]
    fn receive(&mut self, block: &mut Block) -> bool {
        for _ in 0..self.receivers.len() {
            let index = self.next;
            self.next = if index + 1 == self.receivers.len() { 0 } else { index + 1 };
            let Some(received) = self.receivers[index].receive(BATCH) else { continue };
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let rx_queue = self.names[index].1;
            block.lend(received.lent);
            for &(offset, len) in received.frames {
                let info = FrameInfo::new(LinkType::Ethernet, now.as_nanos() as u64, len);
                let taken = block.push_lent(offset, len, info.on_rx_queue(rx_queue));
                debug_assert!(taken, "a batch is no longer than a block");
            }
            return true;
        }
        false
    }

    /// Waits for frames, a short time.
    fn wait(&mut self) {
        let is_short = self.receivers.iter_mut().any(XdpReceiver::is_short);
        for receiver in &self.receivers {
            receiver.collect_sent();
        }
        if wait(&self.receivers, if is_short { SHORT_WAIT_MS } else { WAIT_MS }).is_err() {
            // It fails where memory is short; then it is waited for otherwise.
            std::thread::sleep(Duration::from_millis(1));
        }
        if self.looked.elapsed() >= BETWEEN_LOOKS {
            self.looked = Instant::now();
            self.look();
        }
    }

    /// Lets go of queues that nothing comes from any more.
    #[cold]
    fn look(&mut self) {
        for index in (0..self.receivers.len()).rev() {
            let Some(why) = self.receivers[index].end() else { continue };
            self.ended_drops += drops(&self.receivers[index]);
            self.receivers.remove(index);
            let (interface, rx_queue) = self.names.remove(index);
            let message = format!("RX queue {rx_queue} has ended: {why}");
            self.issues.push(SourceIssue::new(interface, IssueKind::Gone, message));
            self.next = 0;
        }
    }

    /// Asks the kernel for its counts, now and then.
    fn count(&mut self, now: Instant) {
        if now.duration_since(self.asked) >= BETWEEN_COUNTS {
            self.asked = now;
            self.kernel_drops = self.ended_drops + self.receivers.iter().map(drops).sum::<u64>();
        }
    }
}

fn drops(receiver: &XdpReceiver) -> u64 {
    receiver.statistics().map_or(0, |counted| counted.drops())
}

impl Source for XdpSource {
    fn fill(&mut self, block: &mut Block) -> Fill {
        let began = Instant::now();
        self.count(began);
        loop {
            if self.receive(block) {
                return Fill::More;
            }
            // ORDER: Relaxed; a stop is a request, and the flag carries no data.
            if self.receivers.is_empty() || self.stop.load(Ordering::Relaxed) {
                self.count(began + BETWEEN_COUNTS + QUIET);
                return Fill::End;
            }
            if began.elapsed() >= QUIET {
                return Fill::More;
            }
            self.wait();
        }
    }

    fn take_issues(&mut self) -> Vec<SourceIssue> {
        std::mem::take(&mut self.issues)
    }

    fn stop_waiting(&self) -> Option<Arc<AtomicBool>> {
        Some(self.stop.clone())
    }

    fn kernel_drops(&self) -> u64 {
        self.kernel_drops
    }
}
