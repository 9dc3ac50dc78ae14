//! Beginning: what is asked for is looked at as a whole, refused with the reason or attached as a whole.

use super::args::{LiveHash, ModeChoice, RunArgs};
use super::change::HostCpus;
use super::client;
use super::datapath::Datapath;
use super::instance::{Fixed, Instance};
use super::interfaces::{MAX_INTERFACES, tables};
use super::{privileges, watch};
use crate::hash_key::random_seed;
use crate::output;
use anyhow::Context;
use rxsteer_host::{Finding, Host, Interface, Link, Pattern, default_cpus, judge, links};
use rxsteer_user::core::config::DEFAULT_SOCK_FLOW_ENTRIES;
use rxsteer_user::core::{CpuSet, MAX_RX_QUEUES};
use rxsteer_xdp::{DEFAULT_QUEUE_SIZE, MAX_SLOTS, Mode, Path, Settings, Setup};
use std::path::PathBuf;
use std::time::Instant;

/// Flow tables kept for interfaces that appear later.
const SPARE_TABLES: u32 = 64;

/// What is to be attached, and how.
pub(crate) struct Plan {
    patterns: Vec<Pattern>,
    links: Vec<Link>,
    mode: Mode,
    /// Generic mode will do, if the driver refuses.
    may_be_generic: bool,
    cpus: HostCpus,
    settings: Settings,
}

/// Looks at everything and changes nothing.
pub(crate) fn plan(args: &RunArgs) -> anyhow::Result<Plan> {
    let policy = args.policy();
    anyhow::ensure!(
        args.hash() == LiveHash::Symmetric,
        "--hash nic is refused: a program that asks a driver for its hash is bound to the device, and where the \
         kernel's verifier makes such a program larger (bpf_prog_realloc) it keeps a stale note of it: on Linux 6.18 \
         deleting the interface then crashed the kernel (docs/in-kernel.md). Leave it out, and the symmetric hash is \
         computed"
    );
    let patterns = args
        .interfaces
        .iter()
        .map(|text| Pattern::new(text))
        .collect::<Result<Vec<Pattern>, _>>()?;
    let all = links()?;
    let chosen = chosen(&patterns, &all)?;
    let host = Host::look();
    refuse(&judge::host(&host), "this host can't be steered on")?;
    let interfaces: Vec<Interface> =
        chosen.iter().map(|link| Interface::look_at(link, &all)).collect();
    let mut fit = Vec::new();
    for (interface, link) in interfaces.iter().zip(&chosen) {
        let obstacle = busy(link).map_or_else(
            || {
                refuse(
                    &judge::interface(interface, &host),
                    &format!("{} can't be steered", link.name),
                )
            },
            Err,
        );
        match obstacle {
            Ok(()) => fit.push(interface),
            Err(why) if is_named(&patterns, link) => return Err(why),
            // What a pattern happens to fit is left out, and told once everything else runs.
            Err(_) => {}
        }
    }
    let native = fit
        .iter()
        .all(|interface| interface.xdp.is_none_or(|features| features.native && features.redirect));
    let mode = match args.mode() {
        ModeChoice::Native => Mode::Native,
        ModeChoice::Generic => Mode::Generic,
        ModeChoice::Auto if native => Mode::Native,
        ModeChoice::Auto => Mode::Generic,
    };
    let links: Vec<Link> = fit.iter().map(|interface| interface.link.clone()).collect();
    let cpus = host_cpus()?;
    let steered_to = match &args.cpus {
        Some(choice) => choice.cpus(Some(cpus.online.clone())),
        None => {
            let names: Vec<&str> = links.iter().map(|link| link.name.as_str()).collect();
            default_cpus(&names)?
        }
    };
    let named = |why: String| anyhow::anyhow!("--{why}");
    cpus.check(steered_to.iter(), "cpus").map_err(named)?;
    cpus.check(policy.named_cpus(), "policy").map_err(named)?;
    let settings = Settings {
        policy,
        cpus: steered_to,
        offline: cpus.offline(),
        queue_size: args.queue_size.unwrap_or(DEFAULT_QUEUE_SIZE),
        flow_limit: args.flow_limit,
        shadow: args.shadow,
        without_guard: args.without_order_guard,
    };
    let may_be_generic = args.mode() == ModeChoice::Auto;
    Ok(Plan { patterns, links, mode, may_be_generic, cpus, settings })
}

