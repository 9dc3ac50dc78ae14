//! What a live test needs, and saying aloud that it is not there.

use std::io::Write;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Says that a test is skipped, and why.
pub fn skipped(test: &str, reason: &str) {
    // Not eprintln!: the test runner swallows that.
    let _ = writeln!(std::io::stderr(), "SKIPPED {test}: {reason}");
}

/// What is missing of root and of `programs`, if anything.
pub fn missing(programs: &[&str]) -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("it makes network namespaces, which takes root".to_owned());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = |program: &&&str| {
        std::env::split_paths(&path)
            .chain([Path::new("/usr/sbin").to_owned(), Path::new("/sbin").to_owned()])
            .any(|folder| folder.join(program).is_file())
    };
    let absent: Vec<&str> = programs.iter().filter(|program| !found(program)).copied().collect();
    (!absent.is_empty()).then(|| format!("not installed here: {}", absent.join(", ")))
}

/// One live test at a time: they measure, and there are few CPUs.
pub fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    // A test that failed leaves nothing that the next would trip over.
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How much is done: `short` in every test run, `full` when `RXSTEER_LIVE=full` asks for it.
pub fn slice<T>(short: T, full: T) -> T {
    if std::env::var_os("RXSTEER_LIVE").is_some_and(|how| how == "full") { full } else { short }
}
