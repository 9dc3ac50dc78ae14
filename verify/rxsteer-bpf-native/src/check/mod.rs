//! Compares an implementation of the policy with `rxsteer-core`: decision by decision, and in between
//! what both remember.
//!
//! Where the two differ by design, and how that is bridged:
//! - in the kernel *every* decision passes the order guard, in the core those of `none`, `rps` and
//!   `bound` do not: so guarded `rps` is compared with the core's `rfs` without desired CPUs; and `rps` as `run` has
//!   it with the core's `rps`, where flows that share a slot have one target, and changes come when all is delivered;
//! - in the kernel local packets pass and get no number: so the core's are not numbered;
//! - packets without a flow are left alone in the kernel, and `bound` leaves none alone in the core:
//!   there are none of them under `bound`;
//! - a CPU has two rings (generations) in the kernel: numbers of the second begin 2³¹ after the
//!   first's.

mod compare;
mod rings;
mod scenario;
mod seen;
mod subject;
mod world;

pub use scenario::{Kind, Scenario};
pub use seen::Seen;
pub use subject::Subject;
pub use world::World;
