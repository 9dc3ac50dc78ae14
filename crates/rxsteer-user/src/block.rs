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
//! A block is written by one thread while nobody else has it, then shared and only read. That is
//! why the whole path needs no `unsafe` of its own, and why a packet costs no reference count.

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

/// What is known of a frame beside its bytes, when it enters the receive path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
}

const _: () = assert!(size_of::<FrameMeta>() == 32);

impl FrameMeta {
    /// What was known of the frame when it entered.
    #[must_use]
    pub fn info(&self) -> FrameInfo {
        FrameInfo {
            timestamp_ns: self.timestamp_ns,
            wire_len: self.wire_len,
            rx_queue: self.rx_queue,
            link: self.link,
            nic_hash: self.has_nic_hash.then_some(self.hash),
        }
    }
}

/// Frames that travel together.
#[derive(Clone, Debug, Default)]
pub struct Block {
    bytes: Vec<u8>,
    pub(crate) frames: Vec<FrameMeta>,
    /// Where order is checked: each frame's flow and number in it, beside `frames`; else empty.
    pub(crate) numbers: Vec<FlowNumber>,
    /// Which RX thread's ledger numbered them.
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
    /// An empty block with room for a usual filling.
    #[must_use]
    pub fn new() -> Block {
        Block {
            bytes: Vec::with_capacity(BLOCK_BYTES),
            frames: Vec::with_capacity(BLOCK_FRAMES),
            numbers: Vec::new(),
            numbered_by: 0,
        }
    }

    /// Whether the block takes no further frame.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.frames.len() >= BLOCK_FRAMES || self.bytes.len() >= BLOCK_BYTES
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

    /// Appends a frame; says `false`, and appends nothing, when the block is full.
    ///
    /// # Panics
    /// When `frame` is longer than [`MAX_CAPTURED`].
    #[inline]
    pub fn push(&mut self, frame: &[u8], info: FrameInfo) -> bool {
        assert!(frame.len() <= MAX_CAPTURED, "a frame of {} bytes is too long", frame.len());
        if self.is_full() {
            return false;
        }
        // Both numbers fit: a block ends within BLOCK_BYTES + MAX_CAPTURED bytes.
        self.frames.push(FrameMeta {
            timestamp_ns: info.timestamp_ns,
            offset: self.bytes.len() as u32,
            captured_len: frame.len() as u32,
            wire_len: info.wire_len,
            hash: info.nic_hash.unwrap_or(0),
            rx_queue: info.rx_queue,
            link: info.link,
            has_nic_hash: info.nic_hash.is_some(),
        });
        self.bytes.extend_from_slice(frame);
        true
    }

    /// Appends a frame of another block with all that is known of it; `false` when full.
    pub(crate) fn push_again(&mut self, other: &Block, frame: &FrameMeta) -> bool {
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
        let start = frame.offset as usize;
        &self.bytes[start..start + frame.captured_len as usize]
    }

    /// Forgets all frames and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.frames.clear();
        self.numbers.clear();
        // One giant frame must not leave its memory behind in the pool for ever.
        self.bytes.shrink_to(BLOCK_BYTES);
    }
}

/// Frame bytes that may wait per RX thread, beside one block per lane: 1 GiB.
pub(crate) const FRAME_MEMORY: usize = 1 << 30;

/// The blocks of one RX thread, used again once no worker holds them.
///
/// There may be as many as packets can wait (each may lie in a block of its own), as long as the
/// frames in them stay within a bound. That bound leaves room for one block per lane, since an
/// idle worker keeps the last one it had: so a taker that waits is never left waiting for an idle
/// worker.
#[derive(Debug)]
pub(crate) struct BlockPool {
    /// Blocks that were shared, oldest first: the oldest are let go of first.
    shared: VecDeque<Arc<Block>>,
    /// Blocks nobody else holds; the last one is still warm in the cache.
    free: Vec<Arc<Block>>,
    /// Blocks that exist, here or with the RX thread, and how many may.
    exist: usize,
    most: usize,
    /// Frame bytes in `shared`, and how many may be.
    bytes: usize,
    most_bytes: usize,
}

impl BlockPool {
    /// Blocks of the oldest shared ones that are looked at when one is taken: some may be kept by
    /// idle workers, and must not hide those behind.
    const LOOKS: usize = 4;

