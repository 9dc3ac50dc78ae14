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
//! look. It is neither serde's nor `toml::Spanned` values: those are ranges of one text, where a value of `--set`
//! has none, and a [`Problem`] that is found after reading is led back to its line by its path. A misspelt key names the nearest right one. `docs/sim.md` is the reference of the keys; a test holds
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

/// All tables with their keys, but for `[steering]`, whose keys are settings ([`rxsteer_settings`]).
pub const TABLES: [Keys; 13] = [
    TOP,
    machine::MACHINE,
    machine::NIC,
    machine::COST_KEYS,
    machine::WIRE,
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
