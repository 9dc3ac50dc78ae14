//! Frames of a live interface, through a packet socket (AF_PACKET, TPACKET_V3), without a copy. Workers read the blocks
//! of the socket's ring, and a block returns to the kernel when the last worker has finished with it.
//!
//! ```text
//!  NIC ─► kernel ─► ring of blocks ─► Block of up to 512 frames, in place ─► workers
//!                        ▲                                                     │
//!                        └──────────── last packet of the block completed ─────┘
//! ```
//!
//! The kernel fills the blocks strictly in order. While the next block is held it drops frames, and counts them:
//! [`Source::kernel_drops`]. So no block may be held for long:
//!
//! - A block that is nearly empty (its timeout expired) is copied and returned at once. Otherwise a slow worker would
//!   hold many blocks for few packets.
//! - If a block is held for longer than [`STUCK_FOR`] while the ring is full, for example by a handler that hangs, a new
//!   ring replaces the old one. Until the last block of the old ring returns, all frames are copied, so there are never
//!   more than two rings.
//! - For handlers that keep packets for long, use [`PacketOptions::copy`].

pub use super::live_error::LiveError;
use super::{Fill, IssueKind, Source, SourceIssue};
use crate::block::{BLOCK_FRAMES, Block, FrameFlags, FrameInfo, MAX_CAPTURED};
pub use rxsteer_io::packet::{FilterInstruction, PacketError, Promiscuous, interface_index};
use rxsteer_io::packet::{
    PacketSocket, RingBlock, RingFrame, RingInUse, RingOptions, SEND_HEADER, Waited,
    interface_exists, interface_type,
};
use rxsteer_packet::LinkType;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Longest wait for frames at a time, so that a stop is noticed.
const LONGEST_WAIT: Duration = Duration::from_millis(20);
/// How long the ring is still read after the end was requested.
const LAST_BLOCK: Duration = Duration::from_millis(40);
/// How long to sleep where waiting does not work: the block before the next one is held, so poll(2) returns at once.
const PAUSE: Duration = Duration::from_micros(200);
/// A block filled to less than one part in this many is copied.
const SPARSE: u32 = 16;
/// How long the next block must be held before a new ring replaces the old one.
pub const STUCK_FOR: Duration = Duration::from_millis(200);
/// How often the kernel's counts are read.
const COUNTS_EVERY: Duration = Duration::from_millis(100);

/// Options for receiving from a live interface.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PacketOptions {
    /// The RX queue assigned to its frames.
    pub rx_queue: u16,
    /// The size of the ring in bytes: 32 MiB by default. It stores frames that arrive while workers are busy.
    pub ring_bytes: u64,
    /// Copy each frame out of the ring: for handlers that keep packets for long.
    pub copy: bool,
    /// Enable promiscuous mode, until the source ends.
    pub promiscuous: bool,
    /// Also receive the frames that this host sends.
    pub outgoing: bool,
    /// Its share of the interface's RX queues, `(own, of)`: the queues whose number modulo `of` is `own`. If several
    /// sources share an interface, each needs a different `own`, below `of`. By default, `(0, 1)`, one source has all
    /// queues. If a driver does not record the RX queue of a packet, the source with `own` 0 gets all packets.
    pub share: (u32, u32),
    /// Whether a [`Forwarder`](crate::forward::Forwarder) sends the frames on. The kernel then describes for each frame
    /// the work left to a device, so that merged segments and unfinished checksums are sent correctly.
    pub forwards: bool,
    /// Steer by the kernel's hash, or the NIC's if there is one, instead of a hash that is computed here. Such a hash
    /// often differs between the two directions of a connection.
    pub nic_hash: bool,
    /// Use the NIC's timestamps where available. They must be enabled on the NIC (`hwstamp_ctl`).
    pub hardware_time: bool,
    /// A classic BPF program: only frames for which it returns more than 0 are received.
    pub filter: Vec<FilterInstruction>,
    /// How many more frames may be received, by all sources that share this counter.
    pub limit: Option<Arc<AtomicU64>>,
    /// A flag that ends the source when it is set. Sources can share it. Frames that the kernel already has are still
    /// received.
    pub stop: Arc<AtomicBool>,
}

impl Default for PacketOptions {
    fn default() -> PacketOptions {
        PacketOptions {
            rx_queue: 0,
            ring_bytes: 32 << 20,
            copy: false,
            promiscuous: false,
            outgoing: false,
            share: (0, 1),
            forwards: false,
            nic_hash: false,
            hardware_time: false,
            filter: Vec::new(),
            limit: None,
            stop: Arc::default(),
        }
    }
}

