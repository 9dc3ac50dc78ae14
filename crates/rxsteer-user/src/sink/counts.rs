//! Counts of packets that an output wrote or dropped.

use rxsteer_core::CpuId;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Why a packet was not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SinkDrop {
    /// The pipe or the interface was full, and packets must not wait.
    NoRoom,
    /// The output accepts frames of another link type only.
    LinkType,
    /// The interface does not accept a frame of this length.
    Length,
    /// Writing failed: the disk is full, the reader is gone, the interface is down.
    Failed,
}

impl SinkDrop {
    /// All reasons.
    pub const ALL: [SinkDrop; 4] =
        [SinkDrop::NoRoom, SinkDrop::LinkType, SinkDrop::Length, SinkDrop::Failed];

    /// Its name in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            SinkDrop::NoRoom => "no_room",
            SinkDrop::LinkType => "link_type",
            SinkDrop::Length => "length",
            SinkDrop::Failed => "failed",
        }
    }

    /// A short description.
    #[must_use]
    pub const fn help(self) -> &'static str {
        match self {
            SinkDrop::NoRoom => "for want of room",
            SinkDrop::LinkType => "of another link type",
            SinkDrop::Length => "of a length that the interface does not take",
            SinkDrop::Failed => "because writing failed",
        }
    }
}

/// The present counts of one CPU's output.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SinkReport {
    /// The CPU whose worker writes it.
    pub cpu: CpuId,
    /// The file or interface.
    pub name: String,
    /// Packets that were written whole.
    pub written: u64,
    /// Their captured bytes.
    pub bytes: u64,
    /// Packets that were not written, in the order of [`SinkDrop::ALL`].
    pub drops: [u64; SinkDrop::ALL.len()],
    /// The first error.
    pub error: Option<String>,
}

impl SinkReport {
    /// All packets that were not written.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.drops.iter().sum()
    }
}

/// Counts that one worker writes and any thread reads.
#[derive(Debug, Default)]
pub(super) struct Counts {
    written: AtomicU64,
    bytes: AtomicU64,
    drops: [AtomicU64; SinkDrop::ALL.len()],
    error: Mutex<Option<String>>,
}

impl Counts {
    // ORDER: Relaxed throughout; each count is a sum with one writer, and a reader may combine counts of slightly
    // different moments. At the end they are read after the worker was joined.
    pub(super) fn add_written(&self, packets: u64, bytes: u64) {
        add(&self.written, packets);
        add(&self.bytes, bytes);
    }

    pub(super) fn add_dropped(&self, reason: SinkDrop, packets: u64) {
        add(&self.drops[reason as usize], packets);
    }

    /// Keeps the first error of an output.
    #[cold]
    pub(super) fn fail(&self, message: impl FnOnce() -> String) {
        let mut error = self.error.lock().unwrap_or_else(PoisonError::into_inner);
        error.get_or_insert_with(message);
    }

    pub(super) fn report(&self, cpu: CpuId, name: &str) -> SinkReport {
        SinkReport {
            cpu,
            name: name.to_owned(),
            written: self.written.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            drops: std::array::from_fn(|reason| self.drops[reason].load(Ordering::Relaxed)),
            error: self.error.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        }
    }
}

fn add(sum: &AtomicU64, count: u64) {
    // ORDER: Relaxed, and not one operation; there is one writer.
    sum.store(sum.load(Ordering::Relaxed) + count, Ordering::Relaxed);
}

/// The counts of all outputs of a run, for reports.
#[derive(Clone, Debug, Default)]
pub struct SinkCounts {
    pub(super) per_cpu: Vec<(CpuId, String, Arc<Counts>)>,
}

impl SinkCounts {
    /// Every output, ascending by CPU. While packets flow these are the present figures. After
    /// [`Sink::finish`](super::Sink::finish) was called for all outputs, they include each packet.
    #[must_use]
    pub fn report(&self) -> Vec<SinkReport> {
        self.per_cpu.iter().map(|(cpu, name, counts)| counts.report(*cpu, name)).collect()
    }
}
