//! `rxsteer auto`: measures, chooses a method, activates it, measures again, and undoes a change for the worse.
//!
//! ```text
//!  measured ─► nothing to relieve, one flow, the NIC's own RSS ──► said, and left alone
//!      │
//!  native XDP: rxsteer run as a process of its own ──► not better, or it can't run ─► ended
//!      │                                                                          │
//!  held until a signal                                    the kernel's RPS and RFS ──► worse ─► set back
//! ```

use crate::events_out::{Events, EventsOut};
use crate::fallback::{express::expressed, hold};
use crate::host::args::parse_verify;
use crate::host::question::Waiting;
use crate::host::recommend::{Recommended, attaches, measure};
use crate::output::{note, print};
use crate::run::args::RunArgs;
use crate::{Outcome, check};
use clap::{Args, Parser};
use rxsteer_host::change::{Wanted, refuse_offline};
use rxsteer_host::recommend::{Action, left_alone};
use rxsteer_host::{Host, InterfaceKnobs, Root, Topology, default_policy, links};
use rxsteer_settings::cpus_listed;
use rxsteer_user::core::{CpuSet, Policy};
use rxsteer_user::{printable, sys};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// Measure which steering is best for an interface, and apply it
///
/// First it measures whether a CPU is short of time; if none is, it changes nothing. Then it tries native XDP
/// (rxsteer run). If that can't run or is not better, it tries the kernel's own RPS and RFS. It undoes what is worse.
/// It steers until it ends, and then restores the interface.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    rxsteer auto eth0\n  \
    rxsteer auto wg0 --verify 60s\n  \
    rxsteer auto eth0 --policy rfs --cpus 1-3 --verify 2m\n\n\
    Each step prints its reason. rxsteer status shows the current state. To keep the kernel's settings across \
    reboots: rxsteer host apply --persist.\n\n\
    Exit status: 0 it steered until it was ended, or there was nothing to do; 1 every attempt was worse, and was \
    undone; 2 it could not run.")]
pub(crate) struct AutoArgs {
    /// The interface
    #[arg(value_name = "IFACE")]
    pub(crate) interface: String,

    /// Measure for this long before and after each attempt
    #[arg(long, value_name = "DURATION", value_parser = parse_verify, default_value = "60s")]
    pub(crate) verify: Duration,

    /// Measure for this long whether a CPU is short of time
    #[arg(long, value_name = "DURATION", value_parser = crate::input_args::parse_sample, default_value = "10s")]
    pub(crate) sample: Duration,

    /// The policy, as in rxsteer run; by default chosen by the measurement
    #[arg(long, value_name = "POLICY", value_parser = rxsteer_settings::policy)]
    pub(crate) policy: Option<Policy>,

    /// CPUs to steer to: a list like 0-3,8, CPU 4 alone is 4-4; by default chosen by the measurement
    #[arg(long, value_name = "LIST", value_parser = cpus_listed)]
    pub(crate) cpus: Option<CpuSet>,

    /// Continue even if there is nothing to do
    #[arg(long)]
    pub(crate) anyway: bool,

    /// End this long after the start, e.g. 10m; it must be longer than --sample and --verify together
    #[arg(long, value_name = "DURATION", value_parser = crate::input_args::parse_sample)]
    pub(crate) duration: Option<Duration>,
}

/// Printed if an interface is left alone.
const UNCHANGED: &str = "rxsteer: nothing was changed; to continue anyway, add --anyway";