impl PacketOptions {
    fn ring(&self) -> RingOptions {
        let mut ring = RingOptions::default();
        let blocks = self.ring_bytes / u64::from(ring.block_size);
        ring.blocks = u32::try_from(blocks).unwrap_or(u32::MAX).max(2);
        ring.promiscuous = self.promiscuous;
        ring.outgoing = self.outgoing;
        ring.hash = self.nic_hash;
        ring.hardware_time = self.hardware_time;
        ring.filter = share_filter(self.share, &self.filter);
        ring.send_header = self.forwards;
        ring
    }
}

/// A live interface.
#[derive(Debug)]
pub struct PacketSource {
    name: String,
    index: u32,
    link: LinkType,
    options: PacketOptions,
    socket: PacketSocket,
    /// The block of the ring whose frames are being handed over.
    current: Option<RingBlock>,
    /// Since when the kernel waits for a block that is held.
    stuck_since: Option<Instant>,
    /// The replaced ring, while a block of it is held.
    old_ring: Option<RingInUse>,
    /// Whether the interface went down since the last frame. It may have been removed then.
    was_down: bool,
    kernel_drops: u64,
    counted_at: Instant,
    /// When the end was requested.
    ending_since: Option<Instant>,
    issues: Vec<SourceIssue>,
}

impl PacketSource {
    /// Receives from an interface with default options.
    ///
    /// # Errors
    /// [`LiveError`] if the interface can't be received from. This requires CAP_NET_RAW.
    pub fn open(interface: &str) -> Result<PacketSource, LiveError> {
        PacketSource::with(interface, PacketOptions::default())
    }

    /// Receives from an interface.
    ///
    /// # Errors
    /// [`LiveError`] if the interface can't be received from. This requires CAP_NET_RAW.
    pub fn with(interface: &str, options: PacketOptions) -> Result<PacketSource, LiveError> {
        let (own, of) = options.share;
        if own >= of {
            return Err(LiveError::Share(own, of));
        }
        let index = interface_index(interface)?;
        let link = interface_link_type(interface)?;
        let socket = PacketSocket::open(index, &options.ring())?;
        Ok(PacketSource {
            name: interface.to_owned(),
            index,
            link,
            options,
            socket,
            current: None,
            stuck_since: None,
            old_ring: None,
            was_down: false,
            kernel_drops: 0,
            counted_at: Instant::now(),
            ending_since: None,
            issues: Vec::new(),
        })
    }

    /// The link type of its frames.
    #[must_use]
    pub fn link(&self) -> LinkType {
        self.link
    }

    /// Whether the frames of a ring block must be copied.
    fn copies(&self, current: &RingBlock) -> bool {
        let sparse = current.used() < current.size() / SPARSE;
        self.options.copy || sparse || self.has_old_ring()
    }

    /// Whether the replaced ring is still in use. A worker that holds it would soon hold the new one, too.
    fn has_old_ring(&self) -> bool {
        self.old_ring.as_ref().is_some_and(RingInUse::is_in_use)
    }

    /// Appends frames of the current ring block to `block`: as copies, or in place if `block` is empty.
    fn hand_out(&mut self, block: &mut Block, copy: bool) {
        let Some(current) = &mut self.current else { return };
        let lent = current.lent();
        if !copy {
            block.lend(lent.clone());
        }
        while block.len() < BLOCK_FRAMES && !(copy && block.is_full()) {
            if !may_receive(self.options.limit.as_deref()) {
                break;
            }
            let Some(frame) = current.next_frame() else { break };
            let info = info(&frame, self.link, &self.options);
            let len = frame.len.min(MAX_CAPTURED as u32);
            let taken = if copy && frame.has_send_header {
                let start = frame.offset as usize - SEND_HEADER;
                // The frame is shortened if necessary, so that its header fits.
                let len = (len as usize).min(MAX_CAPTURED - SEND_HEADER);
                block.push_with_header(lent.slice(start, SEND_HEADER + len), info)
            } else if copy {
                block.push(lent.slice(frame.offset as usize, len as usize), info)
            } else {
                block.push_lent(frame.offset, len, info)
            };
            debug_assert!(taken, "there is room");
            if current.frames_left() == 0 {
                break;
            }
        }
        if current.frames_left() == 0 {
            self.current = None;
        }
        if block.is_empty() {
            // The limit is reached: an open block must not keep lent memory.
            block.clear();
        }
    }

    /// Whether the limit of frames is reached.
    fn is_at_limit(&self) -> bool {
        // ORDER: Relaxed; the count carries all of the information.
        self.options.limit.as_ref().is_some_and(|limit| limit.load(Ordering::Relaxed) == 0)
    }

