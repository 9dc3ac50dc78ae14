//! Arbitrary bytes as an Ethernet frame: the C parser of the in-kernel path must give the same result as
//! rxsteer-packet, in place and by its walk. The first byte determines how much of the frame can be read in place;
//! other bytes follow that part in memory.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rxsteer_bpf_native::Oracle;
use std::sync::LazyLock;

static ORACLE: LazyLock<Oracle> = LazyLock::new(|| Oracle::new([0x5a; 16]));

fuzz_target!(|input: &[u8]| {
    let Some((&linear, frame)) = input.split_first() else { return };
    ORACLE.check_native_in_part(frame, usize::from(linear));
});
