//! `rxsteer replay`: sends captures or synthetic frames through the receive path.

pub(crate) mod args;
pub(crate) mod seeds;

use crate::Outcome;
use crate::advice::{self, policies};
use crate::change_spec::PlannedChange;
use crate::events_out::EventsTo;
use crate::finished::Run;
use crate::hash_key::HashSeed;
use crate::input::{Input, issues, skipped, stop_on_interrupt};
use crate::out;
use crate::output::lines::room_on_terminal;
use crate::output::{self, json, table};
use crate::progress::Watch;
use crate::steer_args::SteerSettings;
use crate::userspace::{Attending, CommandInfo, Origin, Place};
use crate::words::is_plain;
use crate::work::{Apps, Work};
use anyhow::Context;
use args::{OnFullChoice, ReplayArgs};
use rxsteer_records::recording::{LiveFlows, Recording};
use rxsteer_status::Command;
use rxsteer_status::userspace::Watched;
use rxsteer_user::core::{CpuId, CpuSet, DropReason, MAX_RX_QUEUES, Policy};
use rxsteer_user::sink::Sink;
use rxsteer_user::source::Source;
use rxsteer_user::source::capture::RxQueues;
use rxsteer_user::{
    Control, FlowStats, OnFull, PipelineConfig, PipelineError, Receiver, Report, Speed, shown, sys,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// If waiting packets need more than this memory, in bytes, the user is warned.
const MUCH_MEMORY: u64 = 1 << 30;

/// The command.
pub(crate) fn command(args: &ReplayArgs) -> anyhow::Result<Outcome> {
    let steer = args.steer.settings()?;
    let (config, hash_seed) = pipeline_config(args, &steer)?;
    config.check()?;
    args.events.refuse_beside_json(args.json)?;
    anyhow::ensure!(
        args.seeds.is_none() || args.events.to.is_none(),
        "--events belongs to one replay, and --seeds makes many; leave one of them out"
    );
    let input = input(args);
    let mut sources = input.open()?;
    warn_before(args, &config);
    let apps = args.app_cpus.is_none().then_some("name their CPUs with --app-cpus");
    for note in input.notes().into_iter().chain(advice::before(
        &steer,
        &config,
        !config.changes.is_empty(),
        apps,
    )) {
        output::note(&format!("rxsteer: {note}"));
    }
    let stop = stop_on_interrupt(&sources)?;
    if args.end_with_parent {
        nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGTERM)?;
    }
    let mut recording = args.records.start(&input, args.steer.config.as_deref(), &config)?;
    if let Some(count) = args.seeds {
        let secrets = seeds::Secrets::new(hash_seed, count)?;
        return seeds::command(args, config, &input, sources, secrets, &stop);
    }
    args.events.refuse_beside(
        args.captures.iter().chain(&args.steer.config),
        args.records.output.flows.iter().cloned().chain(args.out.files(&config)),
    )?;
    let mut sinks = args.out.open(args.captures.iter(), &config, &stop)?;
    let events = EventsTo::open(&args.events)?.begin()?;
    let place = Place::find(Command::Replay, args.socket.as_deref())?;
    let info = info(args, &config, recording.as_ref().map(Recording::flows));
    let begun = Instant::now();
    let flows = |cpu| recording.as_mut().and_then(|recording| recording.stats(cpu));
    let (mut watch, mut attending) = (None, None);
    let replay = Replay::of(args);
    let out = |cpu| sinks.as_mut().map(|sinks| sinks.take(cpu));
    let mut report =
        once(&replay, &config, &mut sources, &stop, (flows, out), |receivers, control| {
            let progress = receivers.iter().map(Receiver::progress).collect();
            watch = Some(Watch::start(progress, args.json));
            let watched = Watched::new(receivers, control);
            attending = Attending::begin(place, info, watched, events, Vec::new());
        })?;
    report.handlers.iter_mut().filter_map(|(_, work)| work.out.as_mut()).for_each(Sink::finish);
    let elapsed = begun.elapsed();
    drop((watch, attending));
    // ORDER: Relaxed; all threads have ended.
    let interrupted = stop.load(Ordering::Relaxed);
    let issues = issues(&mut sources, interrupted);
    let used = report.handlers.iter_mut().filter_map(|(_, work)| work.flows.take()).collect();
    let recorded = recording.map(|recording| recording.finish(used)).transpose()?;
    let run = Run {
        report,
        issues,
        policy: steer.policy().to_string(),
        cpus: config.workers(),
        hash: steer.hash().name(),
        hash_seed,
        is_a_draw: hash_seed.is_some() && steer.flows.hash_seed.is_none() && by_hash(&config),
        repeatable: is_repeatable(args, &config),
        settings: settings(args, &config),
        skipped: skipped(&sources),
        max_backlog: config.max_backlog,
        changes: config.changes.len(),
        recorded,
        out: sinks.map(|sinks| sinks.counts().report()),
        elapsed,
        interrupted,
    };
    if args.json {
        output::print(&format!("{:#}\n", json::run(&run)))?;
    } else {
        let report = table::run(&run, room_on_terminal()) + &pointer(args, &run.cpus);
        args.events.report(&report)?;
    }
    report_after(&run, true);
    for note in advice::after(&run, &config, args.speed) {
        output::note(&format!("rxsteer: {note}"));
    }
    Ok(run.outcome())
}

