//! Reads the values of a table, each with its place.

use super::error::FileError;
use super::tree::{Document, Node, Value};
use super::units;
use crate::check::MAX_TIME_NS;
use rxsteer_core::{CpuId, CpuSet};
use std::collections::BTreeMap;
use std::fmt::Display;
use std::str::FromStr;

/// The keys of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keys {
    /// The name of the table in messages.
    pub table: &'static str,
    /// The keys.
    pub keys: &'static [&'static str],
}

type Read<T> = Result<T, FileError>;

/// A table with only known keys.
pub(super) struct Fields<'a> {
    item: Item<'a>,
    table: &'static str,
    entries: &'a BTreeMap<String, Node>,
}

/// A value, and the path to it.
#[derive(Clone)]
pub(super) struct Item<'a> {
    pub(super) document: &'a Document,
    pub(super) node: &'a Node,
    pub(super) path: String,
}

impl<'a> Fields<'a> {
    /// Opens a table, and refuses keys that are not in `keys`.
    pub(super) fn open(item: &Item<'a>, table: &'static str, keys: &[&Keys]) -> Read<Fields<'a>> {
        let entries = item.entries()?;
        let valid = || keys.iter().flat_map(|keys| keys.keys.iter().copied());
        // Keys are in alphabetical order; the error reports the one that comes first in the file.
        let unknown = entries.iter().filter(|(key, _)| !valid().any(|known| known == *key));
        if let Some((key, node)) = unknown.min_by_key(|(_, node)| node.origin) {
            return Err(FileError::UnknownKey {
                place: item.document.place(node.origin),
                table,
                key: key.clone(),
                keys: valid().collect(),
            });
        }
        Ok(Fields { item: item.clone(), table, entries })
    }

    /// The value of a key, if present.
    pub(super) fn get(&self, key: &str) -> Option<Item<'a>> {
        let node = self.entries.get(key)?;
        Some(self.item.entry(key, node))
    }

    /// The value of a key, parsed, if present.
    pub(super) fn maybe<T>(
        &self,
        key: &str,
        read: impl FnOnce(&Item<'a>) -> Read<T>,
    ) -> Read<Option<T>> {
        self.get(key).map(|item| read(&item)).transpose()
    }

    /// The value of a key, parsed, or the default.
    pub(super) fn or<T>(
        &self,
        key: &str,
        default: T,
        read: impl FnOnce(&Item<'a>) -> Read<T>,
    ) -> Read<T> {
        Ok(self.maybe(key, read)?.unwrap_or(default))
    }

    /// The value of a required key; `what` describes the purpose of the key.
    pub(super) fn needed<T>(
        &self,
        key: &'static str,
        what: &str,
        read: impl FnOnce(&Item<'a>) -> Read<T>,
    ) -> Read<T> {
        self.maybe(key, read)?.ok_or_else(|| self.missing(key, what))
    }

    /// The error for a missing key.
    pub(super) fn missing(&self, key: &'static str, what: &str) -> FileError {
        FileError::Missing {
            place: self.item.document.place(self.item.node.origin),
            table: self.table,
            key,
            what: what.to_string(),
        }
    }

    /// An error about the table as a whole.
    pub(super) fn wrong(&self, what: impl Into<String>) -> FileError {
        self.item.wrong(what)
    }
}

impl<'a> Item<'a> {
    /// The whole document.
    pub(super) fn root(document: &'a Document) -> Item<'a> {
        Item { document, node: &document.root, path: String::new() }
    }

    fn inner(&self, key: &str) -> Item<'a> {
        let dot = if self.path.is_empty() { "" } else { "." };
        Item { path: format!("{}{dot}{key}", self.path), ..self.clone() }
    }

    /// The value of an entry of this table.
    pub(super) fn entry(&self, key: &str, node: &'a Node) -> Item<'a> {
        Item { node, ..self.inner(key) }
    }

    /// An error about this value.
    pub(super) fn wrong(&self, what: impl Into<String>) -> FileError {
        FileError::Value {
            place: self.document.place(self.node.origin),
            path: self.path.clone(),
            what: what.into(),
        }
    }

    fn takes(&self, what: &str) -> FileError {
        self.wrong(format!("expected {what}, not {}", self.node.shown()))
    }

    pub(super) fn text(&self) -> Read<&'a str> {
        match &self.node.value {
            Value::Text(text) => Ok(text),
            _ => Err(self.takes("a string in quotes")),
        }
    }

    /// A value in the form of the command line.
    pub(super) fn scalar(&self) -> Read<String> {
        match &self.node.value {
            Value::Text(text) => Ok(text.clone()),
            Value::Whole(_) | Value::Number(_) | Value::Flag(_) => Ok(self.node.shown()),
            _ => Err(self.takes("a string in quotes, a number, true or false")),
        }
    }

    pub(super) fn flag(&self) -> Read<bool> {
        match self.node.value {
            Value::Flag(flag) => Ok(flag),
            _ => Err(self.takes("true or false")),
        }
    }

    pub(super) fn number(&self) -> Read<f64> {
        match self.node.value {
            Value::Number(number) => Ok(number),
            Value::Whole(number) => Ok(number as f64),
            _ => Err(self.takes("a number")),
        }
    }

    /// A whole number that fits the type.
    pub(super) fn whole<T: TryFrom<i64>>(&self) -> Read<T> {
        match self.node.value {
            Value::Whole(number) if number < 0 => Err(self.wrong("it can't be negative")),
            Value::Whole(number) => {
                T::try_from(number).map_err(|_| self.wrong(format!("{number} is too large")))
            }
            _ => Err(self.takes("a whole number from 0 up")),
        }
    }

    /// A time with its unit, in nanoseconds; it may be negative if `signed`.
    fn nanoseconds(&self, signed: bool) -> Read<f64> {
        let ns = match &self.node.value {
            Value::Text(text) => units::time_ns(text),
            Value::Whole(0) => Some(0.0),
            _ => None,
        };
        let low = if signed { -(MAX_TIME_NS as f64) } else { 0.0 };
        match ns {
            Some(ns) if (low..=MAX_TIME_NS as f64).contains(&ns) => Ok(ns),
            Some(ns) if ns < low && !signed => Err(self.wrong("a time can't be negative")),
            Some(_) => Err(self.wrong("a day is the longest time there can be")),
            None => Err(self.takes("a time with its unit, e.g. \"1s\", \"50us\" or \"200ns\"")),
        }
    }

    /// A time, in nanoseconds.
    pub(super) fn time_ns(&self) -> Read<u64> {
        Ok(self.nanoseconds(false)?.round() as u64)
    }

    /// A step in time, in nanoseconds.
    pub(super) fn step_ns(&self) -> Read<i64> {
        Ok(self.nanoseconds(true)?.round() as i64)
    }

    /// A cost: a number of nanoseconds, or a time with its unit.
    pub(super) fn cost_ns(&self) -> Read<f64> {
        match self.node.value {
            Value::Text(_) => self.nanoseconds(true),
            _ => self.number(),
        }
    }

    /// A rate in bits per second.
    pub(super) fn bit_rate(&self) -> Read<f64> {
        let takes =
            "a rate with its unit, e.g. \"1Gbit\" or \"100Mbit\", or a number of bits per second";
        self.with_unit(units::bit_rate, takes)
    }

    /// A rate in packets per second.
    pub(super) fn packet_rate(&self) -> Read<f64> {
        let takes = "a rate with its unit, e.g. \"1.2Mpps\" or \"50kpps\", or a number of packets per second";
        self.with_unit(units::packet_rate, takes)
    }

    fn with_unit(&self, read: fn(&str) -> Option<f64>, takes: &str) -> Read<f64> {
        match &self.node.value {
            Value::Text(text) => read(text).ok_or_else(|| self.takes(takes)),
            Value::Whole(_) | Value::Number(_) => self.number(),
            _ => Err(self.takes(takes)),
        }
    }

    /// A value of a type that parses itself from text.
    pub(super) fn parsed<T: FromStr<Err: Display>>(&self) -> Read<T> {
        self.text()?.parse().map_err(|error: T::Err| self.wrong(error.to_string()))
    }

    /// A CPU list as a string, or one CPU as a number.
    pub(super) fn cpus(&self) -> Read<CpuSet> {
        match self.node.value {
            Value::Whole(_) => self.cpu().map(|cpu| CpuSet::new([cpu]).expect("it holds one")),
            Value::Text(_) => self.parsed(),
            _ => Err(self.takes("a CPU list like \"0-3,8\"")),
        }
    }

    /// One CPU.
    pub(super) fn cpu(&self) -> Read<CpuId> {
        let takes = format!("a CPU's number from 0 to {}", CpuId::MAX);
        CpuId::new(self.whole::<u16>().map_err(|_| self.takes(&takes))?)
            .ok_or_else(|| self.takes(&takes))
    }

    /// One of several words.
    pub(super) fn word<T: Copy>(&self, words: &[(&str, T)]) -> Read<T> {
        let text = self.text()?;
        let found = words.iter().find(|(word, _)| *word == text);
        found.map(|(_, value)| *value).ok_or_else(|| {
            let all: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
            self.takes(&format!("'{}'", all.join("', '")))
        })
    }

    /// The items of a list.
    pub(super) fn list(&self, of: &str) -> Read<Vec<Item<'a>>> {
        let Value::List(items) = &self.node.value else { return Err(self.takes(of)) };
        let item =
            |(index, node): (usize, &'a Node)| Item { node, ..self.inner(&index.to_string()) };
        Ok(items.iter().enumerate().map(item).collect())
    }

    /// The entries of a table.
    pub(super) fn entries(&self) -> Read<&'a BTreeMap<String, Node>> {
        match &self.node.value {
            Value::Table(entries) => Ok(entries),
            _ => Err(self.takes("a table of keys")),
        }
    }
}
