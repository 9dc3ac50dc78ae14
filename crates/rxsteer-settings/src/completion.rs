//! Shell completion for values that follow a grammar.

use crate::texts::command;
use clap::builder::{PossibleValue, Str, TypedValueParser};
use clap::{Arg, Args, Command, Error};
use std::ffi::OsStr;

/// Reads values with `parse`. Shells complete `words`, the words that a value can be or begin with.
#[must_use]
pub fn words<P>(words: impl IntoIterator<Item = impl Into<Str>>, parse: P) -> Words<P> {
    Words { words: words.into_iter().map(Into::into).collect(), parse }
}

/// The settings of `S` in the form `SETTING=VALUE`, one for each word that its value can be or begin with; `SETTING=` where
/// other values are possible as well.
#[must_use]
pub fn assignments<S: Args>() -> Vec<String> {
    let of = |arg: &Arg| {
        let name = arg.get_long()?.to_owned();
        Some(values(arg).into_iter().map(move |value| format!("{name}={value}")))
    };
    command::<S>().get_arguments().filter_map(of).flatten().collect()
}

/// The words of an option's parser. Without a word list, those in lower case in its value name, such as
/// `on|off|BUCKETS`, and an empty one for the others.
fn values(arg: &Arg) -> Vec<String> {
    let words: Vec<String> =
        arg.get_possible_values().iter().map(|value| value.get_name().to_owned()).collect();
    if !words.is_empty() {
        return words;
    }
    let form = arg.get_value_names().and_then(<[_]>::first).map(ToString::to_string);
    let form = form.unwrap_or_default();
    let (mut words, others): (Vec<&str>, Vec<&str>) =
        form.split('|').partition(|word| word.chars().all(|letter| letter.is_ascii_lowercase()));
    if !others.is_empty() {
        words.insert(0, "");
    }
    words.into_iter().map(str::to_owned).collect()
}

/// A parser of values, with words for shell completion.
#[derive(Clone, Debug)]
pub struct Words<P> {
    words: Vec<Str>,
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
        Some(Box::new(self.words.iter().cloned().map(PossibleValue::new)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Rules, Steering, Tables};

    #[test]
    fn assignments_have_each_known_value() {
        let of_steering = assignments::<Steering>();
        let of = |name: &str| -> Vec<&str> {
            of_steering.iter().filter_map(|text| text.strip_prefix(name)).collect()
        };
        assert_eq!(of("policy=")[..3], ["none", "rps", "bound"]);
        assert_eq!((of("cpus="), of("else=")), (vec![""], vec!["hash", "local"]));
        assert_eq!((of("rps-map="), of("flow-limit=")), (vec!["", "none"], vec!["", "on", "off"]));
        assert_eq!(assignments::<Rules>(), ["rule=", "rule=none"]);
        assert_eq!(assignments::<Tables>(), ["sock-flow-entries=", "flow-cnt="]);
    }
}
