//! The ring: producer, consumer, and a monitor that only reads the counters.
#![allow(unsafe_code)]

use crate::sync::{Arc, AtomicU32, Ordering, Slot};
use crossbeam_utils::CachePadded;
use std::fmt;
use std::ptr::NonNull;

/// The largest limit of a ring, in items: far below 2³¹, where signed differences become ambiguous.
pub const MAX_LIMIT: u32 = 1 << 24;

struct Shared<T> {
    /// Position before which the consumer has completed all items. Only the consumer writes it.
    completed: CachePadded<AtomicU32>,
    /// Position before which the consumer may read items. Only the producer writes it.
    published: CachePadded<AtomicU32>,
    /// `capacity` slots, a power of two; position `p` lives in slot `p & mask`.
    slots: Box<[Slot<T>]>,
    /// Capacity − 1.
    mask: u32,
}

// SAFETY: the slots are the only part that is not Sync by itself. `Producer` and `Consumer` exist once per ring
// (neither is Clone) and take `&mut self` wherever they touch a slot. Only the Release/Acquire pairs on
// `published` and `completed` pass a slot from one to the other, so both never access it at the same time. Items
// cross threads by copy, hence T: Send.
unsafe impl<T: Send> Sync for Shared<T> {}
// SAFETY: as above; the slots own plain copies of T.
unsafe impl<T: Send> Send for Shared<T> {}

/// A ring whose positions start at 0. See [`ring_starting_at`].
#[must_use]
pub fn ring<T: Copy + Default + Send>(limit: u32) -> (Producer<T>, Consumer<T>) {
    ring_starting_at(limit, 0)
}

/// A ring that holds up to `limit` items and counts its first item as position `start`.
///
/// The memory is `limit` rounded up to a power of two, times the size of an item. Tests start just below the wrap
/// of the counters.
///
/// # Panics
/// When `limit` is 0 or above [`MAX_LIMIT`].
#[must_use]
pub fn ring_starting_at<T: Copy + Default + Send>(
    limit: u32,
    start: u32,
) -> (Producer<T>, Consumer<T>) {
    assert!((1..=MAX_LIMIT).contains(&limit), "ring limit {limit} is not in 1..={MAX_LIMIT}");
    let capacity = limit.next_power_of_two();
    let shared = Arc::new(Shared {
        completed: CachePadded::new(AtomicU32::new(start)),
        published: CachePadded::new(AtomicU32::new(start)),
        slots: (0..capacity).map(|_| Slot::new(T::default())).collect(),
        mask: capacity - 1,
    });
    let producer = Producer {
        slots: Slots::of(&shared),
        limit,
        shared: shared.clone(),
        written: start,
        reserved: start,
        published: start,
        completed: start,
    };
    let slots = Slots::of(&shared);
    (producer, Consumer { shared, slots, completed: start, published: start })
}

/// Whether position `a` is at or behind position `b`. Both wrap; they are less than 2³¹ apart.
#[inline(always)]
pub(crate) fn at_or_behind(a: u32, b: u32) -> bool {
    b.wrapping_sub(a) as i32 >= 0
}

/// The address of the slots, kept beside the [`Arc`] that owns them. Reading it does not access shared memory, and
/// the compiler need not reload it after every store to an atomic.
struct Slots<T> {
    first: NonNull<Slot<T>>,
    mask: u32,
}

// SAFETY: a pointer to slots that the adjacent `Shared` owns; the same reasons as for `Shared` apply.
unsafe impl<T: Send> Send for Slots<T> {}
// SAFETY: as above; a shared `Slots` gives no access to a slot without an unsafe promise.
unsafe impl<T: Send> Sync for Slots<T> {}

impl<T> Slots<T> {
    fn of(shared: &Shared<T>) -> Slots<T> {
        // The box is never moved out of or replaced while `Shared` is alive.
        Slots { first: NonNull::from(&*shared.slots).cast(), mask: shared.mask }
    }

    /// The address of the slot of a position.
    ///
    /// # Safety
    /// The `Shared` that owns these slots must be alive.
    #[inline(always)]
    unsafe fn at(&self, position: u32) -> NonNull<Slot<T>> {
        // SAFETY: the masked index is below the number of slots; the caller promises that the slots are alive.
        unsafe { self.first.add((position & self.mask) as usize) }
    }
}