/// The command.
pub(crate) fn command(args: &AutoArgs) -> anyhow::Result<Outcome> {
    let root = Root::host();
    refuse(args, &Topology::read(&root))?;
    let until = args.duration.and_then(|time| Instant::now().checked_add(time));
    let waiting = Waiting::begin()?;
    let links = links()?;
    let chosen = check::chosen(std::slice::from_ref(&args.interface), &links)?;
    let [link] = chosen.as_slice() else {
        anyhow::bail!(
            "{} matches {} interfaces; name one",
            printable(&args.interface),
            chosen.len()
        );
    };
    let name = printable(&link.name).into_owned();
    if let Some(error) = check::busy(link) {
        return Err(error);
    }
    let may_change = nix::unistd::geteuid().is_root();
    if !may_change {
        note("rxsteer: this user is not root, so rxsteer only measures, and changes nothing");
    }
    // Advice that no measurement can change is printed without one.
    let alone = left_alone(&InterfaceKnobs::read(&root, &link.name)?);
    if let Some(why) = alone.filter(|_| !args.anyway) {
        print(&format!("{why}\n"))?;
        note(UNCHANGED);
        return Ok(Outcome::Success);
    }
    note(&format!("rxsteer: step 1: measuring {name} for {:?}", args.sample));
    let mut ended = false;
    let is_ended = |time| {
        ended = waiting.is_ended_within(time);
        ended
    };
    let never = Arc::new(AtomicBool::new(false));
    let interfaces = [(*link).clone()];
    let all = measure(&root, &interfaces, args.sample, may_change, &never, is_ended)?;
    let Some(recommended) = all.into_iter().next().filter(|_| !ended) else {
        return Ok(Outcome::Interrupted);
    };
    print(&recommended.found.to_string())?;
    let is_left =
        !matches!(recommended.found.action, Action::Run { .. } | Action::KernelSteering(_));
    if is_left && !args.anyway {
        note(if recommended.found.commands.is_empty() {
            UNCHANGED
        } else {
            "rxsteer: nothing was changed: set the NIC as shown above, or add --anyway to continue without that"
        });
        return Ok(Outcome::Success);
    }
    let options = options_for(args, &recommended);
    // The interface is measured, so general findings about veths do not apply.
    let native = match attaches(link, &Host::read()) {
        Ok(()) => native(args, &recommended, &options, &waiting, until)?,
        Err(why) => Native::Not(why),
    };
    match native {
        Native::Ended(outcome) => return Ok(outcome),
        Native::Not(why) => note(&format!("rxsteer: step 2: native XDP: no, because {why}")),
    }
    note(&format!(
        "rxsteer: step 3: the kernel's own steering; old and new settings take turns for {:?}",
        args.verify
    ));
    let wanted = kernel(args, &recommended, &options)?;
    let knobs: InterfaceKnobs = recommended.facts.knobs;
    let mut events = Events::new(Instant::now(), EventsOut::messages());
    hold(&root, &[(knobs, wanted)], Some(args.verify), until, &waiting, &mut events)
}

/// Refuses, before any measurement, what could not be carried out afterwards.
fn refuse(args: &AutoArgs, topology: &Topology) -> anyhow::Result<()> {
    if let Some(cpus) = &args.cpus {
        refuse_offline(cpus, topology).map_err(|why| anyhow::anyhow!("--cpus {cpus}: {why}"))?;
    }
    let least = args.sample + args.verify;
    anyhow::ensure!(
        args.duration.is_none_or(|duration| duration > least),
        "--duration {:?} ends before the measurements: they take --sample {:?} and --verify {:?}; give a longer \
         --duration, or shorter --sample and --verify",
        args.duration.unwrap_or_default(),
        args.sample,
        args.verify
    );
    Ok(())
}

/// The options for `rxsteer run`.
struct RunOptions {
    policy: Policy,
    cpus: Option<CpuSet>,
    inner: bool,
}

fn options_for(args: &AutoArgs, recommended: &Recommended) -> RunOptions {
    let (policy, cpus, inner) = match &recommended.found.action {
        Action::Run { policy, cpus, inner } => (Some(policy.clone()), Some(cpus.clone()), *inner),
        // The kernel's RFS needs sizes; rxsteer run has its own ones.
        Action::KernelSteering(sets) => {
            let policy =
                if sets.rfs.is_some() { default_policy(&Host::read()) } else { Policy::Rps };
            (Some(policy), sets.wanted().cpus, false)
        }
        _ => (None, None, false),
    };
    RunOptions {
        policy: args.policy.clone().or(policy).unwrap_or(Policy::Rps),
        cpus: args.cpus.clone().or(cpus),
        inner,
    }
}

