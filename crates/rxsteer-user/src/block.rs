//! Blocks of frames: how frame bytes travel from a source to the workers without being copied per
//! packet, counted per packet, or freed per packet.
//!
//! ```text
//!  source fills        RX thread hashes, decides, seals      workers read
//!  ┌────────────┐      ┌────────────┐  Arc, once per block   ┌────────────┐
//!  │ Block      │ ───► │ Block      │ ─────── and worker ──► │ Arc<Block> │
//!  └────────────┘      └────────────┘                        └────────────┘
//!        ▲                  16-byte descriptors through the rings: index of the frame,
//!        │                  hash, length, time
//!        └────── taken back when no worker holds it (BlockPool) ────┘
//! ```
//!
//! A block is written by one thread while no other thread has it, then shared and only read. That
//! is why the whole path needs no `unsafe` of its own, and why a packet costs no reference count.
//!
//! The bytes are the block's own, or [`Lent`] by the kernel. Lent memory must go back when its packets are done, so
//! neither the pool nor a worker keeps such a block: each list that is queued of it carries a reference of its own,
//! which the worker drops with the list's last packet.

use rxsteer_io::Lent;
use rxsteer_io::packet::SEND_HEADER;
use rxsteer_packet::LinkType;
use std::collections::VecDeque;
use std::sync::Arc;

/// Frames a block takes at most.
pub const BLOCK_FRAMES: usize = 512;

/// Frame bytes after which a block takes no further frame.
pub const BLOCK_BYTES: usize = 256 * 1024;

/// Longest captured frame that is accepted, in bytes: libpcap's largest snapshot length. A capture
/// that claims more is damaged.
pub const MAX_CAPTURED: usize = 262_144;

/// What a live source says of a frame beside its place and time; a frame of a file has none of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameFlags(u8);

impl FrameFlags {
    /// Nothing is said.
    pub const NONE: FrameFlags = FrameFlags(0);
    /// Its transport checksum is still to be filled in by a device: it comes from this host.
    pub const CHECKSUM_NOT_READY: FrameFlags = FrameFlags(1);
    /// The kernel or the NIC found its transport checksum right.
    pub const CHECKSUM_VALID: FrameFlags = FrameFlags(1 << 1);
    /// Segments of TCP that were merged (GRO) or never split: it can be longer than the MTU.
    pub const MERGED: FrameFlags = FrameFlags(1 << 2);
    /// This host sent it.
    pub const OUTGOING: FrameFlags = FrameFlags(1 << 3);
    /// Its time is the NIC's.
    pub const HARDWARE_TIME: FrameFlags = FrameFlags(1 << 4);
    /// The kernel took a VLAN tag out of it that could not be put back.
    pub const VLAN_LOST: FrameFlags = FrameFlags(1 << 5);
    /// The bytes before it say how it is to be sent on.
    pub(crate) const SEND_HEADER: FrameFlags = FrameFlags(1 << 6);

    /// Whether it says all that `flags` do.
    #[inline]
    #[must_use]
    pub const fn has(self, flags: FrameFlags) -> bool {
        self.0 & flags.0 == flags.0
    }

    /// Both, if `is_so`; else this.
    #[inline]
    #[must_use]
    pub const fn and(self, flags: FrameFlags, is_so: bool) -> FrameFlags {
        if is_so { FrameFlags(self.0 | flags.0) } else { self }
    }
}

/// What is known of a frame beside its bytes, when it enters the receive path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FrameInfo {
    /// When it was received, in nanoseconds since the epoch of the source's clock (capture time
    /// in a replay). Policies take idle times from it.
    pub timestamp_ns: u64,
    /// Its length on the wire in bytes, which can exceed the bytes captured.
    pub wire_len: u32,
    /// The RX queue it arrived on.
    pub rx_queue: u16,
    /// How its first bytes are to be read.
    pub link: LinkType,
    /// The NIC's hash, where it gave one: then no header is read. 0 means "no hash".
    pub nic_hash: Option<u32>,
    /// What a live source says of it.
    pub flags: FrameFlags,
}

impl FrameInfo {
    /// Of a frame that begins with a `link` header, was received on RX queue 0 at `timestamp_ns`, and was `wire_len`
    /// bytes long on the wire.
    #[inline]
    #[must_use]
    pub const fn new(link: LinkType, timestamp_ns: u64, wire_len: u32) -> FrameInfo {
        let flags = FrameFlags::NONE;
        FrameInfo { timestamp_ns, wire_len, rx_queue: 0, link, nic_hash: None, flags }
    }

