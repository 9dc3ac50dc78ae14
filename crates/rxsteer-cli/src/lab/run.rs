//! `rxsteer lab run`.

use super::args::RunArgs;
use super::{begin, forest, markdown, page, writable};
use crate::Outcome;
use crate::input::stop_on_interrupt;
use crate::output::{note, print};
use anyhow::Context;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use rxsteer_lab::experiment::{self, Experiment, Report, Scale, Skipped};
use rxsteer_lab::{Cards, InUse};
use rxsteer_settings::suggestion;
use rxsteer_user::printable;
use std::io::IsTerminal;
use std::path::Path;
use std::sync::atomic::Ordering;

/// Files of an experiment's report, and of all reports of a run.
const ENDINGS: [&str; 3] = ["json", "md", "svg"];
const PAGE: &str = "report.html";

pub(super) fn command(args: &RunArgs) -> anyhow::Result<Outcome> {
    let experiments = experiment::list();
    let chosen =
        args.names.iter().map(|name| find(&experiments, name)).collect::<Result<Vec<_>, _>>()?;
    let names: Vec<&str> = chosen.iter().map(|experiment| experiment.description().name).collect();
    // Also restores interfaces that a killed lab had borrowed, so that they are found next.
    let _begun = begin()?;
    if let Some(folder) = &args.report {
        std::fs::create_dir_all(folder).with_context(|| {
            format!("cannot make the folder {} for the report", folder.display())
        })?;
        for name in names.iter().flat_map(|name| ENDINGS.map(|ending| format!("{name}.{ending}"))) {
            writable(&folder.join(name), "report")?;
        }
        writable(&folder.join(PAGE), "report")?;
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
    for (index, experiment) in chosen.into_iter().enumerate() {
        let name = names[index];
        if stop.load(Ordering::Relaxed) {
            note(&format!("rxsteer: interrupted; not run: {}", names[index..].join(", ")));
            break;
        }
        if let Some(why) = experiment.unavailable() {
            note(&format!("rxsteer: SKIPPED {name}: {why}"));
            refused.push(format!("{name}: {why}"));
            continue;
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
        let mut report = match report {
            Ok(report) => report,
            // The other experiments may still run.
            Err(why) => {
                let why = format!("the experiment {name} could not run: {why}");
                note(&format!("rxsteer: {}", printable(&why)));
                refused.push(why);
                outcome = Outcome::Findings;
                continue;
            }
        };
        if report.partial {
            report.skipped.extend(names[index + 1..].iter().map(|name| Skipped {
                what: (*name).to_owned(),
                needs: "not run, since the run was interrupted before".to_owned(),
            }));
        }
        if report.rows.iter().any(|row| !row.failures.is_empty()) {
            outcome = Outcome::Findings;
        }
        let shown = if args.json {
            format!("{}\n", serde_json::to_string(&report)?)
        } else {
            markdown::of(&report)
        };
        reports.push(report);
        // If this fails, the next experiment may still be written, and this one is printed.
        if let Some(folder) = &args.report
            && let Err(why) = save(folder, &reports)
        {
            note(&format!("rxsteer: {}", printable(&format!("{why:#}"))));
            outcome = Outcome::Findings;
        }
        print(&shown)?;
    }
    if stop.load(Ordering::Relaxed) {
        return Ok(Outcome::Interrupted);
    }
    if reports.is_empty() {
        anyhow::bail!("no experiment could run here. {}", refused.join("; "));
    }
    Ok(outcome)
}

/// Makes the experiments use two interfaces of this machine, unless these are in use.
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
                "{name} is in use: {}. The experiments take it over. Choose another interface, or add --force: its \
                 connections then end, and its addresses and routes are restored afterwards",
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
    let found = experiments.iter().find(|experiment| experiment.description().name == name);
    found.map(|experiment| &**experiment).with_context(|| {
        let names: Vec<&str> =
            experiments.iter().map(|experiment| experiment.description().name).collect();
        format!("there is no experiment '{name}'{}", suggestion(name, &names))
    })
}

/// The command that makes the same report.
fn command_line(args: &RunArgs, name: &str) -> String {
    let repeat = args.repeat.map_or(String::new(), |rounds| format!(" --repeat {rounds}"));
    let folder = args.report.as_ref().map(|folder| quoted(&folder.to_string_lossy()));
    let folder = folder.map_or(String::new(), |folder| format!(" --report {folder}"));
    let quick = if args.quick { " --quick" } else { "" };
    let cards = match (&args.iface, &args.peer) {
        (Some(steered), Some(peer)) => {
            format!(" --iface {} --peer {}", quoted(steered), quoted(peer))
        }
        _ => String::new(),
    };
    let force = if args.force { " --force" } else { "" };
    format!("rxsteer lab run {name}{quick}{repeat}{cards}{force}{folder}")
}

/// Words of a command, quoted for a shell where they have to be.
pub(super) fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-/=:,@%+".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// Writes the files of the last report, and the page of all reports. A file that cannot be written does not prevent the
/// others.
fn save(folder: &Path, reports: &[Report]) -> anyhow::Result<()> {
    let mut files = vec![(PAGE.to_owned(), page::of(reports)?)];
    if let Some(report) = reports.last() {
        let json = format!("{}\n", serde_json::to_string_pretty(report)?);
        let texts = [Some(json), Some(markdown::of(report)), forest::of(report)?];
        for (ending, text) in ENDINGS.iter().zip(texts) {
            files.extend(text.map(|text| (format!("{}.{ending}", report.experiment), text)));
        }
    }
    let written = files.into_iter().map(|(name, text)| {
        let path = folder.join(name);
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    });
    // Writes all files before reporting the first error.
    written.collect::<Vec<_>>().into_iter().collect()
}

/// A progress bar on standard error, only on a terminal.
pub(super) fn bar(quiet: bool) -> ProgressBar {
    if quiet || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:20} {pos}/{len}  {msg}");
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    style.map_or_else(|_| ProgressBar::hidden(), |style| bar.with_style(style))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_can_be_typed_again() {
        let args = RunArgs {
            names: vec!["rr".to_owned()],
            repeat: Some(3),
            quick: true,
            report: Some("it's mine".into()),
            iface: Some("eth1".to_owned()),
            peer: Some("a;b".to_owned()),
            force: false,
            json: true,
        };
        assert_eq!(
            command_line(&args, "rr"),
            r"rxsteer lab run rr --quick --repeat 3 --iface eth1 --peer 'a;b' --report 'it'\''s mine'"
        );
        assert_eq!(quoted("results/1"), "results/1");
        assert_eq!(quoted(""), "''");
    }
}
