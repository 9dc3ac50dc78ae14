//! `--config FILE`: settings in TOML, with the names of options as keys. An option overrides the file, and the file
//! overrides the default.

use anyhow::anyhow;
use clap::Args;
use rxsteer_settings::{Options, Refused, Text};
use rxsteer_user::shown;
use std::io::ErrorKind;
use std::path::Path;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The settings of the options, and those of the file that no option sets.
pub(crate) fn settings<S: Args + Clone>(
    options: &Options<S>,
    config: Option<&Path>,
) -> anyhow::Result<S> {
    let Some(path) = config else { return Ok(S::clone(options)) };
    parsed(options, &text(path)?, path)
}

/// The text of the file.
pub(crate) fn text(path: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(path).map_err(|error| match error.kind() {
        ErrorKind::NotFound => anyhow!("there is no file {}; check the name", shown(path)),
        ErrorKind::InvalidData => anyhow!("{} is not a text file", shown(path)),
        _ => anyhow!("can't read {}: {error}", shown(path)),
    })
}

/// The settings of the options, and those of `text`, the file at `path`, that no option sets.
pub(crate) fn parsed<S: Args + Clone>(
    options: &Options<S>,
    text: &str,
    path: &Path,
) -> anyhow::Result<S> {
    let (texts, mut wrong) = parse(text);
    match options.over(texts) {
        Ok(settings) if wrong.is_empty() => return Ok(settings),
        Ok(_) => {}
        Err(refused) => wrong.extend(refused.iter().map(mistake)),
    }
    wrong.sort_by_key(|(offset, _)| *offset);
    let lines = wrong.iter().map(|(offset, why)| placed(path, text, *offset, why));
    Err(anyhow!("{}", lines.collect::<Vec<_>>().join("\n")))
}

/// The mistake, and the offset of its place.
pub(crate) type Mistake = (usize, String);

/// As [`Mistake`].
pub(crate) fn mistake(refused: &Refused) -> Mistake {
    (refused.place, refused.to_string())
}

/// The settings in the text of a file, each with the offset of its key, and the parts of the text that are not
/// settings.
pub(crate) fn parse(text: &str) -> (Vec<Text>, Vec<Mistake>) {
    match DeTable::parse(text) {
        Ok(file) => texts(file.get_ref()),
        Err(error) => {
            let place = error.span().map_or(0, |span| span.start);
            let why = format!(
                "this is not TOML: {}; a setting is NAME = \"TEXT\", a number, true or false",
                error.message()
            );
            (Vec::new(), vec![(place, why)])
        }
    }
}

/// `FILE:LINE:COLUMN: why`.
pub(crate) fn placed(path: &Path, text: &str, offset: usize, why: &str) -> String {
    format!("{}:{}: {why}", shown(path), line_and_column(text, offset))
}

/// The offset of the setting that `why` begins with, as in "cpus: this host has no CPU 99".
#[cfg(feature = "xdp")]
pub(crate) fn place_of(texts: &[Text], why: &str) -> Option<usize> {
    let name = why.split([':', ' ', '=']).next()?;
    texts.iter().find(|text| text.name == name).map(|text| text.place)
}

