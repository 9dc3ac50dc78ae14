//! Values that replace those of the file: `--set traffic.0.flows=8`.

use super::error::{FileError, Place};
use super::tree::{Document, Node, Origin, Value, position, same_key};
use std::collections::BTreeMap;
use toml::de::DeTable;

/// The length of the longest path; no key has a longer one.
const MAX_STEPS: usize = 8;

/// Sets the value at a path. Missing tables are created, missing items of lists are not.
pub(super) fn apply(document: &mut Document, path: &str, value: &str) -> Result<(), FileError> {
    let place = Place::Set { path: path.to_string(), value: value.to_string() };
    let origin = Origin::Set(document.sets.len());
    document.sets.push(place.clone());
    let steps: Vec<&str> = path.split('.').collect();
    if steps.len() > MAX_STEPS || steps.iter().any(|step| step.is_empty()) {
        let what =
            "that is not the path of a key; write e.g. steering.policy=rps or traffic.0.flows=8";
        return Err(FileError::Syntax { place, what: what.to_string() });
    }
    let node = find(&mut document.root, &steps, origin).map_err(|what| FileError::Value {
        place,
        path: path.to_string(),
        what,
    })?;
    *node = Node { origin, value: read_value(value, origin) };
    Ok(())
}

/// The value at `steps`.
fn find<'a>(root: &'a mut Node, steps: &[&str], origin: Origin) -> Result<&'a mut Node, String> {
    let mut node = root;
    for (depth, step) in steps.iter().enumerate() {
        let before = || steps[..depth].join(".");
        node = match &mut node.value {
            Value::Table(entries) => entries
                .entry(same_key(entries, step).unwrap_or(step).to_string())
                .or_insert_with(|| Node { origin, value: Value::Table(BTreeMap::new()) }),
            Value::List(items) => match position(items, step) {
                Some(index) => &mut items[index],
                None => return Err(no_item(items, &before(), step)),
            },
            _ => {
                return Err(format!("'{}' is a value and holds no key '{step}'", before()));
            }
        };
    }
    Ok(node)
}

fn no_item(items: &[Node], list: &str, step: &str) -> String {
    let last = items.len().saturating_sub(1);
    let names: Vec<String> =
        items.iter().filter_map(|item| item.step("name")).map(Node::shown).collect();
    let names =
        if names.is_empty() { String::new() } else { format!(", called {}", names.join(", ")) };
    format!("there is no {list} '{step}': they are 0 to {last}{names}")
}

/// A value as TOML, or as text if it is not valid TOML: `20s`, `sparse` and `0-3` need no quotes.
fn read_value(text: &str, origin: Origin) -> Value {
    let line = format!("value = {text}");
    let parsed = DeTable::parse(&line).ok();
    // A line break in the text could add other keys; then the value is text.
    let only = parsed.as_ref().filter(|table| table.get_ref().len() == 1);
    match only.and_then(|table| table.get_ref().get("value")) {
        Some(value) => super::tree::value(value.get_ref(), &|_| origin),
        None => Value::Text(text.to_string()),
    }
}
