//! `rxsteer flows`: the largest flows of captures, and the CPUs that processed them.

pub(crate) mod args;
mod show;
pub(crate) mod top;

use crate::Outcome;
use crate::advice::{self, policies};
use crate::hash_key::HashSeed;
use crate::input::{Input, issues, skipped, stop_on_interrupt};
use crate::output;
use crate::replay::speed_of_keeping_up;
use crate::steer_args::SteerSettings;
use args::FlowsArgs;
use rxsteer_records::View;
use rxsteer_records::collecting::Collecting;
use rxsteer_records::recording::{stats, take};
use rxsteer_user::core::CpuId;
use rxsteer_user::flows::FlowCounts;
use rxsteer_user::source::SourceIssue;
use rxsteer_user::source::capture::RxQueues;
use rxsteer_user::{FlowStats, Handler, OnFull, PacketList, PipelineConfig, Report, sys};
use std::sync::atomic::Ordering;
use top::Top;

/// Everything that is shown.
struct Found {
    config: PipelineConfig,
    hash: &'static str,
    hash_seed: Option<HashSeed>,
    top: Top,
    counts: FlowCounts,
    view: View,
    report: Report<Counting>,
    issues: Vec<SourceIssue>,
    /// Records of the captures that were skipped.
    skipped: u64,
    interrupted: bool,
}

/// A handler that only counts.
struct Counting {
    flows: Option<FlowStats>,
}

impl Handler for Counting {
    fn handle(&mut self, list: &PacketList<'_>) {
        if let Some(flows) = &mut self.flows {
            flows.record(list);
        }
    }
}

impl Found {
    fn malformed(&self) -> u64 {
        self.report.malformed.iter().sum()
    }

    fn outcome(&self) -> Outcome {
        let worker_died = self.report.per_cpu.iter().any(|cpu| cpu.failure.is_some());
        if self.interrupted {
            Outcome::Interrupted
        } else if !self.issues.is_empty() || worker_died {
            Outcome::Findings
        } else {
            Outcome::Success
        }
    }
}

/// The command.
pub(crate) fn command(args: &FlowsArgs) -> anyhow::Result<Outcome> {
    let steer = args.steer.settings()?;
    let (config, hash_seed) = pipeline_config(&steer)?;
    let view = args.table.view()?;
    let input = Input {
        captures: &args.captures,
        synthetic: args.synthetic.as_ref(),
        rx_queues: RxQueues::Single,
        threads: 1,
        repeat: 1,
    };
    let mut sources = input.open()?;
    let apps = Some("rxsteer replay plays applications, with --app-cpus");
    let notes = advice::before(&steer, &config, false, apps);
    for note in input.notes().into_iter().chain(notes) {
        output::note(&format!("rxsteer: {note}"));
    }
    let stop = stop_on_interrupt(&sources)?;
    let top = Top::new(args.top as usize, args.by);
    let collecting = Collecting::start(&args.table.table(None), top, None)?;
    let mut stats = stats(&collecting, &config)?;
    let counting = |cpu: CpuId| Counting { flows: take(&mut stats, cpu) };
    let speed = speed_of_keeping_up(&policies(&config));
    let mut report = rxsteer_user::run(&config, &mut sources, speed, &stop, counting, |_, _| {})?;
    for (_, counting) in &mut report.handlers {
        counting.flows = None;
    }
    let (top, counts) = collecting.finish()?;
    // ORDER: Relaxed; all threads have ended.
    let interrupted = stop.load(Ordering::Relaxed);
    let issues = issues(&mut sources, interrupted);
    let skipped = skipped(&sources);
    let hash = steer.hash().name();
    let found =
        Found { config, hash, hash_seed, top, counts, view, report, issues, skipped, interrupted };
    output::print(&if args.json { show::json(&found) } else { show::table(&found) })?;
    for note in show::notes(&found) {
        output::note(&format!("rxsteer: {note}"));
    }
    Ok(found.outcome())
}

/// The receive path for the frames: one RX queue, and no frame is lost to a full backlog.
fn pipeline_config(steer: &SteerSettings) -> anyhow::Result<(PipelineConfig, Option<HashSeed>)> {
    let mut config = PipelineConfig::new(steer.policy(), steer.cpus(sys::allowed_cpus())?);
    let hash_seed = steer.apply(&mut config)?;
    config.on_full = OnFull::Wait;
    // Speed does not matter here, and other work on the machine should not have to wait for pinned threads.
    config.pin = false;
    config.check()?;
    Ok((config, hash_seed))
}
