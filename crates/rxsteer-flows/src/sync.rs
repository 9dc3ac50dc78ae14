//! The atomics and locks of the flow table: the standard ones, or loom's when it explores
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

/// Locks; a thread that panicked under a lock of this crate left nothing half done but counts.
pub(crate) fn lock<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    value.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Reads a word that this thread alone writes.
///
/// To see what may come in another order, loom remembers the last access to a word only: a look of
/// one's own before each write would hide that another thread has read it. A read-modify-write that
/// changes nothing does not.
#[inline(always)]
pub(crate) fn load_own(word: &AtomicU64) -> u64 {
    // ORDER: Relaxed; no other thread writes it.
    if cfg!(loom) { word.fetch_or(0, Ordering::Relaxed) } else { word.load(Ordering::Relaxed) }
}

/// Waits for another thread that needs a few instructions, unless it was interrupted amid them.
#[cold]
pub(crate) fn wait_a_little(waited: &mut u32) {
    *waited += 1;
    if waited.is_multiple_of(64) {
        yield_now();
    } else {
        spin_loop();
    }
}
