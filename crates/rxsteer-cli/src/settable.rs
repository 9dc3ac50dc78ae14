//! The settings of `rxsteer set`: which ones each command can change while it runs, and why it refuses others.
//!
//! ```text
//!  rxsteer set policy=rps ──► AnySettings: known, and a value at all? ──► the instance reads it again:
//!                             (a mistake is named without an instance)      run:  LiveSettings
//!                                                                           live: ChangeSettings, as --change-at
//! ```

use crate::change_spec::ChangeSettings;
use crate::live::args::LiveArgs;
use crate::run::args::{KernelSettings, LiveSettings, RunSettings};
use clap::Args;
use rxsteer_settings::{Text, names, nearest, read};

/// The settings that an instance of one command or another can change.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct AnySettings {
    #[command(flatten)]
    pub(crate) change: ChangeSettings,

    #[command(flatten)]
    pub(crate) kernel: KernelSettings,
}

/// Why settings that are fixed for the whole run are refused.
pub(crate) fn cant_change(names: &[&str]) -> String {
    format!("{} can't change while rxsteer runs; restart rxsteer to change it", names.join(", "))
}

impl AnySettings {
    /// Reads one or more settings of the form `SETTING=VALUE`.
    pub(crate) fn parse(settings: &[String]) -> Result<AnySettings, String> {
        parse(settings, |name| {
            if has::<RunSettings>(name) || has::<LiveArgs>(name) {
                return Some(cant_change(&[name]));
            }
            let all = names::<AnySettings>();
            let all: Vec<&str> = all.iter().map(String::as_str).collect();
            let is_near = nearest(name, &all).is_some();
            (!is_near)
                .then(|| format!("there is no setting '{name}'; {}", commands_with_settings()))
        })
    }
}

/// Which command has which settings.
fn commands_with_settings() -> String {
    let (run, live) = (names::<LiveSettings>(), names::<ChangeSettings>());
    let quoted = |of: &[String], is_meant: &dyn Fn(&String) -> bool| -> String {
        let meant: Vec<&str> =
            of.iter().filter(|name| is_meant(name)).map(String::as_str).collect();
        format!("'{}'", meant.join("', '"))
    };
    format!(
        "rxsteer run and rxsteer live have {}; run alone has {}; live alone has {}",
        quoted(&run, &|name| live.contains(name)),
        quoted(&run, &|name| !live.contains(name)),
        quoted(&live, &|name| !run.contains(name))
    )
}

impl LiveSettings {
    /// Reads one or more settings of the form `SETTING=VALUE`, for `rxsteer run`.
    pub(crate) fn parse<S: AsRef<str>>(settings: &[S]) -> Result<LiveSettings, String> {
        parse(settings, |name| match name {
            "max-backlog" => Some(
                "max-backlog is a setting of rxsteer live; in rxsteer run it is queue-size"
                    .to_owned(),
            ),
            _ => has::<RunSettings>(name).then(|| cant_change(&[name])),
        })
    }
}

impl ChangeSettings {
    /// Reads one or more settings of the form `SETTING=VALUE`, for `rxsteer live`.
    pub(crate) fn parse<S: AsRef<str>>(settings: &[S]) -> Result<ChangeSettings, String> {
        parse(settings, |name| match name {
            "queue-size" => Some(
                "queue-size is a setting of rxsteer run; in rxsteer live it is max-backlog"
                    .to_owned(),
            ),
            _ if has::<KernelSettings>(name) => {
                Some(format!("{name} is a setting of rxsteer run alone; leave it out"))
            }
            _ => has::<LiveArgs>(name).then(|| cant_change(&[name])),
        })
    }
}

fn has<S: Args>(name: &str) -> bool {
    names::<S>().iter().any(|known| known == name)
}

/// Parses settings as `S`. If `S` lacks a setting, `why_not` may give a reason why it cannot be changed; then the error
/// has this reason instead of reporting a misspelling.
fn parse<S: Args>(
    settings: &[impl AsRef<str>],
    why_not: impl Fn(&str) -> Option<String>,
) -> Result<S, String> {
    let texts = settings.iter().map(|setting| Text::split(setting.as_ref()));
    let texts = texts.collect::<Result<Vec<_>, _>>()?;
    if texts.is_empty() {
        return Err("no settings given; write e.g. policy=rps".to_owned());
    }
    let mut others = texts.iter().filter(|text| !has::<S>(&text.name));
    match others.find_map(|text| why_not(&text.name)) {
        Some(why) => Err(why),
        None => Ok(read(texts)?),
    }
}

#[cfg(all(test, feature = "xdp"))]
mod tests {
    use super::*;
    use rxsteer_user::SteerChange;
    use rxsteer_user::core::Fallback;

    #[test]
    fn settings_of_another_command_are_named_as_such() {
        let live = |text: &str| ChangeSettings::parse(&[text]).map(SteerChange::from);
        let run = |text: &str| LiveSettings::parse(&[text]).map(|_| ());
        let any = |text: &str| AnySettings::parse(&[text.to_owned()]).map(|_| ());
        let wanted = SteerChange { fallback: Some(Fallback::Local), ..SteerChange::default() };
        assert_eq!(live("else=local"), Ok(wanted));
        for text in ["flow-cnt=64", "sock-flow-entries=64", "max-backlog=9", "flow-limit=8192"] {
            assert!(live(text).is_ok() && any(text).is_ok() && run(text).is_err(), "{text}");
        }
        for text in ["queue-size=64", "threads=other", "shadow=on"] {
            assert!(run(text).is_ok() && any(text).is_ok(), "{text}");
            assert!(live(text).unwrap_err().contains("a setting of rxsteer run"), "{text}");
        }
        assert!(run("max-backlog=9").unwrap_err().ends_with("in rxsteer run it is queue-size"));
        for text in ["hash-seed=2a", "key-tunnels=esp", "ring-size=1", "rx-cpus=0", "filter=tcp"] {
            let why = live(text).unwrap_err();
            assert!(why.contains("can't change while rxsteer runs"), "{text}: {why}");
            assert_eq!(any(text).unwrap_err(), why);
        }
        let [of_run, of_live] = ["'queue-size', 'threads', 'shadow'", "'flow-cnt', 'max-backlog'"];
        let why = any("nonsense=1").unwrap_err();
        assert!(why.contains("run and rxsteer live have 'policy', 'cpus'"), "{why}");
        assert!(why.contains(&format!("; run alone has {of_run}; live alone has")), "{why}");
        assert!(why.ends_with(of_live), "{why}");
        let (of_one, of_other) = (run("nonsense=1").unwrap_err(), live("nonsense=1").unwrap_err());
        assert!(of_one.ends_with(of_run) && !of_one.contains("max-backlog"), "{of_one}");
        assert!(of_other.ends_with(of_live) && !of_other.contains("queue-size"), "{of_other}");
        for why in [live("polcy=rps").unwrap_err(), any("polcy=rps").unwrap_err()] {
            assert!(why.contains("did you mean 'policy'"), "{why}");
        }
        assert!(ChangeSettings::parse::<&str>(&[]).unwrap_err().contains("no settings given"));
    }
}
