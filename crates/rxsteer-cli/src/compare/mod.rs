//! `rxsteer compare` and `rxsteer advise`: compare all policies with the user's own traffic, and derive advice.
//!
//! `advise` differs in how it captures frames from an interface ([`sample`]), and in the order of its report.
//!
//! Each policy is replayed with several hash secrets, as by `rxsteer replay --seeds`. [`advice`] derives the advice
//! from the figures alone.

mod advice;
#[cfg(test)]
mod advice_tests;
pub(crate) mod args;
mod commands;
mod sample;
mod show;

use crate::hash_key::random_seed;
use crate::input::{Input, stop_on_interrupt};
use crate::replay::seeds::{Draws, Figure, Frames, Secrets, draws};
use crate::replay::{Replay, by_hash};
use crate::work::Apps;
use crate::{Outcome, check, output, progress};
use advice::{Advice, Fits, Measured};
use anyhow::Context;
use args::{AdviseArgs, Choices, CompareArgs};
use indicatif::ProgressBar;
use rxsteer_host::recommend::Traffic;
use rxsteer_host::{Help, Interface, Link, Load, default_cpus, links, relief, too_few};
use rxsteer_user::core::policy::Front;
use rxsteer_user::core::{Balance, CpuId, CpuSet, Policy, Slots, limits};
use rxsteer_user::packet::DissectOptions;
use rxsteer_user::source::SourceIssue;
use rxsteer_user::source::capture::RxQueues;
use rxsteer_user::{OnFull, PipelineConfig, Speed, printable, sys};
use sample::Limits;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The compared policies, in the order shown; the first one is without steering.
const POLICIES: [Policy; 6] = [
    Policy::None,
    Policy::Rps,
    Policy::Sparse(Slots::of(limits::DEFAULT_LOOPS)),
    Policy::Rfs,
    Policy::RfsSparse(Slots::of(limits::DEFAULT_LOOPS)),
    Policy::Balance(Front { rfs: false, slots: None }, Balance::DEFAULT),
];

/// How long `compare` samples an interface by default.
const SAMPLE: Duration = Duration::from_secs(10);

/// The replays of one policy.
struct Row {
    policy: Policy,
    draws: Draws,
}

impl Row {
    /// How much of this traffic fits before a CPU is full, in multiples of what fills one: minimum, median, maximum.
    fn fits(&self) -> Option<Fits> {
        let [least, median, most] = self.draws.range(Figure::BusiestShare)?.map(|(share, _)| share);
        Some([most, median, least].map(|share| 1.0 / share.max(f64::MIN_POSITIVE)))
    }
}

/// The comparison, and the conclusion.
struct Compared {
    rows: Vec<Row>,
    cpus: CpuSet,
    app_cpus: CpuSet,
    /// Whether the user specified the applications.
    apps_named: bool,
    rx_queues: u16,
    dissect: DissectOptions,
    secrets: Secrets,
    /// The interface and the duration of the capture, if there was one.
    sampled: Option<Sampled>,
    advice: Advice,
    commands: commands::Commands,
    issues: Vec<SourceIssue>,
    skipped: u64,
    elapsed: Duration,
}

/// The source of the frames, if not captures.
struct Sampled {
    interface: Interface,
    frames: u64,
    elapsed: Duration,
    /// For how much of that time frames were copied.
    watched: Duration,
    is_cut: bool,
    /// Frames that the interface received while they were copied, if the kernel reports it.
    received: Option<u64>,
    /// Whether a CPU is short of time for receiving.
    relief: Help,
    /// Why there is too little traffic for a conclusion.
    too_few: Option<String>,
    /// Whether the answer comes before the table.
    answer_first: bool,
}

impl Compared {
    fn outcome(&self) -> Outcome {
        let is_wrong = |row: &Row| !row.draws.failures.is_empty() || row.draws.reordered > 0;
        if !self.issues.is_empty() || self.rows.iter().any(is_wrong) {
            Outcome::Findings
        } else {
            Outcome::Success
        }
    }
}

