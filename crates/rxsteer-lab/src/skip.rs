//! The requirements of a live test, and the message that reports what is missing.

use crate::process::folders;
use std::io::Write;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Prints that a test is skipped, and why.
pub fn skipped(test: &str, reason: &str) {
    // eprintln! does not work here, since the test runner captures its output. One write, so that lines of other tests stand
    // before or after it.
    let line = format!("SKIPPED {test}: {reason}\n");
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// Which of root and `programs` is missing, if any is.
pub fn missing(programs: &[&str]) -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("it makes network namespaces, which requires root".to_owned());
    }
    let folders = folders();
    let found = |program: &&&str| folders.iter().any(|folder| folder.join(program).is_file());
    let absent: Vec<&str> = programs.iter().filter(|program| !found(program)).copied().collect();
    (!absent.is_empty()).then(|| format!("not installed here: {}", absent.join(", ")))
}

/// Ensures that only one live test runs at a time, since tests measure, and there are few CPUs.
pub fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    // A failed test leaves nothing that affects the next one.
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The amount of work: `short` in every test run, `full` if `RXSTEER_LIVE=full` is set.
pub fn slice<T>(short: T, full: T) -> T {
    if std::env::var_os("RXSTEER_LIVE").is_some_and(|how| how == "full") { full } else { short }
}
