//! The output for the user.

pub(crate) mod json;
pub(crate) mod table;

pub(crate) use rxsteer_report::lines;

use anyhow::Context;
use rxsteer_user::printable;
use std::borrow::Cow;
use std::io::Write;

/// Prints to standard output, without control characters except line ends and tabs. If the reader has closed it
/// (`rxsteer … | head`), nothing is reported.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    print_more(text).map(|_| ())
}

/// The same if more output follows; returns whether it is still read.
pub(crate) fn print_more(text: &str) -> anyhow::Result<bool> {
    let mut out = std::io::stdout().lock();
    match out.write_all(printable_lines(text).as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(error).context("can't write the result to standard output"),
    }
}

/// Prints a remark on standard error, without control characters except line ends and tabs.
pub(crate) fn note(text: &str) {
    // There is no way to report that standard error is closed.
    let _ = writeln!(std::io::stderr(), "{}", printable_lines(text));
}

/// Several lines with escaped control characters. Names must be escaped before they become part of a line, since they
/// can contain line ends. JSON is unchanged.
fn printable_lines(text: &str) -> Cow<'_, str> {
    const LAYOUT: [char; 2] = ['\n', '\t'];
    if !text.contains(|c: char| c.is_control() && !LAYOUT.contains(&c)) {
        return Cow::Borrowed(text);
    }
    let mut lines = String::with_capacity(text.len() + 8);
    for piece in text.split_inclusive(LAYOUT) {
        let words = piece.trim_end_matches(LAYOUT);
        lines.push_str(&printable(words));
        lines.push_str(&piece[words.len()..]);
    }
    lines.into()
}

/// An error with its causes. Some errors already contain the text of their cause, which is not repeated.
pub(crate) fn error_text(error: &anyhow::Error) -> String {
    let mut text = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !text.contains(&cause) {
            text.push_str(": ");
            text.push_str(&cause);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use rxsteer_user::PipelineError;

    #[test]
    fn printed_lines_have_no_other_control_characters() {
        assert_eq!(printable_lines("a:\t\x1b]0;x\x07\n\n b"), "a:\t\\u001b]0;x\\u0007\n\n b");
        let json = serde_json::json!({ "file": "\x1b\u{9b}\n\u{7f}" });
        let text = printable_lines(&format!("{json:#}\n")).into_owned();
        assert!(!text.trim_end().contains(|c: char| c.is_control() && c != '\n'), "{text}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), json);
    }

    #[test]
    fn causes_are_shown_once() {
        let system = || std::io::Error::from_raw_os_error(11);
        let error = anyhow::Error::new(PipelineError::Thread(system()));
        assert_eq!(error_text(&error).matches("os error 11").count(), 1, "{}", error_text(&error));
        let error = anyhow::Error::new(system()).context("can't write");
        assert!(
            error_text(&error).starts_with("can't write: ")
                && error_text(&error).contains("os error 11")
        );
    }
}
