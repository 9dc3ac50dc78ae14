//! What the user sees.

pub(crate) mod json;
pub(crate) mod table;

use anyhow::Context;
use std::io::Write;

/// Prints to standard output. Where that is closed, whoever read it has seen enough
/// (`rxsteer … | head`), and nothing is said.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        result => result.context("can't write the result to standard output"),
    }
}

/// Says something beside the result, on standard error.
pub(crate) fn note(text: &str) {
    // Nobody can be told that standard error is closed.
    let _ = writeln!(std::io::stderr(), "{text}");
}
