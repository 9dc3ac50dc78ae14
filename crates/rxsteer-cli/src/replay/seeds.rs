//! `rxsteer replay --seeds N`: how much the spread depends on the secret of the flow hash.
//!
//! Each secret needs a separate replay. The frames are read once and kept in memory if they fit there; otherwise each
//! replay reads the input again.

mod show;

use super::args::ReplayArgs;
use super::{Replay, by_hash, once};
use crate::Outcome;
use crate::hash_key::HashSeed;
use crate::input::{Input, issues, skipped};
use crate::output;
use crate::progress;
use crate::work::{Work, at_home};
use anyhow::Context;
use indicatif::ProgressBar;
use rxsteer_user::block::BLOCK_BYTES;
use rxsteer_user::core::{CpuId, CpuSet};
use rxsteer_user::packet::{Hasher, SymmetricHash};
use rxsteer_user::source::memory::MemorySource;
use rxsteer_user::source::{Source, SourceIssue};
use rxsteer_user::{CpuReport, PipelineConfig, Report, Speed};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The most memory for frames that are kept, in bytes.
const MAX_MEMORY: usize = 1 << 30;

/// The secrets: consecutive numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Secrets {
    first: HashSeed,
    count: u32,
}

impl Secrets {
    /// `count` secrets from `first` on; refuses a hash without a secret.
    pub(crate) fn new(first: Option<HashSeed>, count: u32) -> anyhow::Result<Secrets> {
        let first = first.context(
            "--seeds varies the secret of the symmetric hash, and the key of --hash toeplitz is fixed; leave one of \
             them out",
        )?;
        Ok(Secrets { first, count })
    }

    /// Only the first `count` of them.
    pub(crate) fn first(self, count: u32) -> Secrets {
        Secrets { count: count.min(self.count), ..self }
    }

    /// The number of secrets.
    pub(crate) fn count(self) -> u32 {
        self.count
    }

    /// The first one.
    pub(crate) fn seed(self) -> HashSeed {
        self.first
    }

    fn all(self) -> impl Iterator<Item = HashSeed> {
        (0..u128::from(self.count)).map(move |n| HashSeed(self.first.0.wrapping_add(n)))
    }
}

/// The figures that are compared over the secrets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Figure {
    Imbalance,
    BusiestShare,
    Dropped,
    Moves,
    Deferred,
    AtHome,
}

impl Figure {
    pub(crate) const ALL: [Figure; 6] = [
        Figure::Imbalance,
        Figure::BusiestShare,
        Figure::Dropped,
        Figure::Moves,
        Figure::Deferred,
        Figure::AtHome,
    ];

    /// Its name in JSON.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Figure::Imbalance => "imbalance",
            Figure::BusiestShare => "busiest_share",
            Figure::Dropped => "dropped",
            Figure::Moves => "moves",
            Figure::Deferred => "deferred",
            Figure::AtHome => "at_home_share",
        }
    }

    /// The figure of one replay; `None` if it has none.
    fn of(self, report: &Report<Work>) -> Option<f64> {
        let share = |(part, whole): (u64, u64)| (whole > 0).then(|| part as f64 / whole as f64);
        match self {
            Figure::Imbalance => report.imbalance(),
            Figure::BusiestShare => {
                let busiest = report.per_cpu.iter().map(|cpu| cpu.steered()).max()?;
                share((busiest, report.packets))
            }
            Figure::Dropped => Some(report.drops.total() as f64),
            Figure::Moves => Some(report.moves as f64),
            Figure::Deferred => Some(report.steering.deferred as f64),
            Figure::AtHome => at_home(report).and_then(share),
        }
    }
}

/// The result with one secret.
pub(crate) struct Draw {
    pub(crate) secret: HashSeed,
    /// In the order of [`Figure::ALL`].
    figures: [Option<f64>; Figure::ALL.len()],
    /// The packets with each CPU as target, for all CPUs that are steered to or that had any.
    pub(crate) per_cpu: Vec<(CpuId, u64)>,
}

impl Draw {
    fn get(&self, figure: Figure) -> Option<f64> {
        self.figures[figure as usize]
    }
}

/// The replays under all secrets.
pub(crate) struct Draws {
    draws: Vec<Draw>,
    /// The last complete replay: what it received does not depend on the secret.
    pub(crate) last: Report<Work>,
    /// Packets processed out of order, over all replays.
    pub(crate) reordered: u64,
    /// How workers ended that did not finish.
    pub(crate) failures: Vec<String>,
}

impl Draws {
    /// The number of secrets with a result.
    pub(crate) fn count(&self) -> usize {
        self.draws.len()
    }

