//! Frames of live interfaces, through AF_XDP. A batch of received frames is the block that workers read.
//!
//! The frames do not reach the kernel's stack. The memory of a batch returns to the kernel, in any order, when the last
//! worker releases the batch. While workers hold all memory, the kernel drops frames and counts them
//! ([`Source::kernel_drops`]).

use super::packet::may_receive;
use super::{Fill, IssueKind, Source, SourceIssue};
use crate::block::{BLOCK_FRAMES, Block, FrameInfo};
pub use rxsteer_io::xdp::{
    Port, XdpError, XdpMode, XdpOptions, XdpPort, XdpReceiver, XdpStatistics, open,
};
use rxsteer_io::xdp::{Received, wait};
use rxsteer_packet::LinkType;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The number of frames received at a time.
const BATCH: usize = 128;
const _: () = assert!(BATCH <= BLOCK_FRAMES);

/// The same if frames are copied: a block has room for this many of the longest frames.
const COPIED_BATCH: usize = 64;

/// How long to wait for frames, in milliseconds; and the same if workers hold nearly all memory, which they may return at
/// any time.
const WAIT_MS: u32 = 10;
const SHORT_WAIT_MS: u32 = 1;

/// After this time without a frame, the source returns to its caller.
const QUIET: Duration = Duration::from_millis(100);

/// How long a driver may still deliver frames that it was processing when its queue was withdrawn: a few polls.
const LAST_FRAMES: Duration = Duration::from_millis(20);

/// How often the kernel's counts are read.
const BETWEEN_COUNTS: Duration = Duration::from_millis(100);

/// How often a quiet source checks whether its interfaces still exist.
const BETWEEN_LOOKS: Duration = Duration::from_millis(500);

/// An RX queue of an interface, and its number in the pipeline.
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
    /// The interface and the RX queue number of each receiver.
    names: Vec<(String, u16)>,
    /// The receiver whose turn is next.
    next: usize,
    stop: Arc<AtomicBool>,
    /// How many more frames may be received, by all sources that share this counter.
    limit: Option<Arc<AtomicU64>>,
    /// Whether frames are copied, for handlers that keep them long.
    copies: bool,
    looked: Instant,
    issues: Vec<SourceIssue>,
    /// Whether the host receives new frames again, because this source is ending.
    is_withdrawn: bool,
    /// Frames that the kernel dropped on queues that have ended.
    ended_drops: u64,
    /// Frames that it dropped on all queues, at the last read of its counts.
    kernel_drops: u64,
    asked: Instant,
}

impl XdpSource {
    /// Receives from `queues` in turn, until `stop` is set or no queue is left.
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
            limit: None,
            copies: false,
            looked: Instant::now(),
            issues: Vec::new(),
            is_withdrawn: false,
            ended_drops: 0,
            kernel_drops: 0,
            asked: Instant::now(),
        }
    }

    /// Sets a limit of frames, which all sources that share the counter use up together.
    #[must_use]
    pub fn with_limit(self, limit: Option<Arc<AtomicU64>>) -> XdpSource {
        XdpSource { limit, ..self }
    }

    /// Sets whether frames are copied, so that handlers that keep them for long hold no kernel memory.
    #[must_use]
    pub fn copying(self, copies: bool) -> XdpSource {
        XdpSource { copies, ..self }
    }

    /// Fills the block from the next queue that has frames. Returns whether there was one.
    #[inline]
    fn receive(&mut self, block: &mut Block) -> bool {
        let most = if self.copies { COPIED_BATCH } else { BATCH };
        for _ in 0..self.receivers.len() {
            let index = self.next;
            self.next = if index + 1 == self.receivers.len() { 0 } else { index + 1 };
            let Some(received) = self.receivers[index].receive(most) else { continue };
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let info = FrameInfo::new(LinkType::Ethernet, now.as_nanos() as u64, 0);
            let info = info.on_rx_queue(self.names[index].1);
            fill(block, &received, info, self.copies, self.limit.as_deref());
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
            // The wait fails if memory is short. Then the thread sleeps instead.
            std::thread::sleep(Duration::from_millis(1));
        }
        if self.looked.elapsed() >= BETWEEN_LOOKS {
            self.looked = Instant::now();
            self.look();
        }
    }

    /// Removes queues that deliver no more frames.
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

    /// Reads the kernel's counts.
    fn count(&mut self) {
        self.kernel_drops = self.ended_drops + self.receivers.iter().map(drops).sum::<u64>();
    }

    /// Lets the host receive new frames again.
    #[cold]
    fn withdraw(&mut self) {
        self.is_withdrawn = true;
        self.receivers.iter_mut().for_each(XdpReceiver::withdraw);
    }

    /// Ends the source. Frames that the kernel holds beyond a limit are not received.
    fn end(&mut self) -> Fill {
        self.withdraw();
        self.count();
        Fill::End
    }

    fn is_at_limit(&self) -> bool {
        // ORDER: Relaxed; the count carries all of the information.
        self.limit.as_ref().is_some_and(|limit| limit.load(Ordering::Relaxed) == 0)
    }
}

/// Appends the received frames, up to the limit.
fn fill(
    block: &mut Block,
    received: &Received<'_>,
    info: FrameInfo,
    copies: bool,
    limit: Option<&AtomicU64>,
) {
    let may_receive = |_: &&(u32, u32)| may_receive(limit);
    for &(offset, len) in received.frames.iter().take_while(may_receive) {
        let info = FrameInfo { wire_len: len, ..info };
        let taken = if copies {
            block.push(received.lent.slice(offset as usize, len as usize), info)
        } else {
            if block.is_empty() {
                block.lend(received.lent.clone());
            }
            block.push_lent(offset, len, info)
        };
        debug_assert!(taken, "a batch is no longer than a block");
    }
}

fn drops(receiver: &XdpReceiver) -> u64 {
    receiver.statistics().map_or(0, |counted| counted.drops())
}

impl Source for XdpSource {
    fn fill(&mut self, block: &mut Block) -> Fill {
        let began = Instant::now();
        if began.duration_since(self.asked) >= BETWEEN_COUNTS {
            self.asked = began;
            self.count();
        }
        loop {
            // ORDER: Relaxed; a stop is a request, and the flag carries no data.
            let stops = self.stop.load(Ordering::Relaxed);
            if stops && !self.is_withdrawn {
                self.withdraw();
                // The frames that the kernel received before are still taken, so that every frame is counted.
                std::thread::sleep(LAST_FRAMES);
            }
            if self.receive(block) {
                return if self.is_at_limit() { self.end() } else { Fill::More };
            }
            if stops || self.receivers.is_empty() || self.is_at_limit() {
                return self.end();
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

    fn drops_early(&self) -> bool {
        true
    }
}
