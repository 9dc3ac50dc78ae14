//! Words of messages, and numbers of options.

pub(crate) use rxsteer_settings::whole;
pub(crate) use rxsteer_settings::{nearest, suggestion};

/// `1 CPU`, `2 CPUs`.
pub(crate) fn plural(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}