/// `LINE:COLUMN` of the byte at `offset`, both from 1; columns count characters.
fn line_and_column(text: &str, offset: usize) -> String {
    let before = text.get(..offset).unwrap_or_default();
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    format!("{}:{}", before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
}

/// The settings of a file, each with the offset of its key, and what is wrong.
fn texts(file: &DeTable<'_>) -> (Vec<Text>, Vec<Mistake>) {
    let (mut texts, mut wrong) = (Vec::new(), Vec::new());
    for (name, value) in file {
        let at = name.span().start;
        let name = name.get_ref().as_ref();
        let mut add = |value, at, key: Option<&str>| match scalar(name, value) {
            Ok(text) => {
                let text = key.map_or(text.clone(), |key| format!("{key}={text}"));
                texts.push(Text::new(name, text, at));
            }
            Err(mistake) => wrong.push(mistake),
        };
        match value.get_ref() {
            // Otherwise neither its name nor its value would be refused.
            DeValue::Table(table) if table.is_empty() => texts.push(Text::new(name, "{}", at)),
            // Settings of several RX queues.
            DeValue::Table(table) => {
                for (queue, value) in table {
                    add(value, queue.span().start, Some(queue.get_ref()));
                }
            }
            // Rules, in order.
            DeValue::Array(rules) if name == "rule" => {
                rules.iter().for_each(|rule| add(rule, rule.span().start, None));
            }
            _ => add(value, at, None),
        }
    }
    texts.sort_by_key(|text| text.place);
    (texts, wrong)
}

/// A value in the form in which the option of that name takes it.
fn scalar(name: &str, value: &Spanned<DeValue<'_>>) -> Result<String, Mistake> {
    Ok(match value.get_ref() {
        DeValue::String(text) => text.to_string(),
        DeValue::Integer(number) => number.to_string(),
        DeValue::Float(number) => number.to_string(),
        DeValue::Boolean(flag) => flag.to_string(),
        other => {
            let why = format!(
                "{name} takes a string, a number, true or false, not a value of type {}",
                other.type_str()
            );
            return Err((value.span().start, why));
        }
    })
}

#[cfg(test)]
mod tests {
    use crate::steer_args::{SteerArgs, SteerSettings};
    use clap::Parser;
    use rxsteer_user::core::Policy;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        steer: SteerArgs,
    }

    /// The settings of a command line and a file that says `toml`.
    fn both(options: &[&str], toml: &str) -> Result<SteerSettings, String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s.toml");
        std::fs::write(&path, toml).unwrap();
        let line = [&["rxsteer", "--config", path.to_str().unwrap()], options].concat();
        let steer = Cli::try_parse_from(line).unwrap().steer;
        steer.settings().map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn options_beat_the_file() {
        let file = "policy = 'rfs'\nflow_cnt = 8\ninner = true\nflow-limit = true\n\
                    rps-map = { 0 = '4-7', 1 = '1' }";
        let none = both(&["--policy", "none"], file).unwrap();
        assert_eq!((none.policy(), none.tables.flow_cnt), (Policy::None, Some(8)));
        assert_eq!(none.steering.rps_map, None, "of no use under none");
        let off = both(&["--inner=off", "--flow-limit=off", "--rps-map", "none"], file).unwrap();
        assert_eq!((off.flows.inner(), off.steering.flow_limit()), (false, Some(None)));
        assert_eq!((off.policy(), off.steering.rps_maps()), (Policy::Rfs, Some(Vec::new())));
        let map = both(&["--rps-map", "2=3"], file).unwrap().steering.rps_maps().unwrap();
        assert_eq!(map, [(2.into(), "3".parse().unwrap())], "all maps are one setting");
        let seed = "hash = 'symmetric'\nhash-seed = '2a'";
        assert_eq!(both(&["--hash", "toeplitz"], seed).unwrap().flows.hash_seed, None);
    }

    #[test]
    fn mistakes_are_named_with_line_and_column() {
        for (toml, part) in [
            (
                "\npolciy = 'rfs'",
                "s.toml:2:1: there is no setting 'polciy'; did you mean 'policy'?",
            ),
            (
                "# a\n\n  cpus = [0, 1]",
                "s.toml:3:10: cpus takes a string, a number, true or false, not a value of type array",
            ),
            ("flow-cnt = 8\nflow_cnt = 9", "s.toml:2:1: flow-cnt is set twice"),
            (
                "flow-limit = 5000000000",
                "s.toml:1:1: flow-limit=5000000000: expected on, off or a number of",
            ),
            ("rps-map = { 'eth*:0' = '1' }", "s.toml:1:13: rps-map=eth*:0=1: 'eth*' is a pattern"),
            ("[rps-map]\n0 = '1'\n1 = 'x'", "s.toml:3:1: rps-map=1=x: "),
            ("hash = 'toeplitz'\nhash-seed = '1'", "Toeplitz has a key"),
            ("policy = ", "s.toml:1:10: this is not TOML: string values must be quoted"),
        ] {
            let error = both(&[], toml).unwrap_err();
            assert!(error.contains(part), "{toml}: {error}");
        }
        let all = both(&[], "polciy = 'rfs'\ncpus = [0]\nflow-cnt = 0").unwrap_err();
        let places: Vec<&str> = all.lines().filter_map(|line| line.split(": ").next()).collect();
        let ends = ["s.toml:1:1", "s.toml:2:8", "s.toml:3:1"];
        assert!(
            places.len() == 3 && places.iter().zip(ends).all(|(at, end)| at.ends_with(end)),
            "{all}"
        );
        let error = both(&["--policy", "rps"], "policy = 'rsp'").unwrap_err();
        assert!(error.contains("did you mean 'rps'"), "also where an option holds: {error}");
    }
}
