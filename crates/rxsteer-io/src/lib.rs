//! Sockets that deliver packets without copying them. The kernel writes frames into memory that it shares with the
//! process. The frames are [`Lent`] until they are dropped, by whichever thread drops them last.
//!
//! This is the only crate that maps memory of the kernel. Its interface is safe; `rxsteer-user` makes sources from it.
//!
//! # Files
//!
//! - `lent.rs`: memory that the kernel lends
//! - `packet.rs`, `frames.rs`: packet sockets; `ring.rs`: which blocks are held
//! - `list_sender.rs`, `interface_out.rs`: sending
//! - `sys.rs`: system calls
//! - `xdp/mod.rs`: AF_XDP, and why it uses no crate
//! - `xdp/frames.rs`: where frames are and how they come back
//! - `xdp/ring.rs`, `open.rs`, `receive.rs`, `send.rs`, `queue.rs` (what the last two share), `program.rs`

mod filter;
mod frames;
mod interface_out;
mod lent;
mod list_sender;
pub mod packet;
mod ring;
mod sys;
#[cfg(feature = "xdp")]
pub mod xdp;

pub use interface_out::{PacketSender, Tap};
pub use lent::Lent;
pub use list_sender::ListSender;
