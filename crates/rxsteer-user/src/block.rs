//! Blocks of frames. A source passes frame bytes to the workers in blocks, without copying, counting or freeing them per
//! packet.
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
//! One thread writes a block while no other thread has it. After that the block is shared and only read. So the whole
//! path needs no `unsafe` code of its own, and no reference count per packet.
//!
//! The block owns the bytes, or the kernel has [`Lent`] them. Lent memory must return to the kernel when its packets are
//! processed. So neither the pool nor a worker keeps such a block: each queued list carries a separate reference, and the
//! worker drops it with the last packet of the list.

use rxsteer_io::Lent;
use rxsteer_io::packet::SEND_HEADER;
use rxsteer_packet::LinkType;
use std::collections::VecDeque;
use std::sync::Arc;

/// The largest number of frames in a block.
pub const BLOCK_FRAMES: usize = 512;

/// A block with this many frame bytes accepts no further frame.
pub const BLOCK_BYTES: usize = 256 * 1024;

/// The longest captured frame that is accepted, in bytes: libpcap's largest snapshot length. A capture with a longer one
/// is damaged.
pub const MAX_CAPTURED: usize = 262_144;

/// What a live source reports about a frame beside its place and time. Frames of a file have no flags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameFlags(u8);

impl FrameFlags {
    /// No flag is set.
    pub const NONE: FrameFlags = FrameFlags(0);
    /// The frame comes from this host, and a device must still fill in its transport checksum.
    pub const CHECKSUM_NOT_READY: FrameFlags = FrameFlags(1);
    /// The kernel or the NIC has verified the transport checksum.
    pub const CHECKSUM_VALID: FrameFlags = FrameFlags(1 << 1);
    /// TCP segments that were merged (GRO) or not yet split: the frame can be longer than the MTU.
    pub const MERGED: FrameFlags = FrameFlags(1 << 2);
    /// This host sent it.
    pub const OUTGOING: FrameFlags = FrameFlags(1 << 3);
    /// The NIC took the timestamp.
    pub const HARDWARE_TIME: FrameFlags = FrameFlags(1 << 4);
    /// The kernel removed a VLAN tag that could not be restored.
    pub const VLAN_LOST: FrameFlags = FrameFlags(1 << 5);
    /// A header in front of the frame describes how to send it on.
    pub(crate) const SEND_HEADER: FrameFlags = FrameFlags(1 << 6);

    /// Whether all of `flags` are set.
    #[inline]
    #[must_use]
    pub const fn has(self, flags: FrameFlags) -> bool {
        self.0 & flags.0 == flags.0
    }

    /// Returns both sets of flags if `is_so`, else `self`.
    #[inline]
    #[must_use]
    pub const fn and(self, flags: FrameFlags, is_so: bool) -> FrameFlags {
        if is_so { FrameFlags(self.0 | flags.0) } else { self }
    }
}

/// What is known about a frame when it enters the receive path, beside its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FrameInfo {
    /// When it was received, in nanoseconds since the epoch of the source's clock (capture time in a replay). Policies
    /// use it to find idle flows.
    pub timestamp_ns: u64,
    /// Its length on the wire in bytes, which can exceed the bytes captured.
    pub wire_len: u32,
    /// The RX queue it arrived on.
    pub rx_queue: u16,
    /// The link type: how the frame begins.
    pub link: LinkType,
    /// The hash from the NIC, if any. With it the headers are not read. 0 means "no hash".
    pub nic_hash: Option<u32>,
    /// What a live source reports about it.
    pub flags: FrameFlags,
}

impl FrameInfo {
    /// Describes a frame that begins with a `link` header, was received on RX queue 0 at `timestamp_ns`, and was
    /// `wire_len` bytes long on the wire.
    #[inline]
    #[must_use]
    pub const fn new(link: LinkType, timestamp_ns: u64, wire_len: u32) -> FrameInfo {
        let flags = FrameFlags::NONE;
        FrameInfo { timestamp_ns, wire_len, rx_queue: 0, link, nic_hash: None, flags }
    }

    /// Sets the RX queue.
    #[inline]
    #[must_use]
    pub const fn on_rx_queue(self, rx_queue: u16) -> FrameInfo {
        FrameInfo { rx_queue, ..self }
    }

    /// Sets the hash from the NIC.
    #[inline]
    #[must_use]
    pub const fn with_nic_hash(self, hash: u32) -> FrameInfo {
        FrameInfo { nic_hash: Some(hash), ..self }
    }