    /// Whether the end was requested and the frames that the kernel had at that time have arrived.
    fn is_ended(&mut self) -> bool {
        // ORDER: Relaxed; a request without data.
        if !self.options.stop.load(Ordering::Relaxed) {
            return false;
        }
        if self.ending_since.is_none() {
            // If this fails, frames that arrive now are received, too.
            let _ = self.socket.pause();
        }
        // The kernel hands over its open block after the timeout of 1 ms, which it rounds up.
        self.ending_since.get_or_insert_with(Instant::now).elapsed() > LAST_BLOCK
    }

    /// The next block of the ring that has a frame.
    fn next_block(&mut self) -> Option<RingBlock> {
        let next = self.socket.next_block().filter(|block| block.frames_left() > 0);
        if next.is_some() {
            self.stuck_since = None;
            self.was_down = false;
        }
        next
    }

    /// Waits for frames. Returns whether more can arrive.
    fn wait(&mut self) -> bool {
        if self.socket.is_stuck() {
            let since = *self.stuck_since.get_or_insert_with(Instant::now);
            if since.elapsed() >= STUCK_FOR {
                self.take_over();
            }
            std::thread::sleep(PAUSE);
            return true;
        }
        self.stuck_since = None;
        let timeout = if self.ending_since.is_some() { LONGEST_WAIT / 20 } else { LONGEST_WAIT };
        match self.socket.wait(timeout) {
            Ok(Waited::TimedOut) if !self.was_down || interface_exists(self.index) => true,
            Ok(Waited::Gone | Waited::TimedOut) => {
                let message = "the interface is gone; what was received of it is in the report";
                self.issues.push(SourceIssue::new(&self.name, IssueKind::Gone, message));
                false
            }
            // The interface may come up again, a block may be ready, or poll(2) does not wait because a block is held.
            Ok(Waited::Down) => {
                self.was_down = true;
                std::thread::sleep(LONGEST_WAIT);
                true
            }
            Ok(Waited::Ready) => {
                std::thread::sleep(PAUSE);
                true
            }
            Err(error) => {
                let message = format!("waiting for frames failed: {error}");
                self.issues.push(SourceIssue::new(&self.name, IssueKind::Gone, message));
                false
            }
        }
    }

    /// Replaces a ring in which a worker blocks the next block by a new one.
    fn take_over(&mut self) {
        self.stuck_since = None;
        if self.has_old_ring() || self.ending_since.is_some() {
            return;
        }
        // If there is no memory, the worker may still return the block.
        if let Ok(Some((old, counts))) = self.socket.replace_ring(&self.options.ring()) {
            self.old_ring = Some(old);
            self.kernel_drops += counts.drops;
        }
    }

    /// Reads the kernel's counts, if it is time or `now` is set.
    fn count(&mut self, now: bool) {
        if now || self.counted_at.elapsed() >= COUNTS_EVERY {
            self.counted_at = Instant::now();
            self.kernel_drops += self.socket.counts().map_or(0, |counts| counts.drops);
        }
    }
}

impl Source for PacketSource {
    fn fill(&mut self, block: &mut Block) -> Fill {
        self.count(false);
        while !self.is_at_limit() {
            if self.current.is_none() {
                self.current = self.next_block();
            }
            if let Some(current) = &self.current {
                let copy = self.copies(current);
                if !copy && !block.is_empty() {
                    return Fill::More;
                }
                self.hand_out(block, copy);
                if block.is_full() {
                    return Fill::More;
                }
                continue;
            }
            if !block.is_empty() {
                return Fill::More;
            }
            if self.is_ended() || !self.wait() {
                break;
            }
            self.current = self.next_block();
            if self.current.is_none() {
                return Fill::More;
            }
        }
        self.current = None;
        self.count(true);
        Fill::End
    }

    fn take_issues(&mut self) -> Vec<SourceIssue> {
        std::mem::take(&mut self.issues)
    }

    fn stop_waiting(&self) -> Option<Arc<AtomicBool>> {
        Some(self.options.stop.clone())
    }

    fn kernel_drops(&self) -> u64 {
        self.kernel_drops
    }
}

/// Takes one frame from the limit, if there is one. Returns whether the frame may be received.
pub(super) fn may_receive(limit: Option<&AtomicU64>) -> bool {
    let one_less = |left: u64| left.checked_sub(1);
    // ORDER: Relaxed; the count carries all of the information.
    limit.is_none_or(|limit| {
        limit.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_ok()
    })
}

