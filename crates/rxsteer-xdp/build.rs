//! Compiles the BPF programs and generates their skeletons.

fn main() {
    println!("cargo:rerun-if-changed=src/bpf");
    // For programs that include steer_kernel.h: dependents see it as DEP_RXSTEER_XDP_INCLUDE.
    println!("cargo:include={}/src/bpf", std::env::var("CARGO_MANIFEST_DIR").unwrap_or_default());
    #[cfg(feature = "bpf")]
    {
        skeleton("steer.bpf.c", "steer.skel.rs", &[]);
        // These objects are only for tests; nothing else loads their programs.
        skeleton("parse_test.bpf.c", "parse_test.skel.rs", &[]);
        skeleton("steer_test.bpf.c", "steer_test.skel.rs", &[]);
        skeleton("grace_test.bpf.c", "grace_test.skel.rs", &[]);
    }
}

/// Generates `name` in the build's output folder from a BPF source.
#[cfg(feature = "bpf")]
fn skeleton(source: &str, name: &str, arguments: &[&str]) {
    use std::{env, path::PathBuf};
    let folder = |variable| PathBuf::from(env::var_os(variable).unwrap_or_default());
    let source = folder("CARGO_MANIFEST_DIR").join("src/bpf").join(source);
    // On some distributions <asm/types.h> is in a folder of the machine's architecture.
    let machine = env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default();
    let include = format!("-I/usr/include/{machine}-linux-gnu");
    // BTF has the names of sources, and builds of the same commit must give the same bytes in any folder.
    let here = format!("-ffile-prefix-map={}=rxsteer-xdp", folder("CARGO_MANIFEST_DIR").display());
    let always =
        ["-mcpu=v3", "-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter", &include, &here];
    let arguments = always.iter().chain(arguments);
    let made = libbpf_cargo::SkeletonBuilder::new()
        .source(&source)
        .clang_args(arguments)
        .build_and_generate(folder("OUT_DIR").join(name));
    if let Err(error) = made {
        println!(
            "cargo::error=The BPF programs could not be compiled: {error:#}. It requires clang 12 or newer and the \
             kernel's headers (Debian: clang, libelf-dev, zlib1g-dev, pkg-config, linux-libc-dev); without them build \
             with --no-default-features, which leaves out `rxsteer run`."
        );
        std::process::exit(1);
    }
}