/// Whether the same command gives the same result again: if no decision depends on the progress of the workers, or if
/// that is always the same. Applications record the CPUs of their flows in no defined order.
fn is_repeatable(args: &ReplayArgs, config: &PipelineConfig) -> bool {
    let in_step = args.speed == Speed::Drained && args.rx_threads == 1 && args.app_cpus.is_none();
    let alone = !policies(config).iter().any(Policy::moves_flows) && config.changes.is_empty();
    in_step || alone
}

/// How frames are received and consumed, in addition to the configuration.
pub(crate) struct Replay {
    pub(crate) speed: Speed,
    pub(crate) per_packet: Duration,
    pub(crate) apps: Option<Apps>,
}

impl Replay {
    /// As on a system whose CPUs keep up, as fast as possible. Only policies that move flows depend on that.
    pub(crate) fn keeping_up(policy: &Policy, apps: Option<Apps>) -> Replay {
        let speed = speed_of_keeping_up(std::slice::from_ref(policy));
        Replay { speed, per_packet: Duration::ZERO, apps }
    }

    fn of(args: &ReplayArgs) -> Replay {
        let apps = args
            .app_cpus
            .as_ref()
            .map(|cpus| Apps::on(&cpus.cpus(sys::allowed_cpus()), args.app_migrate));
        let per_packet = Duration::from_nanos(u64::from(args.workers.work_ns));
        Replay { speed: args.speed, per_packet, apps }
    }
}

/// The speed at which policies decide as on a system whose CPUs keep up, as fast as possible.
pub(crate) fn speed_of_keeping_up(policies: &[Policy]) -> Speed {
    if policies.iter().any(Policy::moves_flows) { Speed::Drained } else { Speed::Max }
}

/// The command that replays the same traffic under all policies; empty for generated frames.
fn pointer(args: &ReplayArgs, cpus: &CpuSet) -> String {
    let captures = match args.captures.as_slice() {
        [] => return String::new(),
        [one] => one.to_str().filter(|name| is_plain(name)),
        _ => None,
    };
    let capture = captures.unwrap_or("CAPTURE");
    format!(
        "\nAll policies side by side, and what to do:  rxsteer compare {capture} --cpus {}\n",
        cpus.as_option()
    )
}

/// Sends the frames of the sources through the receive path. `flows` has the flow statistics of each CPU, `out` the
/// output for its packets.
fn once(
    replay: &Replay,
    config: &PipelineConfig,
    sources: &mut [Box<dyn Source>],
    stop: &Arc<AtomicBool>,
    (mut flows, mut out): (
        impl FnMut(CpuId) -> Option<FlowStats>,
        impl FnMut(CpuId) -> Option<Sink>,
    ),
    started: impl FnOnce(&[Receiver], Control),
) -> Result<Report<Work>, PipelineError> {
    let work = |cpu| Work {
        per_packet: replay.per_packet,
        stop: stop.clone(),
        apps: replay.apps.clone(),
        flows: flows(cpu),
        next: None,
        out: out(cpu),
    };
    rxsteer_user::run(config, sources, replay.speed, stop, work, started)
}

/// The most captures that the status names; of more, it shows the number.
const NAMED: usize = 3;