    /// The draws that have this figure, in ascending order of it.
    fn ordered(&self, figure: Figure) -> Vec<(f64, &Draw)> {
        let has = |draw| Draw::get(draw, figure).map(|value| (value, draw));
        let mut draws: Vec<(f64, &Draw)> = self.draws.iter().filter_map(has).collect();
        draws.sort_by(|(a, _), (b, _)| a.total_cmp(b));
        draws
    }

    /// Minimum, median and maximum. For an even number of draws the median is the lower one of the two in the middle,
    /// so that each of the three belongs to a secret.
    pub(crate) fn range(&self, figure: Figure) -> Option<[(f64, &Draw); 3]> {
        let draws = self.ordered(figure);
        Some([*draws.first()?, draws[(draws.len() - 1) / 2], *draws.last()?])
    }
}

/// The frames of several replays: in memory if they fit there, otherwise read again for each replay.
pub(crate) struct Frames<'a> {
    /// Where they can be read again; `None` for frames of a live interface.
    input: Option<&'a Input<'a>>,
    loaded: Option<Vec<MemorySource>>,
    /// The last sources that read them.
    sources: Vec<Box<dyn Source>>,
}

impl<'a> Frames<'a> {
    /// The frames of `sources`, which are those of `input` if that is given. At recorded speed a source must know when
    /// the recording begins, which only the input does, so nothing is kept in memory then.
    pub(crate) fn new(
        input: Option<&'a Input<'a>>,
        mut sources: Vec<Box<dyn Source>>,
        speed: Speed,
        stop: &AtomicBool,
    ) -> anyhow::Result<Frames<'a>> {
        let loaded = if !speed.is_recorded() { load(&mut sources, stop) } else { None };
        // ORDER: Relaxed; the flag is a request and carries no data.
        if loaded.is_none() && !stop.load(Ordering::Relaxed) {
            let input = input.with_context(|| {
                format!("the frames do not fit into {} GiB of memory", MAX_MEMORY >> 30)
            })?;
            check_again(input.captures, speed)?;
        }
        Ok(Frames { input, loaded, sources })
    }

    fn open(&self) -> anyhow::Result<Vec<Box<dyn Source>>> {
        match (&self.loaded, self.input) {
            (Some(loaded), _) => Ok(loaded.iter().map(|it| Box::new(it.clone()) as _).collect()),
            (None, Some(input)) => input.open(),
            // Only if loading was interrupted.
            (None, None) => Ok(Vec::new()),
        }
    }

    /// The problems with the input, once.
    pub(crate) fn issues(&mut self, interrupted: bool) -> Vec<SourceIssue> {
        issues(&mut self.sources, interrupted)
    }

    /// Records that were skipped because of their link type.
    pub(crate) fn skipped(&self) -> u64 {
        skipped(&self.sources)
    }
}

/// Replays the frames under each secret; `None` when it was interrupted before the first replay was complete.
pub(crate) fn draws(
    replay: &Replay,
    config: &mut PipelineConfig,
    frames: &mut Frames<'_>,
    secrets: Secrets,
    stop: &Arc<AtomicBool>,
    bar: &ProgressBar,
) -> anyhow::Result<Option<Draws>> {
    // ORDER: Relaxed; the flag is a request and carries no data.
    let is_interrupted = || stop.load(Ordering::Relaxed);
    let (mut draws, mut failures, mut reordered, mut last) = (Vec::new(), Vec::new(), 0, None);
    for secret in secrets.all() {
        if is_interrupted() {
            break;
        }
        config.hasher = Hasher::Symmetric(SymmetricHash::new(secret.0.to_be_bytes()));
        let mut sources = frames.open()?;
        let report = once(replay, config, &mut sources, stop, (|_| None, |_| None), |_, _| {})?;
        if frames.loaded.is_none() {
            frames.sources = sources;
        }
        // The result for a part of the input does not apply to the whole.
        if is_interrupted() {
            break;
        }
        bar.inc(1);
        reordered += report.reordered;
        let failed = |cpu: &CpuReport| {
            let failure = cpu.failure.as_ref()?;
            Some(format!(
                "--hash-seed {:x}: the worker of CPU {} ended early: {failure}",
                secret.0, cpu.cpu
            ))
        };
        failures.extend(report.per_cpu.iter().filter_map(failed));
        draws.push(Draw {
            secret,
            figures: Figure::ALL.map(|figure| figure.of(&report)),
            per_cpu: steered_by_cpu(&report),
        });
        last = Some(report);
    }
    Ok(last.map(|last| Draws { draws, last, reordered, failures }))
}

