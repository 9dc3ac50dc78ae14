//! A kernel's version, which determines its features.

use serde::Serialize;
use std::fmt;

/// A kernel's version, to the level at which features change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct KernelVersion {
    /// The 6 of 6.18.
    pub major: u32,
    /// The 18 of 6.18.
    pub minor: u32,
}

impl KernelVersion {
    /// `major.minor`.
    pub const fn new(major: u32, minor: u32) -> KernelVersion {
        KernelVersion { major, minor }
    }

    /// Parses the output of `uname -r`: `6.18.44-something`.
    pub fn of_release(release: &str) -> Option<KernelVersion> {
        let mut parts = release.split('.');
        let major = parts.next()?.parse().ok()?;
        let minor: String = parts.next()?.chars().take_while(char::is_ascii_digit).collect();
        Some(KernelVersion { major, minor: minor.parse().ok()? })
    }
}

impl fmt::Display for KernelVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_read() {
        let version = |text| KernelVersion::of_release(text).map(|version| version.to_string());
        assert_eq!(version("6.18.44-amd64").as_deref(), Some("6.18"));
        assert_eq!(version("5.18-rc3").as_deref(), Some("5.18"));
        assert_eq!(version("6.9").as_deref(), Some("6.9"));
        assert_eq!(version("plan9"), None);
        assert!(KernelVersion::new(6, 2) < KernelVersion::new(6, 15));
    }
}
