//! `rxsteer live`: packets of live interfaces through the receive path.

pub(crate) mod args;
mod filter;
mod watch;

use crate::Outcome;
use crate::input::{Input, end_on_signals, issues};
use crate::output::{self, json, table};
use crate::replay::{Run, report_after};
use crate::steer_args::SteerSettings;
use crate::work::Work;
use anyhow::{Context, bail, ensure};
use args::{Io, LiveArgs};
use rxsteer_user::core::{CpuId, MAX_RX_QUEUES};
use rxsteer_user::source::Source;
use rxsteer_user::source::capture::RxQueues;
use rxsteer_user::source::packet::{PacketOptions, PacketSource};
use rxsteer_user::{OnFull, PipelineConfig, Receiver, RxProgress, Speed, printable, sys};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use watch::Watch;

/// An interface, and what is shown of it.
struct Interface {
    name: String,
    link: &'static str,
    progress: Arc<RxProgress>,
}

/// The command.
pub(crate) fn command(args: &LiveArgs) -> anyhow::Result<Outcome> {
    let steer = args.steer.settings()?;
    let mut config = pipeline_config(args, &steer)?;
    let hash_seed = steer.apply(&mut config)?;
    config.check()?;
    let end = Arc::new(AtomicBool::new(false));
    let (mut sources, links) = open(args, &end)?;
    // What was received until a signal came is all there is: nothing is interrupted.
    end_on_signals(vec![end.clone()])?;
    let input = Input {
        captures: &[],
        synthetic: None,
        rx_queues: RxQueues::Single,
        threads: 1,
        repeat: 1,
    };
    let mut recording = args.records.start(&input, args.steer.config.as_deref(), &config)?;
    let stop = AtomicBool::new(false);
    let work = |cpu| Work {
        per_packet: Duration::from_nanos(u64::from(args.work_ns)),
        stop: end.clone(),
        apps: None,
        flows: recording.as_mut().and_then(|recording| recording.stats(cpu)),
    };
    let mut interfaces = Vec::new();
    let mut watch = None;
    let begun = Instant::now();
    let report =
        rxsteer_user::run(&config, &mut sources, Speed::Max, &stop, work, |receivers, _| {
            let progress: Vec<_> = receivers.iter().map(Receiver::progress).collect();
            let named = args.interfaces.iter().zip(&links).zip(&progress);
            interfaces.extend(named.map(|((name, link), progress)| Interface {
                name: name.clone(),
                link,
                progress: progress.clone(),
            }));
            output::note(&format!("rxsteer: receiving from {}", args.interfaces.join(", ")));
            watch = Some(Watch::start(progress, args.json, args.duration, end.clone()));
        });
    drop(watch);
    let mut report = report?;
    let elapsed = begun.elapsed();
    let used = report.handlers.iter_mut().filter_map(|(_, work)| work.flows.take()).collect();
    let recorded = recording.map(|recording| recording.finish(used)).transpose()?;
    let run = Run {
        report,
        issues: issues(&mut sources, false),
        policy: steer.policy().to_string(),
        cpus: config.workers(),
        hash: if args.nic_hash { "nic" } else { steer.hash().name() },
        hash_seed: hash_seed.filter(|_| !args.nic_hash),
        is_a_draw: false,
        repeatable: false,
        settings: settings(args, &config),
        skipped: 0,
        max_backlog: config.max_backlog,
        changes: 0,
        recorded,
        elapsed,
        interrupted: false,
    };
    if args.json {
        let mut object = json::run(&run);
        object["interfaces"] = interfaces.iter().map(shown_interface).collect();
        output::print(&format!("{object}\n"))?;
    } else {
        output::print(&table::run(&run, table::room_on_terminal()))?;
    }
    report_after(&run);
    note_kernel_drops(&run, args.ring_size);
    Ok(run.outcome())
}

