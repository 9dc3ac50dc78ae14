//! `rxsteer live`: packets of live interfaces through the receive path.

pub(crate) mod args;
mod filter;
mod open;
mod watch;

use crate::Outcome;
use crate::advice;
use crate::events_out::EventsTo;
use crate::finished::Run;
use crate::input::{end_on_signals, issues};
use crate::listen;
use crate::output::json::decisive;
use crate::output::lines::room_on_terminal;
use crate::output::{self, json, table};
use crate::replay::report_after;
use crate::userspace::{Attending, CommandInfo, Origin, Place};
use crate::work::Work;
use args::{Io, LiveArgs};
use rxsteer_records::recording::{LiveFlows, Recording};
use rxsteer_status::userspace::Watched;
use rxsteer_status::{Command, EventKind, NewEvent};
use rxsteer_user::core::CpuId;
use rxsteer_user::sink::Sink;
use rxsteer_user::source::live::{LiveInterface, LiveIo, LiveSources, apart};
use rxsteer_user::{Count, OnFull, PipelineConfig, Receiver, RxProgress, Speed, printable, sys};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};
use watch::Watch;

/// An interface, with what the status shows of it.
struct Interface {
    name: String,
    link: &'static str,
    mode: String,
    /// By RX queue.
    progress: Vec<Arc<RxProgress>>,
}

