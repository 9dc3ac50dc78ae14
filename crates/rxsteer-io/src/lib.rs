//! Sockets that give packets without copying them: the kernel writes frames into memory that it shares with the
//! process, and what it wrote is [`Lent`] until it is dropped, by whatever thread drops it last.
//!
//! This is the only crate that maps memory of the kernel. What it hands out is safe to use; `rxsteer-user` makes
//! sources of it.

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
