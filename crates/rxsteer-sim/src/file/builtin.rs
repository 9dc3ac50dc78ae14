//! The built-in scenarios: `scenarios/*.toml`.

use super::{FileError, read};
use crate::Scenario;

/// A built-in scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Builtin {
    /// The name: that of its file without `.toml`.
    pub name: &'static str,
    /// The text of the file.
    pub text: &'static str,
}

macro_rules! builtin {
    ($($name:literal),*) => {
        [$(Builtin {
            name: $name,
            text: include_str!(concat!("../../scenarios/", $name, ".toml")),
        }),*]
    };
}

const ALL: [Builtin; 6] = builtin![
    "router-4-slow-cores",
    "router-one-queue",
    "web-server-64",
    "rpc-8",
    "collector-hand-off",
    "irq-spread"
];

/// All built-in scenarios.
#[must_use]
pub fn builtin() -> &'static [Builtin] {
    &ALL
}

/// The built-in scenario with this name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Builtin> {
    ALL.iter().find(|builtin| builtin.name == name)
}

impl Builtin {
    /// Reads the scenario, with `sets` instead of its own values.
    ///
    /// # Errors
    /// [`FileError`] when `sets` are invalid. Without any, it cannot fail.
    pub fn scenario(&self, sets: &[(String, String)]) -> Result<Scenario, FileError> {
        read(self.text, self.name, sets)
    }

    /// The title of the scenario, in one line.
    #[must_use]
    pub fn title(&self) -> String {
        self.scenario(&[]).map(|scenario| scenario.title).unwrap_or_default()
    }
}
