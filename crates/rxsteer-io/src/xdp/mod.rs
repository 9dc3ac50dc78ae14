//! AF_XDP sockets. They receive frames of RX queues in memory shared with the kernel, before the kernel's stack sees
//! them, and send frames from that memory.
//!
//! ```text
//!  NIC ─► XDP program ─► RX ring ─► XdpReceiver ─► Lent ─► workers ─► XdpSender ─► TX ring ─► NIC
//!                           ▲                                │            │
//!                           └──── fill ring ◄── free ◄───────┴────────────┘ let go of, and sent
//! ```
//!
//! There is one receiver per RX queue, on one thread, and a sender per queue for each thread that sends. Received frames
//! do *not* reach the kernel's stack.
//!
//! Why not a crate (checked in November 2026):
//! - `xsk-rs` 0.11 fits best: it leaves the frames' addresses to its user. But it wraps libxdp through `libxdp-sys`,
//!   which requires exactly `libbpf-sys` 1.5.1, and libbpf-rs 0.27, which rxsteer uses to load BPF programs, requires
//!   1.7. cargo links only one of them. Each entry of a ring is a call into C.
//! - `xdp` 0.8 (pure Rust) hands out frames by `&mut Umem`, so to one thread. It shares no UMEM between sockets (its
//!   README), and neither its packets nor its rings are `Send`. It does not read the need-wakeup flag.
//! - `netring` 0.29 has one batch at a time, which borrows the socket. `xdp-socket` 0.1 returns frames only in its own
//!   order.
//!
//! Here several threads hold frames and return them in any order, in lists, without a lock. The rings, which such a crate
//! would provide, are 150 lines (`ring.rs`).

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