/// The status, except for counts.
fn info(args: &ReplayArgs, config: &PipelineConfig, flows: Option<LiveFlows>) -> CommandInfo {
    let named: Vec<String> = args.captures.iter().take(NAMED).map(|path| shown(path)).collect();
    let name = match args.captures.len().checked_sub(NAMED) {
        _ if args.synthetic.is_some() => "synthetic".to_owned(),
        None | Some(0) => named.join(", "),
        Some(more) => format!("{} and {more} more", named.join(", ")),
    };
    CommandInfo {
        command: Command::Replay,
        mode: if args.synthetic.is_some() { "synthetic" } else { "capture" },
        dissect: config.dissect,
        // Several captures are one input: receivers read them in sequence.
        origins: vec![Origin { name, ifindex: None, receivers: 0..config.rx_cpus.len(), by_rx_queue: false }],
        flows,
        fixed: Some(
            "rxsteer replay can't be changed while it runs: end it (Ctrl-C) and start it with other options; \
             --change-at plans a change for a replay"
                .to_owned(),
        ),
    }
}

/// Whether the flow hash picks CPUs, now or after a change.
pub(crate) fn by_hash(config: &PipelineConfig) -> bool {
    policies(config).iter().any(|policy| policy.has_maps() || policy.balance().is_some())
}

/// The configuration that the arguments describe.
fn pipeline_config(
    args: &ReplayArgs,
    steer: &SteerSettings,
) -> anyhow::Result<(PipelineConfig, Option<HashSeed>)> {
    anyhow::ensure!(
        args.synthetic.is_none()
            || matches!(args.rx_queues, RxQueues::Single | RxQueues::Hashed(_)),
        "synthetic frames have no file and no interface; give --rx-queues a count"
    );
    let cpus = steer.cpus(sys::allowed_cpus())?;
    let mut config = PipelineConfig::new(steer.policy(), cpus.clone());
    let rx_cpus: Vec<CpuId> = args.rx_cpus.as_ref().unwrap_or(&cpus).iter().collect();
    config.rx_cpus = rx_cpus.into_iter().cycle().take(usize::from(args.rx_threads)).collect();
    config.rx_queues = match args.rx_queues {
        RxQueues::Single => 1,
        // The number of interfaces in a file is known only at its end.
        RxQueues::PerInterface => MAX_RX_QUEUES,
        RxQueues::PerFile => queues_of_files(args.captures.len())?,
        RxQueues::Hashed(queues) => queues,
    };
    let hash_seed = steer.apply(&mut config)?;
    config.standby = args.app_cpus.as_ref().map(|cpus| cpus.cpus(sys::allowed_cpus()));
    config.changes =
        args.change_at.iter().map(|PlannedChange(when, c)| (*when, c.clone())).collect();
    config.max_backlog = args.max_backlog;
    config.batch = args.batch.map_or(config.batch, usize::from);
    config.tick = args.out.tick();
    config.on_full = match (args.on_full, args.speed) {
        (Some(OnFullChoice::Wait), _) | (None, Speed::Max | Speed::Drained) => OnFull::Wait,
        (Some(OnFullChoice::Drop), _) | (None, Speed::Times(_)) => OnFull::Drop,
    };
    config.pin = !args.workers.no_pin;
    config.check_order = true;
    Ok((config, hash_seed))
}

fn queues_of_files(files: usize) -> anyhow::Result<u16> {
    u16::try_from(files.max(1)).ok().filter(|queues| *queues <= MAX_RX_QUEUES).with_context(|| {
        format!(
            "{files} files can't each be an RX queue: there are at most {MAX_RX_QUEUES}; \
             use --rx-queues with a count"
        )
    })
}

fn input(args: &ReplayArgs) -> Input<'_> {
    Input {
        captures: &args.captures,
        synthetic: args.synthetic.as_ref(),
        rx_queues: args.rx_queues,
        threads: args.rx_threads,
        repeat: args.repeat,
    }
}

