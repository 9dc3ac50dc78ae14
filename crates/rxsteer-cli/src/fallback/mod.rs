//! `rxsteer run --fallback`: if XDP cannot steer, uses the kernel's own RPS and RFS with the same policy names.
//!
//! The settings last as long as `rxsteer run`: it sets them at its start, and restores the former ones at its end. The
//! values are recorded (`rxsteer_host::change`), so `rxsteer host restore` restores them after a kill, and `rxsteer
//! status` shows them.

pub(crate) mod express;
mod followed;
mod status;

pub(crate) use status::{Set, recorded, show, value};

use crate::events_out::{Events, EventsOut};
use crate::host::apply::{Applying, shown};
use crate::host::namespace;
use crate::host::question::Waiting;
use crate::run::args::RunArgs;
use crate::{Outcome, check};
use express::expressed;
use followed::Followed;
use rxsteer_host::change::{Journal, Lock, Plan, Wanted};
use rxsteer_host::{Globals, Host, InterfaceKnobs, Root, Topology, default_policy, links};
use rxsteer_status::{EventKind, NewEvent};
use rxsteer_user::{printable, sys};
use std::time::{Duration, Instant};

/// How often to examine the interfaces.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Steers the interfaces of `run` with the kernel's own steering, because of `why`.
pub(crate) fn command(
    args: &RunArgs,
    why: &anyhow::Error,
    out: EventsOut,
) -> anyhow::Result<Outcome> {
    let mut events = Events::new(Instant::now(), out);
    let outcome = steer(args, why, &mut events);
    events.close(Instant::now());
    outcome
}

fn steer(args: &RunArgs, why: &anyhow::Error, events: &mut Events) -> anyhow::Result<Outcome> {
    let why = crate::output::error_text(why);
    let text = format!("{why}. Fallback: the kernel's own steering");
    events.add(Instant::now(), NewEvent::new(EventKind::Warning, text));
    let asked = args.settings()?;
    let root = Root::host();
    let links = links()?;
    let policy = default_policy(&Host::read());
    let mut held = Vec::new();
    for link in check::chosen(&args.interfaces, &links)? {
        let knobs = InterfaceKnobs::read(&root, &link.name)?;
        let found = expressed(&asked, &policy, &knobs, sys::allowed_cpus());
        let found = found
            .map_err(|why| anyhow::anyhow!("no fallback for {}: {why}", printable(&link.name)))?;
        for differs in &found.differs {
            let text = format!("{}: {differs}", printable(&link.name));
            let event = NewEvent::new(EventKind::InterfaceWarning, text);
            events.add(Instant::now(), event.with("interface", link.name.clone()));
        }
        held.push((knobs, found.wanted));
    }
    let until = args.duration.and_then(|time| Instant::now().checked_add(time));
    let waiting = Waiting::begin()?;
    hold(&root, &held, None, until, &waiting, events)
}

/// Applies the settings in `wanted` to each interface, keeps them until a signal or `until`, and restores the former
/// ones. With `verify`, old and new settings alternate for this time, and a change for the worse is undone at once.
pub(crate) fn hold(
    root: &Root,
    wanted: &[(InterfaceKnobs, Wanted)],
    verify: Option<Duration>,
    until: Option<Instant>,
    waiting: &Waiting,
    events: &mut Events,
) -> anyhow::Result<Outcome> {
    // Done before any change, so that an interface that disappears meanwhile is noticed.
    let mut followed = Followed::new(wanted.iter().map(|(knobs, _)| &knobs.name), &links()?);
    let mut plans: Vec<Plan> = Vec::new();
    let mut outcome = Outcome::Success;
    for (knobs, wanted) in wanted {
        // An earlier interface's plan may already have set values that they share.
        let (topology, globals) = (Topology::read(root), Globals::read(root));
        let set = Plan::new(root, knobs, &topology, &globals, namespace(root), wanted)
            .map_err(anyhow::Error::from)
            .and_then(|plan| {
                events.print(&shown(root, &plan, &[]))?;
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
                set_back(root, &plans, events)?;
                return Err(error);
            }
        }
    }
    if outcome == Outcome::Success {
        for name in plans.iter().flat_map(|plan| &plan.interfaces) {
            let text = format!(
                "the kernel steers {}; its settings are restored when rxsteer ends (after a kill: rxsteer host \
                 restore)",
                printable(name)
            );
            let event = NewEvent::new(EventKind::InterfaceSteered, text);
            events.add(Instant::now(), event.with("interface", name.clone()));
        }
        let _ = sd_notify::notify(&[sd_notify::NotifyState::Ready]);
        outcome = wait(&mut followed, until, waiting, events);
        let _ = sd_notify::notify(&[sd_notify::NotifyState::Stopping]);
    }
    if !set_back(root, &plans, events)? {
        outcome = Outcome::Findings;
    }
    Ok(outcome)
}

/// Waits for a signal or `until`, or until no interface exists any more.
fn wait(
    followed: &mut Followed,
    until: Option<Instant>,
    waiting: &Waiting,
    events: &mut Events,
) -> Outcome {
    loop {
        let now = Instant::now();
        if until.is_some_and(|until| now >= until) {
            return Outcome::Success;
        }
        let left = until.map_or(POLL_INTERVAL, |until| until - now);
        if waiting.is_ended_within(left.min(POLL_INTERVAL)) {
            return Outcome::Success;
        }
        let now = Instant::now();
        // If the kernel does not list the interfaces, changes are unknown.
        if let Ok(links) = links() {
            followed.update(&links).into_iter().for_each(|event| events.add(now, event));
        }
        events.overdue(now);
        if followed.is_empty() {
            events.add(now, NewEvent::new(EventKind::Ended, "no interface is left to steer"));
            return Outcome::Findings;
        }
    }
}

/// Undoes plans, the last one first. Returns false if other software has changed a value since; that value is left and
/// reported.
fn set_back(root: &Root, plans: &[Plan], events: &mut Events) -> anyhow::Result<bool> {
    if plans.is_empty() {
        return Ok(true);
    }
    let _lock = Lock::take(root)?;
    let mut journal = Journal::open(root)?;
    let mut whole = true;
    for plan in plans.iter().rev() {
        for refusal in rxsteer_host::change::undo(root, &mut journal, plan) {
            whole = false;
            let text = format!("it could not be restored: {}", printable(&refusal.to_string()));
            let event = NewEvent::new(EventKind::InterfaceWarning, text);
            events.add(Instant::now(), event.with("interfaces", plan.interfaces.clone()));
        }
    }
    journal.forget_unchanged()?;
    if whole {
        let text = "the kernel's own steering is restored";
        events.add(Instant::now(), NewEvent::new(EventKind::ChangeDone, text));
        events.message(&format!("rxsteer: {text}"));
    }
    Ok(whole)
}