impl RunOptions {
    /// As command-line options of `rxsteer run`.
    fn arguments(&self) -> Vec<String> {
        let mut arguments = vec![format!("--policy={}", self.policy)];
        let list = |cpus: &CpuSet| format!("--cpus={}", cpus.as_option());
        arguments.extend(self.cpus.as_ref().map(list));
        if self.inner {
            arguments.push("--inner".to_owned());
        }
        arguments
    }
}

/// The settings for the kernel: the recommended sets, or the policy in the kernel's terms.
fn kernel(
    args: &AutoArgs,
    recommended: &Recommended,
    options: &RunOptions,
) -> anyhow::Result<Wanted> {
    if let (None, None, Action::KernelSteering(sets)) =
        (&args.policy, &args.cpus, &recommended.found.action)
    {
        return Ok(sets.wanted());
    }
    /// The options of `rxsteer run` alone.
    #[derive(Parser)]
    struct Options {
        #[command(flatten)]
        run: RunArgs,
    }
    let knobs = &recommended.facts.knobs;
    let line = ["run".to_owned(), knobs.name.clone()].into_iter().chain(options.arguments());
    let asked = Options::try_parse_from(line)?.run.settings()?;
    let found = expressed(&asked, &options.policy, knobs, sys::allowed_cpus());
    let found = found.map_err(|why| anyhow::anyhow!("the kernel can't do it: {why}"))?;
    for differs in &found.differs {
        note(&format!("rxsteer: {differs}"));
    }
    Ok(found.wanted)
}

/// The result of trying native XDP.
enum Native {
    /// It steered until this end.
    #[cfg_attr(not(feature = "xdp"), expect(dead_code, reason = "there is no native XDP"))]
    Ended(Outcome),
    /// It is not used; holds the reason.
    Not(String),
}

#[cfg(not(feature = "xdp"))]
fn native(
    _: &AutoArgs,
    _: &Recommended,
    _: &RunOptions,
    _: &Waiting,
    _: Option<Instant>,
) -> anyhow::Result<Native> {
    Ok(Native::Not("this build has no in-kernel path".to_owned()))
}

#[cfg(feature = "xdp")]
use with_xdp::native;

#[cfg(feature = "xdp")]
mod with_xdp {
    use super::{AutoArgs, Native, RunOptions};
    use crate::Outcome;
    use crate::host::apply::table;
    use crate::host::question::Waiting;
    use crate::host::recommend::Recommended;
    use crate::output::{note, print};
    use anyhow::Context;
    use nix::sys::signal::{Signal, kill};
    use nix::unistd::Pid;
    use rxsteer_host::Load;
    use rxsteer_host::change::{Measured, TURNS, Turn, Verdict, judge, measured};
    use rxsteer_status::client;
    use std::io::Read;
    use std::process::{Child, Command, Stdio};
    use std::time::{Duration, Instant};

    /// The number of measurements before, and after. Old and new settings do not alternate: a driver makes new rings
    /// when a program is attached, and many reset the link, so the measurement would mostly show that.
    const SLICES: u32 = TURNS as u32;
    /// How long rxsteer run may take to start.
    const LONGEST_START: Duration = Duration::from_secs(60);
    const STEP: Duration = Duration::from_millis(100);

