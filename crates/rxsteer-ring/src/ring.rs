//! The ring: producer, consumer, and a monitor that only reads the counters.
#![allow(unsafe_code)]

use crate::sync::{Arc, AtomicU32, Ordering, Slot};
use crossbeam_utils::CachePadded;
use std::fmt;
use std::ptr::NonNull;

/// Largest limit of a ring, in items: far below 2³¹, where signed differences stop being
/// unambiguous.
pub const MAX_LIMIT: u32 = 1 << 24;

struct Shared<T> {
    /// Items the consumer has finished with. Written by the consumer alone.
    completed: CachePadded<AtomicU32>,
    /// Items the consumer may see. Written by the producer alone.
    published: CachePadded<AtomicU32>,
    /// `capacity` slots, a power of two; position `p` lives in slot `p & mask`.
    slots: Box<[Slot<T>]>,
    /// Capacity − 1.
    mask: u32,
}

// SAFETY: the slots are the only part not Sync by itself. `Producer` and `Consumer` exist once per
// ring (neither is Clone) and take `&mut self` wherever they touch a slot; a slot is handed from
// one to the other only by the Release/Acquire pairs on `published` and `completed`, so it is never
// accessed by both at a time. Items cross threads by copy, hence T: Send.
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
/// Memory is `limit` rounded up to a power of two, times the size of an item. Tests start just
/// below the wrap of the counters.
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

/// Is position `a` at or behind position `b`? Both wrap; they lie less than 2³¹ apart.
#[inline(always)]
pub(crate) fn at_or_behind(a: u32, b: u32) -> bool {
    b.wrapping_sub(a) as i32 >= 0
}

/// Where the slots are, beside the [`Arc`] that keeps them: reading it takes no way through
/// shared memory, and the compiler need not read it anew after every store to an atomic.
struct Slots<T> {
    first: NonNull<Slot<T>>,
    mask: u32,
}

// SAFETY: a pointer to slots that the `Shared` beside it owns; the same reasons as for `Shared`.
unsafe impl<T: Send> Send for Slots<T> {}
// SAFETY: as above; a shared `Slots` gives no access to a slot without an unsafe promise.
unsafe impl<T: Send> Sync for Slots<T> {}

impl<T> Slots<T> {
    fn of(shared: &Shared<T>) -> Slots<T> {
        // The box is never moved out of or replaced while `Shared` lives.
        Slots { first: NonNull::from(&*shared.slots).cast(), mask: shared.mask }
    }

    /// Where the slot of a position is.
    ///
    /// # Safety
    /// The `Shared` these are the slots of must be alive.
    #[inline(always)]
    unsafe fn at(&self, position: u32) -> NonNull<Slot<T>> {
        // SAFETY: masked, the index is below the number of slots; alive by the caller's promise.
        unsafe { self.first.add((position & self.mask) as usize) }
    }
}

/// Hints that the line at `address` will be written.
#[inline(always)]
fn prefetch_to_write<T>(address: *const T) {
    // In assembly because the intrinsic becomes a prefetch for *reading* when the build targets
    // baseline x86-64. CPUs of that family without the instruction take it as a no-op.
    #[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
    // SAFETY: a prefetch changes nothing a program can see and does not fault, whatever the
    // address.
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) address, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(all(target_arch = "x86_64", not(loom), not(miri))))]
    let _ = address;
}

/// The sending end: reserve slots, write items into them, publish the list.
pub struct Producer<T> {
    shared: Arc<Shared<T>>,
    slots: Slots<T>,
    /// Items that may wait at once.
    limit: u32,
    /// Next position to be written.
    written: u32,
    /// Next position to be reserved.
    reserved: u32,
    /// What was last published to the consumer.
    published: u32,
    /// The consumer's counter as last read: a lower bound of the truth, so that the line the
    /// consumer writes is fetched only when the ring seems full.
    completed: u32,
}

