//! `rxsteer lab run`.

use super::args::RunArgs;
use super::{forest, markdown, page};
use crate::Outcome;
use crate::input::stop_on_interrupt;
use crate::output::{note, print};
use anyhow::Context;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use rxsteer_lab::experiment::{self, Experiment, Report, Scale};
use rxsteer_lab::{Cards, InUse};
use rxsteer_settings::suggestion;
use rxsteer_user::{printable, shown};
use std::io::IsTerminal;
use std::path::Path;
use std::sync::atomic::Ordering;

pub(super) fn command(args: &RunArgs) -> anyhow::Result<Outcome> {
    let experiments = experiment::list();
    let chosen =
        args.names.iter().map(|name| find(&experiments, name)).collect::<Result<Vec<_>, _>>()?;
    if let Some(folder) = &args.report {
        std::fs::create_dir_all(folder).with_context(|| {
            format!("cannot make the folder {} for the report", folder.display())
        })?;
    }
    if let (Some(steered), Some(peer)) = (&args.iface, &args.peer) {
        take(steered, peer, args.force)?;
    }
    let mut scale = if args.quick { Scale::QUICK } else { Scale::FULL };
    scale.rounds = args.repeat.map_or(scale.rounds, usize::from);
    let stop = stop_on_interrupt(&[])?;
    let mut outcome = Outcome::Success;
    let mut reports = Vec::new();
    let mut refused = Vec::new();
    for experiment in chosen {
        let name = experiment.about().name;
        if let Some(lacks) = experiment.lacks() {
            note(&format!("rxsteer: SKIPPED {name}: {lacks}"));
            refused.push(format!("{name}: {lacks}"));
            continue;
        }
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let bar = bar(args.json);
        let report = experiment::run(
            experiment,
            scale,
            &command_line(args, name),
            &stop,
            |done, all, next| {
                bar.set_length(all as u64);
                bar.set_position(done as u64);
                bar.set_message(format!("{name}: {next}"));
            },
        );
        bar.finish_and_clear();
        let report = match report {
            Ok(report) => report,
            // The others may run.
            Err(why) => {
                let why = format!("the experiment {name} could not run: {why}");
                note(&format!("rxsteer: {}", printable(&why)));
                refused.push(why);
                outcome = Outcome::Findings;
                continue;
            }
        };
        show(&report, args)?;
        if report.rows.iter().any(|row| !row.failures.is_empty()) {
            outcome = Outcome::Findings;
        }
        reports.push(report);
        if let Some(folder) = &args.report {
            write(folder, "report.html", &page::of(&reports)?)?;
        }
    }
    if stop.load(Ordering::Relaxed) {
        return Ok(Outcome::Interrupted);
    }
    if reports.is_empty() {
        anyhow::bail!("no experiment could run here. {}", refused.join("; "));
    }
    Ok(outcome)
}

/// Lets the experiments have two interfaces of this machine, unless they are in use.
fn take(steered: &str, peer: &str, force: bool) -> anyhow::Result<()> {
    anyhow::ensure!(
        steered != peer,
        "--iface and --peer are both {}; one interface sends, and the other one receives",
        printable(steered)
    );
    for name in [steered, peer] {
        match rxsteer_lab::in_use(name) {
            None => {}
            Some(InUse::Absent) => {
                anyhow::bail!("there is no interface {} here; ip link shows all", printable(name))
            }
            Some(InUse::By(_)) if force => {}
            Some(InUse::By(reasons)) => anyhow::bail!(
                "{name} is in use: {}. The experiments take it away from whatever uses it. Choose another interface, or add --force: then \
                 its connections end, and its addresses and routes are restored afterwards",
                reasons.join("; ")
            ),
        }
    }
    rxsteer_lab::use_cards(Cards { steered: steered.to_owned(), peer: peer.to_owned() });
    Ok(())
}

fn find<'a>(
    experiments: &'a [Box<dyn Experiment>],
    name: &str,
) -> anyhow::Result<&'a dyn Experiment> {
    let found = experiments.iter().find(|experiment| experiment.about().name == name);
    found.map(|experiment| &**experiment).with_context(|| {
        let names: Vec<&str> =
            experiments.iter().map(|experiment| experiment.about().name).collect();
        format!("there is no experiment '{name}'{}", suggestion(name, &names))
    })
}

/// The command that makes the same report.
fn command_line(args: &RunArgs, name: &str) -> String {
    let repeat = args.repeat.map_or(String::new(), |rounds| format!(" --repeat {rounds}"));
    let folder =
        args.report.as_ref().map_or(String::new(), |folder| format!(" --report {}", shown(folder)));
    let quick = if args.quick { " --quick" } else { "" };
    let cards = match (&args.iface, &args.peer) {
        (Some(steered), Some(peer)) => format!(" --iface {steered} --peer {peer}"),
        _ => String::new(),
    };
    let force = if args.force { " --force" } else { "" };
    format!("rxsteer lab run {name}{quick}{repeat}{cards}{force}{folder}")
}

fn show(report: &Report, args: &RunArgs) -> anyhow::Result<()> {
    let text = markdown::of(report);
    if args.json {
        print(&format!("{}\n", serde_json::to_string(report)?))?;
    } else {
        print(&text)?;
    }
    if let Some(folder) = &args.report {
        let json = format!("{}\n", serde_json::to_string_pretty(report)?);
        for (end, text) in [("json", json), ("md", text)] {
            write(folder, &format!("{}.{end}", report.experiment), &text)?;
        }
        if let Some(chart) = forest::of(report)? {
            write(folder, &format!("{}.svg", report.experiment), &chart)?;
        }
    }
    Ok(())
}

fn write(folder: &Path, name: &str, text: &str) -> anyhow::Result<()> {
    let path = folder.join(name);
    std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// A bar on standard error, on a terminal only.
pub(super) fn bar(quiet: bool) -> ProgressBar {
    if quiet || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:20} {pos}/{len}  {msg}");
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    style.map_or_else(|_| ProgressBar::hidden(), |style| bar.with_style(style))
}
