//! `rxsteer host recommend`: measures, and prints a recommendation.

use super::args::RecommendArgs;
use super::{chosen, listed};
use crate::input::stop_on_interrupt;
use crate::output;
use crate::output::lines::paragraphs;
use crate::{Outcome, compare};
use anyhow::Context;
use rxsteer_host::recommend::{Counts, Facts, Measurement, Recommendation, Traffic, recommend};
use rxsteer_host::{
    Globals, Host, Interface, InterfaceKnobs, Link, Root, Spreading, Topology, judge,
};
use rxsteer_status::figures::percent;
use rxsteer_user::printable;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The most frames captured of an interface.
const FRAMES: u64 = 5000;
/// How long to sleep before checking whether to stop.
const STEP: Duration = Duration::from_millis(50);

/// The facts about an interface, and the recommendation.
pub(crate) struct Recommended {
    pub(crate) facts: Facts,
    pub(crate) measured: Measurement,
    pub(crate) found: Recommendation,
}

/// The command.
pub(crate) fn command(root: &Root, args: &RecommendArgs) -> anyhow::Result<Outcome> {
    anyhow::ensure!(
        root.is_host() || !args.capture,
        "--capture captures frames of this host, so it can't be used with --root; leave one of them out"
    );
    let links = listed(root)?;
    let chosen: Vec<Link> = chosen(root, &args.interfaces, &links)?.into_iter().cloned().collect();
    if chosen.is_empty() {
        output::print("There is no NIC here; name an interface: rxsteer host recommend IFACE\n")?;
        return Ok(Outcome::Success);
    }
    let stop = stop_on_interrupt(&[])?;
    // ORDER: Relaxed; the flag is a request and carries no data.
    let is_ended = |time| {
        sleep(time);
        stop.load(Ordering::Relaxed)
    };
    let all = measure(root, &chosen, args.duration, args.capture, &stop, is_ended)?;
    // ORDER: Relaxed; the flag is a request and carries no data.
    if stop.load(Ordering::Relaxed) {
        output::note("rxsteer: interrupted before the measurement was complete");
        return Ok(Outcome::Interrupted);
    }
    if args.json {
        output::print(&format!("{:#}\n", as_json(&all)))?;
    } else {
        output::print(&as_text(&all, args.duration))?;
    }
    Ok(Outcome::Success)
}

/// Measures these interfaces at the same time, and judges each. `is_ended_within` waits for a time, and returns true if
/// the measurement must end; `stop` ends captures.
pub(crate) fn measure(
    root: &Root,
    chosen: &[Link],
    time: Duration,
    capture: bool,
    stop: &Arc<AtomicBool>,
    mut is_ended_within: impl FnMut(Duration) -> bool,
) -> anyhow::Result<Vec<Recommended>> {
    let host = root.is_host().then(Host::read);
    let topology = Topology::read(root);
    let globals = Globals::read(root);
    let read = |name: &str| InterfaceKnobs::read(root, name);
    let before: Vec<(InterfaceKnobs, Counts)> = chosen
        .iter()
        .map(|link| read(&link.name).map(|knobs| (Counts::read(root, &knobs), knobs)))
        .map(|read| read.map(|(counts, knobs)| (knobs, counts)))
        .collect::<Result<_, _>>()?;
    let started = Instant::now();
    let traffic: Vec<Option<Traffic>> = if capture {
        // One after the other, each for its part of the time.
        let part = time / u32::try_from(chosen.len()).unwrap_or(u32::MAX).max(1);
        let traffic = chosen.iter().map(|link| compare::traffic(link, part, FRAMES, stop));
        traffic.collect::<Result<_, _>>()?
    } else {
        vec![None; chosen.len()]
    };
    while started.elapsed() < time {
        if is_ended_within(STEP.min(time.saturating_sub(started.elapsed()))) {
            break;
        }
    }
    let each = chosen.iter().zip(before).zip(traffic).map(|((link, (_, before)), traffic)| {
        let gone = || format!("{} can't be read any more; was it removed?", printable(&link.name));
        let knobs = read(&link.name).with_context(gone)?;
        let mut measured = Counts::read(root, &knobs).since(&before, started.elapsed());
        measured.traffic = traffic;
        let spreading =
            if root.is_host() { Spreading::read(knobs.index) } else { Spreading::default() };
        let run = match &host {
            Some(host) => runs(link, host),
            None => Err("it is a recorded tree".to_owned()),
        };
        let (topology, globals) = (topology.clone(), globals.clone());
        let facts = Facts { topology, globals, knobs, spreading, run };
        let found = recommend(&facts, &measured);
        Ok(Recommended { facts, measured, found })
    });
    each.collect()
}

/// Whether `rxsteer run` is worth recommending for an interface; otherwise why not.
fn runs(link: &Link, host: &Host) -> Result<(), String> {
    attaches(link, host)?;
    if link.is("veth") {
        return Err("on veth pairs native XDP usually costs more than steering gains".to_owned());
    }
    Ok(())
}

/// Whether `rxsteer run` can attach to an interface in native mode, as `rxsteer check` judges it; otherwise why not.
pub(crate) fn attaches(link: &Link, host: &Host) -> Result<(), String> {
    if cfg!(not(feature = "xdp")) {
        return Err("this build has no in-kernel path".to_owned());
    }
    let links = rxsteer_host::links().map_err(|error| error.to_string())?;
    let interface = Interface::of_link(link, &links);
    let findings = [judge::host(host), judge::interface(&interface, host)].concat();
    if let Some(finding) = findings.iter().find(|finding| finding.blocks) {
        return Err(finding.what.clone());
    }
    match interface.xdp {
        Some(xdp) if !xdp.redirects() => Err("its driver has no native XDP".to_owned()),
        // Before Linux 6.3 only an attempt shows this.
        _ => Ok(()),
    }
}

fn as_text(all: &[Recommended], time: Duration) -> String {
    let mut text = String::new();
    for Recommended { facts, measured, found } in all {
        let name = printable(&facts.knobs.name);
        let frames = measured.load.received.get(&facts.knobs.name).copied().unwrap_or(0);
        let rate = frames as f64 / measured.time.as_secs_f64().max(1e-9);
        text += &format!("{name}: {rate:.0} frames/s within {}", output::table::duration(time));
        if measured.nic_dropped > 0 {
            text += &format!(", {} dropped or missed by the NIC", measured.nic_dropped);
        }
        if let Some(traffic) = measured.traffic.filter(|traffic| traffic.frames > 0) {
            text += &format!(
                "; of {} captured the largest of {} flows has {}",
                traffic.frames,
                traffic.flows,
                percent(traffic.largest, traffic.frames)
            );
        }
        text += &format!("\n{}\n", paragraphs(&found.to_string()));
    }
    text.truncate(text.trim_end().len());
    text + "\n"
}

fn as_json(all: &[Recommended]) -> serde_json::Value {
    let each = all.iter().map(|Recommended { facts, measured, found }| {
        json!({
            "name": facts.knobs.name,
            "rule": found.rule,
            "recommendation": found.action,
            "sentences": found.sentences,
            "commands": found.commands,
            "measured": measured,
            "facts": facts,
        })
    });
    json!({ "version": env!("CARGO_PKG_VERSION"), "interfaces": each.collect::<Vec<_>>() })
}