impl<T: Copy + Send> Producer<T> {
    /// Reserves the next slot and says its position, or `None` when `limit` items wait.
    ///
    /// A reserved slot must be written ([`Producer::write`]) before the list is published. The
    /// position is what a flow remembers as the tail of its last packet.
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

    /// How many items wait, reserved ones included, or more: the consumer's counter is not read
    /// anew.
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

    /// Writes the position after the last one written, which must be reserved.
    #[inline(always)]
    fn write_next(&mut self, item: T) {
        // SAFETY: the position is reserved, so it is at most `limit` ≤ capacity past a `completed`
        // this side has acquired: the consumer is done with what the slot held before. It is not
        // published, so the consumer does not read it yet. There is one producer, borrowed
        // mutably, and it holds the `Shared`.
        unsafe { self.slots.at(self.written).as_ref().write(item) };
        self.written = self.written.wrapping_add(1);
    }

    /// Reserves and writes one item; gives it back when `limit` items wait. Publishes nothing. To
    /// be used when every reserved slot is written.
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

    /// Writes as many of `items` as there is room for and publishes them with one store; says how
    /// many went.
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

    /// Lets the consumer see everything written so far, with one store. Says how many items that
    /// added.
    ///
    /// # Panics
    /// In debug builds, when a reserved slot is still to be written.
    #[inline(always)]
    pub fn publish(&mut self) -> u32 {
        debug_assert_eq!(self.written, self.reserved, "reserved slots are written first");
        let added = self.written.wrapping_sub(self.published);
        if added != 0 {
            // ORDER: Release; pairs with the Acquire in `Consumer::ready`. The items are in their
            // slots before the consumer can see the position behind them.
            self.shared.published.store(self.written, Ordering::Release);
            self.published = self.written;
            self.prefetch_slots(added);
        }
        added
    }

    /// Asks for the lines of the next `count` slots, to write them. The consumer read them last, so
    /// each store would wait for its line to come over from there, one after the other; asked for
    /// now, they come while the next list is made. As many as the last list had, since the next
    /// is likely as long; none after less than a line, which the consumer may still be reading.
    #[inline(always)]
    fn prefetch_slots(&self, count: u32) {
        const MOST_BYTES: u32 = 1024;
        const LINE: u32 = 64;
        let bytes = count.saturating_mul(size_of::<T>() as u32).min(MOST_BYTES);
        let mut ahead = if bytes < LINE { bytes } else { 0 };
        while ahead < bytes {
            let slots = ahead / (size_of::<T>() as u32).max(1);
            // SAFETY: `shared` keeps the slots alive; the address is only a hint.
            let slot = unsafe { self.slots.at(self.written.wrapping_add(slots)) };
            prefetch_to_write(slot.as_ptr());
            ahead += LINE;
        }
    }

    /// The position the next reserved item will get: the queue's tail.
    #[inline(always)]
    #[must_use]
    pub fn tail(&self) -> u32 {
        self.reserved
    }

    /// Has the consumer completed the item at `position`? Reads the consumer's line only when the
    /// answer isn't known already.
    #[inline]
    pub fn has_completed(&mut self, position: u32) -> bool {
        let after = position.wrapping_add(1);
        if !at_or_behind(after, self.completed) {
            self.completed = self.load_completed();
        }
        at_or_behind(after, self.completed)
    }

    /// The queue's head: every item before this position has been completed.
    #[inline]
    pub fn completed(&mut self) -> u32 {
        self.completed = self.load_completed();
        self.completed
    }

    /// How many items may wait at once.
    #[inline(always)]
    #[must_use]
    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// Lets `limit` items wait from now on, but at most as many as the ring was made for, rounded up
    /// to a power of two. Items above a lower limit stay; no more are taken until fewer wait.
    ///
    /// # Panics
    /// When `limit` is 0.
    pub fn set_limit(&mut self, limit: u32) {
        assert!(limit != 0, "a ring takes at least one item");
        self.limit = limit.min(self.slots.mask + 1);
    }

