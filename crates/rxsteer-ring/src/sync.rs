//! The atomics and cells of the ring: the standard ones, or loom's when it explores interleavings.

#[cfg(not(loom))]
pub(crate) use std::{
    sync::atomic::{AtomicBool, AtomicU32, Ordering, fence},
    sync::{Arc, Mutex, MutexGuard},
    thread::{Thread, current, park},
};

#[cfg(loom)]
pub(crate) use loom::{
    sync::atomic::{AtomicBool, AtomicU32, Ordering, fence},
    sync::{Arc, Mutex, MutexGuard},
    thread::{Thread, current, park},
};

/// One slot of the ring. Under loom every access is checked for races.
#[cfg_attr(not(loom), repr(transparent))]
pub(crate) struct Slot<T>(
    #[cfg(not(loom))] std::cell::UnsafeCell<T>,
    #[cfg(loom)] loom::cell::UnsafeCell<T>,
);

#[allow(unsafe_code)]
impl<T: Copy> Slot<T> {
    pub(crate) fn new(value: T) -> Self {
        Slot(
            #[cfg(not(loom))]
            std::cell::UnsafeCell::new(value),
            #[cfg(loom)]
            loom::cell::UnsafeCell::new(value),
        )
    }

    /// Writes the slot.
    ///
    /// # Safety
    /// No other thread may access the slot during the call.
    #[inline(always)]
    pub(crate) unsafe fn write(&self, value: T) {
        #[cfg(not(loom))]
        // SAFETY: exclusive by the caller's promise.
        unsafe {
            *self.0.get() = value;
        }
        #[cfg(loom)]
        // SAFETY: exclusive by the caller's promise, which loom checks.
        self.0.with_mut(|slot| unsafe { *slot = value });
    }

    /// Reads the slot.
    ///
    /// # Safety
    /// No thread may write the slot during the call.
    #[inline(always)]
    pub(crate) unsafe fn read(&self) -> T {
        #[cfg(not(loom))]
        // SAFETY: not written meanwhile by the caller's promise.
        unsafe {
            *self.0.get()
        }
        #[cfg(loom)]
        // SAFETY: not written meanwhile by the caller's promise, which loom checks.
        self.0.with(|slot| unsafe { *slot })
    }

    /// `count` slots from `first` on as plain items.
    ///
    /// # Safety
    /// There must be that many in one allocation, and no thread may write any of them while the
    /// result lives.
    #[cfg(not(loom))]
    #[inline(always)]
    pub(crate) unsafe fn as_items<'a>(first: *const Slot<T>, count: usize) -> &'a [T] {
        // SAFETY: Slot<T> is a transparent UnsafeCell<T>, which is laid out as T, so slots are
        // laid out as a slice of T; there and not written meanwhile by the caller's promise.
        unsafe { std::slice::from_raw_parts(first.cast::<T>(), count) }
    }
}
