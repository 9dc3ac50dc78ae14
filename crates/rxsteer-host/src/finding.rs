//! What follows from a fact: fine, worth knowing, or a "no", with why and what to do.

use serde::Serialize;

/// How good a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// As it should be.
    Fine,
    /// Worth knowing: slower, less exact, or unknown from here.
    Note,
    /// Something is missing or in the way.
    No,
}

/// One thing that was looked at, and what came of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What was looked at, in `snake_case`.
    pub topic: &'static str,
    /// How good it is.
    pub state: State,
    /// Whether `rxsteer run` refuses because of it.
    pub blocks: bool,
    /// What was found.
    pub what: String,
    /// Why that matters; may be empty where all is fine.
    pub why: String,
    /// What to do about it.
    pub fix: Option<String>,
}

impl Finding {
    /// All is as it should be.
    pub fn fine(topic: &'static str, what: impl Into<String>) -> Finding {
        let (what, why) = (what.into(), String::new());
        Finding { topic, state: State::Fine, blocks: false, what, why, fix: None }
    }

    /// Something worth knowing that stops nothing.
    pub fn note(topic: &'static str, what: impl Into<String>, why: impl Into<String>) -> Finding {
        let (what, why) = (what.into(), why.into());
        Finding { topic, state: State::Note, blocks: false, what, why, fix: None }
    }

    /// Something without which `rxsteer run` can do less, but runs.
    pub fn no(
        topic: &'static str,
        what: impl Into<String>,
        why: impl Into<String>,
        fix: impl Into<String>,
    ) -> Finding {
        let (what, why, fix) = (what.into(), why.into(), Some(fix.into()));
        Finding { topic, state: State::No, blocks: false, what, why, fix }
    }

    /// Something because of which `rxsteer run` refuses.
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

    /// The same with what to do about it.
    #[must_use]
    pub fn fix(self, fix: impl Into<String>) -> Finding {
        Finding { fix: Some(fix.into()), ..self }
    }
}

/// Whether nothing among `findings` stops `rxsteer run`.
pub fn can_run<'a>(findings: impl IntoIterator<Item = &'a Finding>) -> bool {
    findings.into_iter().all(|finding| !finding.blocks)
}