    /// A reader of this ring's counters.
    #[must_use]
    pub fn monitor(&self) -> Monitor<T> {
        Monitor { shared: self.shared.clone() }
    }

    #[inline(always)]
    fn load_completed(&self) -> u32 {
        // ORDER: Acquire; pairs with the Release in `Consumer::complete`. What the consumer read
        // from the slots before that is over before this side writes them again.
        self.shared.completed.load(Ordering::Acquire)
    }
}

/// The receiving end: look at what is ready, work on it in place, say when it is complete.
pub struct Consumer<T> {
    shared: Arc<Shared<T>>,
    slots: Slots<T>,
    /// Items finished with.
    completed: u32,
    /// The producer's counter as last read.
    published: u32,
}

impl<T: Copy + Send> Consumer<T> {
    /// How many items are waiting, up to `most`. Reads the producer's line only when none is known
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

    /// The items that wait, oldest first: up to `most`, fewer where the ring's end comes between.
    /// They stay in the ring, and count as waiting, until [`Consumer::complete`].
    #[cfg(not(loom))]
    #[inline(always)]
    pub fn list(&mut self, most: u32) -> &[T] {
        let waiting = self.ready(most) as usize;
        let start = self.completed & self.slots.mask;
        let count = waiting.min((self.slots.mask - start) as usize + 1);
        // SAFETY: positions completed..published were acquired in `ready` and are not written
        // again before `complete`, which takes `&mut self` and so ends this borrow. `start` and
        // the `count` slots from there on lie within the slots, which `shared` keeps alive.
        unsafe { Slot::as_items(self.slots.at(start).as_ptr(), count) }
    }

    /// The waiting item `index` slots behind the oldest.
    ///
    /// # Panics
    /// When [`Consumer::ready`] did not promise that many.
    #[inline]
    #[must_use]
    pub fn peek(&self, index: u32) -> T {
        assert!(index < self.published.wrapping_sub(self.completed), "no item waits there");
        // SAFETY: the position lies in completed..published, acquired in `ready`; the producer
        // writes it again only after `complete`. `shared` keeps the slots alive.
        unsafe { self.slots.at(self.completed.wrapping_add(index)).as_ref().read() }
    }

    /// Says that the oldest `count` items are processed: their slots are free, and the queue's
    /// head moves past them.
    ///
    /// # Panics
    /// When fewer wait.
    #[inline(always)]
    pub fn complete(&mut self, count: u32) {
        assert!(
            count <= self.published.wrapping_sub(self.completed),
            "only items that wait can be completed"
        );
        self.completed = self.completed.wrapping_add(count);
        // ORDER: Release; pairs with the Acquire in `Producer::load_completed` and
        // `Monitor::completed`. All reads of the slots, and all effects of processing the items,
        // come before.
        self.shared.completed.store(self.completed, Ordering::Release);
    }

    /// Is nothing waiting right now? Always reads the producer's line.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        // ORDER: Acquire, as in `ready`; the caller that goes to sleep on the answer puts a
        // sequentially consistent fence before it.
        self.shared.published.load(Ordering::Acquire) == self.completed
    }

    /// The position of the oldest item not completed: the queue's head.
    #[must_use]
    pub fn head(&self) -> u32 {
        self.completed
    }

    /// A reader of this ring's counters.
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
    /// The queue's head: every item before this position has been completed.
    #[must_use]
    pub fn completed(&self) -> u32 {
        // ORDER: Acquire; pairs with the Release in `Consumer::complete`.
        self.shared.completed.load(Ordering::Acquire)
    }

    /// Items published and not completed. The counters are read one after the other, head first,
    /// so the figure can be too high while both ends run; it is never negative.
    #[must_use]
    pub fn waiting(&self) -> u32 {
        let completed = self.completed();
        // ORDER: Acquire keeps this load behind the one of `completed`.
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