/// Hints that the line at `address` will be written.
#[inline(always)]
fn prefetch_to_write<T>(address: *const T) {
    // This is assembly because the intrinsic becomes a prefetch for *reading* when the build targets baseline
    // x86-64. CPUs of that family without the instruction execute it as a no-op.
    #[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
    // SAFETY: a prefetch changes nothing that a program can see and does not fault, whatever the address.
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) address, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(all(target_arch = "x86_64", not(loom), not(miri))))]
    let _ = address;
}

/// The producer's end: reserves slots, writes items into them, publishes the list.
pub struct Producer<T> {
    shared: Arc<Shared<T>>,
    slots: Slots<T>,
    /// The largest number of items that may wait.
    limit: u32,
    /// The next position to write.
    written: u32,
    /// The next position to reserve.
    reserved: u32,
    /// The position last published to the consumer.
    published: u32,
    /// The consumer's counter as last read: a lower bound of its present value. So the cache line that the
    /// consumer writes is fetched only when the ring seems full.
    completed: u32,
}

impl<T: Copy + Send> Producer<T> {
    /// Reserves the next slot and returns its position, or `None` when `limit` items wait.
    ///
    /// A reserved slot must be written ([`Producer::write`]) before the list is published. A flow remembers this
    /// position as the tail of its last packet.
    #[inline(always)]
    pub fn reserve(&mut self) -> Option<u32> {
        if self.reserved.wrapping_sub(self.completed) >= self.limit {
            self.completed = self.load_completed();
            if self.reserved.wrapping_sub(self.completed) >= self.limit {
                return None;
            }
        }
        let position = self.reserved;
        self.reserved = position.wrapping_add(1);
        Some(position)
    }

    /// How many more items can be reserved now.
    #[inline]
    pub fn room(&mut self) -> u32 {
        self.completed = self.load_completed();
        self.limit.saturating_sub(self.waiting_at_most())
    }

    /// An upper bound of the number of items that wait, reserved ones included. It does not read the consumer's
    /// counter again.
    #[inline(always)]
    #[must_use]
    pub fn waiting_at_most(&self) -> u32 {
        self.reserved.wrapping_sub(self.completed)
    }

    /// Writes `item` into the earliest reserved slot that is not yet written.
    ///
    /// # Panics
    /// When no slot is reserved.
    #[inline(always)]
    pub fn write(&mut self, item: T) {
        assert!(self.written != self.reserved, "an item is written only into a reserved slot");
        self.write_next(item);
    }

    /// Writes at the position after the last one written; that position must be reserved.
    #[inline(always)]
    fn write_next(&mut self, item: T) {
        // SAFETY: the position is reserved, so it is at most `limit` ≤ capacity past a `completed` that this side
        // has acquired: the consumer has finished with the slot's earlier content. The position is not published,
        // so the consumer does not read it yet. There is one producer, borrowed mutably, and it holds the
        // `Shared`.
        unsafe { self.slots.at(self.written).as_ref().write(item) };
        self.written = self.written.wrapping_add(1);
    }

    /// Reserves and writes one item. Returns the item when `limit` items wait. Publishes nothing. Every reserved
    /// slot must be written before this call.
    ///
    /// # Errors
    /// The item, when the ring is full.
    #[inline(always)]
    pub fn push(&mut self, item: T) -> Result<u32, T> {
        debug_assert_eq!(self.written, self.reserved, "reserved slots are written first");
        match self.reserve() {
            Some(position) => {
                self.write_next(item);
                Ok(position)
            }
            None => Err(item),
        }
    }

    /// Writes as many of `items` as there is room for, and publishes them with one store. Returns the number of
    /// items written.
    #[inline]
    pub fn splice(&mut self, items: &[T]) -> usize {
        debug_assert_eq!(self.written, self.reserved, "reserved slots are written first");
        let mut room = self.limit.saturating_sub(self.waiting_at_most());
        if (room as usize) < items.len() {
            room = self.room();
        }
        let list = &items[..items.len().min(room as usize)];
        self.reserved = self.reserved.wrapping_add(list.len() as u32);
        for &item in list {
            self.write_next(item);
        }
        self.publish();
        list.len()
    }