/// A source for each interface, and what their frames begin with.
fn open(
    args: &LiveArgs,
    end: &Arc<AtomicBool>,
) -> anyhow::Result<(Vec<Box<dyn Source>>, Vec<&'static str>)> {
    if args.io == Io::Xdp {
        bail!("AF_XDP sockets are not built into this rxsteer; use --io packet");
    }
    let limit = args.count.map(|count| Arc::new(AtomicU64::new(count)));
    let (mut sources, mut links): (Vec<Box<dyn Source>>, _) = (Vec::new(), Vec::new());
    for (rx_queue, name) in (0..).zip(&args.interfaces) {
        let mut options = PacketOptions::default();
        options.rx_queue = rx_queue;
        options.ring_bytes = args.ring_size << 20;
        options.copy = args.copy;
        options.promiscuous = args.promiscuous;
        options.outgoing = args.outgoing;
        options.nic_hash = args.nic_hash;
        options.limit.clone_from(&limit);
        options.stop = end.clone();
        if let Some(expression) = &args.filter {
            options.filter = filter::compile(expression, name)?;
        }
        let source = PacketSource::with(name, options)
            .with_context(|| format!("can't receive from {}", printable(name)))?;
        links.push(source.link().name());
        sources.push(Box::new(source));
    }
    Ok((sources, links))
}

/// The configuration that the arguments describe, but for what it is steered by.
fn pipeline_config(args: &LiveArgs, steer: &SteerSettings) -> anyhow::Result<PipelineConfig> {
    let queues = u16::try_from(args.interfaces.len()).ok().filter(|count| *count <= MAX_RX_QUEUES);
    let queues = queues.with_context(|| {
        format!("{} interfaces are named; at most {MAX_RX_QUEUES} can be", args.interfaces.len())
    })?;
    for (index, name) in args.interfaces.iter().enumerate() {
        ensure!(
            !args.interfaces[..index].contains(name),
            "{} is named twice; its packets would count twice",
            printable(name)
        );
    }
    let cpus = steer.cpus(sys::allowed_cpus())?;
    let mut config = PipelineConfig::new(steer.policy(), cpus.clone());
    let rx_cpus: Vec<CpuId> = args.rx_cpus.as_ref().unwrap_or(&cpus).iter().collect();
    config.rx_cpus = rx_cpus.into_iter().cycle().take(usize::from(queues)).collect();
    config.rx_queues = queues;
    config.max_backlog = args.max_backlog;
    config.on_full = OnFull::Drop;
    config.pin = !args.no_pin;
    config.check_order = true;
    Ok(config)
}

/// What a run would have to be given to be repeated, beside what the report says elsewhere.
fn settings(args: &LiveArgs, config: &PipelineConfig) -> Value {
    json!({
        "io": "packet",
        "steered_to": config.cpus.to_string(),
        "rx_cpus": config.rx_cpus.iter().map(|cpu| cpu.get()).collect::<Vec<_>>(),
        "rx_queues": config.rx_queues,
        "max_backlog": config.max_backlog,
        "inner": config.dissect.inner,
        "duration_ns": args.duration.map(|duration| duration.as_nanos() as u64),
        "count": args.count,
        "filter": args.filter,
        "promiscuous": args.promiscuous,
        "outgoing": args.outgoing,
        "copy": args.copy,
        "ring_bytes": args.ring_size << 20,
        "work_ns": args.work_ns,
    })
}

fn shown_interface(interface: &Interface) -> Value {
    // ORDER: Relaxed; its thread has ended.
    let figure = |figure: &AtomicU64| figure.load(Ordering::Relaxed);
    json!({
        "name": interface.name,
        "link": interface.link,
        "packets": figure(&interface.progress.packets),
        "bytes": figure(&interface.progress.bytes),
        "kernel_drops": figure(&interface.progress.kernel_drops),
    })
}

fn note_kernel_drops(run: &Run, ring_size: u64) {
    let dropped = run.report.kernel_drops;
    if dropped > 0 {
        output::note(&format!(
            "rxsteer: the kernel dropped {dropped} packets, since the ring of {ring_size} MiB was full: they came faster \
             than they were received, or a worker held them for long. Raise --ring-size, name more --cpus, give \
             receiving a CPU of its own (--rx-cpus), or use --copy if handlers keep packets."
        ));
    }
}
