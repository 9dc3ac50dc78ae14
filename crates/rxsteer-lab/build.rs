//! Compiles the BPF programs, and puts them where the library includes them from.

fn main() {
    println!("cargo:rerun-if-changed=src/bpf");
    #[cfg(feature = "bpf")]
    println!("cargo:rerun-if-changed={}/steer_kernel.h", kernel());
    #[cfg(feature = "bpf")]
    for program in ["delay", "fixed", "live", "order"] {
        compile(program);
    }
    #[cfg(feature = "bpf")]
    write_numbers();
}

/// The folder with the declarations of kernel structures, for all BPF programs of the workspace: the build of
/// rxsteer-xdp names it.
#[cfg(feature = "bpf")]
fn kernel() -> String {
    std::env::var("DEP_RXSTEER_XDP_INCLUDE").expect("the build of rxsteer-xdp names its folder")
}

/// Generates Rust constants from `enum lab_numbers`, which is in the type information of one of the objects.
#[cfg(feature = "bpf")]
fn write_numbers() {
    use libbpf_rs::btf::{Btf, types::Enum};
    use std::{env, path::PathBuf};
    let folder = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    let btf = Btf::from_path(folder.join("live.o")).expect("clang wrote it");
    let numbers: Enum<'_> =
        btf.type_by_name("lab_numbers").expect("live.bpf.c has a variable of it");
    let numbers: String = numbers
        .iter()
        .filter_map(|number| Some((number.name?.to_str()?, number.value)))
        .map(|(name, value)| format!("pub(crate) const {name}: u32 = {value};\n"))
        .collect();
    std::fs::write(folder.join("numbers.rs"), numbers).expect("the build's folder can be written");
}

/// Compiles `src/bpf/PROGRAM.bpf.c` to `PROGRAM.o` in the build's output folder. It generates no skeleton, since a
/// skeleton has unsafe Rust code, and the lab has none.
#[cfg(feature = "bpf")]
fn compile(program: &str) {
    use std::{env, path::PathBuf};
    let folder = |variable| PathBuf::from(env::var_os(variable).unwrap_or_default());
    let source = folder("CARGO_MANIFEST_DIR").join(format!("src/bpf/{program}.bpf.c"));
    // On some distributions <asm/types.h> is in a folder of the machine's architecture.
    let machine = env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default();
    let include = format!("-I/usr/include/{machine}-linux-gnu");
    let kernel = format!("-I{}", kernel());
    // BTF has the names of sources, and the same commit is to give the same bytes wherever it is built.
    let here = format!("-ffile-prefix-map={}=rxsteer-lab", folder("CARGO_MANIFEST_DIR").display());
    let always = ["-mcpu=v3", "-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter"];
    let made = libbpf_cargo::SkeletonBuilder::new()
        .source(&source)
        .clang_args(always.into_iter().chain([&*include, &kernel, &here]))
        .obj(folder("OUT_DIR").join(format!("{program}.o")))
        .build();
    if let Err(error) = made {
        println!(
            "cargo::error=The BPF programs of the lab could not be compiled: {error:#}. It takes \
             clang 12 or newer and the kernel's headers (Debian: clang, libelf-dev, zlib1g-dev, \
             pkg-config, linux-libc-dev); without them build with --no-default-features."
        );
        std::process::exit(1);
    }
}
