//! Escapes text from outside (names of files and interfaces, output of other programs) for printing.

use std::borrow::Cow;
use std::fmt::Write;
use std::path::Path;

/// Returns `text` with every control character escaped as in JSON (`\u001b` for ESC). Characters without width and
/// characters that change the direction of the text are escaped, too. So the printed text can't control a terminal, begin
/// a new line or imitate another text.
#[must_use]
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.contains(is_unprintable) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if is_unprintable(c) {
            // Writing to a String does not fail.
            let _ = write!(escaped, "\\u{:04x}", u32::from(c));
        } else {
            escaped.push(c);
        }
    }
    Cow::Owned(escaped)
}

/// Control characters, line separators, direction marks and overrides, and characters without width.
fn is_unprintable(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// A path, escaped for printing.
#[must_use]
pub fn shown(path: &Path) -> String {
    printable(&path.to_string_lossy()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printable_text_has_no_control_character() {
        assert!(matches!(printable("eth0: größer"), Cow::Borrowed("eth0: größer")));
        assert_eq!(
            printable("\x1b[31ma\nb\tc\u{7f}\u{9b}d"),
            r"\u001b[31ma\u000ab\u0009c\u007f\u009bd"
        );
        assert_eq!(printable("a\u{202e}b\u{feff}"), r"a\u202eb\ufeff");
        assert_eq!(shown(Path::new("a\rb.pcap")), r"a\u000db.pcap");
    }
}