    /// A pool for `lanes` lanes of `max_backlog` packets.
    pub(crate) fn new(lanes: usize, max_backlog: u32) -> BlockPool {
        BlockPool {
            shared: VecDeque::new(),
            free: Vec::new(),
            exist: 0,
            most: Self::most_blocks(lanes, max_backlog),
            bytes: 0,
            most_bytes: Self::most_bytes(lanes),
        }
    }

    fn most_blocks(lanes: usize, max_backlog: u32) -> usize {
        lanes.saturating_mul(max_backlog as usize + 1).saturating_add(2)
    }

    /// Frame bytes that may wait for `lanes` lanes.
    pub(crate) fn most_bytes(lanes: usize) -> usize {
        FRAME_MEMORY + lanes * (BLOCK_BYTES + MAX_CAPTURED)
    }

    /// An empty block, or `None` while all that may exist are held by workers.
    pub(crate) fn take(&mut self) -> Option<Arc<Block>> {
        self.collect(Self::LOOKS);
        let within = self.exist < self.most && self.bytes < self.most_bytes;
        if self.free.is_empty() && !within {
            self.collect(self.shared.len());
        }
        // Free blocks don't count as waiting, but taking one more beyond the bound would.
        if self.bytes >= self.most_bytes {
            return None;
        }
        if let Some(mut block) = self.free.pop() {
            Arc::get_mut(&mut block)?.clear();
            return Some(block);
        }
        (self.exist < self.most).then(|| {
            self.exist += 1;
            Arc::new(Block::new())
        })
    }

    /// Moves the oldest shared blocks that nobody holds any more to the free ones, and looks past
    /// at most `looks` that somebody does.
    fn collect(&mut self, mut looks: usize) {
        while let Some(mut block) = self.shared.pop_front() {
            if Arc::get_mut(&mut block).is_some() {
                self.bytes -= block.bytes.len();
                self.free.push(block);
            } else {
                self.shared.push_back(block);
                if looks == 0 {
                    break;
                }
                looks -= 1;
            }
        }
    }

    /// Keeps a block until the workers let go of it.
    pub(crate) fn give_back(&mut self, block: Arc<Block>) {
        self.bytes += block.bytes.len();
        self.shared.push_back(block);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info() -> FrameInfo {
        FrameInfo {
            timestamp_ns: 0,
            wire_len: 3,
            rx_queue: 0,
            link: LinkType::Ethernet,
            nic_hash: None,
        }
    }

    #[test]
    fn frames_come_back_as_they_went_in() {
        let mut block = Block::new();
        assert!(block.push(b"abc", info()) && block.push(b"", info()) && block.push(b"de", info()));
        let bytes: Vec<&[u8]> = block.frames().iter().map(|f| block.bytes_of(f)).collect();
        assert_eq!(bytes, [&b"abc"[..], b"", b"de"]);
    }

    #[test]
    fn a_block_ends_at_its_limits() {
        let mut block = Block::new();
        assert!(block.push(&vec![0; MAX_CAPTURED], info()));
        assert!(!block.push(b"x", info()), "full by bytes");
        block.clear();
        for _ in 0..BLOCK_FRAMES {
            assert!(block.push(b"", info()));
        }
        assert!(!block.push(b"", info()), "full by frames");
    }

    #[test]
    fn the_pool_is_bounded_and_uses_blocks_again() {
        let mut pool = BlockPool { most: 2, ..BlockPool::new(1, 1) };
        let (a, b) = (pool.take().unwrap(), pool.take().unwrap());
        assert!(pool.take().is_none());
        let held = a.clone();
        pool.give_back(a);
        pool.give_back(b);
        assert!(pool.take().is_some());
        assert!(pool.take().is_none(), "the other is still held");
        drop(held);
        assert!(pool.take().is_some());
    }

    #[test]
    fn the_pool_is_bounded_by_bytes_too() {
        let mut pool = BlockPool { most_bytes: 5, ..BlockPool::new(4, 10) };
        let mut filled = || {
            let mut block = pool.take()?;
            Arc::get_mut(&mut block).unwrap().push(b"abc", info());
            let held = block.clone();
            pool.give_back(block);
            Some(held)
        };
        let held = [filled().unwrap(), filled().unwrap()];
        assert!(filled().is_none(), "6 bytes wait");
        drop(held);
        assert!(filled().is_some());
    }
}
