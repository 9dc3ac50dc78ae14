//! Frames of a live interface, through a packet socket (AF_PACKET, TPACKET_V3), not copied: a block of the socket's ring
//! is what workers read, and it goes back to the kernel when the last of them is done with it.
//!
//! ```text
//!  NIC ─► kernel ─► ring of blocks ─► Block of up to 512 frames, in place ─► workers
//!                        ▲                                                     │
//!                        └──────────── last packet of the block completed ─────┘
//! ```
//!
//! The kernel fills the blocks strictly in order. While it finds the next one held it drops, and counts that:
//! [`Source::kernel_drops`]. So no block is to be held for long:
//!
//! - a block that is nearly empty (its time was up) is copied, and goes back at once: else a slow worker would hold many
//!   blocks for few packets;
//! - where a block is held for longer than [`STUCK_FOR`] while the ring is full, as by a handler that hangs, a fresh
//!   ring takes over. Until the old one's last block comes back all is copied, so there are never more than two.
//! - handlers that keep packets long take [`PacketOptions::copy`].

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
/// How long the ring is looked at once the end was asked for.
const LAST_BLOCK: Duration = Duration::from_millis(40);
/// What is slept where waiting is of no use: the block before the next one is held, so that poll(2) returns at once.
const PAUSE: Duration = Duration::from_micros(200);
/// A block that is filled to less than one part in so many is copied.
const SPARSE: u32 = 16;
/// After how long a fresh ring takes over from one whose next block is held.
pub const STUCK_FOR: Duration = Duration::from_millis(200);
/// How often the kernel is asked for its counts.
const COUNTS_EVERY: Duration = Duration::from_millis(100);

/// How a live interface is received from.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PacketOptions {
    /// The RX queue that its frames count for.
    pub rx_queue: u16,
    /// Bytes of the ring: 32 MiB by default. It holds what arrives while workers are busy.
    pub ring_bytes: u64,
    /// Copy each frame out of the ring: for handlers that keep packets long.
    pub copy: bool,
    /// Have the interface receive frames for other addresses; ends with the source.
    pub promiscuous: bool,
    /// Receive what this host sends, too.
    pub outgoing: bool,
    /// Its share of the interface's RX queues, `(own, of)`: those whose number leaves the rest `own` when divided by `of`. Where
    /// several sources share an interface, each has another `own`. By default, `(0, 1)`, one source has all queues. `own`
    /// has to be below `of`. Of a driver that does not record the RX queue of a packet, the source with `own` 0 gets all
    /// packets.
    pub share: (u32, u32),
    /// Whether frames are to be sent on by a [`Forwarder`](crate::forward::Forwarder): the kernel then says of each what a
    /// device has to do first, and merged segments and unfinished checksums go out as they should.
    pub forwards: bool,
    /// Steer by the kernel's hash instead of one that is computed here: the NIC's where it gives one. Such a hash often
    /// differs between the two directions of a connection.
    pub nic_hash: bool,
    /// Take the NIC's times where it gives any; that has to be switched on there (`hwstamp_ctl`).
    pub hardware_time: bool,
    /// Classic BPF: only frames for which it returns more than 0.
    pub filter: Vec<FilterInstruction>,
    /// How many frames may still be received, by all sources that share it.
    pub limit: Option<Arc<AtomicU64>>,
    /// A flag that ends it when it is set; sources can share it. What the kernel has by then is still received.
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

/// Why an interface can't be received from.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LiveError {
    /// The socket could not be opened.
    #[error(transparent)]
    Packet(#[from] PacketError),
    /// [`PacketOptions::share`] is no share; holds it.
    #[error(
        "({0}, {1}) is not a share of the RX queues: the first number must be below the second"
    )]
    Share(u32, u32),
    /// Its frames begin with a header that is not understood; holds its name and its `ARPHRD_` number.
    #[error(
        "the frames of interface '{0}' have link type {1} (linux/if_arp.h), which is not supported; supported are \
         Ethernet, loopback and raw IP"
    )]
    LinkType(String, u16),
}

/// A live interface.
#[derive(Debug)]
pub struct PacketSource {
    name: String,
    index: u32,
    link: LinkType,
    options: PacketOptions,
    socket: PacketSocket,
    /// The ring's block that is being handed out.
    current: Option<RingBlock>,
    /// Since when the kernel waits for a block that is held.
    stuck_since: Option<Instant>,
    /// The ring that a fresh one took over from, as long as a block of it is held.
    old_ring: Option<RingInUse>,
    /// Whether the interface went down since the last frame: it may be removed then.
    was_down: bool,
    kernel_drops: u64,
    counted_at: Instant,
    /// When the end was asked for.
    ending_since: Option<Instant>,
    issues: Vec<SourceIssue>,
}