/// The command.
pub(crate) fn command(args: &CompareArgs) -> anyhow::Result<Outcome> {
    match &args.iface {
        Some(name) => {
            let limits = Limits::once(args.duration.unwrap_or(SAMPLE), sample::MAX_FRAMES);
            of_interface(&args.choices, name, limits)
        }
        None => {
            let cpus = match &args.choices.cpus {
                Some(choice) => choice.cpus(sys::allowed_cpus()),
                None => sys::allowed_cpus().ok_or_else(|| {
                    anyhow::anyhow!(
                        "can't find out which CPUs this host has; name them: --cpus 0-3"
                    )
                })?,
            };
            let input = Input {
                synthetic: args.synthetic.as_ref(),
                ..input(&args.captures, args.choices.rx_queues.unwrap_or(1), &cpus)
            };
            for note in input.notes() {
                output::note(&format!("rxsteer: {note}"));
            }
            let sources = input.open()?;
            let stop = stop_on_interrupt(&sources)?;
            let frames = Frames::new(Some(&input), sources, Speed::Drained, &stop)?;
            compare(&args.choices, cpus, &input, frames, None, &stop)
        }
    }
}

/// `rxsteer advise`.
pub(crate) fn advise(args: &AdviseArgs) -> anyhow::Result<Outcome> {
    of_interface(&args.choices, &args.iface, Limits::paced(args.duration))
}

/// Compares policies with what an interface receives for some time.
fn of_interface(args: &Choices, name: &str, limits: Limits) -> anyhow::Result<Outcome> {
    let links = links()?;
    let names = [name.to_owned()];
    let link = match check::chosen(&names, &links)?.as_slice() {
        [link] => (*link).clone(),
        several => {
            anyhow::bail!("{} matches {} interfaces; name one", printable(name), several.len())
        }
    };
    check::note_down(&link);
    let cpus = match &args.cpus {
        Some(choice) => choice.cpus(sys::allowed_cpus()),
        None => default_cpus(&[&link.name])?,
    };
    let stop = stop_on_interrupt(&[])?;
    let before = Load::read();
    let bar = progress::time(limits.time, args.json || !limits.is_paced());
    let sample = sample::take(&link, limits, &stop, &bar)?;
    bar.finish_and_clear();
    let load = Load::read().zip(before).map(|(after, before)| after.since(&before));
    let load = load.unwrap_or_default();
    if limits.is_paced() {
        // The first interrupt ends the capture; another one ends the process.
        // ORDER: Relaxed; the flag is a request and carries no data.
        stop.store(false, Ordering::Relaxed);
    }
    // ORDER: Relaxed; the flag is a request and carries no data.
    if stop.load(Ordering::Relaxed) {
        return Ok(interrupted());
    }
    anyhow::ensure!(
        sample.frames > 0 || limits.is_paced(),
        "{} received nothing within {}; measure under the usual load, or longer: --duration 60s",
        printable(&link.name),
        output::table::duration(sample.elapsed)
    );
    let interface = Interface::of_link(&link, &links);
    let watched = sample.watched.as_secs_f64().max(1e-9);
    let rate = sample.received.unwrap_or(sample.frames) as f64 / watched;
    let sampled = Sampled {
        relief: relief(&link.name, &cpus, &load, sample.elapsed),
        // A user who limits the capture may accept these few.
        too_few: too_few(&link.name, rate).filter(|_| limits.is_paced()),
        received: sample.received,
        frames: sample.frames,
        elapsed: sample.elapsed,
        watched: sample.watched,
        is_cut: sample.is_cut,
        answer_first: limits.is_paced(),
        interface,
    };
    let captures = [sample.path()];
    let queues = sampled.interface.rx_queues.and_then(|queues| u16::try_from(queues).ok());
    let queues = args.rx_queues.or(queues).unwrap_or(1).max(1);
    let input = input(&captures, queues, &cpus);
    let sources = input.open()?;
    let frames = Frames::new(Some(&input), sources, Speed::Drained, &stop)?;
    compare(args, cpus, &input, frames, Some(sampled), &stop)
}

