//! Whether the NIC's own hash could be steered by: tried, by loading a program that asks for it.

use rxsteer_host::Finding;
#[cfg(feature = "xdp")]
use rxsteer_xdp::{NicHash, probe_nic_hash};

const TOPIC: &str = "nic_hash";
const WHY: &str = "it would save computing one for each frame";
const FIX: &str = "leave --hash as it is: the symmetric hash is computed";

/// What came of it on the interface with this index. Takes the capabilities that loading takes.
#[cfg(feature = "xdp")]
pub(crate) fn finding(ifindex: u32) -> Finding {
    match probe_nic_hash(ifindex) {
        NicHash::Possible => Finding::note(
            TOPIC,
            "the driver gives its hash, and the kernel would let it be used",
            "rxsteer does not use it yet",
        ),
        NicHash::NoHash(why) => {
            Finding::no(TOPIC, format!("the driver's hash can't be asked for: {why}"), WHY, FIX)
        }
        NicHash::NoRing(why) => Finding::no(
            TOPIC,
            format!("the driver gives its hash, but not to a program that uses a CPUMAP: {why}"),
            WHY,
            FIX,
        ),
    }
}

#[cfg(not(feature = "xdp"))]
pub(crate) fn finding(_ifindex: u32) -> Finding {
    Finding::note(
        TOPIC,
        "whether the NIC's hash can be used was not tried",
        "this build has no BPF programs",
    )
}
