//! BPF programs that exist for tests: parts of the in-kernel path by themselves.

/// The skeleton of `parse_test.bpf.c`: the parser alone.
#[allow(unsafe_code, missing_docs, unreachable_pub)]
#[allow(clippy::all, clippy::pedantic, clippy::undocumented_unsafe_blocks)]
pub mod parse {
    include!(concat!(env!("OUT_DIR"), "/parse_test.skel.rs"));
}

/// The skeleton of `steer.bpf.c` as tests have it: time, CPU, queue and interface are read from
/// `steer_test`, which also says what was decided.
#[allow(
    unsafe_code,
    missing_docs,
    unreachable_pub,
    clippy::all,
    clippy::pedantic,
    clippy::undocumented_unsafe_blocks
)]
pub mod steer {
    include!(concat!(env!("OUT_DIR"), "/steer_test.skel.rs"));
}
