//! A backlog: one RX thread's queue to one CPU. The ring carries descriptors. A second queue carries the blocks that hold
//! their frames, each block once.
//!
//! ```text
//!  BacklogSender ──► ring of 16-byte descriptors ──► BacklogReceiver
//!             ──► queue of Arc<Block>, one entry for each descriptor flagged NEW_BLOCK
//! ```

use crate::backlog_progress::BacklogProgress;
use crate::block::Block;
use rxsteer_core::{CpuId, FlowHash};
use rxsteer_ring::{Consumer, Producer, ring};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A bit of [`Descriptor::frame`]: the frame is in another block than the one before it, or begins a list of lent memory.
const NEW_BLOCK: u32 = 1 << 31;

/// The entry of a ring for one packet.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct Descriptor {
    /// Index of the frame in its block, and [`NEW_BLOCK`].
    frame: u32,
    /// The flow hash.
    pub(crate) hash: u32,
    /// Length on the wire, in bytes.
    pub(crate) wire_len: u32,
    /// When it was queued, in the ticks of [`crate::clock`].
    pub(crate) queued_at: u32,
}

const _: () = assert!(size_of::<Descriptor>() == 16);

impl Descriptor {
    #[cfg(test)]
    pub(crate) fn of_frame(frame: u32) -> Descriptor {
        Descriptor { frame, ..Descriptor::default() }
    }

    /// The descriptor of a packet; [`BacklogSender::write`] adds the place of its frame.
    #[inline(always)]
    pub(crate) fn new(hash: FlowHash, wire_len: u32, queued_at: u32) -> Descriptor {
        Descriptor { frame: 0, hash: hash.get(), wire_len, queued_at }
    }

    #[inline(always)]
    pub(crate) fn frame(self) -> usize {
        (self.frame & !NEW_BLOCK) as usize
    }
}

/// The RX thread's end of a backlog.
#[derive(Debug)]
pub(crate) struct BacklogSender {
    ring: Producer<Descriptor>,
    blocks: rtrb::Producer<Arc<Block>>,
    /// The number of the block of the last descriptor. The receiver numbers blocks from 1.
    block_number: u64,
    closed: Arc<AtomicBool>,
    /// The batch in which [`BacklogSender::waiting`] last read the worker's position.
    read_in_batch: u32,
    /// Whether a descriptor is written and not yet published.
    pub(crate) touched: bool,
    /// The counts of what was sent, and the CPU.
    pub(crate) progress: Arc<BacklogProgress>,
}

/// The worker's end of a backlog.
#[derive(Debug)]
pub(crate) struct BacklogReceiver {
    /// The CPU that the backlog belongs to, whichever worker serves it.
    pub(crate) cpu: CpuId,
    ring: Consumer<Descriptor>,
    blocks: rtrb::Consumer<Arc<Block>>,
    /// The block of the oldest packet.
    block: Option<Arc<Block>>,
    /// Whether that block is lent, so that it must be released with its last packet in this backlog.
    block_is_lent: bool,
    /// The position at which `block` was taken from the queue, so that a second read of the same list does not take
    /// another block.
    block_taken_at: Option<u32>,
    closed: Arc<AtomicBool>,
    /// Whether the RX thread runs on the CPU of the backlog. Then this is that CPU's *own* queue.
    pub(crate) own: bool,
}

/// Creates a backlog to `cpu` that holds at most `max_backlog` packets, and at most `largest` after a change.
pub(crate) fn backlog(
    cpu: CpuId,
    own: bool,
    max_backlog: u32,
    largest: u32,
) -> (BacklogSender, BacklogReceiver) {
    let (mut sender, receiver) = ring(largest);
    sender.set_limit(max_backlog);
    // Each block in this queue belongs to a flagged descriptor that is not yet completed.
    let (block_sender, block_receiver) = rtrb::RingBuffer::new(largest as usize);
    let closed = Arc::new(AtomicBool::new(false));
    (
        BacklogSender {
            ring: sender,
            blocks: block_sender,
            block_number: 0,
            closed: closed.clone(),
            read_in_batch: 0,
            touched: false,
            progress: Arc::new(BacklogProgress::new(cpu)),
        },
        BacklogReceiver {
            cpu,
            ring: receiver,
            blocks: block_receiver,
            block: None,
            block_is_lent: false,
            block_taken_at: None,
            closed,
            own,
        },
    )
}

