//! Names the shared library for the dynamic linker. The number goes up when programs have to be compiled again.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,librxsteer.so.0");
}
