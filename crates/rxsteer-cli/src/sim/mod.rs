//! `rxsteer sim`: what a policy would do on a simulated machine.
//!
//! [`choose`] selects the scenario. The crate `rxsteer-report` formats the results.

pub(crate) mod args;
mod choose;
mod from;
mod policies;
mod published;
mod whole_file;

use crate::Outcome;
use crate::input::{refuse_input, stop_on_interrupt};
use crate::output;
use crate::progress;
use anyhow::{Context, anyhow};
use args::SimArgs;
use choose::Chosen;
use policies::Policies;
use rxsteer_report::sim::results::{Cell, Ending, Recording, Results, Varied};
use rxsteer_report::sim::{compared, csv, json, page, sensitivity, table};
use rxsteer_sim::Scenario;
use rxsteer_sim::compare::compare;
use rxsteer_sim::renumber::backwards;
use rxsteer_sim::scenario::EventKind;
use rxsteer_sim::seeds::{Plan, run_cells};
use rxsteer_sim::sensitivity::{changes, variants};
use rxsteer_user::core::Policy;
use rxsteer_user::shown;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use whole_file::WholeFile;

/// The command.
pub(crate) fn command(args: &SimArgs) -> anyhow::Result<Outcome> {
    if args.list {
        choose::list(args.json)?;
        return Ok(Outcome::Success);
    }
    if let Some(outcome) = published::command(&args.published, args.json)? {
        return Ok(outcome);
    }
    let scenario = args.scenario.iter().map(Path::new);
    let read: Vec<&Path> = scenario.chain(args.from.from.iter().map(PathBuf::as_path)).collect();
    anyhow::ensure!(
        args.csv.as_deref() != Some(Path::new("-")),
        "--csv requires the name of a file; for standard output, use --csv /dev/stdout"
    );
    anyhow::ensure!(
        args.csv.is_none() || args.csv != args.report,
        "--csv names a file and --report a folder, but both have the same name; give two names"
    );
    let index = args.report.as_deref().map(page_in);
    for (path, option) in [(args.csv.as_ref(), "--csv"), (index.as_ref(), "--report")] {
        path.map_or(Ok(()), |path| refuse_input(path, option, &read))?;
    }
    let chosen = choose::choose(args)?;
    let cells = cells(args, &chosen)?;
    let rows = args.csv.as_deref().map(|path| WholeFile::create(path, "--csv")).transpose()?;
    let index = args.report.as_deref().map(place).transpose()?;
    let stop = stop_on_interrupt(&[])?;
    if args.sensitivity && chosen.assumed.is_empty() {
        output::note(
            "rxsteer: the scenario sets every cost that would be assumed, so --sensitivity has none to change",
        );
    }
    for note in &chosen.notes {
        output::note(&format!("rxsteer: {note}"));
    }
    let results = run(args, chosen, cells, &stop)?;
    if results.interrupted {
        let shown = if results.is_unfinished() { "begun" } else { "done" };
        output::note(&format!(
            "rxsteer: interrupted; what follows is of the runs that were {shown} by then"
        ));
    }
    output::print(&if args.json {
        format!("{:#}\n", json::all(&results))
    } else {
        text(&results)
    })?;
    if let Some(file) = rows {
        file.finish(&csv::all(&results)?)?;
    }
    if let Some(file) = index {
        file.finish(page::page(&results)?.as_bytes())?;
    }
    for note in results.notes() {
        output::note(&format!("rxsteer: {note}"));
    }
    Ok(outcome(&results))
}

fn outcome(results: &Results) -> Outcome {
    match results.ending() {
        Ending::Sound => Outcome::Success,
        Ending::Interrupted => Outcome::Interrupted,
        Ending::Findings => Outcome::Findings,
    }
}

/// The future page, in a folder that is created if it does not exist.
fn place(dir: &Path) -> anyhow::Result<WholeFile> {
    std::fs::create_dir_all(dir).map_err(|error| {
        anyhow!("can't make the folder {}: {error}; name another place with --report", shown(dir))
    })?;
    WholeFile::create(&page_in(dir), "--report")
}

/// The page's file.
fn page_in(dir: &Path) -> PathBuf {
    dir.join("index.html")
}

fn text(results: &Results) -> String {
    let figures = match results.cells.as_slice() {
        _ if results.cells.iter().all(|cell| cell.runs.is_empty()) => {
            "nothing was measured yet: it was interrupted before a warm-up was over\n".to_owned()
        }
        _ if !results.varied.is_empty() => sensitivity::all(results),
        [_] => table::one(results),
        _ => compared::all(results),
    };
    format!("{}\n{figures}", table::head(results))
}