/// What up to `most` frames that `link` receives within `time` show: flows by the outer headers, and by those inside
/// tunnels. `None` if interrupted.
pub(crate) fn traffic(
    link: &Link,
    time: Duration,
    most: u64,
    stop: &Arc<AtomicBool>,
) -> anyhow::Result<Option<Traffic>> {
    let limits = Limits::once(time, most);
    let sample = sample::take(link, limits, stop, &ProgressBar::hidden())?;
    let cpus = CpuSet::first(1).context("there is a CPU")?;
    let captures = [sample.path()];
    let input = input(&captures, 1, &cpus);
    let mut frames = Frames::new(Some(&input), input.open()?, Speed::Drained, stop)?;
    let mut traffic = Traffic { frames: sample.frames, ..Traffic::default() };
    for inner in [false, true] {
        let dissect = DissectOptions { inner, ..DissectOptions::default() };
        let config = config(Policy::Rps, &cpus, &input, dissect);
        let secrets = Secrets::new(Some(random_seed()), 1)?;
        let bar = progress::runs(1, true);
        let draws = draws(
            &Replay::keeping_up(&Policy::Rps, None),
            &mut { config },
            &mut frames,
            secrets,
            stop,
            &bar,
        )?;
        let Some(Draws { last, .. }) = draws else { return Ok(None) };
        let found = (last.steered_flows, last.largest_flow);
        if inner {
            (traffic.inner_flows, traffic.inner_largest) = found;
        } else {
            (traffic.flows, traffic.largest) = found;
        }
    }
    Ok(Some(traffic))
}

/// How frames are received and steered in every comparison: independent of the host, with an order check.
fn config(
    policy: Policy,
    cpus: &CpuSet,
    input: &Input<'_>,
    dissect: DissectOptions,
) -> PipelineConfig {
    let mut config = PipelineConfig::new(policy, cpus.clone());
    config.rx_queues = match input.rx_queues {
        RxQueues::Hashed(queues) => queues,
        _ => 1,
    };
    config.rx_cpus = cpus.iter().cycle().take(usize::from(input.threads)).collect();
    config.on_full = OnFull::Wait;
    config.check_order = true;
    // This compares the spread, which is the same on any host, not the speed of this host.
    config.pin = false;
    config.dissect = dissect;
    config
}

/// These captures, spread over this many RX queues as by a NIC, and received by as many threads as possible.
fn input<'a>(captures: &'a [PathBuf], queues: u16, cpus: &CpuSet) -> Input<'a> {
    let rx_queues = if queues == 1 { RxQueues::Single } else { RxQueues::Hashed(queues) };
    let threads = queues.min(u16::try_from(cpus.len()).unwrap_or(u16::MAX));
    Input { captures, synthetic: None, rx_queues, threads, repeat: 1 }
}

