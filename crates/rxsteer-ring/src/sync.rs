//! The atomics and cells of the ring: those of the standard library, or those of loom when it explores
//! interleavings.

#[cfg(not(loom))]
pub(crate) use std::{
    sync::atomic::{AtomicBool, AtomicU32, Ordering, fence},
    sync::{Arc, Mutex, MutexGuard},
    thread::{Thread, current, park, park_timeout},
};

#[cfg(loom)]
pub(crate) use loom::{
    sync::atomic::{AtomicBool, AtomicU32, Ordering, fence},
    sync::{Arc, Mutex, MutexGuard},
    thread::{Thread, current, park},
};

/// loom has no time: the worker sleeps until it is woken.
#[cfg(loom)]
pub(crate) fn park_timeout(_: std::time::Duration) {
    park();
}

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
        // SAFETY: the caller promises exclusive access.
        unsafe {
            *self.0.get() = value;
        }
        #[cfg(loom)]
        // SAFETY: the caller promises exclusive access, and loom checks it.
        self.0.with_mut(|slot| unsafe { *slot = value });
    }

    /// Reads the slot.
    ///
    /// # Safety
    /// No thread may write the slot during the call.
    #[inline(always)]
    pub(crate) unsafe fn read(&self) -> T {
        #[cfg(not(loom))]
        // SAFETY: the caller promises that no thread writes the slot meanwhile.
        unsafe {
            *self.0.get()
        }
        #[cfg(loom)]
        // SAFETY: the caller promises that no thread writes the slot meanwhile, and loom checks it.
        self.0.with(|slot| unsafe { *slot })
    }

    /// `count` slots from `first` on, as a slice of items.
    ///
    /// # Safety
    /// One allocation must hold all of them, and no thread may write any of them while the result lives.
    #[cfg(not(loom))]
    #[inline(always)]
    pub(crate) unsafe fn as_items<'a>(first: *const Slot<T>, count: usize) -> &'a [T] {
        // SAFETY: Slot<T> is a transparent UnsafeCell<T>, which has the layout of T, so the slots have the layout
        // of a slice of T. The caller promises that the slots exist and that no thread writes them meanwhile.
        unsafe { std::slice::from_raw_parts(first.cast::<T>(), count) }
    }
}