impl PacketSource {
    /// Receives from an interface with default options.
    ///
    /// # Errors
    /// [`LiveError`], where it can't be received from: CAP_NET_RAW is needed.
    pub fn open(interface: &str) -> Result<PacketSource, LiveError> {
        PacketSource::with(interface, PacketOptions::default())
    }

    /// Receives from an interface.
    ///
    /// # Errors
    /// [`LiveError`], where it can't be received from: CAP_NET_RAW is needed.
    pub fn with(interface: &str, options: PacketOptions) -> Result<PacketSource, LiveError> {
        let (own, of) = options.share;
        if own >= of {
            return Err(LiveError::Share(own, of));
        }
        let index = interface_index(interface)?;
        let hardware = interface_type(interface)
            .map_err(|error| PacketError::System("ask for the interface's link type", error))?;
        let link = link_type(hardware)
            .ok_or_else(|| LiveError::LinkType(interface.to_owned(), hardware))?;
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

    /// What its frames begin with.
    #[must_use]
    pub fn link(&self) -> LinkType {
        self.link
    }

    /// Whether the ring block's frames are to be copied.
    fn copies(&self, current: &RingBlock) -> bool {
        let sparse = current.used() < current.size() / SPARSE;
        self.options.copy || sparse || self.has_old_ring()
    }

    /// Whether a ring that a fresh one took over from is still in use: who holds it would soon hold the fresh one, too.
    fn has_old_ring(&self) -> bool {
        self.old_ring.as_ref().is_some_and(RingInUse::is_in_use)
    }

    /// Appends frames of the ring block in hand to `block`: copied, or in place where `block` is empty.
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
                // The longest frame leaves room for its header.
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
            // Nothing may be received any more: nothing is lent to an open block.
            block.clear();
        }
    }

    /// Whether the limit of frames is reached.
    fn is_at_limit(&self) -> bool {
        // ORDER: Relaxed; the count is the whole message.
        self.options.limit.as_ref().is_some_and(|limit| limit.load(Ordering::Relaxed) == 0)
    }

    /// Whether the end was asked for and what the kernel had then has come.
    fn is_ended(&mut self) -> bool {
        // ORDER: Relaxed; a request without data.
        if !self.options.stop.load(Ordering::Relaxed) {
            return false;
        }
        if self.ending_since.is_none() {
            // Should this fail, frames that come now are received, too.
            let _ = self.socket.pause();
        }
        // The open block is handed over by its timeout of 1 ms, which the kernel rounds up.
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

    /// Waits for frames; says whether any can come still.
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
            // It comes up again, or there is a block, or poll(2) does not wait for a block that is held.
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

    /// Has a fresh ring receive instead of one that a worker keeps from going on.
    fn take_over(&mut self) {
        self.stuck_since = None;
        if self.has_old_ring() || self.ending_since.is_some() {
            return;
        }
        // Where there is no memory the worker may come back.
        if let Ok(Some((old, counts))) = self.socket.replace_ring(&self.options.ring()) {
            self.old_ring = Some(old);
            self.kernel_drops += counts.drops;
        }
    }

    /// Asks the kernel for its counts, now or if it is time.
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

/// Takes one frame from the limit, where there is one; says whether it may be received.
pub(super) fn may_receive(limit: Option<&AtomicU64>) -> bool {
    let one_less = |left: u64| left.checked_sub(1);
    // ORDER: Relaxed; the count is the whole message.
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

/// The filter of one of several sockets on an interface: first whether the RX queue is one of its own, then `filter`.
///
/// A driver notes the RX queue as its number + 1; 0 is "not said", and comes to one of the sockets, too. A socket group of
/// the kernel (PACKET_FANOUT_QM) would do the same with fewer comparisons, but changes all sockets' shares while one of them
/// goes on with a fresh ring.
fn share_filter((own, of): (u32, u32), filter: &[FilterInstruction]) -> Vec<FilterInstruction> {
    /// Of classic BPF: load a word, A %= k, skip `jump_true` instructions if A == k, return k.
    const LOAD: u16 = 0x20;
    const MODULO: u16 = 0x94;
    const EQUAL: u16 = 0x15;
    const RETURN: u16 = 0x06;
    /// Where the kernel has the RX queue (linux/filter.h, `SKF_AD_OFF + SKF_AD_QUEUE`).
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

/// What frames of an interface with this `ARPHRD_` number begin with, on a packet socket of type SOCK_RAW.
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
