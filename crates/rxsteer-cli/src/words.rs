//! Words for messages, and numbers in options.

pub(crate) use rxsteer_settings::{nearest, suggestion, whole};
pub(crate) use rxsteer_status::figures::plural;

/// Whether a shell reads a name as it is.
pub(crate) fn is_plain(name: &str) -> bool {
    let is_option = name.starts_with('-');
    !is_option && name.chars().all(|c| c.is_ascii_alphanumeric() || "._-:@/".contains(c))
}

#[cfg(test)]
mod tests {
    use super::is_plain;

    #[test]
    fn names_that_a_shell_reads_otherwise_are_not_plain() {
        for name in ["eth0", "eth0.5", "a/b_c-1.pcap", "veth@x"] {
            assert!(is_plain(name), "{name}");
        }
        for name in ["-", "--json", "a b", "a;b", "$a", "a'b", "é"] {
            assert!(!is_plain(name), "{name}");
        }
    }
}
