#![doc = include_str!("../README.md")]
//!
//! # How a frame is read
//!
//! ```text
//!            link.rs          ip.rs                tunnel.rs (only if asked)
//!  frame ──▶ link header ──▶ IP header, chain ──▶ inner packet ──┐
//!            tags, labels     ports                 ▲            │
//!                               │                   └────────────┘
//!                               ▼
//!                            FlowKey ──▶ SymmetricHash or Toeplitz ──▶ FlowHash
//! ```
//!
//! [`dissect()`] reads all properties of a frame. [`Hasher::flow_hash`] reads only those that steering uses, and
//! computes the hash in the same step. Both guarantee:
//!
//! - They never read past the end of the frame, and no input makes them panic.
//! - They allocate nothing, and every walk (tags, labels, extension headers, nested tunnels) has a limit.
//! - A frame that cannot be dissected completely is steered by the part that can: by addresses if the ports cannot
//!   be read, without a hash if the addresses cannot be read.
//! - They agree: the fast path gives the hash of the key that [`dissect()`] returns.
//!
//! # Files
//!
//! - `dissect.rs`: the whole dissector; `fast_path.rs`: the most frequent frames
//! - `ip.rs`: IP and extension headers
//! - `tunnel.rs`: inner packets
//! - `tunnel_id.rs`: numbers of tunnels as keys
//! - `flow_hash.rs`: the hash and its proof
#![deny(unsafe_code)]

mod bytes;
pub mod dissect;
mod facts;
mod fast_path;
pub mod flow_hash;
mod flow_of;
pub mod hasher;
mod ip;
pub mod link;
mod options;
pub mod toeplitz;
mod tunnel;
pub mod tunnel_id;

#[doc(hidden)]
pub use dissect::dissect_by_walk;
pub use dissect::{DissectOptions, Dissection, FrameClass, Malformed, dissect};
pub use facts::facts;
pub use flow_hash::{HashWords, SymmetricHash};
pub use flow_of::{FlowOfFrame, flow_of, vlan};
pub use hasher::{HashedFrame, Hasher};
pub use link::LinkType;
pub use toeplitz::{Toeplitz, ToeplitzError};
pub use tunnel_id::{TunnelId, TunnelKind, TunnelKinds, TunnelKindsError, tunnel_id};
