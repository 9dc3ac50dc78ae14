//! Compiles the shim, and with it the headers of the BPF programs, for the host CPU; and generates Rust constants from
//! their numbers.

use std::path::{Path, PathBuf};

fn main() {
    // This is read at run time, not at compile time: another checkout may use the same build script.
    let here = std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets it");
    let headers = Path::new(&here).join("../../crates/rxsteer-xdp/src/bpf");
    println!("cargo:rerun-if-changed=src");
    println!("cargo:rerun-if-changed={}", headers.display());
    let mut build = cc::Build::new();
    build
        .include(&headers)
        .std("gnu11")
        .opt_level(2)
        .warnings(true)
        .extra_warnings(true)
        .warnings_into_errors(true)
        .flag_if_supported("-Wno-unused-parameter");
    write_numbers(&build);
    build.file("src/shim_parse.c").file("src/shim_policy.c").compile("rxsteer_bpf_native");
}

/// Writes the numbers in `src/abi.c` as Rust constants.
fn write_numbers(build: &cc::Build) {
    let folder = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets it"));
    let assembly = folder.join("abi.s");
    let mut command = build.get_compiler().to_command();
    // With link-time optimisation the compiler would not write assembly.
    command.args(["-fno-lto", "-S", "-o"]).arg(&assembly).arg("src/abi.c");
    let status = command.status().expect("the C compiler can be run");
    assert!(status.success(), "src/abi.c could not be compiled; the lines above say why");
    let assembly = std::fs::read_to_string(&assembly).expect("the C compiler wrote it");
    let numbers: String = assembly
        .lines()
        .filter_map(|line| line.trim().strip_prefix(".ascii")?.split_once("->"))
        .filter_map(|(_, number)| number.trim_end_matches('"').split_once(' '))
        .map(|(name, value)| format!("pub const {name}: u32 = {value};\n"))
        .collect();
    std::fs::write(folder.join("abi.rs"), numbers).expect("the build's folder can be written");
}
