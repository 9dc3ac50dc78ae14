//! `rxsteer live`: packets of live interfaces through the receive path.

pub(crate) mod args;
mod filter;
mod open;
mod opened;
mod watch;
#[cfg(feature = "xdp")]
mod xdp;

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
use open::{Way, open};
use opened::{Named, Opened, Outgoing};
use rxsteer_records::recording::{LiveFlows, Recording};
use rxsteer_status::userspace::Watched;
use rxsteer_status::{Command, EventKind, NewEvent};
use rxsteer_user::core::matching::InterfaceName;
use rxsteer_user::core::{CpuId, CpuSet};
use rxsteer_user::sink::Sink;
use rxsteer_user::{
    Count, Handler, OnFull, PipelineConfig, Receiver, RxProgress, Speed, printable, sys,
};
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
    let way = Way::of(args)?;
    let cpus = steer.cpus(sys::allowed_cpus())?;
    let rx_cpus = args.rx_cpus.as_ref().unwrap_or(&cpus);
    let named = open::interfaces(args, way, rx_cpus.len())?;
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
    let none_may_move = open::why_none_may_move(args, way, &named);
    if let Some(why) = none_may_move.as_ref().filter(|_| open::flows_can_move(&config)) {
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
    let opened = open(args, way, &named, &end)?;
    let Opened { mut sources, links, modes, outgoing, _kept } = opened;
    let mut next = handlers(outgoing, config.workers().len())?;
    let mut recording = args.records.start_live(
        &args.rotate,
        by_queue(&named),
        args.steer.config.as_deref(),
        &config,
    )?;
    let mut about = about(way, &named, &config, recording.as_ref().map(Recording::flows));
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
        rxsteer_user::run(&config, &mut sources, Speed::Max, &stop, work, |receivers, control| {
            controlled = Some(control.clone());
            let watched = Watched::new(receivers, control);
            let progress: Vec<_> = receivers.iter().map(Receiver::progress).collect();
            for ((named, link), mode) in named.iter().zip(&links).zip(modes) {
                let queues = usize::from(named.rx_queues.start)..usize::from(named.rx_queues.end);
                let progress = progress[queues].to_vec();
                interfaces.push(Interface { name: named.name.clone(), link, mode, progress });
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
        issues: issues(&mut sources, false),
        policy: config.policy.to_string(),
        cpus: config.cpus.clone(),
        hash: if args.nic_hash { "nic" } else { steer.hash().name() },
        hash_seed: hash_seed.filter(|_| !args.nic_hash),
        is_a_draw: false,
        repeatable: false,
        settings: settings(args, way, &config),
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
    note_kernel_drops(&run, args.ring_size, way);
    Ok(run.outcome())
}

/// The interface of each RX queue.
fn by_queue(named: &[Named]) -> Vec<rxsteer_records::Interface> {
    // If interfaces cannot be listed, records lack their indices.
    let links = rxsteer_host::links().unwrap_or_default();
    let of = |named: &Named| {
        let index = links.iter().find(|link| link.name == named.name).map_or(0, |link| link.index);
        rxsteer_records::Interface { name: named.name.clone(), index }
    };
    named.iter().flat_map(|one| one.rx_queues.clone().map(move |_| of(one))).collect()
}

/// The status, except for counts.
fn about(
    way: Way,
    named: &[Named],
    config: &PipelineConfig,
    flows: Option<LiveFlows>,
) -> CommandInfo {
    // If interfaces cannot be listed, none has an index.
    let links = rxsteer_host::links().unwrap_or_default();
    let origin = |named: &Named| Origin {
        name: named.name.clone(),
        ifindex: links.iter().find(|link| link.name == named.name).map(|link| link.index),
        receivers: usize::from(named.rx_queues.start)..usize::from(named.rx_queues.end),
        by_rx_queue: way == Way::Xdp,
    };
    CommandInfo {
        command: Command::Live,
        mode: way.name(),
        dissect: config.dissect,
        origins: named.iter().map(origin).collect(),
        flows,
        fixed: None,
    }
}

/// With at least this many CPUs per RX queue, receiving CPUs get no other packets unless the user names CPUs. A worker
/// on the CPU of an RX thread gets as many packets as any other, but has less time for them: under an even load 16
/// workers on 16 CPUs did 0.48 to 0.71 times as many packets of 1 µs as 15 (docs/results/lab-16/workers.md, where full
/// backlogs wait). The number was chosen, not measured.
const CPUS_FOR_APART: usize = 4;

/// The CPUs that packets are spread over, and those that receive, from `all` CPUs.
fn apart(all: CpuSet, queues: u16) -> (CpuSet, Vec<CpuId>) {
    let receiving: Vec<CpuId> = all.iter().take(usize::from(queues)).collect();
    let others = CpuSet::new(all.iter().skip(receiving.len()));
    match others {
        Some(others) if all.len() >= CPUS_FOR_APART * usize::from(queues) => (others, receiving),
        _ => {
            let receiving = all.iter().collect();
            (all, receiving)
        }
    }
}

fn queues_of(interfaces: &[Named]) -> u16 {
    interfaces.last().map_or(0, |last| last.rx_queues.end)
}

/// `config` as the arguments describe it, except for the steering.
fn pipeline_config(
    args: &LiveArgs,
    interfaces: &[Named],
    mut config: PipelineConfig,
    rx_cpus: Vec<CpuId>,
) -> PipelineConfig {
    let queues = queues_of(interfaces);
    config.rx_cpus = rx_cpus.into_iter().cycle().take(usize::from(queues)).collect();
    config.rx_queues = queues;
    let devices = (0..).zip(interfaces);
    config.rx_devices =
        devices.flat_map(|(device, about)| about.rx_queues.clone().map(move |_| device)).collect();
    config.device_names =
        interfaces.iter().filter_map(|about| InterfaceName::new(&about.name)).collect();
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
fn settings(args: &LiveArgs, way: Way, config: &PipelineConfig) -> Value {
    let mut settings = decisive(config);
    let others = json!({
        "io": way.name(),
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

/// The handlers that send packets on, one per CPU; none if nothing is sent.
fn handlers(outgoing: Option<Outgoing>, cpus: usize) -> anyhow::Result<Vec<Box<dyn Handler>>> {
    let Some(mut outgoing) = outgoing else { return Ok(Vec::new()) };
    (0..cpus).map(|_| outgoing()).collect()
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

fn note_kernel_drops(run: &Run, ring_size: u64, way: Way) {
    let dropped = run.report.kernel_drops;
    if dropped > 0 {
        output::note(&format!(
            "rxsteer: the kernel dropped {dropped} packets, since the ring of {ring_size} MiB was full: they came faster \
             than they were received, or a worker held them for long. Raise --ring-size, name more --cpus, give \
             receiving a CPU of its own (--rx-cpus), or use --copy if handlers keep packets.{}",
            match way {
                Way::Packet => "",
                Way::Xdp =>
                    " If the MTU was raised in the meantime, restart rxsteer: it also drops frames that are longer \
                     than before.",
            }
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_that_receive_are_apart_where_there_are_enough() {
        let of = |count, queues| {
            let (cpus, receiving) = apart(CpuSet::first(count).unwrap(), queues);
            let receiving: Vec<u16> = receiving.iter().map(|cpu| cpu.get()).collect();
            (cpus.to_string(), receiving)
        };
        assert_eq!(of(1, 1), ("0".to_owned(), vec![0]));
        assert_eq!(of(3, 1), ("0-2".to_owned(), vec![0, 1, 2]));
        assert_eq!(of(4, 1), ("1-3".to_owned(), vec![0]));
        assert_eq!(of(16, 2), ("2-15".to_owned(), vec![0, 1]));
        assert_eq!(of(7, 2), ("0-6".to_owned(), vec![0, 1, 2, 3, 4, 5, 6]));
    }
}