    /// Sets the flags of a live source.
    #[inline]
    #[must_use]
    pub const fn with_flags(self, flags: FrameFlags) -> FrameInfo {
        FrameInfo { flags, ..self }
    }

    /// Sets the receive time.
    #[inline]
    #[must_use]
    pub const fn at(self, timestamp_ns: u64) -> FrameInfo {
        FrameInfo { timestamp_ns, ..self }
    }
}

/// A frame's place in its block, and what is known about it.
#[derive(Clone, Copy, Debug)]
pub struct FrameMeta {
    /// When it was received, in nanoseconds of the source's clock.
    pub timestamp_ns: u64,
    pub(crate) offset: u32,
    /// Bytes captured.
    pub captured_len: u32,
    /// Bytes on the wire.
    pub wire_len: u32,
    /// The flow hash, once the RX thread has computed it; 0 means "no hash".
    pub hash: u32,
    /// The RX queue it arrived on.
    pub rx_queue: u16,
    /// The link type: how the frame begins.
    pub link: LinkType,
    /// Whether `hash` came with the frame.
    pub(crate) has_nic_hash: bool,
    /// What a live source reports about it.
    pub flags: FrameFlags,
}

const _: () = assert!(size_of::<FrameMeta>() == 32);

impl FrameMeta {
    /// Describes the `len` bytes at `offset`.
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

    /// The description of the frame when it entered the receive path.
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

/// The latest time of a frame, in nanoseconds since 1970: 2262-04-11 23:47:16.854775806. It fits the signed integers of
/// other programs, some of which use the highest value for infinity.
pub const MAX_TIME_NS: u64 = i64::MAX as u64 - 1;

/// Where the frames of a block are stored.
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
    /// If order is checked, the flow and the number of each frame, parallel to `frames`; else empty.
    pub(crate) numbers: Vec<FlowNumber>,
    /// The RX thread whose order tracker numbered them.
    pub(crate) numbered_by: usize,
}

/// A frame's number in its flow. The RX thread numbers frames when they enter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowNumber {
    /// The flow, counted from 0 in order of appearance; [`FlowNumber::UNTRACKED`] if there are too many flows.
    pub flow: u32,
    /// The frame's number in that flow, from 1.
    pub number: u32,
}

impl FlowNumber {
    /// "Not numbered": there are more flows than can be tracked, or the frame has no flow.
    pub const UNTRACKED: u32 = u32::MAX;
}

impl Block {
    /// An empty block. It allocates memory as it is filled, and keeps the memory when it is emptied.
    #[must_use]
    pub fn new() -> Block {
        Block::default()
    }

    /// The memory of the block, in bytes.
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

    /// Whether [`Block::push`] accepts no further frame. A block of lent memory accepts none.
    #[must_use]
    pub fn is_full(&self) -> bool {
        let bytes_full = match &self.bytes {
            Bytes::Own(bytes) => bytes.len() >= BLOCK_BYTES,
            Bytes::Lent(_) => true,
        };
        self.frames.len() >= BLOCK_FRAMES || bytes_full
    }

    /// Whether the kernel lends the bytes.
    #[inline(always)]
    #[must_use]
    pub fn is_lent(&self) -> bool {
        matches!(self.bytes, Bytes::Lent(_))
    }

    /// The lent memory that holds its frames, if it is lent.
    #[cfg(feature = "xdp")]
    pub(crate) fn lent(&self) -> Option<&Lent> {
        match &self.bytes {
            Bytes::Own(_) => None,
            Bytes::Lent(lent) => Some(lent),
        }
    }

    /// Makes the block accept frames of `lent`, through [`Block::push_lent`], until it is cleared. The caller must push
    /// at least one: an open block is kept while it is empty.
    ///
    /// # Panics
    /// If the block holds a frame.
    pub(crate) fn lend(&mut self, lent: Lent) {
        assert!(self.is_empty(), "the frames of a block lie in one memory");
        assert!(u32::try_from(lent.len()).is_ok(), "{} bytes are too many", lent.len());
        self.bytes = Bytes::Lent(lent);
        self.frames.reserve(BLOCK_FRAMES);
    }

    /// Appends the frame that lies `offset` bytes into the lent memory. Returns `false`, and appends nothing, if the
    /// block is full. Call it for lent frames only.
    ///
    /// # Panics
    /// If nothing is lent, or if the frame exceeds the lent memory or [`MAX_CAPTURED`].
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

    /// The number of frames.
    #[must_use]
    pub fn len(&self) -> usize {
        self.frames.len()
    }

    /// Whether it holds no frame.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Appends a frame. Returns `false`, and appends nothing, if the block is full.
    ///
    /// # Panics
    /// If `frame` is longer than [`MAX_CAPTURED`].
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

