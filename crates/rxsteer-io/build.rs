//! Compiles the BPF program of AF_XDP sockets and makes its skeleton.

fn main() {
    println!("cargo:rerun-if-changed=src/bpf");
    #[cfg(feature = "xdp")]
    skeleton();
}

#[cfg(feature = "xdp")]
fn skeleton() {
    use std::{env, path::PathBuf};
    let folder = |variable| PathBuf::from(env::var_os(variable).unwrap_or_default());
    // In some distributions, the headers of <asm/types.h> are in an architecture-specific folder.
    let machine = env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default();
    let include = format!("-I/usr/include/{machine}-linux-gnu");
    // BTF contains the names of sources. The same commit must give the same bytes in every build folder.
    let here = format!("-ffile-prefix-map={}=rxsteer-io", folder("CARGO_MANIFEST_DIR").display());
    let made = libbpf_cargo::SkeletonBuilder::new()
        .source(folder("CARGO_MANIFEST_DIR").join("src/bpf/sockets.bpf.c"))
        .clang_args(["-mcpu=v3", "-Wall", "-Wextra", "-Werror", &include, &here])
        .build_and_generate(folder("OUT_DIR").join("sockets.skel.rs"));
    if let Err(error) = made {
        println!(
            "cargo::error=The BPF program could not be compiled: {error:#}. It requires clang 12 or newer and the kernel's \
             headers (Debian: clang, libelf-dev, zlib1g-dev, pkg-config, linux-libc-dev); without them build with \
             --no-default-features, which leaves out AF_XDP."
        );
        std::process::exit(1);
    }
}
