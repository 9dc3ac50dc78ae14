//! A value that one thread replaces and others look at: neither waits for the other longer than it takes to copy
//! a pointer.

use std::sync::{Arc, Mutex, PoisonError};

/// The latest value.
#[derive(Debug)]
pub struct Latest<T>(Arc<Mutex<Arc<T>>>);

// Not derived: that would ask for `T: Clone`.
impl<T> Clone for Latest<T> {
    fn clone(&self) -> Latest<T> {
        Latest(self.0.clone())
    }
}

impl<T> Latest<T> {
    /// The first value.
    pub fn new(value: T) -> Latest<T> {
        Latest(Arc::new(Mutex::new(Arc::new(value))))
    }

    /// The value that holds now.
    #[must_use]
    pub fn get(&self) -> Arc<T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the value. Who looks at the former one keeps it.
    pub fn set(&self, value: T) {
        let value = Arc::new(value);
        let former =
            std::mem::replace(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner), value);
        // Not with the lock held: it may be the last.
        drop(former);
    }
}
