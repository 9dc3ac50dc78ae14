//! All integration tests, a module for each file: one program is quicker to build than many.
#![cfg(feature = "bpf")]

mod checksum;
mod frames;
mod parse;
mod policy;
mod rules;
mod unguarded;
mod verified;

/// Leaves out what libbpf prints. Only the first call changes the setting, since a test that reads the log of the verifier changes it
/// for a moment, too.
fn quiet() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        libbpf_rs::set_print(None);
    });
}