    /// The same, received on this RX queue.
    #[inline]
    #[must_use]
    pub const fn on_rx_queue(self, rx_queue: u16) -> FrameInfo {
        FrameInfo { rx_queue, ..self }
    }

    /// The same, with the hash that the NIC gave.
    #[inline]
    #[must_use]
    pub const fn with_nic_hash(self, hash: u32) -> FrameInfo {
        FrameInfo { nic_hash: Some(hash), ..self }
    }

    /// The same, of which a live source says this.
    #[inline]
    #[must_use]
    pub const fn with_flags(self, flags: FrameFlags) -> FrameInfo {
        FrameInfo { flags, ..self }
    }

    /// The same, received at this time.
    #[inline]
    #[must_use]
    pub const fn at(self, timestamp_ns: u64) -> FrameInfo {
        FrameInfo { timestamp_ns, ..self }
    }
}

/// A frame's place in its block, and what is known of it.
#[derive(Clone, Copy, Debug)]
pub struct FrameMeta {
    /// When it was received, in nanoseconds of the source's clock.
    pub timestamp_ns: u64,
    pub(crate) offset: u32,
    /// Bytes captured.
    pub captured_len: u32,
    /// Bytes on the wire.
    pub wire_len: u32,
    /// The flow hash, once the RX thread has computed it; 0 is "no hash".
    pub hash: u32,
    /// The RX queue it arrived on.
    pub rx_queue: u16,
    /// How its first bytes are to be read.
    pub link: LinkType,
    /// Whether `hash` came with the frame.
    pub(crate) has_nic_hash: bool,
    /// What a live source says of it.
    pub flags: FrameFlags,
}

const _: () = assert!(size_of::<FrameMeta>() == 32);

impl FrameMeta {
    /// Of the `len` bytes at `offset`.
    #[inline(always)]
    fn new(offset: u32, len: u32, info: FrameInfo) -> FrameMeta {
        FrameMeta {
            timestamp_ns: info.timestamp_ns,
            offset,
            captured_len: len,
            wire_len: info.wire_len,
            hash: info.nic_hash.unwrap_or(0),
            rx_queue: info.rx_queue,
            link: info.link,
            has_nic_hash: info.nic_hash.is_some(),
            flags: info.flags,
        }
    }

    /// What was known of the frame when it entered.
    #[must_use]
    pub fn info(&self) -> FrameInfo {
        FrameInfo {
            timestamp_ns: self.timestamp_ns,
            wire_len: self.wire_len,
            rx_queue: self.rx_queue,
            link: self.link,
            nic_hash: self.has_nic_hash.then_some(self.hash),
            flags: self.flags,
        }
    }
}

/// The latest time of a frame, in nanoseconds since 1970: 2262-04-11 23:47:16.854775806. It fits the signed numbers of
/// other programs, whose highest means infinity in some of them.
pub const MAX_TIME_NS: u64 = i64::MAX as u64 - 1;

/// Where the frames of a block lie.
#[derive(Clone, Debug)]
enum Bytes {
    Own(Vec<u8>),
    Lent(Lent),
}

impl Default for Bytes {
    fn default() -> Bytes {
        Bytes::Own(Vec::new())
    }
}

/// Frames that travel together.
#[derive(Clone, Debug, Default)]
pub struct Block {
    bytes: Bytes,
    pub(crate) frames: Vec<FrameMeta>,
    /// Where order is checked: each frame's flow and number in it, beside `frames`; else empty.
    pub(crate) numbers: Vec<FlowNumber>,
    /// Which RX thread's order tracker numbered them.
    pub(crate) numbered_by: usize,
}

/// A frame's place in its flow, as counted where frames enter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowNumber {
    /// Which flow, counted from 0 in order of appearance; [`FlowNumber::UNTRACKED`] beyond the
    /// limit of flows.
    pub flow: u32,
    /// The frame's number in that flow, from 1.
    pub number: u32,
}

impl FlowNumber {
    /// "Not numbered": more flows than are tracked, or a frame without a flow.
    pub const UNTRACKED: u32 = u32::MAX;
}

impl Block {
    /// An empty block. Its memory grows with what it is filled with, and is kept when it is
    /// emptied.
    #[must_use]
    pub fn new() -> Block {
        Block::default()
    }

    /// Memory it takes, in bytes.
    fn memory(&self) -> usize {
        let bytes = match &self.bytes {
            Bytes::Own(bytes) => bytes.capacity(),
            Bytes::Lent(_) => 0,
        };
        size_of::<Block>()
            + bytes
            + self.frames.capacity() * size_of::<FrameMeta>()
            + self.numbers.capacity() * size_of::<FlowNumber>()
    }