    /// Tries native XDP, and steers with it as long as it is not worse.
    pub(super) fn native(
        args: &AutoArgs,
        recommended: &Recommended,
        options: &RunOptions,
        waiting: &Waiting,
        until: Option<Instant>,
    ) -> anyhow::Result<Native> {
        let name = &recommended.facts.knobs.name;
        note(&format!(
            "rxsteer: step 2: native XDP: rxsteer run {name} {}; measuring for {:?} before and after. Softirq here \
             means all the time that CPUs are not idle, because the threads of XDP are not softirqs",
            options.arguments().join(" "),
            args.verify
        ));
        let slice = args.verify / (2 * SLICES);
        let mut turns = Vec::new();
        if !slices(Turn::Old, name, slice, waiting, &mut turns) {
            return Ok(Native::Ended(Outcome::Interrupted));
        }
        let folder = tempfile::tempdir().context("can't make a folder for the control socket")?;
        let socket = folder.path().join("auto.sock");
        let program = std::env::current_exe().context("can't find the program's own path")?;
        let mut run = Command::new(program);
        run.args(["run", name, "--mode", "native", "--end-with-parent", "--socket"])
            .arg(&socket)
            .args(options.arguments());
        // Its report matters only if it stays.
        run.stdin(Stdio::null()).stdout(Stdio::piped());
        let child = run.spawn().context("can't start rxsteer run")?;
        let mut child = Running(child);
        let started = Instant::now();
        while client::status(&socket, 0, false).is_err() {
            if let Some(status) = child.0.try_wait()? {
                return Ok(Native::Not(format!("rxsteer run ended with {status}")));
            }
            if waiting.is_ended_within(STEP) {
                return Ok(Native::Ended(Outcome::Interrupted));
            }
            if started.elapsed() > LONGEST_START {
                return Ok(Native::Not("rxsteer run did not begin within a minute".to_owned()));
            }
        }
        if !slices(Turn::New, name, slice, waiting, &mut turns) {
            return Ok(Native::Ended(Outcome::Interrupted));
        }
        if let Some(status) = child.0.try_wait()? {
            return Ok(Native::Not(format!("rxsteer run ended with {status}")));
        }
        let verdict = judge(&turns);
        // Native XDP stays only if it is better: otherwise the kernel's own steering is tried.
        print(&table(&turns, &verdict).replace("; it is kept", ""))?;
        match verdict {
            Verdict::Better { .. } => {}
            Verdict::Worse { what } => {
                return Ok(Native::Not(format!("it is worse ({})", what.join("; "))));
            }
            Verdict::Same => return Ok(Native::Not("it makes no clear difference".to_owned())),
            Verdict::TooQuiet { .. } => {
                return Ok(Native::Not("too few packets arrived to compare".to_owned()));
            }
        }
        note("rxsteer: native XDP steers; this is undone when rxsteer ends");
        loop {
            let is_over = until.is_some_and(|until| Instant::now() >= until);
            if is_over || waiting.is_ended_within(STEP) {
                print(&child.report())?;
                return Ok(Native::Ended(Outcome::Success));
            }
            if let Some(status) = child.0.try_wait()? {
                print(&child.report())?;
                let fine = status.success();
                return Ok(Native::Ended(if fine { Outcome::Success } else { Outcome::Findings }));
            }
        }
    }

    /// A running `rxsteer run`, which ends when this is dropped.
    struct Running(Child);

    impl Running {
        /// Ends it; returns its output.
        fn report(&mut self) -> String {
            self.end();
            let mut text = String::new();
            if let Some(mut printed) = self.0.stdout.take() {
                // If the output cannot be read, this continues.
                let _ = printed.read_to_string(&mut text);
            }
            text
        }

        fn end(&mut self) {
            if matches!(self.0.try_wait(), Ok(None)) {
                // The process has not been waited for, so the id is still its own.
                let _ = kill(Pid::from_raw(self.0.id() as i32), Signal::SIGTERM);
                let _ = self.0.wait();
            }
        }
    }

    impl Drop for Running {
        fn drop(&mut self) {
            self.end();
        }
    }

    /// Measures several times; false if this was interrupted.
    fn slices(
        turn: Turn,
        name: &str,
        each: Duration,
        waiting: &Waiting,
        turns: &mut Vec<(Turn, Measured)>,
    ) -> bool {
        for _ in 0..SLICES {
            let before = Load::read();
            if waiting.is_ended_within(each) {
                return false;
            }
            let done = Load::read().zip(before).map(|(after, before)| after.since(&before));
            let mut done = done.unwrap_or_default();
            for cpu in &mut done.cpus {
                cpu.ticks.softirq = cpu.ticks.all.saturating_sub(cpu.ticks.idle);
            }
            turns.push((turn, measured(&done, &[name.to_owned()])));
        }
        true
    }
}