    /// Items written and not published.
    #[inline(always)]
    #[must_use]
    pub fn unpublished(&self) -> u32 {
        self.written.wrapping_sub(self.published)
    }

    /// Makes everything written so far visible to the consumer, with one store. Returns the number of items added.
    ///
    /// # Panics
    /// In debug builds, when a reserved slot is not written yet.
    #[inline(always)]
    pub fn publish(&mut self) -> u32 {
        debug_assert_eq!(self.written, self.reserved, "reserved slots are written first");
        let added = self.unpublished();
        if added != 0 {
            // ORDER: Release; pairs with the Acquire in `Consumer::ready`. The items are in their slots before the
            // consumer can see the position after them.
            self.shared.published.store(self.written, Ordering::Release);
            self.published = self.written;
            self.prefetch_slots(added);
        }
        added
    }

    /// Prefetches the cache lines of the next `count` slots for writing. The consumer read these lines last, so
    /// without a prefetch each store would wait for its line to be transferred, one after the other. With it, the
    /// lines are transferred while the next list is made. The number of slots is that of the last list, since the
    /// next list is probably as long. Lists shorter than one line are not followed by a prefetch, since the
    /// consumer may still be reading that line.
    #[inline(always)]
    fn prefetch_slots(&self, count: u32) {
        const MAX_BYTES: u32 = 1024;
        const LINE: u32 = 64;
        let bytes = count.saturating_mul(size_of::<T>() as u32).min(MAX_BYTES);
        let mut ahead = if bytes < LINE { bytes } else { 0 };
        while ahead < bytes {
            let slots = ahead / (size_of::<T>() as u32).max(1);
            // SAFETY: `shared` keeps the slots alive; the address is only a hint.
            let slot = unsafe { self.slots.at(self.written.wrapping_add(slots)) };
            prefetch_to_write(slot.as_ptr());
            ahead += LINE;
        }
    }

    /// The position that the next reserved item will get: the queue's tail.
    #[inline(always)]
    #[must_use]
    pub fn tail(&self) -> u32 {
        self.reserved
    }

    /// Whether the consumer has completed the item at `position`. The consumer's cache line is read only if the
    /// last known value does not answer this.
    #[inline]
    pub fn has_completed(&mut self, position: u32) -> bool {
        let after = position.wrapping_add(1);
        if !at_or_behind(after, self.completed) {
            self.completed = self.load_completed();
        }
        at_or_behind(after, self.completed)
    }

    /// The queue's head: all items before this position are completed.
    #[inline]
    pub fn completed(&mut self) -> u32 {
        self.completed = self.load_completed();
        self.completed
    }

    /// The largest number of items that may wait.
    #[inline(always)]
    #[must_use]
    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// Sets the number of items that may wait to `limit`, but at most to the ring's original limit rounded up to a
    /// power of two. Items above a lower limit stay. No more items are accepted until fewer wait.
    ///
    /// # Panics
    /// When `limit` is 0.
    pub fn set_limit(&mut self, limit: u32) {
        assert!(limit != 0, "a ring takes at least one item");
        self.limit = limit.min(self.slots.mask + 1);
    }

    /// A monitor of this ring's counters.
    #[must_use]
    pub fn monitor(&self) -> Monitor<T> {
        Monitor { shared: self.shared.clone() }
    }

    #[inline(always)]
    fn load_completed(&self) -> u32 {
        // ORDER: Acquire; pairs with the Release in `Consumer::complete`. The consumer's reads of the slots before
        // that are over before this side writes the slots again.
        self.shared.completed.load(Ordering::Acquire)
    }
}

/// The consumer's end: finds the items that are ready, processes them in place, completes them.
pub struct Consumer<T> {
    shared: Arc<Shared<T>>,
    slots: Slots<T>,
    /// The position before which all items are completed.
    completed: u32,
    /// The producer's counter as last read.
    published: u32,
}

