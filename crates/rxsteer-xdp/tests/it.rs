//! All integration tests, one module per file: one program is quicker to build than many.
#![cfg(feature = "bpf")]

mod checksum;
mod frames;
mod parse;
mod policy;
mod rules;
mod unguarded;
mod verified;

/// Hides what libbpf prints. Only the first call changes the setting, since a test that reads the log of the verifier
/// also changes it for a moment.
fn quiet() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        libbpf_rs::set_print(None);
    });
}
