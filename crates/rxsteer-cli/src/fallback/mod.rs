//! `rxsteer run --fallback`: where XDP can't steer, the kernel's own RPS and RFS under the same policy words.
//!
//! It lasts as `rxsteer run` lasts: set when it begins, and as before when it ends. The values are on record
//! (`rxsteer_host::change`), so `rxsteer host restore` sets them back after a kill, and `rxsteer status` shows them.

pub(crate) mod express;
mod status;

pub(crate) use status::{Set, recorded, show, value};

use crate::host::apply::{Applying, shown};
use crate::host::namespace;
use crate::host::question::Waiting;
use crate::output::{note, print};
use crate::run::args::RunArgs;
use crate::{Outcome, check};
use express::expressed;
use rxsteer_host::change::{Journal, Lock, Plan, Wanted};
use rxsteer_host::{Globals, Host, InterfaceKnobs, Root, Topology, default_policy, links};
use rxsteer_user::{printable, sys};
use std::time::{Duration, Instant};

/// How long to wait at a time where there is no end.
const LONG: Duration = Duration::from_secs(60);

/// Steers the interfaces of `run` by the kernel, because of `why`.
pub(crate) fn command(args: &RunArgs, why: &anyhow::Error) -> anyhow::Result<Outcome> {
    note(&format!(
        "rxsteer: {}. Fallback: the kernel's own steering",
        crate::output::error_text(why)
    ));
    let asked = args.settings()?;
    let root = Root::host();
    let links = links()?;
    let policy = default_policy(&Host::look());
    let mut held = Vec::new();
    for link in check::chosen(&args.interfaces, &links)? {
        let knobs = InterfaceKnobs::look(&root, &link.name)?;
        let found = expressed(&asked, &policy, &knobs, sys::allowed_cpus());
        let found = found
            .map_err(|why| anyhow::anyhow!("no fallback for {}: {why}", printable(&link.name)))?;
        for differs in &found.differs {
            note(&format!("rxsteer: {}: {differs}", printable(&link.name)));
        }
        held.push((knobs, found.wanted));
    }
    let until = args.duration.and_then(|time| Instant::now().checked_add(time));
    let waiting = Waiting::begin()?;
    hold(&root, &held, None, until, &waiting)
}

/// Sets what is wanted of each interface, holds it until a signal or `until`, and sets it back. With `verify` old and new
/// settings take turns for so long, and what is worse is set back at once.
pub(crate) fn hold(
    root: &Root,
    wanted: &[(InterfaceKnobs, Wanted)],
    verify: Option<Duration>,
    until: Option<Instant>,
    waiting: &Waiting,
) -> anyhow::Result<Outcome> {
    let mut plans: Vec<Plan> = Vec::new();
    let mut outcome = Outcome::Success;
    for (knobs, wanted) in wanted {
        // An earlier interface's plan may have set what they share.
        let (topology, globals) = (Topology::look(root), Globals::look(root));
        let set = Plan::new(root, knobs, &topology, &globals, namespace(root), wanted)
            .map_err(anyhow::Error::from)
            .and_then(|plan| {
                print(&shown(root, &plan, &[]))?;
                let _lock = Lock::take(root)?;
                let applying = Applying { root, verify, confirm: None, plan: &plan, waiting };
                let outcome = applying.set()?;
                Ok((plan, outcome))
            });
        match set {
            Ok((plan, Outcome::Success)) => plans.push(plan),
            Ok((_, other)) => {
                outcome = other;
                break;
            }
            Err(error) => {
                set_back(root, &plans)?;
                return Err(error);
            }
        }
    }
    if outcome == Outcome::Success {
        let names: Vec<String> = plans
            .iter()
            .flat_map(|plan| &plan.interfaces)
            .map(|name| printable(name).into_owned())
            .collect();
        note(&format!(
            "rxsteer: the kernel steers {}; as before when this ends (rxsteer host restore after a kill)",
            names.join(", ")
        ));
        loop {
            let left = until.map_or(LONG, |until| until.saturating_duration_since(Instant::now()));
            if waiting.is_ended_within(left.min(LONG))
                || until.is_some_and(|until| Instant::now() >= until)
            {
                break;
            }
        }
    }
    if !set_back(root, &plans)? {
        outcome = Outcome::Findings;
    }
    Ok(outcome)
}

/// Sets plans back, the last one first; false where something else has changed a value since, which is left and said.
fn set_back(root: &Root, plans: &[Plan]) -> anyhow::Result<bool> {
    if plans.is_empty() {
        return Ok(true);
    }
    let _lock = Lock::take(root)?;
    let mut journal = Journal::open(root)?;
    let mut whole = true;
    for plan in plans.iter().rev() {
        for refusal in rxsteer_host::change::undo(root, &mut journal, plan) {
            whole = false;
            note(&format!(
                "rxsteer: it could not be set back: {}",
                printable(&refusal.to_string())
            ));
        }
    }
    journal.forget_unchanged()?;
    if whole {
        note("rxsteer: the kernel's own steering is as before");
    }
    Ok(whole)
}
