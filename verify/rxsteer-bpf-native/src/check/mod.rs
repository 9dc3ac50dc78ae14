//! Compares an implementation of the policy with `rxsteer-core`: decision by decision, and in between the state of
//! both.
//!
//! The two differ by design in some points, which are bridged as follows:
//! - In the kernel *every* decision passes the order guard; in the core, decisions of `none`, `rps` and `bound` do not.
//!   So guarded `rps` is compared with the core's `rfs` without desired CPUs. `rps` as in `run` is compared with the
//!   core's `rps`, with one target for all flows that share a slot, and changes are made when everything is delivered.
//! - In the kernel, local packets pass and get no number, so the core's local packets are not numbered.
//! - Packets without a flow are not steered in the kernel, and `bound` steers them in the core, so `bound` is tested
//!   without such packets.
//! - In the kernel a CPU has two rings (generations): the numbers of the second begin 2³¹ after those of the first.

mod compare;
mod rings;
mod scenario;
mod seen;
mod subject;
mod world;

pub use scenario::{Kind, Scenario};
pub use seen::{Seen, packets};
pub use subject::Subject;
pub use world::World;