/// The options needed to repeat a run, except those that the report has elsewhere.
fn settings(args: &ReplayArgs, config: &PipelineConfig) -> serde_json::Value {
    let mut settings = json::decisive(config);
    settings.extend(args.records.settings(false));
    let others = serde_json::json!({
        "max_backlog": config.max_backlog,
        "on_full": match config.on_full { OnFull::Wait => "wait", OnFull::Drop => "drop" },
        "batch": config.batch,
        "pin": config.pins(),
        "speed": match args.speed {
            Speed::Max => serde_json::Value::Null,
            Speed::Drained => "drained".into(),
            Speed::Times(times) => times.into(),
        },
        "app_cpus": config.standby.as_ref().map(ToString::to_string),
        "app_migrate_ns": args.app_migrate.map(|interval| interval.as_nanos() as u64),
        "work_ns": args.workers.work_ns,
        "repeat": args.repeat,
        "changes_planned": config.changes.len(),
        "out": args.out.out.as_ref().map(ToString::to_string),
    });
    settings.extend(json::object(others));
    serde_json::Value::Object(settings)
}

fn warn_before(args: &ReplayArgs, config: &PipelineConfig) {
    let memory = config.backlog_memory();
    if memory > MUCH_MEMORY {
        output::note(&format!(
            "rxsteer: full backlogs would take {:.1} GiB; if that is too much, lower --max-backlog \
             ({})",
            memory as f64 / f64::from(1 << 30),
            config.max_backlog
        ));
    }
    if let Some(note) = advice::unpinned(config) {
        output::note(&format!("rxsteer: {note}"));
    }
    if args.rx_threads > config.rx_queues {
        output::note(&format!(
            "rxsteer: {} receiving threads for {} RX queue(s): the others receive nothing. \
             --rx-queues makes more queues.",
            args.rx_threads, config.rx_queues
        ));
    }
}

/// Notes about problems in a run. `can_wait`: the command has `--on-full wait`.
pub(crate) fn report_after(run: &Run, can_wait: bool) {
    if run.report.changes_made < run.changes {
        output::note(&format!(
            "rxsteer: {} of {} changes were made; the input ended before the others were due",
            run.report.changes_made, run.changes
        ));
    }
    for issue in &run.issues {
        output::note(&format!("rxsteer: {issue}"));
    }
    if let Some(failure) = run.recorded.as_ref().and_then(|recorded| recorded.failure.as_ref()) {
        output::note(&format!("rxsteer: {}", output::error_text(failure)));
    }
    for problem in out::problems(run.out.iter().flatten(), can_wait) {
        output::note(&format!("rxsteer: {problem}"));
    }
    let full = run.report.drops.get(DropReason::BacklogFull);
    if full > 0 {
        output::note(&format!(
            "rxsteer: {full} packets were dropped because a backlog held as many as --max-backlog allows \
             ({} at the end). Raise it, {}.",
            run.max_backlog,
            if can_wait {
                "name more --cpus, or use --on-full wait to lose nothing"
            } else {
                "or name more --cpus"
            }
        ));
    }
    let no_buffer = run.report.drops.get(DropReason::NoBuffer);
    if no_buffer > 0 {
        output::note(&format!(
            "rxsteer: {no_buffer} packets were dropped because the waiting frames took all the memory \
             that they may take (1 GiB per receiving thread). Lower --max-backlog{}.",
            if can_wait { ", or use --on-full wait to lose nothing" } else { "" }
        ));
    }
    for cpu in &run.report.per_cpu {
        if let Some(failure) = &cpu.failure {
            output::note(&format!("rxsteer: the worker of CPU {} ended early: {failure}", cpu.cpu));
        }
    }
    if let Some(recorded) = &run.recorded
        && recorded.counts.refused > 0
    {
        output::note(&format!(
            "rxsteer: {} packets of new flows are in no flow record, because records could not be \
             written as fast as flows came. {} --max-flows.",
            recorded.counts.refused,
            if can_wait {
                "Use --on-full wait, which waits for the records, or raise"
            } else {
                "Raise"
            }
        ));
    }
    if run.report.untracked_packets > 0 {
        output::note(&format!(
            "rxsteer: there were more than {} flows: {} packets were processed, but not counted as \
             flows and not checked for order",
            rxsteer_user::MAX_TRACKED_FLOWS,
            run.report.untracked_packets
        ));
    }
    if run.report.reordered > 0 {
        output::note(&format!(
            "rxsteer: {} packets were processed out of order. That is a bug in rxsteer: please \
             report it with this command line.",
            run.report.reordered
        ));
    }
}
