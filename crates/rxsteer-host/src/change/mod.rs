//! Changes the kernel's own steering settings, and can undo each change.
//!
//! ```text
//!  Wanted ─► Plan ─► for each write: journal (fsync) ─► write ─► read back ─► journal "done"
//!            (old → new)                                            │
//!                                              refused or filtered ─► all of this apply is undone
//!  Journal ─► restore: what was there before the first apply, byte for byte
//! ```
//!
//! Invariants:
//!
//! - An old value is recorded (fsync) before a new one is written, so a kill at any moment loses none.
//! - An undo never overwrites a value that other software has set since.
//! - A value that does not read back as it was written does not stay.
//!
//! The journal is in `/run/rxsteer`, not on a disk, so it lives exactly as long as the values that it describes. A
//! reboot resets both; `systemctl soft-reboot` and restarts of services keep both. If `/run` survives a reboot
//! nevertheless (in containers), the kernel's boot id in the first line shows that the values are gone.

mod journal;
mod lock;
mod persist;
mod plan;
mod restore;
mod verify;
mod write;

pub use journal::{Change, Journal, JournalError};
pub use lock::{Lock, LockError};
pub use persist::{PersistError, PersistFile, Persisted, persist_files, persisted, remove};
pub use plan::{Owner, Plan, PlanError, Wanted, Write, flow_sizes, refuse_offline};
pub use restore::{Outcome, Restored, preview, restore};
pub use verify::{Measured, TURNS, Turn, Verdict, judge, measured, verify};
pub use write::{ApplyError, Refusal, apply, may_apply, undo};

/// The folder of journal and lock.
pub(crate) const STATE: &str = "/run/rxsteer";

/// The first line of every file that applies settings at boot.
pub(crate) const MARK: &str = "# Written by rxsteer host apply --persist";
