//! What an instance knows about one interface.

use rxsteer_status::{RxShown, State};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The first wait before a refused interface is retried. The wait doubles each time, up to a limit.
const FIRST_RETRY: Duration = Duration::from_secs(3);
/// See [`FIRST_RETRY`].
const LONGEST_RETRY: Duration = Duration::from_secs(60);

/// When a refused interface is retried.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Retry {
    pub(super) at: Instant,
    after: Duration,
}

impl Retry {
    pub(super) fn first(now: Instant) -> Retry {
        Retry { at: now + FIRST_RETRY, after: FIRST_RETRY }
    }

    pub(super) fn next(self, now: Instant) -> Retry {
        let after = (self.after * 2).min(LONGEST_RETRY);
        Retry { at: now + after, after }
    }
}

/// An interface that is steered, was steered, or was refused.
pub(crate) struct Steered<D> {
    pub(crate) index: u32,
    pub(crate) name: String,
    pub(crate) tables: u16,
    /// The RX queues that it uses.
    pub(crate) rx_queues: u16,
    pub(crate) state: State,
    pub(crate) why: Option<String>,
    /// Set while the interface is attached, and until its counts are complete.
    pub(crate) device: Option<D>,
    /// When it was attached, or refused.
    pub(crate) since: Instant,
    /// The counts of the time before it was attached, and of the time when it was.
    pub(crate) counts: Arc<RxShown>,
    /// Whether something is inconsistent. Then the state is read once more before anything is reported, since an
    /// interface that is being deleted loses its program and its name one after the other.
    pub(super) needs_recheck: bool,
    /// Whether it was reported that frames arrive with an incomplete checksum.
    pub(super) reported_partial: bool,
    /// The hardware address; with name and index it identifies the interface in sysfs.
    pub(super) address: Vec<u8>,
    /// Warnings about this interface, which is steered nevertheless.
    pub(crate) remarks: Vec<String>,
    /// Set for a refused interface.
    pub(super) retry: Option<Retry>,
}

impl<D> Steered<D> {
    pub(super) fn is_live(&self) -> bool {
        matches!(self.state, State::Steered | State::Down)
    }

    pub(super) fn is_gone(&self) -> bool {
        matches!(self.state, State::Deleted | State::Moved)
    }

    /// Whether an interface of that name exists now.
    pub(super) fn exists(&self) -> bool {
        self.is_live() || self.state == State::Refused
    }

    /// Continues the counts of an interface that had the same name, and does not repeat reports about that interface.
    pub(super) fn inherit(&mut self, of: &Steered<D>) {
        Arc::make_mut(&mut self.counts).merge(&of.counts);
        self.reported_partial |= of.reported_partial;
    }
}
