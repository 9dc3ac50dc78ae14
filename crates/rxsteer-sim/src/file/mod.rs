//! Scenario files: TOML text → checked [`Scenario`].
//!
//! ```text
//!  text ──► tree (each value with its line) ◄── --set path=value
//!                      │ read: each key known, each value of its kind      → FileError, with the line
//!                      ▼
//!                  Scenario ──► check: can it be?                          → FileError, with the line
//! ```
//!
//! The tree records for each value whether a line or a `--set` supplied it, so that every message can name its
//! place. It uses neither serde's values nor `toml::Spanned`: their places are ranges of one text, and a value of
//! `--set` has no such range. The path of a [`Problem`] that is found after reading leads back to its line. For a
//! misspelt key the message suggests the nearest valid key. `docs/sim.md` is the reference of the keys; a test
//! compares it with [`TABLES`].

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
use crate::costs::{COSTS, Cost};
use fields::{Fields, Item};
use tree::{Document, Node};

/// The keys at the top level of a file, tables included.
const TOP: Keys = Keys {
    table: "the scenario",
    keys: &[
        "title",
        "duration",
        "warm_up",
        "machine",
        "nic",
        "pause",
        "costs",
        "cost_set",
        // What a calibration measured and the simulator does not use.
        "measured",
        "wire",
        "steering",
        "scheduler",
        "traffic",
        "event",
    ],
};

/// All tables with their keys, except `[steering]`, whose keys are settings ([`rxsteer_settings`]).
pub const TABLES: [Keys; 15] = [
    TOP,
    machine::MACHINE,
    machine::PAUSE,
    machine::NIC,
    machine::COST_KEYS,
    machine::SET,
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

/// Reads the text of a scenario file and checks it. Errors use `name` as the file's name.
///
/// `sets` are values that replace those of the file: the path of a key and its value as text, e.g.
/// `("traffic.0.flows", "8")`, `("steering.policy", "sparse")`. A path refers to an item of a list by its number
/// from 0 or by its `name`. A value is read as TOML, or as a string if it is not valid TOML.
///
/// # Errors
/// [`FileError`], with the line or the `--set` that is invalid.
pub fn read(text: &str, name: &str, sets: &[(String, String)]) -> Result<Scenario, FileError> {
    let mut document = Document::parse(text, name)?;
    for (path, value) in sets {
        set::apply(&mut document, path, value)?;
    }
    let scenario = scenario(&document)?;
    scenario.check().map_err(|problem| impossible(&document, problem))?;
    Ok(scenario)
}

/// Where the value of a cost comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CostFrom {
    /// The file leaves it to the default.
    Default,
    /// The file sets it.
    File,
    /// A value that replaces that of the file.
    Set,
}

/// All costs with their origins. The arguments are those of [`read`].
///
/// # Errors
/// As [`read`], if the text is not TOML or a path of `sets` does not exist.
pub fn costs_from(
    text: &str,
    name: &str,
    sets: &[(String, String)],
) -> Result<Vec<(&'static Cost, CostFrom)>, FileError> {
    let mut document = Document::parse(text, name)?;
    for (path, value) in sets {
        set::apply(&mut document, path, value)?;
    }
    let costs = document.root.step("costs");
    let set = costs.and_then(|costs| match &costs.step("set")?.value {
        tree::Value::Text(name) => document.root.step("cost_set")?.step(name),
        _ => None,
    });
    let of = |cost: &Cost| match [set, costs].iter().flatten().find_map(|it| it.step(cost.key)) {
        None => CostFrom::Default,
        Some(node) if matches!(node.origin, tree::Origin::Line(_)) => CostFrom::File,
        Some(_) => CostFrom::Set,
    };
    Ok(COSTS.iter().map(|cost| (cost, of(cost))).collect())
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
        // The first packets find cold tables and small windows; a tenth of the run is a common warm-up.
        warm_up_ns: top.or("warm_up", duration_ns / 10, Item::time_ns)?,
        smt_speed: machine::smt_speed(&top)?,
        pauses: machine::pauses(&top)?,
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

/// The error for a problem, with the line of its key, or of the nearest enclosing value.
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
