//! Changes of the kernel's own steering settings, each of which can be undone.
//!
//! ```text
//!  Wanted ─► Plan ─► for each write: journal (fsync) ─► write ─► read back ─► journal "done"
//!            (old → new)                                            │
//!                                              refused or filtered ─► all of this apply is undone
//!  Journal ─► restore: what was there before the first apply, byte for byte
//! ```
//!
//! What must hold:
//!
//! - An old value is on record before a new one is written, so a kill at any moment loses none.
//! - A value that something else set since is never overwritten by an undo.
//! - What was not read back as it was written does not stay.
//!
//! The journal is in `/run/rxsteer`, not on a disk: it lives exactly as long as the values it speaks of. A reboot resets
//! both, `systemctl soft-reboot` and kexec-less restarts of services keep both. Where `/run` outlives a boot nevertheless
//! (containers), the kernel's boot id in the first line says that the values are gone.

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

/// Where journal and lock are.
pub(crate) const STATE: &str = "/run/rxsteer";

/// How every file begins that is written to apply settings at boot.
pub(crate) const MARK: &str = "# Written by rxsteer host apply --persist";
