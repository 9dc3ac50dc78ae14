//! The last error of each thread.

use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Why a call failed: a sentence that includes the remedy.
pub(crate) type Error = Box<dyn std::error::Error>;

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// Runs a function of the library: an error or a panic becomes the last error, and the function returns `failed`.
pub(crate) fn guard<T>(failed: T, work: impl FnOnce() -> Result<T, Error>) -> T {
    let message = match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(result)) => return result,
        Ok(Err(error)) => error.to_string(),
        Err(panic) => format!("a bug in rxsteer, please report it: {}", text(&*panic)),
    };
    set(&message);
    failed
}

fn set(message: &str) {
    // Names in messages are escaped, so they contain no NUL; if there is one, it ends the message.
    let bytes = message.bytes().take_while(|byte| *byte != 0).collect::<Vec<u8>>();
    let message = CString::new(bytes).unwrap_or_default();
    // A thread that is ending does not read it any more.
    let _ = LAST.try_with(|last| last.replace(message));
}

/// The last error of this thread; its memory stays until the next one.
pub(crate) fn last() -> *const c_char {
    LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

fn text(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("(no message)")
}