/// The interfaces that are meant.
fn chosen(patterns: &[Pattern], all: &[Link]) -> anyhow::Result<Vec<Link>> {
    for pattern in patterns.iter().filter(|pattern| !pattern.is_open()) {
        let there = all.iter().any(|link| pattern.matches(link));
        anyhow::ensure!(
            there,
            "there is no interface '{pattern}' in this network namespace; ip link lists them"
        );
    }
    let is_meant = |link: &&Link| patterns.iter().any(|pattern| pattern.matches(link));
    let chosen: Vec<Link> = all.iter().filter(is_meant).cloned().collect();
    anyhow::ensure!(
        chosen.len() <= MAX_INTERFACES,
        "{} interfaces are meant, and one instance steers {MAX_INTERFACES} at most; name fewer",
        chosen.len()
    );
    Ok(chosen)
}

fn is_named(patterns: &[Pattern], link: &Link) -> bool {
    patterns.iter().any(|pattern| !pattern.is_open() && pattern.matches(link))
}

/// What, why and what to do of the first finding that forbids to go on.
fn refuse(findings: &[Finding], of: &str) -> anyhow::Result<()> {
    match findings.iter().find(|finding| finding.blocks) {
        None => Ok(()),
        Some(finding) => {
            let fix = finding.fix.as_ref().map(|fix| format!(". What to do: {fix}"));
            let Finding { what, why, .. } = finding;
            anyhow::bail!("{of}: {what}. Why that matters: {why}{}", fix.unwrap_or_default())
        }
    }
}

/// Says which other instance steers an interface, if one does.
fn busy(link: &Link) -> Option<anyhow::Error> {
    let program = link.attached.as_ref()?.id?;
    let other = client::running().into_iter().find(|other| other.program_id == program)?;
    Some(anyhow::anyhow!(
        "{} is steered already, by rxsteer with process id {} (socket {}). Change that one with rxsteer set {0} \
         SETTING=VALUE, or end it with kill {1}",
        link.name,
        other.pid,
        other.socket
    ))
}

/// What stands against steering an interface that appeared.
fn obstacle(link: &Link, all: &[Link]) -> Option<String> {
    let interface = Interface::look_at(link, all);
    let findings = judge::interface(&interface, &Host::look());
    let blocking = findings.into_iter().find(|finding| finding.blocks)?;
    Some(format!("{} ({})", blocking.what, blocking.why))
}

fn host_cpus() -> anyhow::Result<HostCpus> {
    let online = watch::online().context(
        "nothing says which CPUs are online: /sys/devices/system/cpu and /proc/self/status can't be read",
    )?;
    // Where nobody says which CPUs there could be, there are those that are.
    let possible = watch::possible().unwrap_or_else(|| online.clone());
    let possible = CpuSet::new(possible.iter().chain(online.iter()));
    Ok(HostCpus { possible: possible.unwrap_or_else(|| online.clone()), online })
}

/// Loads and attaches.
pub(crate) fn start(
    args: &RunArgs,
    mut plan: Plan,
    socket: PathBuf,
) -> anyhow::Result<Instance<Path>> {
    privileges::raise_memory_limit();
    match attempt(args, &plan, socket.clone()) {
        Err(Failure::Attach(why)) if plan.may_be_generic && plan.mode == Mode::Native => {
            output::note(&format!("rxsteer: {why}; trying generic mode"));
            plan.mode = Mode::Generic;
            attempt(args, &plan, socket).map_err(Failure::told)
        }
        result => result.map_err(Failure::told),
    }
}

enum Failure {
    Load(anyhow::Error),
    Attach(String),
}

