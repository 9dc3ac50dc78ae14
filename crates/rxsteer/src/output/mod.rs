//! What the user sees.

pub(crate) mod json;
pub(crate) mod table;

use anyhow::Context;
use std::io::Write;

/// Prints to standard output; a closed one is an error the caller ends quietly on.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .context("can't write the result to standard output")
}

/// Says something beside the result, on standard error.
pub(crate) fn note(text: &str) {
    // Nobody can be told that standard error is closed.
    let _ = writeln!(std::io::stderr(), "{text}");
}
