//! BPF programs that exist for tests: single parts of the in-kernel path, and the whole path with inputs that the test
//! provides.

mod policy;
mod types;
mod verified;

pub use crate::abi::LastPacket;
pub use policy::KernelPolicy;
pub use types::{Decided, RxContext, TestAction, TestDevice, TestRules, TestSizes};
pub use verified::{Verified, verify};

use crate::load::LoadError;
use std::io::Write;

/// Whether `error` means that this process may not load BPF programs (EPERM). A refusal by the verifier is another error
/// (EACCES), though both read "permission denied".
fn is_forbidden(error: &libbpf_rs::Error) -> bool {
    let forbidden = std::io::Error::from_raw_os_error(rustix::io::Errno::PERM.raw_os_error());
    format!("{error:#}").contains(&forbidden.to_string())
}

/// Prints that a test is skipped, and why, in the form that the reports count.
pub fn skipped(test: &str, why: &str) {
    // eprintln! does not work here, since the test runner captures its output.
    let _ = writeln!(std::io::stderr(), "SKIPPED {test}: {why}");
}

/// Returns what was loaded. If this process may not load BPF programs, prints that the test is skipped and returns
/// `None`.
///
/// # Panics
/// When loading failed for another reason.
pub fn loaded<T, E: Into<LoadError>>(test: &str, result: Result<T, E>) -> Option<T> {
    match result.map_err(Into::into) {
        Ok(loaded) => Some(loaded),
        Err(LoadError::Refused(error)) if is_forbidden(&error) => {
            skipped(test, &format!("not allowed to load BPF programs ({error}); run as root"));
            None
        }
        Err(LoadError::Program(refusal)) => {
            let lines: Vec<&str> = refusal.log.lines().collect();
            panic!("{refusal}\n{}", lines[lines.len().saturating_sub(60)..].join("\n"));
        }
        Err(error) => panic!("the kernel refuses the programs: {error:#}"),
    }
}

/// The skeleton of `parse_test.bpf.c`: the parser alone.
#[allow(unsafe_code, missing_docs, unreachable_pub)]
#[allow(clippy::all, clippy::pedantic, clippy::undocumented_unsafe_blocks)]
pub mod parse {
    include!(concat!(env!("OUT_DIR"), "/parse_test.skel.rs"));
}

/// The skeleton of `steer_test.bpf.c`.
#[allow(unsafe_code, missing_docs, unreachable_pub, unused)]
#[allow(clippy::all, clippy::pedantic, clippy::undocumented_unsafe_blocks)]
pub mod steer {
    include!(concat!(env!("OUT_DIR"), "/steer_test.skel.rs"));
}

/// The skeleton of `grace_test.bpf.c`.
#[cfg(test)]
#[allow(unsafe_code, missing_docs, unreachable_pub, unused)]
#[allow(clippy::all, clippy::pedantic, clippy::undocumented_unsafe_blocks)]
pub(crate) mod grace {
    include!(concat!(env!("OUT_DIR"), "/grace_test.skel.rs"));
}