    /// Whether the block takes no further frame by [`Block::push`]; a block of lent memory takes none.
    #[must_use]
    pub fn is_full(&self) -> bool {
        let bytes_full = match &self.bytes {
            Bytes::Own(bytes) => bytes.len() >= BLOCK_BYTES,
            Bytes::Lent(_) => true,
        };
        self.frames.len() >= BLOCK_FRAMES || bytes_full
    }

    /// Whether the bytes are lent by the kernel.
    #[inline(always)]
    #[must_use]
    pub fn is_lent(&self) -> bool {
        matches!(self.bytes, Bytes::Lent(_))
    }

    /// The memory its frames lie in, where that is lent.
    #[cfg(feature = "xdp")]
    pub(crate) fn lent(&self) -> Option<&Lent> {
        match &self.bytes {
            Bytes::Own(_) => None,
            Bytes::Lent(lent) => Some(lent),
        }
    }

    /// Has the block take frames of `lent` from now on, by [`Block::push_lent`], until it is cleared. At least one is to
    /// follow: an open block is kept while it is empty.
    ///
    /// # Panics
    /// When the block holds a frame.
    pub(crate) fn lend(&mut self, lent: Lent) {
        assert!(self.is_empty(), "the frames of a block lie in one memory");
        assert!(u32::try_from(lent.len()).is_ok(), "{} bytes are too many", lent.len());
        self.bytes = Bytes::Lent(lent);
        self.frames.reserve(BLOCK_FRAMES);
    }

    /// Appends the frame that lies `offset` bytes into the lent memory; returns `false`, and appends nothing, when the
    /// block is full. To be called for frames that are lent, no others.
    ///
    /// # Panics
    /// When nothing is lent, or the frame reaches beyond it or is longer than [`MAX_CAPTURED`].
    #[inline]
    #[must_use = "a full block does not take the frame"]
    pub(crate) fn push_lent(&mut self, offset: u32, len: u32, info: FrameInfo) -> bool {
        assert!(len as usize <= MAX_CAPTURED, "a frame of {len} bytes is too long");
        if self.frames.len() >= BLOCK_FRAMES {
            return false;
        }
        let end = match &self.bytes {
            Bytes::Own(_) => 0,
            Bytes::Lent(lent) => lent.len() as u64,
        };
        assert!(u64::from(offset) + u64::from(len) <= end, "a frame beyond the lent memory");
        self.frames.push(FrameMeta::new(offset, len, info));
        true
    }

    /// How many frames it holds.
    #[must_use]
    pub fn len(&self) -> usize {
        self.frames.len()
    }

    /// Whether it holds no frame.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Appends a frame; returns `false`, and appends nothing, when the block is full.
    ///
    /// # Panics
    /// When `frame` is longer than [`MAX_CAPTURED`].
    #[inline]
    #[must_use = "a full block does not take the frame"]
    pub fn push(&mut self, frame: &[u8], info: FrameInfo) -> bool {
        assert!(frame.len() <= MAX_CAPTURED, "a frame of {} bytes is too long", frame.len());
        if self.is_full() {
            return false;
        }
        let Bytes::Own(bytes) = &mut self.bytes else { return false };
        // Both numbers fit: a block ends within BLOCK_BYTES + MAX_CAPTURED bytes.
        self.frames.push(FrameMeta::new(bytes.len() as u32, frame.len() as u32, info));
        bytes.extend_from_slice(frame);
        true
    }

    /// Appends a frame whose first bytes are its header to be sent on ([`FrameFlags::SEND_HEADER`]); `false` when full.
    #[must_use = "a full block does not take the frame"]
    pub(crate) fn push_with_header(&mut self, header_and_frame: &[u8], info: FrameInfo) -> bool {
        let taken = self.push(header_and_frame, info);
        if let Some(frame) = self.frames.last_mut().filter(|_| taken) {
            frame.offset += SEND_HEADER as u32;
            frame.captured_len -= SEND_HEADER as u32;
        }
        taken
    }

    /// Appends a frame of another block with all that is known of it; `false` when full.
    #[must_use = "a full block does not take the frame"]
    pub(crate) fn push_again(&mut self, other: &Block, frame: &FrameMeta) -> bool {
        if frame.flags.has(FrameFlags::SEND_HEADER) {
            let (start, len) = (frame.offset as usize - SEND_HEADER, frame.captured_len as usize);
            return self.push_with_header(other.slice(start, SEND_HEADER + len), frame.info());
        }
        self.push(other.bytes_of(frame), frame.info())
    }

    /// The frames' descriptions, in order of arrival.
    #[must_use]
    pub fn frames(&self) -> &[FrameMeta] {
        &self.frames
    }

