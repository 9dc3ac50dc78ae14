//! The flow hash from a frame's bytes, in one step: the receive path calls this for every frame.

use crate::dissect::{DissectOptions, FrameClass, dissect_by_walk};
use crate::fast_path;
use crate::flow_hash::SymmetricHash;
use crate::link::LinkType;
use crate::toeplitz::Toeplitz;
use rxsteer_core::{FlowHash, FlowKey};

/// The flow hash in use.
#[derive(Clone, Debug)]
pub enum Hasher {
    /// The symmetric keyed hash; the default choice.
    Symmetric(SymmetricHash),
    /// The hash that NICs compute, for setups that need the same numbers. With most keys it is not symmetric, and
    /// the well-known keys are not secret.
    Toeplitz(Toeplitz),
}

/// The properties of one frame that steering uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HashedFrame {
    /// The hash of the frame's flow; "no hash" unless `class` is `Ip`.
    pub hash: FlowHash,
    /// The class of the frame.
    pub class: FrameClass,
    /// Same as [`Dissection::transport_truncated`](crate::Dissection::transport_truncated).
    pub transport_truncated: bool,
}

impl Hasher {
    /// The hash of a flow; "no hash" for the default key.
    #[must_use]
    pub fn hash(&self, key: &FlowKey) -> FlowHash {
        match self {
            Hasher::Symmetric(hash) => hash.hash(key),
            Hasher::Toeplitz(hash) => hash.hash(key),
        }
    }

    /// The hash of a frame's flow. It is that of the key that [`dissect`](crate::dissect()) reads, but this is
    /// faster.
    #[inline(always)]
    #[must_use]
    pub fn flow_hash(&self, link: LinkType, frame: &[u8], options: DissectOptions) -> HashedFrame {
        if link == LinkType::Ethernet
            && let Some(hash) = self.fast_path(frame, options)
        {
            return HashedFrame { hash, class: FrameClass::Ip, transport_truncated: false };
        }
        self.any(link, frame, options)
    }

    /// The hash of a fast-path frame.
    #[inline(always)]
    fn fast_path(&self, frame: &[u8], options: DissectOptions) -> Option<FlowHash> {
        if let Some(packet) = fast_path::ipv4(frame, options) {
            return Some(match self {
                Hasher::Symmetric(hash) => hash.ipv4(packet.src, packet.dst, packet.protocol),
                Hasher::Toeplitz(hash) => hash.ipv4(packet.src, packet.dst),
            });
        }
        let packet = fast_path::ipv6(frame, options)?;
        Some(match self {
            Hasher::Symmetric(hash) => hash.ipv6(packet.src, packet.dst, packet.protocol),
            Hasher::Toeplitz(hash) => hash.ipv6(packet.src, packet.dst),
        })
    }

    /// Not inlined, so that the fast path stays short where it is inlined.
    #[cold]
    #[inline(never)]
    fn any(&self, link: LinkType, frame: &[u8], options: DissectOptions) -> HashedFrame {
        let dissection = dissect_by_walk(link, frame, options);
        HashedFrame {
            hash: self.hash(&dissection.key),
            class: dissection.class,
            transport_truncated: dissection.transport_truncated,
        }
    }
}
