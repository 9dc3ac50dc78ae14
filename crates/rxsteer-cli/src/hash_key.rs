//! `--hash` and `--hash-seed`: selects the flow hash and its key.

use rxsteer_user::packet::{Hasher, SymmetricHash, Toeplitz};
use std::str::FromStr;

/// Which flow hash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HashChoice {
    /// The symmetric keyed hash.
    Symmetric,
    /// Toeplitz, as NICs compute it; with a key, or the well-known one.
    Toeplitz(Option<Vec<u8>>),
}

impl HashChoice {
    /// The words with which the value can begin.
    pub(crate) const NAMES: [&str; 2] = ["symmetric", "toeplitz"];
}

impl FromStr for HashChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once(':') {
            None if text == "symmetric" => Ok(HashChoice::Symmetric),
            None if text == "toeplitz" => Ok(HashChoice::Toeplitz(None)),
            Some(("toeplitz", key)) => {
                let bytes = hex_bytes(key).ok_or_else(|| {
                    format!("'{key}' is not a key; write hex bytes like 6d5a56da… or 6d:5a:56:da:…")
                })?;
                Toeplitz::new(&bytes).map_err(|error| error.to_string())?;
                Ok(HashChoice::Toeplitz(Some(bytes)))
            }
            _ => {
                let word = text.split(':').next().unwrap_or(text);
                let hint = crate::words::suggestion(word, &HashChoice::NAMES);
                Err(format!("there is no hash '{text}'{hint}"))
            }
        }
    }
}

fn hex_bytes(text: &str) -> Option<Vec<u8>> {
    let digits: String = text.chars().filter(|c| *c != ':').collect();
    if !digits.is_ascii() || !digits.len().is_multiple_of(2) {
        return None;
    }
    (0..digits.len()).step_by(2).map(|i| u8::from_str_radix(&digits[i..i + 2], 16).ok()).collect()
}

/// The secret of the symmetric hash: 128 bits, as hex digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HashSeed(pub(crate) u128);

impl FromStr for HashSeed {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let digits = text.strip_prefix("0x").unwrap_or(text);
        if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err("expected up to 32 hex digits, e.g. 2a".to_owned());
        }
        u128::from_str_radix(digits, 16)
            .map(HashSeed)
            .map_err(|_| "expected at most 32 hex digits (128 bits)".to_owned())
    }
}

impl HashChoice {
    /// The name in reports.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            HashChoice::Symmetric => "symmetric",
            HashChoice::Toeplitz(None) => "toeplitz",
            HashChoice::Toeplitz(Some(_)) => "toeplitz with the given key",
        }
    }

    /// The hash, and its secret if it has one, which is shown so that a run can be repeated.
    pub(crate) fn hasher(&self, seed: Option<HashSeed>) -> (Hasher, Option<HashSeed>) {
        match self {
            HashChoice::Symmetric => {
                let seed = seed.unwrap_or_else(random_seed);
                let secret = seed.0.to_be_bytes();
                (Hasher::Symmetric(SymmetricHash::new(secret)), Some(seed))
            }
            HashChoice::Toeplitz(key) => {
                // The key was checked when it was read.
                let toeplitz = key.as_deref().and_then(|key| Toeplitz::new(key).ok());
                (Hasher::Toeplitz(toeplitz.unwrap_or_default()), None)
            }
        }
    }
}

pub(crate) fn random_seed() -> HashSeed {
    HashSeed(rand::random())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_and_keys_are_read() {
        assert_eq!("symmetric".parse(), Ok(HashChoice::Symmetric));
        assert_eq!("toeplitz".parse(), Ok(HashChoice::Toeplitz(None)));
        let key = "6d:5a:".repeat(20);
        let key = key.trim_end_matches(':');
        let bytes = [0x6d, 0x5a].repeat(20);
        assert_eq!(format!("toeplitz:{key}").parse(), Ok(HashChoice::Toeplitz(Some(bytes))));
        for bad in ["toplitz", "toeplitz:6d", "toeplitz:6", "toeplitz:xx", "symmetric:1", ""] {
            assert!(bad.parse::<HashChoice>().is_err(), "{bad}");
        }
    }

    #[test]
    fn seeds_are_hex() {
        assert_eq!("0x2A".parse(), Ok(HashSeed(42)));
        for bad in ["", "0x", "g", "+1", &"1".repeat(33)] {
            assert!(bad.parse::<HashSeed>().is_err(), "{bad}");
        }
    }
}
