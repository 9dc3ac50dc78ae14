//! The atomics and locks of the flow table: those of the standard library, or those of loom when it explores
//! interleavings.

#[cfg(not(loom))]
pub(crate) use std::{
    hint::spin_loop,
    sync::atomic::{AtomicBool, AtomicU64, Ordering, fence},
    sync::{Mutex, MutexGuard},
    thread::yield_now,
};

#[cfg(loom)]
pub(crate) use loom::{
    hint::spin_loop,
    sync::atomic::{AtomicBool, AtomicU64, Ordering, fence},
    sync::{Mutex, MutexGuard},
    thread::yield_now,
};

/// Locks `value`. A thread that panicked under a lock of this crate left only counts incomplete.
pub(crate) fn lock<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    value.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Reads a word that only this thread writes.
///
/// Loom remembers only the last access to a word when it looks for other orders. A separate load before each write
/// would hide that another thread has read the word. A read-modify-write that changes nothing does not hide this.
#[inline(always)]
pub(crate) fn load_own(word: &AtomicU64) -> u64 {
    // ORDER: Relaxed; no other thread writes the word.
    if cfg!(loom) { word.fetch_or(0, Ordering::Relaxed) } else { word.load(Ordering::Relaxed) }
}

/// Waits for another thread that needs a few more instructions, unless it was preempted.
#[cold]
pub(crate) fn wait_a_little(waited: &mut u32) {
    *waited += 1;
    if waited.is_multiple_of(64) {
        yield_now();
    } else {
        spin_loop();
    }
}