fn info(frame: &RingFrame, link: LinkType, options: &PacketOptions) -> FrameInfo {
    let flags = FrameFlags::NONE
        .and(FrameFlags::CHECKSUM_NOT_READY, frame.checksum_not_ready)
        .and(FrameFlags::CHECKSUM_VALID, frame.checksum_valid)
        .and(FrameFlags::MERGED, frame.merged)
        .and(FrameFlags::OUTGOING, frame.outgoing)
        .and(FrameFlags::HARDWARE_TIME, frame.hardware_time)
        .and(FrameFlags::VLAN_LOST, frame.vlan_lost.is_some())
        .and(FrameFlags::SEND_HEADER, frame.has_send_header);
    let info = FrameInfo::new(link, frame.time_ns, frame.wire_len)
        .on_rx_queue(options.rx_queue)
        .with_flags(flags);
    if options.nic_hash { info.with_nic_hash(frame.hash) } else { info }
}

/// The filter of one of several sockets on an interface: it accepts packets of its own RX queues that pass `filter`.
///
/// A driver records the RX queue as its number + 1. The value 0 means "not recorded"; one of the sockets receives these
/// packets. A socket group of the kernel (PACKET_FANOUT_QM) would need fewer comparisons, but it changes the shares of
/// all sockets while one of them gets a new ring.
fn share_filter((own, of): (u32, u32), filter: &[FilterInstruction]) -> Vec<FilterInstruction> {
    /// Classic BPF: load a word, A %= k, skip `jump_true` instructions if A == k, return k.
    const LOAD: u16 = 0x20;
    const MODULO: u16 = 0x94;
    const EQUAL: u16 = 0x15;
    const RETURN: u16 = 0x06;
    /// Where the kernel stores the RX queue (linux/filter.h, `SKF_AD_OFF + SKF_AD_QUEUE`).
    const QUEUE: u32 = 0xffff_f000 + 24;
    if of <= 1 {
        return filter.to_vec();
    }
    let of_code = |code, jump_true, k| FilterInstruction { code, jump_true, jump_false: 0, k };
    let mut all = vec![
        of_code(LOAD, 0, QUEUE),
        of_code(MODULO, 0, of),
        of_code(EQUAL, 1, (own + 1) % of),
        of_code(RETURN, 0, 0),
    ];
    if filter.is_empty() {
        all.push(of_code(RETURN, 0, u32::MAX));
    }
    all.extend_from_slice(filter);
    all
}

/// The link type of the frames of an interface.
fn interface_link_type(name: &str) -> Result<LinkType, LiveError> {
    let hardware = interface_type(name)
        .map_err(|error| PacketError::System("ask for the interface's link type", error))?;
    link_type(hardware).ok_or_else(|| LiveError::LinkType(name.to_owned(), hardware))
}

/// The link type of frames of an interface with this `ARPHRD_` number, on a packet socket of type SOCK_RAW.
fn link_type(hardware: u16) -> Option<LinkType> {
    match hardware {
        // ARPHRD_ETHER, ARPHRD_LOOPBACK.
        1 | 772 => Some(LinkType::Ethernet),
        // ARPHRD_NONE (tun, WireGuard), ARPHRD_PPP, ARPHRD_RAWIP, ARPHRD_TUNNEL, ARPHRD_TUNNEL6, ARPHRD_SIT.
        65534 | 519 | 768 | 769 | 776 => Some(LinkType::Raw),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a filter of `share_filter` says of a packet whose noted RX queue is `noted`.
    fn accepts(filter: &[FilterInstruction], noted: u32) -> bool {
        let (mut at, mut value) = (0, 0);
        loop {
            let FilterInstruction { code, jump_true, jump_false, k } = filter[at];
            at += 1;
            match code {
                0x20 if k == 0xffff_f018 => value = noted,
                0x94 => value %= k,
                0x15 => at += usize::from(if value == k { jump_true } else { jump_false }),
                0x06 => return k != 0,
                _ => panic!("instruction {code:#x}"),
            }
        }
    }

    #[test]
    fn each_rx_queue_is_of_one_share() {
        for of in 1..=8 {
            let filters: Vec<_> = (0..of).map(|own| share_filter((own, of), &[])).collect();
            // 0 is "not noted".
            for noted in 0..100_u32 {
                let own: Vec<usize> = (0..filters.len())
                    .filter(|at| filters[*at].is_empty() || accepts(&filters[*at], noted))
                    .collect();
                assert_eq!(own.len(), 1, "{noted} of {of}");
                if let Some(queue) = noted.checked_sub(1) {
                    assert_eq!(own[0] as u32, queue % of, "queue {queue} of {of}");
                }
            }
        }
        let nothing = FilterInstruction { code: 0x06, jump_true: 0, jump_false: 0, k: 0 };
        assert_eq!(share_filter((0, 1), &[nothing]), [nothing]);
        assert!((0..9).all(|noted| !accepts(&share_filter((1, 2), &[nothing]), noted)));
    }
}