impl Failure {
    fn told(self) -> anyhow::Error {
        match self {
            Failure::Load(error) => error,
            Failure::Attach(why) => anyhow::anyhow!("{why}; nothing is attached"),
        }
    }
}

fn attempt(args: &RunArgs, plan: &Plan, socket: PathBuf) -> Result<Instance<Path>, Failure> {
    let setup = setup(args, plan).map_err(Failure::Load)?;
    let path = Path::load(&setup, &plan.settings)
        .map_err(|error| Failure::Load(anyhow::anyhow!("{error}; nothing is attached")))?;
    let fixed = Fixed {
        patterns: plan.patterns.clone(),
        socket,
        network_namespace: watch::network_namespace(),
        flow_cnt: setup.flow_cnt,
        sock_flow_entries: setup.sock_flow_entries,
        inner: setup.inner,
        flow_stats: setup.flow_stats,
        begun: Instant::now(),
        obstacle,
    };
    let mut instance = Instance::new(path, fixed, plan.settings.clone(), plan.cpus.clone());
    for link in &plan.links {
        instance
            .attach(link)
            .map_err(|why| Failure::Attach(format!("can't attach to {}: {why}", link.name)))?;
    }
    Ok(instance)
}

fn setup(args: &RunArgs, plan: &Plan) -> anyhow::Result<Setup> {
    let open = plan.patterns.iter().any(Pattern::is_open);
    let count = |link| u32::from(tables(plan.mode, link, &plan.cpus));
    let needed: u32 = plan.links.iter().map(count).sum();
    let spare = match plan.mode {
        Mode::Native => SPARE_TABLES,
        Mode::Generic => 16 * count(&Link::default()),
    };
    let most = u32::from(MAX_RX_QUEUES);
    anyhow::ensure!(
        needed <= most,
        "the interfaces have {needed} RX queues (in generic mode receiving CPUs), and one instance has flow tables \
         for {most}; name fewer interfaces"
    );
    let all = if open { (needed + spare).min(most) } else { needed };
    let all = all.max(1);
    let share = DEFAULT_SOCK_FLOW_ENTRIES / needed.max(1);
    let flow_cnt = args.flow_cnt.unwrap_or(share.max(1024)).next_power_of_two();
    anyhow::ensure!(
        u64::from(flow_cnt) * u64::from(all) <= MAX_SLOTS,
        "{all} flow tables of {flow_cnt} slots are more than {MAX_SLOTS} slots, the most there can be; --flow-cnt {} \
         fits",
        prev_power_of_two(MAX_SLOTS / u64::from(all))
    );
    let seed = args.hash_seed.unwrap_or_else(random_seed);
    Ok(Setup {
        mode: plan.mode,
        possible: plan.cpus.possible.clone(),
        flow_cnt,
        tables: all,
        interfaces: if open { MAX_INTERFACES as u32 } else { plan.links.len() as u32 },
        sock_flow_entries: args
            .sock_flow_entries
            .unwrap_or(DEFAULT_SOCK_FLOW_ENTRIES)
            .next_power_of_two(),
        secret: seed.0.to_be_bytes(),
        inner: args.inner,
        flow_stats: !args.no_flow_stats,
        drop_on_arrival: false,
        as_with_short_ticks: args.as_with_short_ticks,
    })
}

fn prev_power_of_two(number: u64) -> u64 {
    (number + 1).next_power_of_two() / 2
}

/// What a user should know beside the figures.
pub(crate) fn tell_beforehand<P: Datapath>(instance: &Instance<P>) {
    if instance.settings.shadow {
        output::note(
            "rxsteer: in shadow every frame goes where it would have gone. What is counted as moved is what the \
             policy wants: nothing completes here, so what the order guard would refuse can't be counted",
        );
    }
    if instance.settings.without_guard {
        output::note("rxsteer: the order guard is off: flows will be reordered");
    }
    if instance.interfaces.is_empty() {
        output::note("rxsteer: no interface fits yet; waiting for one to appear");
    }
}
