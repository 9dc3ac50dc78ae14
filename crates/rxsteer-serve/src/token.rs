//! The secret that viewers must present if other hosts can reach the address.

use anyhow::Context;
use rxsteer_user::shown;
use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use subtle::ConstantTimeEq;

/// The fewest characters of a token.
const MIN: usize = 16;
/// The most characters of a token.
const MAX: usize = 256;

/// A secret, which is never printed.
#[derive(Clone)]
pub struct Token(String);

impl fmt::Debug for Token {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Token(…)")
    }
}

impl Token {
    /// Reads the token from a file that only its owner can read.
    ///
    /// # Errors
    /// When the file cannot be read, when others can read it, or when it contains no valid token.
    pub fn read(path: &Path) -> anyhow::Result<Token> {
        let failed = || format!("can't read the token in {}", shown(path));
        let metadata = std::fs::metadata(path).with_context(failed)?;
        anyhow::ensure!(
            metadata.is_file(),
            "{} is not a regular file: name the file with the token",
            shown(path)
        );
        let mode = metadata.mode();
        anyhow::ensure!(
            mode & 0o077 == 0,
            "other users can read the token in {0}; run chmod 600 {0}",
            shown(path)
        );
        let text = std::fs::read_to_string(path).with_context(failed)?;
        Token::new(text.trim()).with_context(|| format!("{} has no token", shown(path)))
    }

    /// The token with this text.
    ///
    /// # Errors
    /// When it is too short, too long, or has characters that a URL or a cookie would have to escape.
    pub fn new(text: &str) -> anyhow::Result<Token> {
        let is_safe = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
        anyhow::ensure!(
            (MIN..=MAX).contains(&text.len()) && text.bytes().all(is_safe),
            "a token has {MIN} to {MAX} letters, digits and -._~; to make one: openssl rand -hex 32"
        );
        Ok(Token(text.to_owned()))
    }

    /// Whether `text` is the token; the comparison takes the same time for all texts of the same length.
    pub(crate) fn is(&self, text: &str) -> bool {
        self.0.as_bytes().ct_eq(text.as_bytes()).into()
    }

    /// The token itself, for the cookie of a viewer that presented it.
    pub(crate) fn secret(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{Permissions, set_permissions, write};
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn token_comes_from_a_private_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        let read = |text: &str, mode| {
            write(&path, text).unwrap();
            set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            Token::read(&path).map_err(|error| format!("{error:#}"))
        };
        let token = read("0123456789abcdef\n", 0o600).unwrap();
        assert!(token.is("0123456789abcdef") && !token.is("0123456789abcdeg") && !token.is(""));
        assert_eq!(format!("{token:?}"), "Token(…)");
        assert!(read("0123456789abcdef", 0o644).unwrap_err().contains("chmod 600"));
        assert!(read("short", 0o600).unwrap_err().contains("16 to 256"));
        assert!(read("0123456789abc;ef", 0o600).unwrap_err().contains("has no token"));
        assert!(Token::read(&dir.path().join("none")).is_err());
        for no_file in [dir.path(), Path::new("/dev/null")] {
            let why = format!("{:#}", Token::read(no_file).unwrap_err());
            assert!(why.contains("is not a regular file") && !why.contains("chmod"), "{why}");
        }
    }
}
