//! AF_XDP sockets: frames of RX queues in memory that the kernel shares, received before the kernel's stack sees them,
//! and sent from where they lie.
//!
//! ```text
//!  NIC ─► XDP program ─► RX ring ─► XdpReceiver ─► Lent ─► workers ─► XdpSender ─► TX ring ─► NIC
//!                           ▲                                │            │
//!                           └──── fill ring ◄── free ◄───────┴────────────┘ let go of, and sent
//! ```
//!
//! One receiver per RX queue, on one thread; as many senders for each queue as there are threads that send. Receiving
//! takes frames *away* from the kernel's stack.
//!
//! Why not a crate (looked at in November 2026):
//! - `xsk-rs` 0.11 fits best: it leaves the frames' addresses to its user. But it wraps libxdp by `libxdp-sys`, which
//!   takes exactly `libbpf-sys` 1.5.1, and libbpf-rs 0.27, by which rxsteer loads BPF programs, takes 1.7: cargo
//!   links only one of them. Each entry of a ring is a call into C.
//! - `xdp` 0.8 (pure Rust) hands out frames by `&mut Umem`, so by one thread, shares no UMEM between sockets (its
//!   README), and neither its packets nor its rings are `Send`. Nor does it read the flag need-wakeup.
//! - `netring` 0.29 has one batch at a time, which borrows the socket; `xdp-socket` 0.1 has no order of return but its own.
//!
//! Here frames are held by several threads and come back in any order, in lists, without a lock. What that takes beside
//! the crates' own work, the rings, is 150 lines (`ring.rs`).

mod error;
mod frames;
mod open;
mod program;
mod queue;
mod receive;
mod ring;
mod send;
mod sys;

pub use error::XdpError;
pub use open::{Port, XdpOptions, XdpPort, open};
pub use program::XdpMode;
pub use receive::{Received, XdpReceiver, XdpStatistics, wait};
pub use send::{Flushed, Sending, XdpSender};
