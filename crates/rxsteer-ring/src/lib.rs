//! A bounded single-producer single-consumer ring that is also a queue *counter*.
//!
//! ```text
//!            completed                published          reserved
//!                │                        │                 │
//!   ─────────────▼────────────────────────▼─────────────────▼──────────────
//!    free again  │  backlog: the consumer │ written or to   │  free
//!                │  works on it in place  │ be written      │
//! ```
//!
//! Why a ring of our own: the order rule of receive steering (RFS) compares a flow's saved tail with its queue's
//! head, so the ring's free-running indices *are* the queue head and tail of that rule. Here the head is called
//! *completed*. It advances when the consumer has finished processing an item, not when the consumer reads it. The
//! first version of the kernel's patch advanced the head on reading, which left a window for reordering.
//!
//! Invariants:
//! - Positions are `u32`, free-running, and wrap. They are compared by signed difference only.
//! - `completed ≤ published ≤ reserved ≤ completed + capacity`, each as a signed difference. No position is
//!   reserved beyond `completed + limit`.
//! - A slot is written only between its reservation and its publication, and read only between its publication and
//!   its completion. The stores to the two indices order those accesses.
//! - Publishing a list is one store, however long the list (the "splice" of the hand-off patch).

#![deny(unsafe_code)]

mod published;
mod ring;
mod sleeper;
mod sync;

pub use published::{Published, Seen};
pub use ring::{Consumer, MAX_LIMIT, Monitor, Producer, ring, ring_starting_at};
pub use sleeper::{Sleeper, published};
