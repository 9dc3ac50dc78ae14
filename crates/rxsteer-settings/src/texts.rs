//! Settings that are not on the command line, read as if they were.

use crate::nearest::suggestion;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use std::error::Error;
use std::fmt;
use std::ops::Deref;

/// A setting in text form.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Text {
    /// The name of the option.
    pub name: String,
    /// The value of the setting.
    pub value: String,
    /// The place of the setting in its source: a line number, or the index among several settings. The caller
    /// defines it.
    pub place: usize,
}

impl Text {
    /// A setting at `place`. In its name `_` is equivalent to `-`.
    #[must_use]
    pub fn new(name: impl Into<String>, value: impl Into<String>, place: usize) -> Text {
        Text { name: name.into().replace('_', "-"), value: value.into(), place }
    }

    /// Splits `SETTING=VALUE`.
    ///
    /// # Errors
    /// The message that the text does not have this form.
    pub fn split(setting: &str) -> Result<Text, String> {
        let (name, value) = setting
            .split_once('=')
            .ok_or_else(|| format!("'{setting}' is not SETTING=VALUE; write e.g. policy=rps"))?;
        Ok(Text::new(name.trim(), value.trim(), 0))
    }

    /// The setting as an option of `command`. An option that can be given without a value is given so if the value is
    /// `true`.
    fn option(&self, command: &Command) -> String {
        let arg = command.get_arguments().find(|arg| arg.get_long() == Some(self.name.as_str()));
        let values = arg.and_then(Arg::get_num_args);
        if self.value == "true" && values.is_some_and(|values| values.min_values() == 0) {
            return format!("--{}", self.name);
        }
        format!("--{}={}", self.name, self.value)
    }
}

/// Why a setting is refused.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Refused {
    /// The [`Text::place`] of the setting.
    pub place: usize,
    what: String,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl Error for Refused {}

impl From<Refused> for String {
    fn from(refused: Refused) -> String {
        refused.what
    }
}

pub(crate) fn command<S: Args>() -> Command {
    let command = Command::new("settings").no_binary_name(true);
    S::augment_args(command.disable_help_flag(true).disable_version_flag(true))
}

/// The names of the settings of `S`.
#[must_use]
pub fn names<S: Args>() -> Vec<String> {
    command::<S>().get_arguments().filter_map(|arg| arg.get_long().map(str::to_owned)).collect()
}

/// Reads settings.
///
/// # Errors
/// [`Refused`]: the first of the [`mistakes`].
pub fn read<S: Args>(texts: impl IntoIterator<Item = Text>) -> Result<S, Refused> {
    let texts: Vec<Text> = texts.into_iter().collect();
    if let Some(first) = mistakes::<S>(&texts).into_iter().next() {
        return Err(first);
    }
    let place = texts.first().map_or(0, |text| text.place);
    let command = command::<S>();
    let options: Vec<String> = texts.iter().map(|text| text.option(&command)).collect();
    command
        .try_get_matches_from(options)
        .and_then(|matches| S::from_arg_matches(&matches))
        .map_err(|error| Refused { place, what: why(&error) })
}

/// Every setting that is unknown, given twice, or has an invalid value, in the order of the settings.
#[must_use]
pub fn mistakes<S: Args>(texts: &[Text]) -> Vec<Refused> {
    let command = command::<S>();
    let mistake = |(at, text): (usize, &Text)| {
        let what = wrong(&command, &texts[..at], text)?;
        Some(Refused { place: text.place, what })
    };
    texts.iter().enumerate().filter_map(mistake).collect()
}

/// What is wrong with a setting that follows those in `before`.
fn wrong(command: &Command, before: &[Text], text: &Text) -> Option<String> {
    let name = text.name.as_str();
    let Some(arg) = command.get_arguments().find(|arg| arg.get_long() == Some(name)) else {
        let known: Vec<&str> = command.get_arguments().filter_map(|arg| arg.get_long()).collect();
        return Some(format!("there is no setting '{name}'{}", suggestion(name, &known)));
    };
    let mut before = before.iter().filter(|other| other.name == name);
    if matches!(arg.get_action(), ArgAction::Append) {
        if before.any(|other| is_none(&text.value) || is_none(&other.value)) {
            return Some(none_beside(name));
        }
    } else if before.next().is_some() {
        return Some(format!("{name} is set twice"));
    }
    let read = command.clone().try_get_matches_from([text.option(command)]);
    read.err().map(|error| format!("{name}={}: {}", text.value, why(&error)))
}

/// Whether the value removes all values of a setting that can be given several times.
fn is_none(value: &str) -> bool {
    value == "none"
}

fn none_beside(name: &str) -> String {
    format!("{name}=none removes what the other {name} set; leave one of them out")
}

/// The reason in clap's error.
fn why(error: &clap::Error) -> String {
    if let Some(source) = error.source() {
        return source.to_string();
    }
    match (error.get(ContextKind::InvalidValue), error.get(ContextKind::ValidValue)) {
        (Some(ContextValue::String(word)), Some(ContextValue::Strings(valid))) => {
            let valid: Vec<&str> = valid.iter().map(String::as_str).collect();
            format!("expected {}, not '{word}'{}", valid.join(" or "), suggestion(word, &valid))
        }
        _ => error.kind().to_string(),
    }
}

