//! Words of messages, and numbers of options.

pub(crate) use rxsteer_settings::{nearest, suggestion, whole};
pub(crate) use rxsteer_status::figures::plural;