impl BacklogSender {
    /// Reserves room for a packet and returns its position, or `None` if `max_backlog` packets wait.
    #[inline(always)]
    pub(crate) fn reserve(&mut self) -> Option<u32> {
        self.ring.reserve()
    }

    /// Fills the earliest reserved slot with frame number `frame` of `block`.
    #[inline(always)]
    pub(crate) fn write(
        &mut self,
        block: &Arc<Block>,
        block_number: u64,
        frame: u32,
        descriptor: Descriptor,
    ) {
        let mut frame = frame;
        if self.block_number != block_number {
            self.send_block(block, block_number);
            frame |= NEW_BLOCK;
        }
        self.ring.write(Descriptor { frame, ..descriptor });
    }

    #[cold]
    fn send_block(&mut self, block: &Arc<Block>, block_number: u64) {
        self.block_number = block_number;
        let sent = self.blocks.push(block.clone());
        assert!(sent.is_ok(), "as many blocks as descriptors can wait");
    }

    /// Publishes the list written so far. It counts the packets first, so that no reader finds more packets processed
    /// than queued.
    #[inline(always)]
    pub(crate) fn publish(&mut self) {
        self.touched = false;
        let packets = self.ring.unpublished();
        self.progress.lists.add(u64::from(packets != 0));
        self.progress.queued.add(u64::from(packets));
        self.ring.publish();
    }

    /// Whether the packet at `position` is processed.
    #[inline(always)]
    pub(crate) fn has_completed(&mut self, position: u32) -> bool {
        self.ring.has_completed(position)
    }

    /// The position of the next packet.
    pub(crate) fn tail(&self) -> u32 {
        self.ring.tail()
    }

    /// Returns how many packets wait, and how many may. The sender reads the worker's cache line only if at least half of
    /// the allowed packets seem to wait, and then once per batch. Packets completed since the last read count as waiting.
    #[inline]
    pub(crate) fn waiting(&mut self, batch: u32) -> (u32, u32) {
        let limit = self.ring.limit();
        if self.ring.waiting_at_most() >= limit / 2 && self.read_in_batch != batch {
            self.read_in_batch = batch;
            self.ring.completed();
        }
        (self.ring.waiting_at_most(), limit)
    }

    /// Returns how many packets wait, and the worker's position.
    pub(crate) fn waiting_and_completed(&mut self) -> (u32, u32) {
        let completed = self.ring.completed();
        (self.ring.waiting_at_most(), completed)
    }

    /// How many packets may wait.
    pub(crate) fn limit(&self) -> u32 {
        self.ring.limit()
    }

    /// Whether every queued packet is processed. The sender reads the worker's cache line only while packets seem to
    /// wait.
    #[inline]
    pub(crate) fn is_drained(&mut self) -> bool {
        self.ring.waiting_at_most() == 0 || {
            self.ring.completed();
            self.ring.waiting_at_most() == 0
        }
    }

    /// Sets how many packets may wait from now on.
    pub(crate) fn set_limit(&mut self, max_backlog: u32) {
        self.ring.set_limit(max_backlog);
    }

    /// Whether a packet could be queued now.
    pub(crate) fn has_room(&mut self) -> bool {
        self.ring.room() != 0
    }
}

impl Drop for BacklogSender {
    fn drop(&mut self) {
        // ORDER: Release; pairs with the Acquire in `BacklogReceiver::is_finished`: a thread that sees the backlog closed
        // also sees everything that was published.
        self.closed.store(true, Ordering::Release);
    }
}

impl BacklogReceiver {
    /// Whether no packet waits and none can follow.
    pub(crate) fn is_finished(&self) -> bool {
        // ORDER: Acquire; pairs with the Release in `BacklogSender::drop`.
        self.closed.load(Ordering::Acquire) && self.ring.is_empty()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ring.is_empty()
    }

    /// The number of waiting packets, at most `most`.
    #[inline(always)]
    pub(crate) fn ready(&mut self, most: u32) -> u32 {
        self.ring.ready(most)
    }

