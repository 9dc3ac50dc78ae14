//! Records in file after file. A new file begins when the present one is old or large enough, or, after a failure, once
//! there is room again.
//!
//! ```text
//!  FILE.csv ─► FILE-20261123T151000Z-000001.csv, FILE-20261123T152000Z-000002.csv, …
//!  DIR ──────► DIR/hash_prefix=0a/eth0-20261123T151000Z-5d0c27e1.parquet, …
//! ```
//!
//! In the end, every accepted record is in a complete file, or is counted as lost.

use crate::{Row, Sink, Target, Written};
use rxsteer_flows::FlowMask;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How long to wait after a failure before files are written again.
const RETRY: Duration = Duration::from_secs(1);

/// Failures are reported at most this often.
const REPORT_INTERVAL: Duration = Duration::from_secs(60);

/// When a file is completed and the next one begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rotation {
    /// At each multiple of this time since 1970; at least a second.
    pub every: Option<Duration>,
    /// When it has this many bytes; for a data set, when all its open files together have this many.
    pub size: Option<u64>,
}

impl Rotation {
    /// Whether there is more than one file.
    #[must_use]
    pub fn is_some(&self) -> bool {
        *self != Rotation::default()
    }

    /// The end of a file that begins at `now`.
    fn end(&self, now: SystemTime) -> Option<SystemTime> {
        let every = self.every?.max(Duration::from_secs(1)).as_secs();
        let now = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        Some(UNIX_EPOCH + Duration::from_secs((now / every + 1) * every))
    }
}

/// The counts of the records. Any thread may read them.
#[derive(Debug, Default)]
pub struct FileCounts {
    files: AtomicU64,
    taken: [AtomicU64; 2],
    lost: [AtomicU64; 2],
    problem: Mutex<Option<String>>,
}

impl FileCounts {
    /// Complete files; for a data set, complete sets of files.
    #[must_use]
    pub fn files(&self) -> u64 {
        // ORDER: Relaxed, here and below; these figures are only for display.
        self.files.load(Ordering::Relaxed)
    }

    /// Records in complete files and in those that are being written.
    #[must_use]
    pub fn written(&self) -> Written {
        let (taken, lost) = (load(&self.taken), self.lost());
        Written { records: taken.records - lost.records, packets: taken.packets - lost.packets }
    }

    /// Records that could not be written.
    #[must_use]
    pub fn lost(&self) -> Written {
        load(&self.lost)
    }

