//! `rxsteer set`: changes settings of a running instance.

use crate::advice::{steering_without_effect, with_rules};
use crate::change_spec::ChangeSettings;
use crate::run::args::LiveSettings;
use crate::settable::AnySettings;
use crate::steer_args::note_covered;
use crate::{Outcome, output};
use clap::builder::StringValueParser;
use clap::{Args, ValueHint};
use rxsteer_settings::{Steering, assignments, words};
use rxsteer_status::client;
use rxsteer_status::protocol::{Answer, Request};
use rxsteer_status::{Command, RuleShown, SettingsShown};
use rxsteer_user::core::{PacketRule, Policy};
use rxsteer_user::shown;
use std::path::{Path, PathBuf};

/// Change settings of a running instance without reordering flows
///
/// Frames keep flowing, in order. All given settings change at once; if one of them is wrong, none changes. If
/// rxsteer run and rxsteer live both run, set changes rxsteer run; --socket names another instance.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    rxsteer set policy=rps\n  \
    rxsteer set eth0 policy=sparse:loops=2 cpus=0-3\n  \
    rxsteer set --socket /run/rxsteer/4711.sock queue-size=512 flow-limit=on\n  \
    rxsteer set rps-map=eth0:0=0-3 rps-map=eth0:1=4-7\n  \
    rxsteer set 'rule=tcp dst-port 22 -> local' 'rule=udp -> 2-3'\n  \
    rxsteer set shadow=off threads=fifo:1\n  \
    rxsteer set eth1 policy=sparse max-backlog=500     eth1 of rxsteer live\n\n\
    Settings: policy=POLICY, cpus=LIST|COUNT, rps-map=[IFACE:]QUEUE=CPUS (can be repeated; the given maps replace \
    all previous ones) or rps-map=none, rule=MATCH->ACTION (likewise) or rule=none, else=hash|local, \
    rfs-cpus=LIST|all, \
    flow-limit=on|off|BUCKETS; in rxsteer run also queue-size=FRAMES, threads=fifo:N|nice:N|other, shadow=on|off; in \
    rxsteer live also max-backlog=PACKETS (up to its value at the start), flow-cnt=COUNT, sock-flow-entries=COUNT. \
    In rxsteer live, each CPU requires a worker (live --standby).\n\n\
    Exit status: 0 changed; 1 the change is still pending; 2 refused, or (rxsteer run) withdrawn because it took longer than \
    five seconds: nothing has changed.")]
pub(crate) struct SetArgs {
    /// Settings; if several instances run, first an interface of the one to change
    #[arg(value_name = "IFACE|SETTING=VALUE", required = true,
          value_parser = words(assignments::<AnySettings>(), StringValueParser::new()))]
    pub(crate) what: Vec<String>,

    /// The instance that listens at this unix socket
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath)]
    pub(crate) socket: Option<PathBuf>,

    /// Print one JSON object with the current settings
    #[arg(long)]
    pub(crate) json: bool,
}

/// The command.
pub(crate) fn command(args: &SetArgs) -> anyhow::Result<Outcome> {
    let (interface, settings) = match args.what.split_first() {
        Some((first, rest)) if !first.contains('=') => (Some(first.as_str()), rest),
        _ => (None, args.what.as_slice()),
    };
    let names = rxsteer_settings::names::<AnySettings>();
    if let Some(key) = interface.filter(|word| names.iter().any(|name| name == word)) {
        anyhow::bail!(
            "'{key}' has no value; write e.g. {key}=VALUE (rxsteer set --help lists the values)"
        );
    }
    anyhow::ensure!(
        interface.is_none() || args.socket.is_none(),
        "--socket names the instance already; leave the interface out"
    );
    // Mistakes that do not depend on the instance are reported without it.
    let parsed = AnySettings::parse(settings).map_err(|why| {
        let socket = client::one(args.socket.as_deref(), interface);
        anyhow::anyhow!(socket.ok().and_then(|socket| refused_by(&socket, settings)).unwrap_or(why))
    })?;
    note_covered(&parsed.change.rules);
    let socket = client::one(args.socket.as_deref(), interface)?;
    let request = Request::Set { settings: settings.to_vec() };
    let Answer::Set(changed) = client::request(&socket, &request)? else {
        anyhow::bail!(
            "the instance at {} sent an unexpected answer; is it of another version?",
            shown(&socket)
        );
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
            "rxsteer: the change is still pending; the old settings apply until rxsteer status no longer shows a \
             change under way",
        );
        return Ok(Outcome::Findings);
    }
    if !changed.done {
        output::note(
            "rxsteer: the new settings apply, but frames sent under the old ones are still under way; rxsteer \
             status shows when they are delivered",
        );
    }
    Ok(Outcome::Success)
}

/// Why an instance of the kind at `socket` refuses these settings: the message names only settings of that kind.
fn refused_by(socket: &Path, settings: &[String]) -> Option<String> {
    match client::status(socket, 0, false).ok()?.command {
        Command::Run => LiveSettings::parse(settings).err(),
        Command::Live => ChangeSettings::parse(settings).err(),
        Command::Replay => None,
    }
}

/// Which of the given settings have no effect with the active ones.
fn without_effect(given: &Steering, now: &SettingsShown) -> Vec<String> {
    // An instance of another version may have a policy or a rule that is unknown here.
    let Ok(policy) = now.policy.parse::<Policy>() else { return Vec::new() };
    let rule = |RuleShown { rule, .. }: &RuleShown| rule.parse::<PacketRule>();
    let Ok(rules) = now.rules.iter().map(rule).collect::<Result<Vec<_>, _>>() else {
        return Vec::new();
    };
    steering_without_effect(given, &with_rules(&policy, &rules))
}