    /// The captured bytes of a frame of this block.
    #[inline(always)]
    #[must_use]
    pub fn bytes_of(&self, frame: &FrameMeta) -> &[u8] {
        self.slice(frame.offset as usize, frame.captured_len as usize)
    }

    #[inline(always)]
    fn slice(&self, start: usize, len: usize) -> &[u8] {
        match &self.bytes {
            Bytes::Own(bytes) => &bytes[start..start + len],
            Bytes::Lent(lent) => lent.slice(start, len),
        }
    }

    /// What the kernel said of how a frame of this block is to be sent on, if anything.
    #[inline]
    #[must_use]
    pub(crate) fn send_header(&self, frame: &FrameMeta) -> Option<&[u8]> {
        let has_header = frame.flags.has(FrameFlags::SEND_HEADER);
        has_header.then(|| self.slice(frame.offset as usize - SEND_HEADER, SEND_HEADER))
    }

    /// Forgets all frames and keeps the memory that is its own; what was lent goes back.
    pub fn clear(&mut self) {
        self.frames.clear();
        self.numbers.clear();
        match &mut self.bytes {
            Bytes::Own(bytes) => {
                bytes.clear();
                // One giant frame must not leave its memory behind in the pool for ever.
                bytes.shrink_to(BLOCK_BYTES);
            }
            Bytes::Lent(_) => self.bytes = Bytes::default(),
        }
    }
}

/// Memory of blocks per RX thread, beside one block per backlog: 1 GiB.
pub(crate) const BLOCK_MEMORY: usize = 1 << 30;

/// The blocks of one RX thread, used again once no worker holds them.
///
/// There may be as many as packets can wait (each may lie in a block of its own), as long as their
/// memory stays within a bound. That bound leaves room for one block per backlog, since an idle
/// worker keeps the last one it had: so a taker that waits is never left waiting for an idle
/// worker.
#[derive(Debug)]
pub(crate) struct BlockPool {
    /// Blocks that were shared, nearly oldest first: the oldest are let go of first.
    shared: VecDeque<Arc<Block>>,
    /// Blocks no other thread holds; the last one is still warm in the cache.
    free: Vec<Arc<Block>>,
    /// Memory of the blocks in `shared` and `free`, in bytes, and how much it may be.
    memory: usize,
    most_memory: usize,
}

impl BlockPool {
    /// Shared blocks that are looked past when one is taken: some are kept by idle or slow
    /// workers, and must not hide those behind. Each look moves on, so the next one finds others.
    const LOOKS: usize = 4;
    /// The same when there is no other way to get a block.
    const LOOKS_IN_NEED: usize = 256;

    /// A pool for `backlogs` backlogs.
    pub(crate) fn new(backlogs: usize) -> BlockPool {
        BlockPool {
            shared: VecDeque::new(),
            free: Vec::new(),
            memory: 0,
            most_memory: Self::most_memory(backlogs),
        }
    }

    /// Memory that blocks for `backlogs` backlogs may take, in bytes.
    pub(crate) fn most_memory(backlogs: usize) -> usize {
        BLOCK_MEMORY + backlogs * (BLOCK_BYTES + MAX_CAPTURED)
    }

    /// An empty block, or `None` while all memory is held by workers.
    pub(crate) fn take(&mut self) -> Option<Arc<Block>> {
        self.collect(Self::LOOKS);
        if self.free.is_empty() && self.memory >= self.most_memory {
            self.collect(Self::LOOKS_IN_NEED);
        }
        if let Some(mut block) = self.free.pop() {
            self.memory -= block.memory();
            Arc::get_mut(&mut block)?.clear();
            return Some(block);
        }
        (self.memory < self.most_memory).then(|| Arc::new(Block::new()))
    }

    /// Moves shared blocks that no thread holds any more to the free ones, until it has looked past
    /// `looks` that a thread does.
    fn collect(&mut self, looks: usize) {
        let mut looks = looks.min(self.shared.len());
        while let Some(mut block) = self.shared.pop_front() {
            if Arc::get_mut(&mut block).is_some() {
                self.free.push(block);
                continue;
            }
            self.shared.push_back(block);
            if looks == 0 {
                break;
            }
            looks -= 1;
        }
    }

    /// Keeps a block until the workers let go of it; lent memory is left to them.
    pub(crate) fn give_back(&mut self, block: Arc<Block>) {
        if block.is_lent() {
            return;
        }
        self.memory += block.memory();
        self.shared.push_back(block);
    }
}

#[cfg(test)]
#[path = "block_tests.rs"]
mod tests;