    /// The last failure.
    #[must_use]
    pub fn problem(&self) -> Option<String> {
        self.problem.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn load([records, packets]: &[AtomicU64; 2]) -> Written {
    Written { records: records.load(Ordering::Relaxed), packets: packets.load(Ordering::Relaxed) }
}

fn add([records, packets]: &[AtomicU64; 2], more: Written) {
    records.fetch_add(more.records, Ordering::Relaxed);
    packets.fetch_add(more.packets, Ordering::Relaxed);
}

/// A file, or a set of files, that is being written.
struct Open {
    sink: Box<dyn Sink>,
    written: Written,
    end: Option<SystemTime>,
}

/// The state after a failure.
struct FailureState {
    /// When the next file may be begun.
    retry: Instant,
    /// Whether it was reported.
    is_reported: bool,
    lost: Written,
}

/// Writes records to files.
pub struct Files {
    target: Target,
    mask: FlowMask,
    rotation: Rotation,
    open: Option<Open>,
    failure_state: Option<FailureState>,
    /// When a failure was last reported.
    reported_at: Option<Instant>,
    counts: Arc<FileCounts>,
    /// Reports a message.
    report: fn(&str),
}

impl Files {
    /// Begins the first file, so that problems with the target show immediately.
    pub fn begin(
        mut target: Target,
        mask: FlowMask,
        rotation: Rotation,
        report: fn(&str),
    ) -> anyhow::Result<Files> {
        let now = SystemTime::now();
        if rotation.is_some() {
            target.next(now);
        }
        let sink = target.open(mask)?;
        let open = Some(Open { sink, written: Written::default(), end: rotation.end(now) });
        let counts = Arc::default();
        Ok(Files {
            target,
            mask,
            rotation,
            open,
            failure_state: None,
            reported_at: None,
            counts,
            report,
        })
    }

    /// The counts, for any thread.
    #[must_use]
    pub fn counts(&self) -> Arc<FileCounts> {
        self.counts.clone()
    }

    /// Accepts a record.
    pub fn take(&mut self, row: &Row<'_>) {
        let mut one = Written::default();
        one.add(row);
        add(&self.counts.taken, one);
        self.tick();
        if self
            .failure_state
            .as_ref()
            .is_some_and(|failure_state| Instant::now() < failure_state.retry)
        {
            return self.lose(one, None);
        }
        let written = self.open_file().and_then(|open| {
            open.sink.write(row)?;
            open.written.add(row);
            Ok(open.sink.bytes())
        });
        match written {
            Err(error) => {
                let kept = self.drop_file();
                self.lose(one, Some((error, kept)));
            }
            Ok(bytes) if self.failure_state.is_some() => self.try_again(bytes),
            Ok(bytes) => self.check_size(bytes),
        }
    }

    /// Completes the present file if its time is over. The caller must call this several times a second.
    pub fn tick(&mut self) {
        let now = SystemTime::now();
        let is_over = |open: &Open| open.end.is_some_and(|end| now >= end);
        if self.open.as_ref().is_some_and(is_over) {
            self.complete();
        }
    }

    /// Completes the last file.
    pub fn finish(&mut self) {
        self.complete();
    }

    /// The name of the output in reports.
    #[must_use]
    pub fn written(&self) -> Option<String> {
        match self.rotation.is_some() || self.counts.files() > 1 {
            true => self.target.pattern(),
            false => self.target.written(self.counts.written().records),
        }
    }

    fn open_file(&mut self) -> anyhow::Result<&mut Open> {
        let open = match self.open.take() {
            Some(open) => open,
            None => {
                let now = SystemTime::now();
                self.target.next(now);
                let sink = self.target.open(self.mask)?;
                Open { sink, written: Written::default(), end: self.rotation.end(now) }
            }
        };
        Ok(self.open.insert(open))
    }

    fn check_size(&mut self, bytes: u64) {
        if self.rotation.size.is_some_and(|size| bytes >= size) {
            self.complete();
        }
    }

    /// After a failure: checks whether records reach the disk again.
    fn try_again(&mut self, bytes: u64) {
        let Some(open) = &mut self.open else { return };
        if let Err(error) = open.sink.flush() {
            let kept = self.drop_file();
            return self.lose(Written::default(), Some((error, kept)));
        }
        if let Some(FailureState { is_reported: true, lost, .. }) = self.failure_state.take() {
            (self.report)(&format!(
                "flow records are written again; {} records of {} packets were lost meanwhile",
                lost.records, lost.packets
            ));
        }
        self.check_size(bytes);
    }

    /// Gives the present file its name. If files rotate, one without records is removed.
    fn complete(&mut self) {
        let Some(mut open) = self.open.take() else { return };
        if open.written.records == 0 && (self.rotation.is_some() || self.counts.files() > 0) {
            return;
        }
        if let Err(error) = open.sink.flush() {
            self.open = Some(open);
            let kept = self.drop_file();
            return self.lose(Written::default(), Some((error, kept)));
        }
        match open.sink.close() {
            Ok(()) => self.has_its_name(),
            Err(error) => self.lose(open.written, Some((error, Written::default()))),
        }
    }

    /// Counts a file that got its name.
    fn has_its_name(&mut self) {
        self.target.has_its_name();
        self.counts.files.fetch_add(1, Ordering::Relaxed);
    }

    /// Abandons the present file. Its contents are kept if the format allows that; the rest is lost.
    fn drop_file(&mut self) -> Written {
        let Some(open) = self.open.take() else { return Written::default() };
        let kept = open.sink.salvage();
        if kept.records > 0 {
            self.has_its_name();
        }
        let Written { records, packets } = open.written;
        let lost = Written { records: records - kept.records, packets: packets - kept.packets };
        self.lose(lost, None);
        kept
    }

    /// Counts lost records, and reports the reason if it is time to. With `failure`, a file was abandoned.
    fn lose(&mut self, lost: Written, failure: Option<(anyhow::Error, Written)>) {
        add(&self.counts.lost, lost);
        let now = Instant::now();
        let none =
            || FailureState { retry: now + RETRY, is_reported: false, lost: Written::default() };
        let failure_state = self.failure_state.get_or_insert_with(none);
        failure_state.lost.records += lost.records;
        failure_state.lost.packets += lost.packets;
        let Some((error, kept)) = failure else { return };
        failure_state.retry = now + RETRY;
        if self.reported_at.is_none_or(|reported_at| now - reported_at >= REPORT_INTERVAL) {
            (self.reported_at, failure_state.is_reported) = (Some(now), true);
            (self.report)(&format!(
                "{error}. {} flow records are lost so far, {} of this file are kept; rxsteer retries each second, \
                 and reports this at most once a minute",
                failure_state.lost.records, kept.records
            ));
        }
        *self.counts.problem.lock().unwrap_or_else(PoisonError::into_inner) =
            Some(format!("{error}"));
    }
}

#[cfg(test)]
#[path = "files_tests.rs"]
mod tests;
