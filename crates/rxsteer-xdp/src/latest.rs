//! A value that one thread replaces and other threads read. Neither side waits longer for the other than copying a pointer
//! takes.

use std::sync::{Arc, Mutex, PoisonError};

/// The latest value.
#[derive(Debug)]
pub struct Latest<T>(Arc<Mutex<Arc<T>>>);

// This is not derived, since the derive would require `T: Clone`.
impl<T> Clone for Latest<T> {
    fn clone(&self) -> Latest<T> {
        Latest(self.0.clone())
    }
}

impl<T> Latest<T> {
    /// Starts with this value.
    pub fn new(value: T) -> Latest<T> {
        Latest(Arc::new(Mutex::new(Arc::new(value))))
    }

    /// The current value.
    #[must_use]
    pub fn get(&self) -> Arc<T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the value. A thread that reads the former value keeps it.
    pub fn set(&self, value: T) {
        let value = Arc::new(value);
        let former =
            std::mem::replace(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner), value);
        // Dropped without the lock, since this may be the last reference.
        drop(former);
    }
}
