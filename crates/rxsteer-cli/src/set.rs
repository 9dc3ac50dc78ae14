//! `rxsteer set`: other settings for a running instance.

use crate::advice::{steering_without_effect, with_rules};
use crate::change_spec::ChangeSettings;
use crate::run::args::{LiveSettings, SetArgs};
use crate::settable::AnySettings;
use crate::steer_args::note_covered;
use crate::{Outcome, output};
use rxsteer_settings::Steering;
use rxsteer_status::client;
use rxsteer_status::protocol::{Answer, Request};
use rxsteer_status::{Command, RuleShown, SettingsShown};
use rxsteer_user::core::{PacketRule, Policy};
use rxsteer_user::shown;
use std::path::Path;

/// The command.
pub(crate) fn command(args: &SetArgs) -> anyhow::Result<Outcome> {
    let (interface, settings) = match args.what.split_first() {
        Some((first, rest)) if !first.contains('=') => (Some(first.as_str()), rest),
        _ => (None, args.what.as_slice()),
    };
    let names = rxsteer_settings::names::<AnySettings>();
    if let Some(key) = interface.filter(|word| names.iter().any(|name| name == word)) {
        anyhow::bail!(
            "'{key}' has no value; write e.g. {key}=VALUE (rxsteer set --help says which)"
        );
    }
    anyhow::ensure!(
        interface.is_none() || args.socket.is_none(),
        "--socket names the instance already; leave the interface out"
    );
    // What can be said without the instance is said without it.
    let parsed = AnySettings::parse(settings).map_err(|why| {
        let socket = client::one(args.socket.as_deref(), interface);
        anyhow::anyhow!(socket.ok().and_then(|socket| refused_by(&socket, settings)).unwrap_or(why))
    })?;
    note_covered(&parsed.change.rules);
    let socket = client::one(args.socket.as_deref(), interface)?;
    let request = Request::Set { settings: settings.to_vec() };
    let Answer::Set(changed) = client::ask(&socket, &request)? else {
        anyhow::bail!("the instance at {} answers something else", shown(&socket));
    };
    if args.json {
        output::print(&format!("{:#}\n", serde_json::to_value(&changed)?))?;
    } else {
        output::print(&format!("{}\n", changed.settings))?;
    }
    for unused in without_effect(&parsed.change.steering, &changed.settings) {
        output::note(&format!("rxsteer: {unused}"));
    }
    if !changed.holds {
        output::note(
            "rxsteer: the change is still pending; the former settings hold until rxsteer status no longer says that a \
             change is under way",
        );
        return Ok(Outcome::Findings);
    }
    if !changed.done {
        output::note(
            "rxsteer: the new settings hold, but what was sent by the old ones is still under way; rxsteer status \
             says when it is delivered",
        );
    }
    Ok(Outcome::Success)
}

/// Why an instance of the kind that listens at `socket` refuses these settings: it names its own alone.
fn refused_by(socket: &Path, settings: &[String]) -> Option<String> {
    match client::status(socket, 0, false).ok()?.command {
        Command::Run => LiveSettings::parse(settings).err(),
        Command::Live => ChangeSettings::parse(settings).err(),
        Command::Replay => None,
    }
}

/// Which of the settings given change nothing under those that hold now.
fn without_effect(given: &Steering, now: &SettingsShown) -> Vec<String> {
    // An instance of another version may have a policy or a rule that is unknown here.
    let Ok(policy) = now.policy.parse::<Policy>() else { return Vec::new() };
    let rule = |RuleShown { rule, .. }: &RuleShown| rule.parse::<PacketRule>();
    let Ok(rules) = now.rules.iter().map(rule).collect::<Result<Vec<_>, _>>() else {
        return Vec::new();
    };
    steering_without_effect(given, &with_rules(&policy, &rules))
}
