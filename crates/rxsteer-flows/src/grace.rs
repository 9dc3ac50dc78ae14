//! When is nobody using a flow any more? Lookups take no lock, so a CPU may hold the slot of a flow
//! that somebody else takes out of the table just then.
//!
//! ```text
//!  writer     enter ── finds, counts ── leave        enter ── …
//!  collector        taken out ·  · waits ·  ·  ▲ its packets are all counted: final record, slot free
//! ```
//!
//! Whoever looks flows up is a [`Participant`] with a number that is odd while it does. After flows
//! were taken out, the collector notes the odd numbers; once each has changed, whoever could know
//! of those flows has left (RCU's grace period, with lists of packets for read-side critical
//! sections). Nobody ever waits in a datapath: the flows wait.

use crate::sync::{AtomicU64, Ordering, fence, load_own};
use crossbeam_utils::CachePadded;
use std::sync::Arc;

/// Somebody who looks flows up.
#[derive(Debug, Default)]
pub(crate) struct Participant {
    /// Odd between `enter` and `leave`.
    turns: CachePadded<AtomicU64>,
}

impl Participant {
    pub(crate) fn new() -> Participant {
        Participant { turns: CachePadded::new(AtomicU64::new(0)) }
    }

    /// From now on, flows that are found stay.
    #[inline(always)]
    pub(crate) fn enter(&self) {
        // ORDER: Relaxed; the fence does it.
        let turns = load_own(&self.turns);
        self.turns.store(turns.wrapping_add(1), Ordering::Relaxed);
        // ORDER: SeqCst; pairs with the fence in `Grace::begin`. Either that one comes first, and
        // flows taken out before it are not found any more; or this one does, and the odd number
        // is seen there.
        fence(Ordering::SeqCst);
    }

    /// What was found may go.
    #[inline(always)]
    pub(crate) fn leave(&self) {
        let turns = load_own(&self.turns);
        // ORDER: Release; pairs with the Acquire in `Grace::is_over`: all that was counted is seen
        // by whoever reads the flow for the last time.
        self.turns.store(turns.wrapping_add(1), Ordering::Release);
    }

    /// Stays until the result is dropped.
    pub(crate) fn stay(&self) -> Stay<'_> {
        self.enter();
        Stay(self)
    }

    /// Whether it is between the two.
    pub(crate) fn is_in(&self) -> bool {
        self.turns.load(Ordering::Relaxed) & 1 == 1
    }
}

/// A participant that leaves when this is dropped, whatever happens.
pub(crate) struct Stay<'a>(&'a Participant);

impl Drop for Stay<'_> {
    fn drop(&mut self) {
        self.0.leave();
    }
}

/// The time until everybody who was in has left.
#[derive(Debug, Default)]
pub(crate) struct Grace {
    waiting_for: Vec<(Arc<Participant>, u64)>,
}

impl Grace {
    /// Begins after flows were taken out (and that was seen here).
    pub(crate) fn begin(&mut self, participants: &[Arc<Participant>]) {
        // ORDER: SeqCst; pairs with the fence in `Participant::enter`.
        fence(Ordering::SeqCst);
        self.waiting_for.clear();
        for participant in participants {
            let turns = participant.turns.load(Ordering::Acquire);
            if turns & 1 == 1 {
                self.waiting_for.push((participant.clone(), turns));
            }
        }
    }

    /// Whether all have left who were in.
    pub(crate) fn is_over(&mut self) -> bool {
        self.waiting_for.retain(|(participant, turns)| {
            // ORDER: Acquire; pairs with the Release in `leave`.
            participant.turns.load(Ordering::Acquire) == *turns
        });
        self.waiting_for.is_empty()
    }
}
