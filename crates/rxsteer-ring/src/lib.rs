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
//! Why not a ring from the shelf: the order rule of receive steering (RFS, "the trick") compares a
//! flow's saved tail with its queue's head, so the ring's free-running indices *are* the queue head
//! and tail of that rule. Here the head is called *completed*: it advances when the consumer says
//! that an item's processing is over, not when it looks at it, which is where the first version of
//! the kernel's patch left a window for reordering.
//!
//! What must hold:
//! - positions are `u32`, free-running, and wrap; they are compared by signed difference only;
//! - `completed ≤ published ≤ reserved ≤ completed + capacity`, each as a signed difference, and
//!   nothing is reserved beyond `completed + limit`;
//! - a slot is written only between its reservation and its publication, and read only between its
//!   publication and its completion; the two index hand-overs order those accesses;
//! - publishing a list is one store, however long the list (the "splice" of the hand-off patch).

#![deny(unsafe_code)]

mod published;
mod ring;
mod sleeper;
mod sync;

pub use published::{Published, Seen};
pub use ring::{Consumer, MAX_LIMIT, Monitor, Producer, ring, ring_starting_at};
pub use sleeper::{Sleeper, published};
