//! Compiles the shim, and with it the headers of the BPF programs, for this machine.

use std::path::Path;

fn main() {
    // Asked now, not when this was compiled: a build script may be used by another checkout.
    let here = std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets it");
    let headers = Path::new(&here).join("../../crates/rxsteer-xdp/src/bpf");
    println!("cargo:rerun-if-changed=src");
    println!("cargo:rerun-if-changed={}", headers.display());
    cc::Build::new()
        .file("src/shim_parse.c")
        .file("src/shim_policy.c")
        .include(&headers)
        .std("gnu11")
        .opt_level(2)
        .warnings(true)
        .extra_warnings(true)
        .warnings_into_errors(true)
        .flag_if_supported("-Wno-unused-parameter")
        .compile("rxsteer_bpf_native");
}
