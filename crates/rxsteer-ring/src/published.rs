//! A value that is replaced while other threads read it.
//!
//! ```text
//!   replace ──► [lock] Arc<T>, version + 1        readers keep an Arc of the value they last saw,
//!                          │                      and look at the version once per list
//!   reader ──► version ────┴─ changed? ─► [lock] clone the Arc
//! ```
//!
//! The last reader that releases an old value frees it. A reader that does not check the version keeps the old
//! value.
//!
//! Why not `arc-swap`: its `Cache` costs a reader the same load, but reports a change only by taking the new
//! value. RX threads check for a change before each batch and then use both the old value and the new one; workers
//! check before they sleep. Writers would still need a lock, since `rcu` repeats its function, which here must not
//! fail. And loom, which checks all of this module, does not see into `arc-swap`. There is no unsafe code here.

use crate::sync::{Arc, AtomicU32, Mutex, MutexGuard, Ordering};

/// A value that is replaced from time to time, with a version that counts the replacements.
#[derive(Debug)]
pub struct Published<T> {
    version: AtomicU32,
    value: Mutex<Arc<T>>,
    /// Held while a new value is made, so that readers do not wait for it.
    making: Mutex<()>,
}

/// The value that a reader last saw.
#[derive(Debug)]
pub struct Seen<T> {
    version: u32,
    value: Arc<T>,
}

impl<T> Published<T> {
    /// Publishes `value`.
    #[must_use]
    pub fn new(value: T) -> Published<T> {
        let (version, value) = (AtomicU32::new(0), Mutex::new(Arc::new(value)));
        Published { version, value, making: Mutex::new(()) }
    }

    /// Replaces the value by the one that `next` makes of it. If `next` fails, nothing changes.
    ///
    /// # Errors
    /// The error of `next`.
    pub fn replace<E>(&self, next: impl FnOnce(&T) -> Result<T, E>) -> Result<(), E> {
        let making = lock(&self.making);
        let now = lock(&self.value).clone();
        let made = Arc::new(next(&now)?);
        let mut value = lock(&self.value);
        let old = std::mem::replace(&mut *value, made);
        // ORDER: Release; pairs with the Acquire in `has_changed`. The store is under the lock, so that versions
        // and values change in the same order. Readers take the value under the lock.
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version.wrapping_add(1), Ordering::Release);
        drop(value);
        drop(making);
        // If these are the last references, freeing the old value delays no other thread.
        drop((now, old));
        Ok(())
    }

    /// The present value.
    #[must_use]
    pub fn see(&self) -> Seen<T> {
        let value = lock(&self.value);
        // ORDER: Relaxed; under the lock.
        Seen { version: self.version.load(Ordering::Relaxed), value: value.clone() }
    }

    /// Whether the value was replaced after `seen` was taken.
    #[inline(always)]
    #[must_use]
    pub fn has_changed(&self, seen: &Seen<T>) -> bool {
        // ORDER: Acquire; pairs with the Release in `replace`.
        self.version.load(Ordering::Acquire) != seen.version
    }
}

impl<T> Seen<T> {
    /// Takes a newer value if there is one.
    #[inline(always)]
    pub fn refresh(&mut self, published: &Published<T>) -> &Arc<T> {
        if published.has_changed(self) {
            self.renew(published);
        }
        &self.value
    }

    #[cold]
    fn renew(&mut self, published: &Published<T>) {
        *self = published.see();
    }

    /// The value last seen.
    #[must_use]
    pub fn value(&self) -> &Arc<T> {
        &self.value
    }
}

fn lock<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    // No code that runs under the lock can leave the value half written.
    value.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn replacement_that_fails_changes_nothing() {
        let published = Published::new(1);
        let mut seen = published.see();
        assert_eq!(published.replace(|_| Err("no")), Err("no"));
        assert!(!published.has_changed(&seen));
        assert_eq!(published.replace(|old| Ok::<_, ()>(old + 1)), Ok(()));
        assert_eq!((**seen.value(), **seen.refresh(&published)), (1, 2));
    }
}
