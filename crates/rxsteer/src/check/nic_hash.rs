//! Whether the NIC's own hash could be steered by: no, on any kernel that is known.
//!
//! It isn't tried. To ask the driver for its hash a program has to be bound to the device, and the kernel keeps a
//! note of the program's first copy. When the verifier makes the program larger by a page (`bpf_prog_realloc`), or
//! hides its constants (`net.core.bpf_jit_harden`), the copy is freed and the note stays: then removing the
//! interface reads freed memory in `__bpf_prog_offload_destroy`, with the lock of all interfaces held. That was
//! seen on Linux 6.18, and follows from its source. A `check` must not come near it.

use rxsteer_host::Finding;

const TOPIC: &str = "nic_hash";

/// What stands in every report.
pub(crate) fn finding() -> Finding {
    Finding::note(
        TOPIC,
        "frames are steered by a hash that is computed, not by the NIC's own",
        "the programs that ask a driver for its hash can crash kernels when their interface is deleted (that was seen \
         on Linux 6.18), so --hash nic is refused",
    )
}
