//! The scenarios that come with the program: `scenarios/*.toml`.

use super::{FileError, read};
use crate::Scenario;

/// A scenario that comes with the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Builtin {
    /// What it is called: its file's name without `.toml`.
    pub name: &'static str,
    /// Its file's text.
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

/// All of them.
#[must_use]
pub fn builtin() -> &'static [Builtin] {
    &ALL
}

/// The one of that name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Builtin> {
    ALL.iter().find(|builtin| builtin.name == name)
}

impl Builtin {
    /// Reads it, with values in place of its own.
    ///
    /// # Errors
    /// [`FileError`], when `sets` are wrong; without any it reads.
    pub fn scenario(&self, sets: &[(String, String)]) -> Result<Scenario, FileError> {
        read(self.text, self.name, sets)
    }

    /// What it shows, in a line.
    #[must_use]
    pub fn title(&self) -> String {
        self.scenario(&[]).map(|scenario| scenario.title).unwrap_or_default()
    }
}
