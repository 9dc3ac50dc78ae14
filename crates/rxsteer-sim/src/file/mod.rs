//! Scenario files: TOML text → checked [`Scenario`].
//!
//! ```text
//!  text ──► tree (each value with its line) ◄── --set path=value
//!                      │ read: each key known, each value of its kind      → FileError, with the line
//!                      ▼
//!                  Scenario ──► check: can it be?                          → FileError, with the line
//! ```
//!
//! The tree remembers for each value whether a line or a `--set` gave it, so that every message says where to
//! look. A misspelt key names the nearest right one. `docs/sim.md` is the reference of the keys; a test holds
//! it to [`TABLES`].

pub mod builtin;
mod error;
mod events;
mod fields;
mod machine;
mod set;
mod settings;
mod traffic;
mod tree;
mod units;

pub use error::{FileError, Place};
pub use fields::Keys;

use crate::Scenario;
use crate::check::Problem;
use crate::scenario::Steering;
use fields::{Fields, Item};
use tree::{Document, Node};

/// The keys at the top of a file, tables included.
const TOP: Keys = Keys {
    table: "the scenario",
    keys: &[
        "title",
        "duration",
        "warm_up",
        "machine",
        "nic",
        "costs",
        "wire",
        "steering",
        "scheduler",
        "traffic",
        "event",
    ],
};

/// All tables with their keys, as far as keys are words (those of `steering.maps` are numbers).
pub const TABLES: [Keys; 14] = [
    TOP,
    machine::MACHINE,
    machine::NIC,
    machine::COST_KEYS,
    machine::WIRE,
    settings::STEERING,
    settings::SCHEDULER,
    traffic::COMMON,
    traffic::STREAM,
    traffic::CONSTANT,
    traffic::REQUESTS,
    events::EVENT,
    events::SPEED,
    events::BURST,
];

/// Reads the text of a scenario file, which errors call `name`, and checks what it says.
///
/// `sets` are values in place of the file's: the path of a key and its value as text, e.g.
/// `("traffic.0.flows", "8")`, `("steering.policy", "sparse")`. A path names an item of a list
/// by its number from 0 or by its `name`. A value is read as TOML, or, where it is none, as a string.
///
/// # Errors
/// [`FileError`], with the line or the `--set` that is wrong.
pub fn read(text: &str, name: &str, sets: &[(String, String)]) -> Result<Scenario, FileError> {
    let mut document = Document::parse(text, name)?;
    for (path, value) in sets {
        set::apply(&mut document, path, value)?;
    }
    let scenario = scenario(&document)?;
    scenario.check().map_err(|problem| impossible(&document, problem))?;
    Ok(scenario)
}

/// Applies a change of steering: keys of `[steering]` with their values, separated by blanks, e.g.
/// `policy=sparse:loops=2 cpus=0-3`. What it doesn't name stays as it was.
///
/// Whether the settings fit a machine is not checked here, but by [`Scenario::check`].
///
/// # Errors
/// [`FileError`], with the word that is wrong.
pub fn change_steering(before: &Steering, text: &str) -> Result<Steering, FileError> {
    let mut document = Document::empty("the change of steering");
    for word in text.split_whitespace() {
        let (key, value) = word.split_once('=').ok_or_else(|| FileError::Syntax {
            place: Place::Change(word.to_string()),
            what: "it has no value; write KEY=VALUE, e.g. policy=rps".to_string(),
        })?;
        set::apply_as(&mut document, key, value, Place::Change(word.to_string()))?;
    }
    settings::changed(&Item::root(&document), before)
}

fn scenario(document: &Document) -> Result<Scenario, FileError> {
    let top = Fields::open(&Item::root(document), TOP.table, &[&TOP])?;
    let duration_ns = top.needed("duration", "how long it lasts, e.g. \"10s\"", Item::time_ns)?;
    let cpus = machine::cpus(&top)?;
    let nics = machine::nics(&top)?;
    let steering = settings::steering(&top, cpus.len())?;
    let traffic = traffic::read(&top, &nics)?;
    Ok(Scenario {
        title: top.or("title", document.name.clone(), |item| item.text().map(str::to_string))?,
        duration_ns,
        // The first packets find cold tables and small windows; a tenth is what people leave out.
        warm_up_ns: top.or("warm_up", duration_ns / 10, Item::time_ns)?,
        smt_speed: machine::smt_speed(&top)?,
        costs: machine::costs(&top)?,
        wire_ns: machine::wire_ns(&top)?,
        scheduler: settings::scheduler(&top, cpus.len())?,
        events: events::read(&top, &steering, &traffic)?,
        cpus,
        nics,
        steering,
        traffic,
    })
}

/// The line that goes with a problem: that of the key it names, or of what is nearest round it.
fn impossible(document: &Document, problem: Problem) -> FileError {
    let mut node: &Node = &document.root;
    for step in problem.path.split('.') {
        match node.step(step) {
            Some(inner) => node = inner,
            None => break,
        }
    }
    let place = document.place(node.origin);
    FileError::Impossible { place, path: problem.path, what: problem.what }
}

#[cfg(test)]
mod tests;
