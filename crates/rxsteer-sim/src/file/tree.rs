//! A file as a tree of values with their origins.

use super::error::{FileError, Place};
use std::collections::BTreeMap;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The origin of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Origin {
    /// A line of the file, from 1.
    Line(usize),
    /// The index of a `--set`.
    Set(usize),
}

/// A value and its origin; for an entry of a table, the origin of its key.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) origin: Origin,
    pub(super) value: Value,
}

/// A TOML value.
#[derive(Clone, Debug)]
pub(super) enum Value {
    Text(String),
    Whole(i64),
    Number(f64),
    Flag(bool),
    List(Vec<Node>),
    Table(BTreeMap<String, Node>),
}

/// A file, with the values that replace its own.
#[derive(Clone, Debug)]
pub(super) struct Document {
    /// The name of the file.
    pub(super) name: String,
    pub(super) root: Node,
    /// The places of the `--set` values.
    pub(super) sets: Vec<Place>,
}

impl Document {
    /// Reads TOML.
    pub(super) fn parse(text: &str, name: &str) -> Result<Document, FileError> {
        let root = Node { origin: Origin::Line(1), value: Value::Table(BTreeMap::new()) };
        let mut document = Document { name: name.to_string(), root, sets: Vec::new() };
        let lines = Lines::of(text);
        let table = DeTable::parse(text).map_err(|error| {
            let line = lines.at(error.span().map_or(0, |span| span.start));
            let place = document.place(Origin::Line(line));
            FileError::Syntax { place, what: error.message().replace('\n', "; ") }
        })?;
        document.root.value = entries(table.get_ref(), &|at| Origin::Line(lines.at(at)));
        Ok(document)
    }

    /// The place of a value, for messages.
    pub(super) fn place(&self, origin: Origin) -> Place {
        match origin {
            Origin::Line(line) => Place::Line { file: self.name.clone(), line },
            Origin::Set(index) => self.sets[index].clone(),
        }
    }
}

/// The offsets where the lines of a text begin.
struct Lines(Vec<usize>);

impl Lines {
    fn of(text: &str) -> Lines {
        Lines(text.bytes().zip(1..).filter(|(byte, _)| *byte == b'\n').map(|(_, at)| at).collect())
    }

    /// The line, from 1, of the byte at offset `at`.
    fn at(&self, at: usize) -> usize {
        self.0.partition_point(|begin| *begin <= at) + 1
    }
}

/// Converts a TOML value. All parts have the origin `origin`: a line each, or one `--set`.
pub(super) fn value(value: &DeValue<'_>, origin: &impl Fn(usize) -> Origin) -> Value {
    match value {
        DeValue::String(text) => Value::Text(text.to_string()),
        // A number that overflows is not a valid whole number for any key; the message shows its digits.
        DeValue::Integer(digits) => i64::from_str_radix(digits.as_str(), digits.radix())
            .map_or_else(|_| Value::Text(digits.as_str().to_string()), Value::Whole),
        DeValue::Float(digits) => digits
            .as_str()
            .parse()
            .map_or_else(|_| Value::Text(digits.as_str().to_string()), Value::Number),
        DeValue::Boolean(flag) => Value::Flag(*flag),
        DeValue::Datetime(time) => Value::Text(time.to_string()),
        DeValue::Array(items) => Value::List(items.iter().map(|item| node(item, origin)).collect()),
        DeValue::Table(table) => entries(table, origin),
    }
}

fn node(spanned: &Spanned<DeValue<'_>>, origin: &impl Fn(usize) -> Origin) -> Node {
    Node { origin: origin(spanned.span().start), value: value(spanned.get_ref(), origin) }
}

fn entries(table: &DeTable<'_>, origin: &impl Fn(usize) -> Origin) -> Value {
    let entry = |(key, inner): (&Spanned<_>, &Spanned<DeValue<'_>>)| {
        let inner = value(inner.get_ref(), origin);
        (
            ToString::to_string(key.get_ref()),
            Node { origin: origin(key.span().start), value: inner },
        )
    };
    Value::Table(table.iter().map(entry).collect())
}

impl Node {
    /// The value of a table's key, or of a list's item by its number or name.
    pub(super) fn step(&self, step: &str) -> Option<&Node> {
        match &self.value {
            Value::Table(entries) => entries.get(same_key(entries, step)?),
            Value::List(items) => items.get(position(items, step)?),
            _ => None,
        }
    }

    /// The value in a form for messages.
    pub(super) fn shown(&self) -> String {
        match &self.value {
            Value::Text(text) => format!("\"{text}\""),
            Value::Whole(number) => number.to_string(),
            Value::Number(number) => number.to_string(),
            Value::Flag(flag) => flag.to_string(),
            Value::List(_) => "a list".to_string(),
            Value::Table(_) => "a table".to_string(),
        }
    }
}

/// The key of a table that equals `key`, with `_` and `-` as equivalent.
pub(super) fn same_key<'a>(entries: &'a BTreeMap<String, Node>, key: &str) -> Option<&'a str> {
    let plain = |key: &str| key.replace('-', "_");
    entries.keys().find(|other| plain(other) == plain(key)).map(String::as_str)
}

/// The index of a list's item, by its number or by its `name`.
pub(super) fn position(items: &[Node], step: &str) -> Option<usize> {
    if let Ok(index) = step.parse::<usize>() {
        return (index < items.len()).then_some(index);
    }
    items.iter().position(|item| {
        matches!(item.step("name"), Some(Node { value: Value::Text(name), .. }) if name == step)
    })
}
