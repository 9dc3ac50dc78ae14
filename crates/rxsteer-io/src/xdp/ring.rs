//! The four rings that an AF_XDP socket shares with the kernel. Each is accessed from the user's side.
//!
//! ```text
//!  fill        we produce frames to receive into      RX          we consume frames received
//!  TX          we produce frames to send              completion  we consume frames sent
//! ```
//!
//! The layout and the order of loads and stores are those of the kernel's net/xdp/xsk_queue.h: the producer's index is
//! stored with Release and loaded with Acquire, and so is the consumer's.

use super::sys::Mapping;
use std::sync::atomic::{AtomicU32, Ordering};

/// The size, the indices and the entries of a ring in shared memory.
#[derive(Debug)]
struct Shared<T> {
    producer: *const AtomicU32,
    consumer: *const AtomicU32,
    flags: *const AtomicU32,
    entries: *mut T,
    mask: u32,
    /// Keeps all of it mapped.
    _memory: Mapping,
}

// SAFETY: the pointers lead into the mapping, which moves with them; indices are atomic, and entries are written or
// read by the one owner of this end.
unsafe impl<T: Send> Send for Shared<T> {}
// SAFETY: shared references only load and store indices, which are atomic; entries take `&mut`.
unsafe impl<T: Send> Sync for Shared<T> {}

impl<T: Copy> Shared<T> {
    /// A ring of `size` entries, a power of two, whose parts are at `offsets`.
    fn new(memory: Mapping, offsets: &libc::xdp_ring_offset, size: u32) -> Shared<T> {
        assert!(size.is_power_of_two(), "the kernel takes no other sizes");
        let end = offsets.desc as usize + size as usize * size_of::<T>();
        let indices = [offsets.producer, offsets.consumer, offsets.flags];
        assert!(indices.iter().all(|at| at.is_multiple_of(4) && *at as usize + 4 <= memory.len()));
        assert!(end <= memory.len() && (offsets.desc as usize).is_multiple_of(align_of::<T>()));
        let at = |offset: u64| memory.at(offset as usize);
        Shared {
            producer: at(offsets.producer).cast(),
            consumer: at(offsets.consumer).cast(),
            flags: at(offsets.flags).cast(),
            entries: at(offsets.desc).cast(),
            mask: size - 1,
            _memory: memory,
        }
    }

    #[inline(always)]
    fn producer(&self) -> &AtomicU32 {
        // SAFETY: `new` checked that it is aligned and within the mapping, which lives as long as `self`.
        unsafe { &*self.producer }
    }

    #[inline(always)]
    fn consumer(&self) -> &AtomicU32 {
        // SAFETY: as `producer`.
        unsafe { &*self.consumer }
    }

    #[inline(always)]
    fn entry(&self, index: u32) -> *mut T {
        // SAFETY: the mask keeps the index within the entries, and `new` checked that they lie within the mapping.
        unsafe { self.entries.add((index & self.mask) as usize) }
    }

    /// Whether the kernel waits for a system call before it continues with this ring.
    #[inline(always)]
    fn needs_wakeup(&self) -> bool {
        // SAFETY: as `producer`.
        let flags = unsafe { &*self.flags };
        // ORDER: Relaxed; a hint. A thread that misses it checks again within the time of a poll.
        flags.load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }
}

/// The writing end of a ring.
#[derive(Debug)]
pub(super) struct Producer<T> {
    shared: Shared<T>,
    /// The position of the next entry.
    next: u32,
    /// The kernel's position when it was last read.
    consumed: u32,
}

impl<T: Copy> Producer<T> {
    pub(super) fn new(memory: Mapping, offsets: &libc::xdp_ring_offset, size: u32) -> Producer<T> {
        Producer { shared: Shared::new(memory, offsets, size), next: 0, consumed: 0 }
    }

    /// The number of entries that can be written now.
    #[inline]
    pub(super) fn room(&mut self) -> u32 {
        self.update_consumed();
        self.shared.mask + 1 - self.next.wrapping_sub(self.consumed)
    }

    /// The number of entries.
    pub(super) fn size(&self) -> u32 {
        self.shared.mask + 1
    }

    /// Whether the kernel has taken all written entries.
    pub(super) fn is_taken(&mut self) -> bool {
        self.update_consumed();
        self.consumed == self.next
    }

    /// The number of written entries that the kernel had not taken when its position was last read.
    pub(super) fn waiting(&self) -> u32 {
        self.next.wrapping_sub(self.consumed)
    }

    /// The number of entries that the kernel had taken when its position was last read, modulo 2³².
    pub(super) fn taken(&self) -> u32 {
        self.consumed
    }

    fn update_consumed(&mut self) {
        // ORDER: Acquire; pairs with the kernel's Release after it has read an entry, which may now be written again.
        self.consumed = self.shared.consumer().load(Ordering::Acquire);
    }

    /// Writes an entry, for which there must be [`Producer::room`].
    #[inline(always)]
    pub(super) fn push(&mut self, entry: T) {
        debug_assert!(self.next.wrapping_sub(self.consumed) <= self.shared.mask);
        // SAFETY: within the entries; the kernel does not read it before it is published.
        unsafe { self.shared.entry(self.next).write(entry) };
        self.next = self.next.wrapping_add(1);
    }

    /// Publishes the written entries to the kernel.
    #[inline]
    pub(super) fn publish(&self) {
        // ORDER: Release; pairs with the kernel's Acquire before it reads entries.
        self.shared.producer().store(self.next, Ordering::Release);
    }

    #[inline]
    pub(super) fn needs_wakeup(&self) -> bool {
        self.shared.needs_wakeup()
    }
}

/// The reading end of a ring.
#[derive(Debug)]
pub(super) struct Consumer<T> {
    shared: Shared<T>,
    next: u32,
}

impl<T: Copy> Consumer<T> {
    pub(super) fn new(memory: Mapping, offsets: &libc::xdp_ring_offset, size: u32) -> Consumer<T> {
        Consumer { shared: Shared::new(memory, offsets, size), next: 0 }
    }

    /// The number of entries that can be read now.
    #[inline]
    pub(super) fn ready(&self) -> u32 {
        // ORDER: Acquire; pairs with the kernel's Release after it has written entries (and the frames they name).
        self.shared.producer().load(Ordering::Acquire).wrapping_sub(self.next)
    }

    /// Takes the next of the [`Consumer::ready`] entries.
    #[inline(always)]
    pub(super) fn pop(&mut self) -> T {
        // SAFETY: within the entries; the kernel wrote it before it published it, and writes it again only after
        // `release`. Entries are plain numbers, for which every value is valid.
        let entry = unsafe { self.shared.entry(self.next).read() };
        self.next = self.next.wrapping_add(1);
        entry
    }

    /// Returns the taken entries to the kernel.
    #[inline]
    pub(super) fn release(&self) {
        // ORDER: Release; pairs with the kernel's Acquire before it writes entries again.
        self.shared.consumer().store(self.next, Ordering::Release);
    }
}

#[cfg(test)]
#[path = "ring_tests.rs"]
mod tests;
