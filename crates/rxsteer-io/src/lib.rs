//! Sockets that deliver packets without copying them. The kernel writes frames into memory that it shares with the
//! process. The frames are [`Lent`] until they are dropped, by whichever thread drops them last.
//!
//! This is the only crate that maps memory of the kernel. Its interface is safe; `rxsteer-user` makes sources from it.

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
