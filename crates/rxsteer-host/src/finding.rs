//! What follows from a fact: fine, worth knowing, or "no", with the reason and the remedy.

use serde::Serialize;

/// How good a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Everything is all right.
    Fine,
    /// Worth knowing: slower, less exact, or unknown.
    Note,
    /// Something is missing, or prevents steering.
    No,
}

/// One thing that was examined, and the result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What was examined, in `snake_case`.
    pub topic: &'static str,
    /// How good it is.
    pub state: State,
    /// Whether `rxsteer run` refuses to start because of it.
    pub blocks: bool,
    /// What was found.
    pub what: String,
    /// Why this matters; may be empty if all is fine.
    pub why: String,
    /// What to do about it.
    pub fix: Option<String>,
}

impl Finding {
    /// Everything is all right.
    pub fn fine(topic: &'static str, what: impl Into<String>) -> Finding {
        let (what, why) = (what.into(), String::new());
        Finding { topic, state: State::Fine, blocks: false, what, why, fix: None }
    }

    /// Worth knowing, but blocks nothing.
    pub fn note(topic: &'static str, what: impl Into<String>, why: impl Into<String>) -> Finding {
        let (what, why) = (what.into(), why.into());
        Finding { topic, state: State::Note, blocks: false, what, why, fix: None }
    }

    /// `rxsteer run` can do less because of it, but runs.
    pub fn no(
        topic: &'static str,
        what: impl Into<String>,
        why: impl Into<String>,
        fix: impl Into<String>,
    ) -> Finding {
        let (what, why, fix) = (what.into(), why.into(), Some(fix.into()));
        Finding { topic, state: State::No, blocks: false, what, why, fix }
    }

    /// `rxsteer run` refuses to start because of it.
    pub fn blocker(
        topic: &'static str,
        what: impl Into<String>,
        why: impl Into<String>,
        fix: impl Into<String>,
    ) -> Finding {
        Finding { blocks: true, ..Finding::no(topic, what, why, fix) }
    }

    /// The topic in words, for a line of text: `kernel_rps` is `kernel rps`.
    #[must_use]
    pub fn subject(&self) -> String {
        self.topic.replace('_', " ")
    }

    /// The same finding with what to do about it.
    #[must_use]
    pub fn fix(self, fix: impl Into<String>) -> Finding {
        Finding { fix: Some(fix.into()), ..self }
    }
}

/// Whether none of `findings` blocks `rxsteer run`.
pub fn can_run<'a>(findings: impl IntoIterator<Item = &'a Finding>) -> bool {
    findings.into_iter().all(|finding| !finding.blocks)
}