/// Replays the frames under each policy, and shows the conclusion.
fn compare(
    args: &Choices,
    cpus: CpuSet,
    input: &Input<'_>,
    mut frames: Frames<'_>,
    sampled: Option<Sampled>,
    stop: &Arc<AtomicBool>,
) -> anyhow::Result<Outcome> {
    let started = Instant::now();
    let first = args.flows.hash_seed.unwrap_or_else(random_seed);
    let secrets = Secrets::new(Some(first), args.seeds)?;
    let app_cpus = args.app_cpus.as_ref().map(|apps| apps.cpus(sys::allowed_cpus()));
    let apps_named = app_cpus.is_some();
    let app_cpus = app_cpus.unwrap_or_else(|| cpus.clone());
    let dissect = DissectOptions { inner: args.flows.inner(), key_tunnels: args.tunnels.kinds() };
    let rx_queues = config(Policy::None, &cpus, input, dissect).rx_queues;
    let mut of = |policy: &Policy, dissect: DissectOptions, count: Secrets, bar: &ProgressBar| {
        let mut config = config(policy.clone(), &cpus, input, dissect);
        config.standby = policy.is_rfs().then(|| app_cpus.clone());
        config.check()?;
        // If the hash decides nothing, one secret represents all.
        let count = if by_hash(&config) { count } else { count.first(1) };
        let apps = policy.is_rfs().then(|| Apps::on(&app_cpus, None));
        let replay = Replay::keeping_up(policy, apps);
        draws(&replay, &mut config, &mut frames, count, stop, bar)
    };
    let replays = u64::from(args.seeds) * (POLICIES.len() as u64 - 1) + 1;
    let bar = progress::runs(replays, args.json);
    let mut rows = Vec::new();
    for policy in POLICIES {
        let Some(draws) = of(&policy, dissect, secrets, &bar)? else { return Ok(interrupted()) };
        rows.push(Row { policy, draws });
    }
    let mut measured = measured(&rows, cpus.len(), apps_named);
    // If one flow has most of the traffic, it may be a tunnel.
    if measured.is_one_flow() && !dissect.inner {
        let inside = DissectOptions { inner: true, ..dissect };
        let Some(draws) = of(&Policy::Rps, inside, secrets, &bar)? else {
            return Ok(interrupted());
        };
        measured.inside = Row { policy: Policy::Rps, draws }.fits();
    }
    bar.finish_and_clear();
    // ORDER: Relaxed; the flag is a request and carries no data.
    if stop.load(Ordering::Relaxed) {
        return Ok(interrupted());
    }
    measured.relief = sampled.as_ref().map(|sampled| sampled.relief.clone());
    measured.too_few = sampled.as_ref().and_then(|sampled| sampled.too_few.clone());
    let skipped = frames.skipped();
    measured.left_out = skipped;
    let advice = advice::of(&measured);
    let commands = commands::of(&advice, &cpus, dissect, sampled.as_ref().map(|it| &it.interface))?;
    let compared = Compared {
        rows,
        cpus,
        app_cpus,
        apps_named,
        rx_queues,
        dissect,
        secrets,
        sampled,
        advice,
        commands,
        issues: frames.issues(false),
        skipped,
        elapsed: started.elapsed(),
    };
    if args.json {
        output::print(&format!("{:#}\n", show::json(&compared)))?;
    } else {
        output::print(&show::text(&compared))?;
    }
    for note in show::notes(&compared) {
        output::note(&format!("rxsteer: {note}"));
    }
    Ok(compared.outcome())
}

/// The figures for the advice.
fn measured(rows: &[Row], cpus: usize, apps_named: bool) -> Measured {
    let last = rows.first().map(|row| &row.draws.last);
    Measured {
        cpus,
        packets: last.map_or(0, |report| report.packets),
        // All frames that are not IP count as one flow.
        flows: last
            .filter(|report| report.not_ip < report.packets)
            .map_or(0, |report| report.steered_flows),
        largest_flow: last.map_or(0, |report| report.largest_flow),
        fits: rows.iter().filter_map(|row| Some((row.policy.clone(), row.fits()?))).collect(),
        apps_named,
        at_home: rows
            .iter()
            .find(|row| row.policy == Policy::Rfs)
            .and_then(|row| row.draws.range(Figure::AtHome))
            .map(|[_, (median, _), _]| median),
        inside: None,
        relief: None,
        too_few: None,
        left_out: 0,
    }
}

fn interrupted() -> Outcome {
    output::note("rxsteer: interrupted before all policies were compared; there is no report");
    Outcome::Interrupted
}

/// The target CPUs in a row with their numbers of packets, under the secret of the median.
fn shares(row: &Row) -> Vec<(CpuId, u64)> {
    let median = row.draws.range(Figure::BusiestShare).map(|[_, (_, median), _]| median);
    median.map(|draw| draw.per_cpu.clone()).unwrap_or_default()
}