    /// Appends a frame that begins with the header for sending it on ([`FrameFlags::SEND_HEADER`]); `false` if the block
    /// is full.
    #[must_use = "a full block does not take the frame"]
    pub(crate) fn push_with_header(&mut self, header_and_frame: &[u8], info: FrameInfo) -> bool {
        let taken = self.push(header_and_frame, info);
        if let Some(frame) = self.frames.last_mut().filter(|_| taken) {
            frame.offset += SEND_HEADER as u32;
            frame.captured_len -= SEND_HEADER as u32;
        }
        taken
    }

    /// Appends a frame of another block with its description; `false` if the block is full.
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

    /// The kernel's description of how to send on a frame of this block, if there is one.
    #[inline]
    #[must_use]
    pub(crate) fn send_header(&self, frame: &FrameMeta) -> Option<&[u8]> {
        let has_header = frame.flags.has(FrameFlags::SEND_HEADER);
        has_header.then(|| self.slice(frame.offset as usize - SEND_HEADER, SEND_HEADER))
    }

    /// Removes all frames. The block keeps its own memory, and lent memory returns to the kernel.
    pub fn clear(&mut self) {
        self.frames.clear();
        self.numbers.clear();
        match &mut self.bytes {
            Bytes::Own(bytes) => {
                bytes.clear();
                // One giant frame must not keep its memory allocated in the pool forever.
                bytes.shrink_to(BLOCK_BYTES);
            }
            Bytes::Lent(_) => self.bytes = Bytes::default(),
        }
    }
}

/// The memory of blocks per RX thread, in addition to one block per backlog: 1 GiB.
pub(crate) const BLOCK_MEMORY: usize = 1 << 30;

/// The blocks of one RX thread. A block is reused when no worker holds it.
///
/// There may be as many blocks as packets can wait (each packet may lie in a separate block), within a memory limit. An
/// idle worker keeps its last block. So the limit includes one block per backlog: a thread that waits for a block never
/// waits for an idle worker.
#[derive(Debug)]
pub(crate) struct BlockPool {
    /// Shared blocks, about oldest first. Workers release the oldest first.
    shared: VecDeque<Arc<Block>>,
    /// Blocks that no other thread holds. The last one is still in the cache.
    free: Vec<Arc<Block>>,
    /// The memory of the blocks in `shared` and `free`, in bytes, and its limit.
    memory: usize,
    most_memory: usize,
}

impl BlockPool {
    /// How many shared blocks in use are skipped when a block is taken. Idle or slow workers keep some blocks, and these
    /// must not hide the free ones after them. Skipped blocks move to the end, so the next search sees others.
    const MAX_PROBES: usize = 4;
    /// The same if there is no other way to get a block.
    const MAX_PROBES_IN_NEED: usize = 256;

    /// A pool for `backlogs` backlogs.
    pub(crate) fn new(backlogs: usize) -> BlockPool {
        BlockPool {
            shared: VecDeque::new(),
            free: Vec::new(),
            memory: 0,
            most_memory: Self::most_memory(backlogs),
        }
    }

    /// The limit of the memory of blocks for `backlogs` backlogs, in bytes.
    pub(crate) fn most_memory(backlogs: usize) -> usize {
        BLOCK_MEMORY + backlogs * (BLOCK_BYTES + MAX_CAPTURED)
    }

    /// Takes an empty block, or `None` while workers hold all memory.
    pub(crate) fn take(&mut self) -> Option<Arc<Block>> {
        self.collect(Self::MAX_PROBES);
        if self.free.is_empty() && self.memory >= self.most_memory {
            self.collect(Self::MAX_PROBES_IN_NEED);
        }
        if let Some(mut block) = self.free.pop() {
            self.memory -= block.memory();
            Arc::get_mut(&mut block)?.clear();
            return Some(block);
        }
        (self.memory < self.most_memory).then(|| Arc::new(Block::new()))
    }

    /// Moves shared blocks that no thread holds any more to the free ones, until it has skipped `probes` blocks that
    /// are in use.
    fn collect(&mut self, probes: usize) {
        let mut probes = probes.min(self.shared.len());
        while let Some(mut block) = self.shared.pop_front() {
            if Arc::get_mut(&mut block).is_some() {
                self.free.push(block);
                continue;
            }
            self.shared.push_back(block);
            if probes == 0 {
                break;
            }
            probes -= 1;
        }
    }

    /// Keeps a block until the workers release it. The workers free lent memory themselves.
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
