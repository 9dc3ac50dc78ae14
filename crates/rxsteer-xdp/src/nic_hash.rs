//! Whether the NIC's own hash can be had on a host, by trying: a program that asks the driver for it is
//! bound to the device, and some kernels don't let such a program redirect into a CPUMAP.

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use std::mem::MaybeUninit;

#[allow(
    unsafe_code,
    missing_docs,
    unreachable_pub,
    unused,
    clippy::all,
    clippy::pedantic,
    clippy::undocumented_unsafe_blocks
)]
mod skeleton {
    include!(concat!(env!("OUT_DIR"), "/nic_probe.skel.rs"));
}

/// What a trial load found out about `--hash nic` on an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NicHash {
    /// The kernel takes a program that reads the driver's hash and redirects into a CPUMAP.
    Possible,
    /// The driver has no hash to give, or the kernel is too old to ask (before 6.3); holds its words.
    NoHash(String),
    /// The driver has one, but the kernel refuses the program because of the CPUMAP.
    NoRing(String),
}

/// Tries it, in the network namespace this thread is in. Nothing is attached. Needs capabilities.
#[must_use]
pub fn probe_nic_hash(ifindex: u32) -> NicHash {
    match (load(ifindex, false), load(ifindex, true)) {
        (Err(why), _) => NicHash::NoHash(why),
        (Ok(()), Err(why)) => NicHash::NoRing(why),
        (Ok(()), Ok(())) => NicHash::Possible,
    }
}

/// `BPF_F_XDP_DEV_BOUND_ONLY`: bound to a device, run by the kernel.
const DEV_BOUND_ONLY: u32 = 1 << 6;
/// `BPF_F_XDP_HAS_FRAGS`.
const HAS_FRAGS: u32 = 1 << 5;

fn load(ifindex: u32, with_ring: bool) -> Result<(), String> {
    let mut storage = MaybeUninit::uninit();
    let words = |error: libbpf_rs::Error| format!("{error}");
    let mut open = skeleton::NicProbeSkelBuilder::default().open(&mut storage).map_err(words)?;
    let (wanted, other) = if with_ring {
        (&mut open.progs.probe_hash_and_ring, &mut open.progs.probe_hash)
    } else {
        (&mut open.progs.probe_hash, &mut open.progs.probe_hash_and_ring)
    };
    other.set_autoload(false);
    wanted.set_ifindex(ifindex);
    wanted.set_flags(DEV_BOUND_ONLY | HAS_FRAGS);
    open.load().map(drop).map_err(words)
}