    /// Returns the next waiting packets that lie in one block, at most `most`, with that block and their bytes on the
    /// wire. They count as waiting until [`BacklogReceiver::complete`].
    #[inline(always)]
    pub(crate) fn next_list(&mut self, most: u32) -> Option<List<'_>> {
        let head = self.ring.head();
        let waiting = self.ring.list(most);
        let first = waiting.first()?;
        if first.frame & NEW_BLOCK != 0 && self.block_taken_at != Some(head) {
            self.block = self.blocks.pop().ok();
            self.block_is_lent = self.block.as_ref().is_some_and(|block| block.is_lent());
            self.block_taken_at = Some(head);
        }
        let mut wire_bytes = u64::from(first.wire_len);
        let mut end = 1;
        for descriptor in &waiting[1..] {
            if descriptor.frame & NEW_BLOCK != 0 {
                break;
            }
            wire_bytes += u64::from(descriptor.wire_len);
            end += 1;
        }
        let block = self.block.as_deref()?;
        Some(List { block, packets: &waiting[..end], wire_bytes })
    }

    /// Marks the oldest `count` packets as processed.
    #[inline(always)]
    pub(crate) fn complete(&mut self, count: u32) {
        self.ring.complete(count);
        if self.block_is_lent {
            self.release_lent();
        }
    }

    /// Releases lent memory when this backlog has no more packets of it. None can follow: each published list of lent
    /// memory begins with a separate reference.
    #[inline(never)]
    fn release_lent(&mut self) {
        let next = self.ring.list(1).first();
        if next.is_none_or(|next| next.frame & NEW_BLOCK != 0) {
            self.block = None;
            self.block_is_lent = false;
        }
    }

    /// Marks all waiting packets as completed without processing them, and returns their number.
    pub(crate) fn discard(&mut self) -> u64 {
        let mut packets = 0;
        loop {
            let count = self.ring.ready(u32::MAX);
            if count == 0 {
                break;
            }
            self.ring.complete(count);
            packets += u64::from(count);
        }
        while self.blocks.pop().is_ok() {}
        self.block = None;
        self.block_is_lent = false;
        packets
    }
}

/// Packets of one backlog that lie in one block.
pub(crate) struct List<'a> {
    pub(crate) block: &'a Block,
    pub(crate) packets: &'a [Descriptor],
    pub(crate) wire_bytes: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::FrameInfo;
    use rxsteer_packet::LinkType;

    fn block_of(frames: &[&[u8]]) -> Arc<Block> {
        let mut block = Block::new();
        for frame in frames {
            let info = FrameInfo::new(LinkType::Raw, 0, frame.len() as u32);
            assert!(block.push(frame, info));
        }
        Arc::new(block)
    }

    #[test]
    fn list_ends_where_the_block_does_and_may_be_read_twice() {
        let (mut sender, mut receiver) = backlog(CpuId::new(0).unwrap(), true, 8, 8);
        let blocks = [block_of(&[b"a", b"bb"]), block_of(&[b"ccc"])];
        for (number, block) in (1..).zip(&blocks) {
            for (frame, meta) in (0..).zip(block.frames()) {
                sender.reserve().unwrap();
                let wire_len = meta.wire_len;
                sender.write(block, number, frame, Descriptor { wire_len, ..Default::default() });
            }
        }
        assert!(receiver.next_list(8).is_none(), "nothing is published");
        sender.publish();
        for (lengths, bytes) in [(&[1u32, 2][..], 3), (&[3], 3)] {
            assert!(receiver.next_list(8).is_some());
            let list = receiver.next_list(8).unwrap();
            let seen: Vec<u32> =
                list.packets.iter().map(|p| list.block.frames()[p.frame()].wire_len).collect();
            assert_eq!((&seen[..], list.wire_bytes), (lengths, bytes));
            let count = seen.len() as u32;
            receiver.complete(count);
        }
        drop(sender);
        assert!(receiver.is_finished());
    }

    #[test]
    fn lent_memory_is_released_with_its_last_packet() {
        let (mut sender, mut receiver) = backlog(CpuId::new(0).unwrap(), true, 8, 8);
        let memory: Arc<[u8]> = (*b"abcd").into();
        let mut block = Block::new();
        block.lend(memory.clone().into());
        let info = FrameInfo::new(LinkType::Raw, 0, 1);
        assert!((0..4).all(|offset| block.push_lent(offset, 1, info)));
        let block = Arc::new(block);
        // Two lists of it, as a receiver queues them.
        for (number, frames) in [(1, 0..2), (2, 2..4)] {
            for frame in frames {
                sender.reserve().unwrap();
                sender.write(&block, number, frame, Descriptor::default());
            }
            sender.publish();
        }
        drop(block);
        for (done, left) in [(1, 2), (1, 2), (2, 1)] {
            assert!(receiver.next_list(8).is_some());
            receiver.complete(done);
            assert_eq!(Arc::strong_count(&memory), left, "beside the test's own");
        }
        assert!(receiver.next_list(8).is_none());
    }
}
