//! The components of the present compiler, and those that rustup can add.

use anyhow::{Context, Result};

use crate::shell;

/// The triple this compiler builds for by default.
pub(crate) fn host() -> Result<String> {
    let stderr = rustc(&["-vV"])?;
    let host = stderr.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("`rustc -vV` names no host; is this rustc?")?.to_owned())
}

/// Ensures that the source of the standard library is installed; the inner error is why it is not.
pub(crate) fn std_source() -> Result<std::result::Result<(), String>> {
    let sysroot = rustc(&["--print", "sysroot"])?;
    let there =
        || std::path::Path::new(&sysroot).join("lib/rustlib/src/rust/library/Cargo.lock").is_file();
    if there() {
        return Ok(Ok(()));
    }
    let mut add = shell::command("rustup");
    add.args(["component", "add", "rust-src"]);
    let complaint = match shell::output(&mut add) {
        Ok(Ok(_)) if there() => return Ok(Ok(())),
        Ok(Ok(_)) => format!("rustup added it, but not to {sysroot}"),
        Ok(Err(complaint)) => {
            let last = complaint.lines().last().unwrap_or("it gave no reason");
            format!("rustup could not add it: {last}")
        }
        Err(_) => "there is no rustup to add it".to_owned(),
    };
    Ok(Err(format!(
        "the source of Rust's standard library (rust-src) is not installed, and {complaint}. \
         Install it by `rustup component add rust-src` and run this again."
    )))
}

fn rustc(args: &[&str]) -> Result<String> {
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    shell::output(shell::command(&rustc).args(args))?
        .map_err(anyhow::Error::msg)
        .with_context(|| format!("`rustc {}` failed", args.join(" ")))
}