/// The packets with each CPU as target, for all CPUs that are steered to or that had any.
fn steered_by_cpu(report: &Report<Work>) -> Vec<(CpuId, u64)> {
    let in_use = report.per_cpu.iter().filter(|cpu| cpu.steered_to || cpu.steered() > 0);
    in_use.map(|cpu| (cpu.cpu, cpu.steered())).collect()
}

/// All replays, with everything for their report.
struct Spread {
    secrets: Secrets,
    draws: Draws,
    policy: String,
    cpus: CpuSet,
    issues: Vec<SourceIssue>,
    skipped: u64,
    settings: serde_json::Value,
    elapsed: Duration,
    interrupted: bool,
}

impl Spread {
    fn outcome(&self) -> Outcome {
        if self.interrupted {
            Outcome::Interrupted
        } else if !self.issues.is_empty()
            || !self.draws.failures.is_empty()
            || self.draws.reordered > 0
        {
            Outcome::Findings
        } else {
            Outcome::Success
        }
    }
}

/// The command.
pub(super) fn command(
    args: &ReplayArgs,
    mut config: PipelineConfig,
    input: &Input<'_>,
    sources: Vec<Box<dyn Source>>,
    secrets: Secrets,
    stop: &Arc<AtomicBool>,
) -> anyhow::Result<Outcome> {
    if !by_hash(&config) {
        output::note(&format!(
            "rxsteer: --seeds changes nothing here: {} does not use the flow hash",
            config.policy
        ));
    }
    let started = Instant::now();
    let mut frames = Frames::new(Some(input), sources, args.speed, stop)?;
    let bar = progress::runs(u64::from(secrets.count), args.json);
    let replay = Replay::of(args);
    let draws = draws(&replay, &mut config, &mut frames, secrets, stop, &bar)?;
    bar.finish_and_clear();
    // ORDER: Relaxed; the flag is a request and carries no data.
    let interrupted = stop.load(Ordering::Relaxed);
    let Some(draws) = draws else {
        output::note(
            "rxsteer: interrupted before the first replay was complete; there is no report",
        );
        return Ok(Outcome::Interrupted);
    };
    let spread = Spread {
        secrets,
        draws,
        policy: config.policy.to_string(),
        cpus: config.workers(),
        issues: frames.issues(interrupted),
        skipped: frames.skipped(),
        settings: super::settings(args, &config),
        elapsed: started.elapsed(),
        interrupted,
    };
    if args.json {
        output::print(&format!("{:#}\n", show::json(&spread)))?;
    } else {
        output::print(&(show::text(&spread) + &super::pointer(args, &config.cpus)))?;
    }
    for note in show::notes(&spread) {
        output::note(&format!("rxsteer: {note}"));
    }
    Ok(spread.outcome())
}

/// All frames of the sources, if they fit into memory.
fn load(sources: &mut [Box<dyn Source>], stop: &AtomicBool) -> Option<Vec<MemorySource>> {
    let most_blocks = MAX_MEMORY / BLOCK_BYTES / sources.len().max(1);
    sources
        .iter_mut()
        .map(|source| MemorySource::load_all(source.as_mut(), most_blocks, stop))
        .collect()
}

/// Whether the input can be read again for each replay.
fn check_again(captures: &[PathBuf], speed: Speed) -> anyhow::Result<()> {
    let pipe = captures.iter().find(|capture| !capture.is_file());
    let Some(pipe) = pipe else { return Ok(()) };
    let pipe = if pipe.as_os_str() == "-" { "standard input" } else { "a pipe" };
    anyhow::ensure!(
        !speed.is_recorded(),
        "{pipe} can be read only once, and at recorded speed --seeds reads the input for each secret; save it to a file \
         first, or leave --speed out"
    );
    anyhow::bail!(
        "{pipe} can be read only once, and its frames do not fit into {} GiB of memory; save it to a file first",
        MAX_MEMORY >> 30
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spread(values: &[Option<f64>]) -> Vec<Draw> {
        let secrets = Secrets { first: HashSeed(u128::MAX), count: values.len() as u32 };
        let draw = |(secret, value): (HashSeed, &Option<f64>)| Draw {
            secret,
            figures: [*value; Figure::ALL.len()],
            per_cpu: Vec::new(),
        };
        secrets.all().zip(values).map(draw).collect()
    }

    #[test]
    fn figures_are_in_the_order_of_the_list() {
        for (index, figure) in Figure::ALL.into_iter().enumerate() {
            assert_eq!(figure as usize, index);
        }
    }

    #[test]
    fn secrets_follow_one_another() {
        let secrets: Vec<u128> = spread(&[None; 3]).iter().map(|draw| draw.secret.0).collect();
        assert_eq!(secrets, [u128::MAX, 0, 1]);
        assert!(Secrets::new(None, 2).is_err());
    }
}
