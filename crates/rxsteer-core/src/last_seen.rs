//! When something was last seen, and whether that is within the last second.

use crate::sync::{AtomicU64, Ordering};

/// After this time without being seen, something is no longer active: a sparse slot is free, and hashing has ended.
pub const INACTIVE_AFTER_NS: u64 = 1_000_000_000;

/// The time when something was last seen, plus one; 0 is never.
#[derive(Debug, Default)]
#[repr(transparent)]
pub(crate) struct LastSeen(AtomicU64);

impl LastSeen {
    /// Whether the time lies within the last second (`!FLOW_INACTIVE`).
    #[inline(always)]
    pub(crate) fn is_active(&self, now_ns: u64) -> bool {
        // ORDER: Relaxed, here and below: a time is a hint and carries all of the information.
        match self.0.load(Ordering::Relaxed).checked_sub(1) {
            None => false,
            Some(then) => then <= now_ns && now_ns - then <= INACTIVE_AFTER_NS,
        }
    }

    /// Whether the time lies within the last second. If so, sets it to now.
    #[inline(always)]
    pub(crate) fn touch_if_active(&self, now_ns: u64) -> bool {
        let seen = self.0.load(Ordering::Relaxed);
        let now = now_ns.saturating_add(1);
        let is_active = seen != 0 && seen <= now && now - seen <= INACTIVE_AFTER_NS;
        if is_active && seen != now {
            self.0.store(now, Ordering::Relaxed);
        }
        is_active
    }

    /// The time plus one; 0 is never.
    #[inline(always)]
    pub(crate) fn raw(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    #[inline(always)]
    pub(crate) fn touch(&self, now_ns: u64) {
        let now = now_ns.saturating_add(1);
        // Many threads read this line, so it is written only when it changes.
        if self.0.load(Ordering::Relaxed) != now {
            self.0.store(now, Ordering::Relaxed);
        }
    }
}