/// Settings of the command line; a file may supply others.
#[derive(Clone, Debug, Default)]
pub struct Options<S> {
    settings: S,
    texts: Vec<Text>,
}

impl<S: Args> Options<S> {
    /// Whether an option sets `name`.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.texts.iter().any(|text| text.name == name)
    }

    /// The settings of the options, plus those of a file that no option sets.
    ///
    /// # Errors
    /// The [`mistakes`] in the file, even if an option overrides them.
    pub fn over(&self, file: Vec<Text>) -> Result<S, Vec<Refused>> {
        let mistakes = mistakes::<S>(&file);
        if !mistakes.is_empty() {
            return Err(mistakes);
        }
        let below = file.into_iter().filter(|text| !self.has(&text.name));
        read(below.chain(self.texts.iter().cloned())).map_err(|refused| vec![refused])
    }
}

impl<S> Deref for Options<S> {
    type Target = S;

    fn deref(&self) -> &S {
        &self.settings
    }
}

impl<S: Args> FromArgMatches for Options<S> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut texts = Vec::new();
        for arg in command::<S>().get_arguments() {
            let id = arg.get_id().as_str();
            let Some(name) = arg.get_long() else { continue };
            if matches.value_source(id) != Some(ValueSource::CommandLine) {
                continue;
            }
            let given = matches.get_raw(id).into_iter().flatten();
            let given: Vec<_> = given.map(|value| value.to_string_lossy().into_owned()).collect();
            if given.len() > 1 && given.iter().any(|value| is_none(value)) {
                return Err(clap::Error::raw(ErrorKind::ArgumentConflict, none_beside(name)));
            }
            texts.extend(given.into_iter().map(|value| Text::new(name, value, 0)));
        }
        Ok(Options { settings: S::from_arg_matches(matches)?, texts })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl<S: Args> Args for Options<S> {
    fn augment_args(command: Command) -> Command {
        S::augment_args(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        S::augment_args_for_update(command)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MapSetting, Steering, Tables};
    use clap::Parser;
    use rxsteer_core::Policy;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        steering: Options<Steering>,
    }

    fn texts(settings: &[&str]) -> Vec<Text> {
        let numbered = settings.iter().enumerate();
        let text =
            |(place, setting): (usize, &&str)| Text { place, ..Text::split(setting).unwrap() };
        numbered.map(text).collect()
    }

    #[test]
    fn first_wrong_setting_is_named_with_its_place() {
        let tables = |settings: &[&str]| read::<Tables>(texts(settings));
        assert_eq!(tables(&["flow_cnt = 8"]).unwrap().flow_cnt, Some(8));
        for (settings, place, part) in [
            (
                &["flow-cnt=8", "flow-cmt=9"][..],
                1,
                "no setting 'flow-cmt'; did you mean 'flow-cnt'?",
            ),
            (&["qqqqqqqqqqq=1"], 0, "choose one of 'sock-flow-entries', 'flow-cnt'"),
            (&["flow-cnt=8", "flow_cnt=8"], 1, "flow-cnt is set twice"),
            (&["flow-cnt=8", "sock-flow-entries="], 1, "sock-flow-entries=: expected a whole"),
            (&["help=1"], 0, "no setting 'help'"),
        ] {
            let refused = tables(settings).unwrap_err();
            assert_eq!(refused.place, place, "{refused}");
            assert!(refused.to_string().contains(part), "{refused}");
        }
        assert!(Text::split("flow-cnt").unwrap_err().contains("is not SETTING=VALUE"));
    }

    #[test]
    fn all_mistakes_are_found() {
        let found = mistakes::<Tables>(&texts(&["flow-cmt=9", "flow-cnt=x", "flow-cnt=8"]));
        assert_eq!(found.iter().map(|refused| refused.place).collect::<Vec<_>>(), [0, 1, 2]);
        assert!(found[2].to_string().contains("set twice"), "{found:?}");
    }

    #[test]
    fn option_takes_the_place_of_all_of_that_name() {
        let line = ["x", "--rps-map", "0=1", "--rps-map", "1=2"];
        let options = Cli::try_parse_from(line).unwrap().steering;
        assert!(options.has("rps-map") && !options.has("policy"));
        let below = texts(&["rps_map=2=3", "policy=rfs"]);
        let both = options.over(below).unwrap();
        let map = |text: &str| text.parse::<MapSetting>().unwrap();
        assert_eq!(both.rps_map, Some(vec![map("0=1"), map("1=2")]));
        assert_eq!((both.policy, &options.policy), (Some(Policy::Rfs), &None));
        assert!(options.over(texts(&["rps-map=x"])).is_err(), "wrong, though not used");
    }

    #[test]
    fn none_stands_alone() {
        for maps in [["0=1", "none"], ["none", "0=1"]] {
            let refused = read::<Steering>(maps.map(|map| Text::new("rps-map", map, 0)));
            let line = maps.map(|map| format!("--rps-map={map}"));
            let by_option = Cli::try_parse_from([&["x".to_owned()], &line[..]].concat());
            let whys = [refused.unwrap_err().to_string(), by_option.err().unwrap().to_string()];
            for why in whys {
                assert!(why.contains("rps-map=none removes what the other rps-map"), "{why}");
            }
        }
        let none = read::<Steering>(texts(&["rps-map=none"])).unwrap();
        assert_eq!(none.rps_maps(), Some(Vec::new()));
    }
}
