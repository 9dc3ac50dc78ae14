//! Memory that the kernel lends until it is dropped.

use std::any::Any;
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

/// Bytes that the kernel wrote and does not write again until the last clone of this is dropped: a block of a packet
/// socket's ring, or frames of an AF_XDP socket. The bytes between the frames are never read.
#[derive(Clone)]
pub struct Lent {
    start: NonNull<u8>,
    len: usize,
    /// Keeps the memory mapped. Its drop returns the memory to the kernel.
    owner: Arc<dyn Any + Send + Sync>,
}

// SAFETY: the memory is only read through this, and stays mapped while its owner lives, on any thread.
unsafe impl Send for Lent {}
// SAFETY: as above; shared references only read.
unsafe impl Sync for Lent {}

impl Lent {
    /// Lends the `len` bytes from `start`. They return to the kernel when `owner` is dropped.
    ///
    /// # Safety
    /// Until the last clone of `owner` is dropped the bytes must stay mapped and readable, and bytes that [`Lent::slice`]
    /// returns must not be written. If only some of the bytes are lent (frames of a UMEM), the caller must ensure that no
    /// others are requested.
    #[must_use]
    pub unsafe fn new(start: NonNull<u8>, len: usize, owner: Arc<dyn Any + Send + Sync>) -> Lent {
        Lent { start, len, owner }
    }

    /// The owner of the memory, as passed to [`Lent::new`].
    #[must_use]
    pub fn owner(&self) -> &Arc<dyn Any + Send + Sync> {
        &self.owner
    }

    /// The number of bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The `len` bytes from `offset`.
    ///
    /// # Panics
    /// If they reach beyond the end.
    #[inline(always)]
    #[must_use]
    pub fn slice(&self, offset: usize, len: usize) -> &[u8] {
        assert!(offset <= self.len && len <= self.len - offset, "bytes beyond the lent memory");
        // SAFETY: within the memory, which by the promise of `new` is readable and not written while this lives.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().add(offset), len) }
    }
}

impl fmt::Debug for Lent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lent").field("len", &self.len).finish_non_exhaustive()
    }
}

/// Treats normal memory as lent: for tests, and for sources whose frames are in other memory.
impl From<Arc<[u8]>> for Lent {
    fn from(bytes: Arc<[u8]>) -> Lent {
        let (start, len) = (NonNull::from(&bytes[..]).cast(), bytes.len());
        // SAFETY: the bytes are never written, and live as long as `owner`.
        unsafe { Lent::new(start, len, Arc::new(bytes)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    struct Owner {
        bytes: Box<[u8]>,
        given_back: Arc<AtomicUsize>,
    }

    impl Drop for Owner {
        fn drop(&mut self) {
            self.given_back.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn lent(bytes: &[u8]) -> (Lent, Arc<AtomicUsize>) {
        let given_back = Arc::new(AtomicUsize::new(0));
        let owner = Arc::new(Owner { bytes: bytes.into(), given_back: given_back.clone() });
        let start = NonNull::from(&owner.bytes[..]).cast();
        // SAFETY: the bytes are never written, and live as long as their owner.
        (unsafe { Lent::new(start, bytes.len(), owner) }, given_back)
    }

    #[test]
    fn it_goes_back_once_with_the_last_clone_on_any_thread() {
        let (lent, given_back) = lent(b"frames");
        let other = lent.clone();
        let thread = std::thread::spawn(move || other.slice(2, 4).to_vec());
        assert_eq!(thread.join().expect("it reads"), b"ames");
        assert_eq!((lent.slice(0, 6), lent.slice(6, 0)), (&b"frames"[..], &b""[..]));
        assert_eq!(given_back.load(Ordering::Relaxed), 0);
        drop(lent);
        assert_eq!(given_back.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn nothing_beyond_it_is_read() {
        let (lent, _) = lent(b"frames");
        for (offset, len) in [(0, 7), (7, 0), (1, usize::MAX), (usize::MAX, 2)] {
            let lent = lent.clone();
            let read = std::thread::spawn(move || lent.slice(offset, len).len()).join();
            assert!(read.is_err(), "{len} bytes from {offset}");
        }
        assert_eq!(Lent::from(Arc::<[u8]>::from(&b"own"[..])).slice(1, 2), b"wn");
    }
}