impl<T: Copy + Send> Consumer<T> {
    /// The number of items that wait, up to `most`. The producer's cache line is read only when no item is known
    /// to wait.
    #[inline(always)]
    pub fn ready(&mut self, most: u32) -> u32 {
        let known = self.published.wrapping_sub(self.completed);
        if known != 0 {
            return known.min(most);
        }
        // ORDER: Acquire; pairs with the Release in `Producer::publish`.
        self.published = self.shared.published.load(Ordering::Acquire);
        self.published.wrapping_sub(self.completed).min(most)
    }

    /// The items that wait, oldest first: up to `most`, or fewer at the end of the slots. The items stay in the
    /// ring and count as waiting until [`Consumer::complete`].
    #[cfg(not(loom))]
    #[inline(always)]
    pub fn list(&mut self, most: u32) -> &[T] {
        let waiting = self.ready(most) as usize;
        let start = self.completed & self.slots.mask;
        let count = waiting.min((self.slots.mask - start) as usize + 1);
        // SAFETY: positions completed..published were acquired in `ready`. They are not written again before
        // `complete`, which takes `&mut self` and so ends this borrow. `start` and the `count` slots after it lie
        // within the slots, which `shared` keeps alive.
        unsafe { Slot::as_items(self.slots.at(start).as_ptr(), count) }
    }

    /// The waiting item `index` slots behind the oldest.
    ///
    /// # Panics
    /// When [`Consumer::ready`] did not report that many items.
    #[inline]
    #[must_use]
    pub fn peek(&self, index: u32) -> T {
        assert!(index < self.published.wrapping_sub(self.completed), "no item waits there");
        // SAFETY: the position lies in completed..published, acquired in `ready`. The producer writes it again
        // only after `complete`. `shared` keeps the slots alive.
        unsafe { self.slots.at(self.completed.wrapping_add(index)).as_ref().read() }
    }

    /// Completes the oldest `count` items: their slots are free, and the queue's head moves past them.
    ///
    /// # Panics
    /// When fewer items wait.
    #[inline(always)]
    pub fn complete(&mut self, count: u32) {
        assert!(
            count <= self.published.wrapping_sub(self.completed),
            "only items that wait can be completed"
        );
        self.completed = self.completed.wrapping_add(count);
        // ORDER: Release; pairs with the Acquire in `Producer::load_completed` and `Monitor::completed`. All reads
        // of the slots and all effects of processing the items come before it.
        self.shared.completed.store(self.completed, Ordering::Release);
    }

    /// Whether no item waits now. The producer's cache line is always read.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        // ORDER: Acquire, as in `ready`. A caller that sleeps depending on the result executes a sequentially
        // consistent fence before the call.
        self.shared.published.load(Ordering::Acquire) == self.completed
    }

    /// The position of the oldest item not completed: the queue's head.
    #[must_use]
    pub fn head(&self) -> u32 {
        self.completed
    }

    /// A monitor of this ring's counters.
    #[must_use]
    pub fn monitor(&self) -> Monitor<T> {
        Monitor { shared: self.shared.clone() }
    }
}

/// Reads a ring's counters from any thread.
pub struct Monitor<T> {
    shared: Arc<Shared<T>>,
}

impl<T> Monitor<T> {
    /// The queue's head: all items before this position are completed.
    #[must_use]
    pub fn completed(&self) -> u32 {
        // ORDER: Acquire; pairs with the Release in `Consumer::complete`.
        self.shared.completed.load(Ordering::Acquire)
    }

    /// Items published and not completed. The counters are read one after the other, head first. While both ends
    /// run the result can be too high, but it is never negative.
    #[must_use]
    pub fn waiting(&self) -> u32 {
        let completed = self.completed();
        // ORDER: Acquire keeps this load after that of `completed`.
        self.shared.published.load(Ordering::Acquire).wrapping_sub(completed)
    }
}

impl<T> Clone for Monitor<T> {
    fn clone(&self) -> Self {
        Monitor { shared: self.shared.clone() }
    }
}

impl<T> fmt::Debug for Producer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Producer")
            .field("published", &self.published)
            .field("reserved", &self.reserved)
            .field("limit", &self.limit)
            .finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for Consumer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consumer").field("completed", &self.completed).finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for Monitor<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Monitor").finish_non_exhaustive()
    }
}
