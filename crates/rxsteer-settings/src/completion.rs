//! Shell completion for values that follow a grammar.

use clap::builder::{PossibleValue, TypedValueParser};
use clap::{Arg, Command, Error};
use std::ffi::OsStr;

/// Reads values with `parse`. Shells complete `words`, the words that a value can be or begin with.
#[must_use]
pub fn words<P>(words: impl IntoIterator<Item = &'static str>, parse: P) -> Words<P> {
    Words { words: words.into_iter().collect(), parse }
}

/// A parser of values, with words for shell completion.
#[derive(Clone, Debug)]
pub struct Words<P> {
    words: Vec<&'static str>,
    parse: P,
}

impl<P: TypedValueParser> TypedValueParser for Words<P> {
    type Value = P::Value;

    fn parse_ref(
        &self,
        command: &Command,
        arg: Option<&Arg>,
        value: &OsStr,
    ) -> Result<P::Value, Error> {
        self.parse.parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(self.words.iter().map(PossibleValue::new)))
    }
}
