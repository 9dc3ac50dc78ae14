//! From frame bytes to flow hash in one go: what the receive path calls for every frame.

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
    /// The hash NICs compute, for those who want the same numbers. Not symmetric with most
    /// keys, and no secret with the well-known ones.
    Toeplitz(Toeplitz),
}

/// What steering needs to know of one frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HashedFrame {
    /// The hash of its flow; none unless `class` is `Ip`.
    pub hash: FlowHash,
    /// What it is.
    pub class: FrameClass,
    /// As in [`Dissection::transport_truncated`](crate::Dissection::transport_truncated).
    pub transport_truncated: bool,
}

impl Hasher {
    /// The hash of a flow; none for the default key.
    #[must_use]
    pub fn hash(&self, key: &FlowKey) -> FlowHash {
        match self {
            Hasher::Symmetric(hash) => hash.hash(key),
            Hasher::Toeplitz(hash) => hash.hash(key),
        }
    }

    /// The hash of the flow a frame belongs to: that of the key that [`dissect`](crate::dissect())
    /// reads, sooner.
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

    /// The hash of a plain frame.
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

    /// Kept out of line, so that the path of the plain frame stays short where it is inlined.
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
