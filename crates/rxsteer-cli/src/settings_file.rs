//! Settings in a TOML file: what the files of all commands have in common. An option beats the file, the
//! file beats the default.

use anyhow::Context;
use rxsteer_user::core::config::DEFAULT_FLOW_LIMIT_BUCKETS;
use rxsteer_user::shown;
use serde::de::DeserializeOwned;
use std::path::Path;

/// A key of the file, and what is wrong with its value.
pub(crate) type WrongKey = (&'static str, String);

/// Reads the file and lets `under` put it under the options.
pub(crate) fn read<F: DeserializeOwned, T>(
    path: &Path,
    under: impl FnOnce(F) -> Result<T, WrongKey>,
) -> anyhow::Result<T> {
    let text =
        std::fs::read_to_string(path).with_context(|| format!("can't read {}", shown(path)))?;
    let file: F = toml::from_str(&text).with_context(|| format!("{} is not right", shown(path)))?;
    under(file).map_err(|(key, why)| anyhow::anyhow!("{}: {key}: {why}", shown(path)))
}

/// Takes a setting from the file where no option gives it.
pub(crate) fn fill<T>(
    setting: &mut Option<T>,
    key: &'static str,
    text: Option<&str>,
    parse: impl Fn(&str) -> Result<T, String>,
) -> Result<(), WrongKey> {
    if let (None, Some(text)) = (&setting, text) {
        *setting = Some(parse(text).map_err(|why| (key, why))?);
    }
    Ok(())
}

/// `cpus`: a list as a string, or a count as a number.
pub(crate) fn cpus_text(value: Option<&toml::Value>) -> Result<Option<String>, WrongKey> {
    match value {
        None => Ok(None),
        Some(toml::Value::String(list)) => Ok(Some(list.clone())),
        Some(toml::Value::Integer(count)) => Ok(Some(count.to_string())),
        Some(other) => {
            let why = format!("it takes a list like \"0-3,8\" or a count, not {}", article(other));
            Err(("cpus", why))
        }
    }
}

/// `flow-limit`: a number of buckets up to `most`, true for the usual number, false for none.
pub(crate) fn flow_limit(value: Option<&toml::Value>, most: u32) -> Result<Option<u32>, WrongKey> {
    match value {
        None | Some(toml::Value::Boolean(false)) => Ok(None),
        Some(toml::Value::Boolean(true)) => Ok(Some(DEFAULT_FLOW_LIMIT_BUCKETS)),
        Some(toml::Value::Integer(buckets)) if (1..=i64::from(most)).contains(buckets) => {
            Ok(Some(*buckets as u32))
        }
        Some(other) => {
            let given = match other {
                toml::Value::Integer(number) => number.to_string(),
                other => article(other),
            };
            let why = format!(
                "it takes true, false or a number of buckets from 1 to {most}, not {given}"
            );
            Err(("flow-limit", why))
        }
    }
}

/// What a value is: "an array".
fn article(value: &toml::Value) -> String {
    let kind = value.type_str();
    format!("{} {kind}", if kind.starts_with(['a', 'i']) { "an" } else { "a" })
}