/// One cell for each policy; if nothing is compared, one for the scenario as it is.
fn cells(args: &SimArgs, chosen: &Chosen) -> anyhow::Result<Vec<Cell>> {
    let Some(Policies(policies)) = &args.compare else {
        return Ok(vec![cell(chosen.scenario.clone())]);
    };
    let with = |policy: &Policy| {
        let mut scenario = chosen.scenario.clone();
        let was = std::mem::replace(&mut scenario.steering.policy, policy.clone());
        // If an event does not change the policy, the policy of the comparison stays.
        for event in &mut scenario.events {
            if let EventKind::Steering(later) = &mut event.what
                && later.policy == was
            {
                later.policy = policy.clone();
            }
        }
        scenario.check().with_context(|| format!("{policy} can't run in {}", chosen.name))?;
        Ok(cell(scenario))
    };
    policies.iter().map(with).collect()
}

fn cell(scenario: Scenario) -> Cell {
    Cell { label: scenario.steering.policy.to_string(), scenario, runs: Vec::new() }
}

/// Runs every cell with every seed.
fn run(
    args: &SimArgs,
    chosen: Chosen,
    mut cells: Vec<Cell>,
    stop: &AtomicBool,
) -> anyhow::Result<Results> {
    let seeds = args.seeds();
    anyhow::ensure!(
        args.seed.checked_add(u64::from(seeds) - 1).is_some(),
        "{seeds} seeds from {} go beyond the largest number, {}; give a smaller --seed",
        args.seed,
        u64::MAX
    );
    let plan = Plan { first_seed: args.seed, seeds, threads: threads(args) };
    let variants =
        if args.sensitivity { variants(&chosen.scenario, &chosen.assumed) } else { Vec::new() };
    // First what is compared, then the first cell with its CPUs numbered backwards, or with one cost changed at a time.
    let shown = cells.len();
    let all = shown + usize::from(shown > 1) + variants.len();
    let scenario_of = |cell: usize, seed: u64| match cells.get(cell) {
        Some(cell) => scenario_of(&cell.scenario, seed, args),
        None if shown > 1 => backwards(&scenario_of(&cells[0].scenario, seed, args)),
        None => scenario_of(&variants[cell - shown].scenario, seed, args),
    };
    let bar = progress::runs(all as u64 * u64::from(seeds), args.json);
    let mut runs = run_cells(all, plan, &scenario_of, &|| bar.inc(1), stop)?;
    bar.finish_and_clear();
    let others = runs.cells.split_off(shown);
    runs.unfinished.truncate(shown);
    let renumbered = if shown > 1 { others[0].as_slice() } else { &[] };
    let differences = compare(&cells[0].scenario, &runs.cells, renumbered);
    let varied = variants.into_iter().zip(&others).map(|(variant, runs_with_it)| Varied {
        cost: variant.cost,
        value: variant.value,
        changes: changes(&cells[0].scenario, &runs.cells[0], runs_with_it),
    });
    let varied = varied.collect();
    // Without a finished run, the unfinished ones are shown.
    let none_is_whole = runs.cells.iter().all(Vec::is_empty);
    let shown = if none_is_whole { runs.unfinished } else { runs.cells };
    for (cell, runs) in cells.iter_mut().zip(shown) {
        cell.runs = runs;
    }
    Ok(Results {
        settings: choose::settings(args),
        name: chosen.name,
        text: chosen.text,
        from: chosen.from.map(|from| Recording { about: from.json(), issues: from.issues }),
        first_seed: args.seed,
        seeds,
        faults: args.faults,
        differences,
        cells,
        assumed: chosen.assumed,
        varied,
        interrupted: runs.stopped,
    })
}

/// The scenario for one seed: with the faults of that seed, and for recordings with its hash.
fn scenario_of(scenario: &Scenario, seed: u64, args: &SimArgs) -> Scenario {
    let mut scenario = match args.faults {
        0 => scenario.clone(),
        faults => rxsteer_sim::faults::add(scenario, seed, faults),
    };
    if args.from.hashes_by_seed() {
        rxsteer_sim::recorded::rehash(&mut scenario, seed);
    }
    scenario
}

fn threads(args: &SimArgs) -> NonZeroUsize {
    let asked = args.threads.and_then(|threads| NonZeroUsize::new(usize::from(threads)));
    // If the host does not report its number of CPUs, one thread is always right.
    asked.or_else(|| std::thread::available_parallelism().ok()).unwrap_or(NonZeroUsize::MIN)
}

/// The results of a command line (without `rxsteer sim`), for tests.
#[cfg(test)]
fn results(line: &[&str]) -> Results {
    use crate::cli::{Cli, Command};
    use clap::Parser;
    let line = ["rxsteer", "sim"].iter().chain(line);
    let Command::Sim(args) = Cli::try_parse_from(line).expect("a command line").command else {
        panic!("another command");
    };
    let chosen = choose::choose(&args).expect("a scenario");
    let cells = cells(&args, &chosen).expect("policies that can run");
    run(&args, chosen, cells, &AtomicBool::new(false)).expect("runs")
}

#[cfg(test)]
mod page_tests;
#[cfg(test)]
mod tests;