/// The command.
pub(crate) fn command(args: &LiveArgs) -> anyhow::Result<Outcome> {
    let steer = args.steer.settings()?;
    args.events.refuse_beside_json(args.json)?;
    let io = open::io(args)?;
    let cpus = steer.cpus(sys::allowed_cpus())?;
    let rx_cpus = args.rx_cpus.as_ref().unwrap_or(&cpus);
    let named = open::interfaces(args, io, rx_cpus.len())?;
    let rx_cpus = rx_cpus.iter().collect();
    let (cpus, rx_cpus) = match (&args.rx_cpus, steer.names_cpus()) {
        (None, false) => apart(cpus, queues_of(&named)),
        _ => (cpus, rx_cpus),
    };
    let mut config =
        pipeline_config(args, &named, PipelineConfig::new(steer.policy(), cpus), rx_cpus);
    let hash_seed = steer.apply(&mut config)?;
    config.check()?;
    let apps = "with --out tap: or pipe: the CPUs of the programs that read are recorded";
    // `set` may change the policy later.
    let notes = advice::before(&steer, &config, true, args.out.out.is_none().then_some(apps));
    for note in notes.into_iter().chain(advice::unpinned(&config)) {
        output::note(&format!("rxsteer: {note}"));
    }
    let none_may_move = open::fixed_by(args, io, &named);
    if let Some(why) = none_may_move.as_ref().filter(|_| config.flows_can_move()) {
        anyhow::bail!(
            "{why}. Use --policy rps without rules and --no-pin, one TX queue (ethtool -L IFACE combined 1), or AF_XDP \
             (--io xdp)"
        );
    }
    let end = Arc::new(AtomicBool::new(false));
    // Packets received until a signal arrives are the complete input, so the run does not count as interrupted.
    end_on_signals(vec![end.clone()])?;
    args.events.refuse_beside(
        &args.steer.config,
        args.records.output.flows.iter().cloned().chain(args.out.files(&config)),
    )?;
    // Done before receiving: opening a pipe may wait for its reader.
    let mut sinks = args.out.open(std::iter::empty::<&str>(), &config, &end)?;
    let mut bound = args.listen.bind()?;
    let events = EventsTo::open(&args.events)?.begin()?;
    let place = Place::find(Command::Live, args.socket.as_deref())?;
    anyhow::ensure!(
        bound.is_none() || place.is_some(),
        "--listen requires the control socket, and there is no place for it; name a path with --socket PATH"
    );
    // Dropping it ends promiscuous mode, so it lives until the end.
    let mut opened = open::open(args, io, &named, &end)?;
    let LiveSources { sources, links, modes, ports, .. } = &mut opened;
    let bridges = if args.bridge.is_some() { config.workers().len() } else { 0 };
    let mut next = open::bridges(ports, bridges)?;
    let mut recording = args.records.start_live(
        &args.rotate,
        by_queue(&named),
        args.steer.config.as_deref(),
        &config,
    )?;
    let mut about = about(io, &named, &config, recording.as_ref().map(Recording::flows));
    // Any change of settings moves flows.
    about.fixed = none_may_move.map(|why| {
        format!("{why}. Start again with one TX queue (ethtool -L IFACE combined 1) or by AF_XDP (--io xdp)")
    });
    let stop = AtomicBool::new(false);
    let work = |cpu| Work {
        per_packet: Duration::from_nanos(u64::from(args.workers.work_ns)),
        stop: end.clone(),
        apps: None,
        flows: recording.as_mut().and_then(|recording| recording.stats(cpu)),
        next: next.pop(),
        out: sinks.as_mut().map(|sinks| sinks.take(cpu)),
    };
    let mut interfaces = Vec::new();
    let (mut watch, mut attending, mut serving, mut controlled) = (None, None, None, None);
    let begun = Instant::now();
    let report =
        rxsteer_user::run(&config, sources, Speed::Max, &stop, work, |receivers, control| {
            controlled = Some(control.clone());
            let watched = Watched::new(receivers, control);
            let progress: Vec<_> = receivers.iter().map(Receiver::progress).collect();
            for ((named, link), mode) in named.iter().zip(&*links).zip(&*modes) {
                let queues = usize::from(named.rx_queues.start)..usize::from(named.rx_queues.end);
                let progress = progress[queues].to_vec();
                let (name, mode) = (named.name.clone(), mode.clone());
                interfaces.push(Interface { name, link: link.name(), mode, progress });
            }
            let started = interfaces.iter().map(receiving).collect();
            attending = Attending::begin(place, about, watched, events, started);
            let socket = attending.as_ref().and_then(Attending::socket);
            let start = |(bound, socket): (listen::Bound, _)| {
                bound.start(Some(socket), listen::unprivileged)
            };
            serving = bound.take().zip(socket).map(start);
            note_choice(args);
            watch = Some(Watch::start(progress, args.json, args.duration, end.clone()));
        });
    // A failure to start the server is reported after the results.
    let served = serving.map_or(Ok(()), |serving| serving?.stop());
    drop((watch, attending));
    let mut report = report?;
    if let Err(why) = served {
        output::note(&format!("rxsteer: --listen had no effect: {}", output::error_text(&why)));
    }
    report.handlers.iter_mut().filter_map(|(_, work)| work.out.as_mut()).for_each(Sink::finish);
    let elapsed = begun.elapsed();
    // Read at the end, after all changes.
    if let Some(control) = controlled {
        let (last, max_backlog) = control.settings();
        config.steer_by(last);
        config.max_backlog = max_backlog;
    }
    let used = report.handlers.iter_mut().filter_map(|(_, work)| work.flows.take()).collect();
    let recorded = recording.map(|recording| recording.finish(used)).transpose()?;
    let run = Run {
        changes: report.changes_made,
        report,
        issues: issues(sources, false),
        policy: config.policy.to_string(),
        cpus: config.cpus.clone(),
        hash: if args.nic_hash { "nic" } else { steer.hash().name() },
        hash_seed: hash_seed.filter(|_| !args.nic_hash),
        is_a_draw: false,
        repeatable: false,
        settings: settings(args, io, &config),
        skipped: 0,
        max_backlog: config.max_backlog,
        recorded,
        out: sinks.map(|sinks| sinks.counts().report()),
        elapsed,
        interrupted: false,
    };
    if args.json {
        let mut object = json::run(&run);
        object["interfaces"] = interfaces.iter().map(shown_interface).collect();
        output::print(&format!("{object}\n"))?;
    } else {
        args.events.report(&table::run(&run, room_on_terminal()))?;
    }
    report_after(&run, false);
    note_kernel_drops(&run, args.ring_size, io);
    Ok(run.outcome())
}

/// The interface of each RX queue.
fn by_queue(named: &[LiveInterface]) -> Vec<rxsteer_records::Interface> {
    // If interfaces cannot be listed, records lack their indices.
    let links = rxsteer_host::links().unwrap_or_default();
    let of = |named: &LiveInterface| {
        let index = links.iter().find(|link| link.name == named.name).map_or(0, |link| link.index);
        rxsteer_records::Interface { name: named.name.clone(), index }
    };
    named.iter().flat_map(|one| one.rx_queues.clone().map(move |_| of(one))).collect()
}

