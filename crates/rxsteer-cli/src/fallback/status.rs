//! The part of `rxsteer status` about the kernel's own steering: recorded values that are in effect.

use rxsteer_host::change::{Change, Journal};
use rxsteer_host::{Root, Tree};
use rxsteer_user::printable;
use serde_json::{Value, json};
use std::fmt::Write;

/// A value that rxsteer set, and its present value.
pub(crate) struct Set {
    change: Change,
    now: Option<String>,
}

/// The values that rxsteer set and that differ from the original ones, of `interface` if one is given.
pub(crate) fn recorded(root: &Root, interface: Option<&str>) -> Vec<Set> {
    let is_meant = |change: &Change| {
        let owner = change.owner.as_ref().map(|owner| owner.name.as_str());
        interface.is_none() || owner.is_none() || owner == interface
    };
    let changes = Journal::recorded(root).into_iter().filter(is_meant);
    let sets: Vec<Set> = changes
        .map(|change| Set { now: root.read(&change.path).ok(), change })
        .filter(|set| set.now.as_ref() != Some(&set.change.original))
        .collect();
    // Values of the network core alone do not belong to that interface.
    let of_interface = |set: &Set| interface.is_none() || set.change.owner.is_some();
    if sets.iter().any(of_interface) { sets } else { Vec::new() }
}

/// As lines of text.
pub(crate) fn show(sets: &[Set]) -> String {
    let mut text = "the kernel's own steering, set by rxsteer (host apply, run --fallback or auto); rxsteer host restore \
                    undoes it\n"
        .to_owned();
    for Set { change, now } in sets {
        let (before, set) = (printable(change.original.trim()), printable(change.new.trim()));
        // Writing to a String does not fail.
        let _ = write!(text, "  {}  {before} -> {set}", printable(&change.path));
        let _ = match now {
            Some(now) if *now == change.new => writeln!(text),
            Some(now) => {
                writeln!(text, "; something else has set it to {} since", printable(now.trim()))
            }
            None => writeln!(text, "; it can't be read any more"),
        };
    }
    text
}

/// As JSON.
pub(crate) fn value(sets: &[Set]) -> Value {
    let each = sets.iter().map(|Set { change, now }| {
        json!({
            "path": change.path,
            "interface": change.owner.as_ref().map(|owner| owner.name.clone()),
            "before": change.original.trim(),
            "set": change.new.trim(),
            "now": now.as_deref().map(str::trim),
        })
    });
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "mode": "kernel",
        "values": each.collect::<Vec<_>>(),
    })
}
