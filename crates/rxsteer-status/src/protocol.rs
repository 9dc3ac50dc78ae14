//! The protocol of the control socket: one JSON object per line, a request or its answer.
//!
//! ```text
//! {"do":"status","flows":10,"reset":false}        {"status":{…}}
//! {"do":"set","settings":["policy=rps"]}          {"set":{…}}
//! {"do":"explain","flow":"10.0.0.1:1-10.0.0.2:2/tcp"}   {"explain":{…}}
//! anything else                                   {"error":"what is wrong"}
//! ```

use crate::flow::FlowWhere;
use crate::{SettingsShown, status::Status};
use serde::{Deserialize, Serialize};

/// The longest request, in bytes.
pub const MAX_REQUEST: usize = 64 << 10;
/// The longest answer, in bytes.
pub const MAX_ANSWER: usize = 2 << 20;

/// The most flows that a client can request.
pub const MAX_FLOWS: u32 = 1000;

/// The error that refuses an answer of more than [`MAX_ANSWER`] bytes.
#[must_use]
pub fn too_long() -> String {
    format!("the answer has more than {MAX_ANSWER} bytes; ask for fewer flows")
}

/// A client's request.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// The status of the instance.
    Status {
        /// Flows to list, the largest first.
        #[serde(default)]
        flows: u32,
        /// Whether flow statistics are cleared afterwards.
        #[serde(default)]
        reset: bool,
    },
    /// Changes settings; the answer comes when the change is done.
    Set {
        /// `SETTING=VALUE`.
        settings: Vec<String>,
    },
    /// Where a flow is, and why.
    Explain {
        /// The flow in the syntax of `rxsteer explain`.
        flow: String,
    },
}

/// The answer to a request.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// The status.
    Status(Box<Status>),
    /// A change that is done, or still under way.
    Set(Changed),
    /// Where a flow is.
    Explain(Box<FlowWhere>),
    /// Why there is no other answer.
    Error(String),
}

/// The result of a change.
#[derive(Debug, Serialize, Deserialize)]
pub struct Changed {
    /// Whether everything sent by the old settings is delivered; `false`: frames are still under way.
    pub done: bool,
    /// Whether the new settings are active; `false`: the former settings are still active.
    #[serde(default)]
    pub holds: bool,
    /// The active settings.
    pub settings: Box<SettingsShown>,
}

/// Reads a request.
pub fn request(line: &str) -> Result<Request, String> {
    serde_json::from_str(line).map_err(|error| format!("invalid request: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read_and_mistakes_named() {
        assert_eq!(request(r#"{"do":"status"}"#), Ok(Request::Status { flows: 0, reset: false }));
        let set = Request::Set { settings: vec!["policy=rps".to_owned()] };
        assert_eq!(request(&serde_json::to_string(&set).unwrap()), Ok(set));
        for bad in ["", "x", "{}", r#"{"do":"stop"}"#, r#"{"do":"status","flws":1}"#] {
            assert!(request(bad).unwrap_err().starts_with("invalid request: "), "{bad}");
        }
    }
}