/// The status, except for counts.
fn about(
    io: LiveIo,
    named: &[LiveInterface],
    config: &PipelineConfig,
    flows: Option<LiveFlows>,
) -> CommandInfo {
    // If interfaces cannot be listed, none has an index.
    let links = rxsteer_host::links().unwrap_or_default();
    let origin = |named: &LiveInterface| Origin {
        name: named.name.clone(),
        ifindex: links.iter().find(|link| link.name == named.name).map(|link| link.index),
        receivers: usize::from(named.rx_queues.start)..usize::from(named.rx_queues.end),
        by_rx_queue: io == LiveIo::Xdp,
    };
    CommandInfo {
        command: Command::Live,
        mode: io.name(),
        dissect: config.dissect,
        origins: named.iter().map(origin).collect(),
        flows,
        fixed: None,
    }
}

fn queues_of(interfaces: &[LiveInterface]) -> u16 {
    interfaces.last().map_or(0, |last| last.rx_queues.end)
}

/// `config` as the arguments describe it, except for the steering.
fn pipeline_config(
    args: &LiveArgs,
    interfaces: &[LiveInterface],
    mut config: PipelineConfig,
    rx_cpus: Vec<CpuId>,
) -> PipelineConfig {
    config.receive_on(interfaces, rx_cpus);
    config.standby = args.standby.as_ref().map(|cpus| cpus.cpus(sys::allowed_cpus()));
    config.max_backlog = args.max_backlog;
    config.on_full = OnFull::Drop;
    config.pin = !args.workers.no_pin;
    config.check_order = true;
    config.measure_load = true;
    config.tick = args.out.tick();
    config
}

/// The options needed to repeat a run, except those that the report has elsewhere.
fn settings(args: &LiveArgs, io: LiveIo, config: &PipelineConfig) -> Value {
    let mut settings = decisive(config);
    let others = json!({
        "io": io.name(),
        "bridge": args.bridge,
        "zero_copy": args.zero_copy,
        "busy_poll_us": args.busy_poll,
        "standby": config.standby.as_ref().map(ToString::to_string),
        "max_backlog": config.max_backlog,
        "batch": config.batch,
        "pin": config.pins(),
        "duration_ns": args.duration.map(|duration| duration.as_nanos() as u64),
        "count": args.count,
        "filter": args.filter,
        "promiscuous": args.promiscuous,
        "outgoing": args.outgoing,
        "copy": args.copy,
        "ring_bytes": args.ring_size << 20,
        "work_ns": args.workers.work_ns,
        "out": args.out.out.as_ref().map(ToString::to_string),
    });
    settings.extend(args.records.settings(true));
    settings.extend(json::object(others));
    Value::Object(settings)
}

fn shown_interface(interface: &Interface) -> Value {
    let sum = |figure: fn(&RxProgress) -> &Count| -> u64 {
        interface.progress.iter().map(|queue| figure(queue).get()).sum()
    };
    json!({
        "name": interface.name,
        "link": interface.link,
        "mode": interface.mode,
        "packets": sum(|queue| &queue.packets),
        "bytes": sum(|queue| &queue.bytes),
        "kernel_drops": sum(|queue| &queue.kernel_drops),
    })
}

/// The event of an interface that packets are received from.
fn receiving(interface: &Interface) -> NewEvent {
    let Interface { name, mode, .. } = interface;
    let text = format!("receiving from {} ({mode})", printable(name));
    NewEvent::new(EventKind::InterfaceSteered, text).with("interface", name.clone())
}

fn note_choice(args: &LiveArgs) {
    if args.io == Io::Auto && args.bridge.is_none() {
        output::note(
            "rxsteer: receiving by packet sockets; AF_XDP (--io xdp) would take the packets away from this host",
        );
    }
}

fn note_kernel_drops(run: &Run, ring_size: u64, io: LiveIo) {
    let dropped = run.report.kernel_drops;
    if dropped > 0 {
        output::note(&format!(
            "rxsteer: the kernel dropped {dropped} packets, since the ring of {ring_size} MiB was full: they came faster \
             than they were received, or a worker held them for long. Raise --ring-size, name more --cpus, give \
             receiving a CPU of its own (--rx-cpus), or use --copy if handlers keep packets.{}",
            match io {
                LiveIo::Packet => "",
                LiveIo::Xdp =>
                    " If the MTU was raised in the meantime, restart rxsteer: it also drops frames that are longer \
                     than before.",
            }
        ));
    }
}
