//! The start: checks the whole request, and either refuses it with a reason, or attaches everything.

use super::args::{FixedSettings, ModeChoice, RfsNamespaces, RunArgs, RunSettings};
use super::change::HostCpus;
use super::datapath::Datapath;
use super::instance::{Fixed, Instance};
use super::interfaces::{MAX_INTERFACES, tables};
use super::reload::{Defaults, settings};
use super::{memory, privileges, queue_names, watch};
use crate::advice::{steering_without_effect, with_rules};
use crate::hash_key::random_seed;
use crate::{check, output, trial};
use anyhow::Context;
use rxsteer_host::{
    Finding, Host, Interface, Link, Pattern, State, Trial, default_cpus, default_policy, judge,
    links,
};
use rxsteer_status::client::network_namespace;
use rxsteer_status::{EventKind, NewEvent};
use rxsteer_user::core::limits::DEFAULT_SOCK_FLOW_ENTRIES;
use rxsteer_user::core::{CpuSet, MAX_RX_QUEUES, PacketRule, ThreadClass};
use rxsteer_xdp::{MAX_SLOTS, Mode, Path, Settings, Setup, memory_of};
use std::path::PathBuf;
use std::time::Instant;

/// The number of flow tables reserved for interfaces that appear later, unless --flow-cnt requests small ones.
const SPARE_TABLES: u32 = 128;
/// The slots of all flow tables together if interfaces may appear later, unless --flow-cnt is given.
const OPEN_SLOTS: u32 = 1 << 17;

/// What to attach, and how.
pub(crate) struct Plan {
    patterns: Vec<Pattern>,
    links: Vec<Link>,
    mode: Mode,
    /// Whether generic mode is allowed if the driver refuses native mode.
    may_be_generic: bool,
    cpus: HostCpus,
    settings: Settings,
    pub(crate) defaults: Defaults,
    /// Notes about the interfaces, which block nothing.
    pub(crate) notes: Vec<String>,
    host: Host,
}

/// Checks everything and changes nothing.
pub(crate) fn plan(args: &RunArgs, asked: &RunSettings) -> anyhow::Result<Plan> {
    let patterns = args
        .interfaces
        .iter()
        .map(|text| Pattern::new(text))
        .collect::<Result<Vec<Pattern>, _>>()?;
    let all = links()?;
    let chosen = chosen(&patterns, &all)?;
    let host = Host::read();
    refuse(&judge::host(&host), "this host can't be steered on")?;
    let policy = default_policy(&host);
    if asked.live.steering.policy.is_none() && !policy.is_rfs() {
        output::note(&format!(
            "rxsteer: without --policy the policy is {policy}: this kernel lacks tracepoints that rfs requires (rxsteer \
             check names them)"
        ));
    }
    let interfaces: Vec<Interface> =
        chosen.iter().map(|link| Interface::of_link(link, &all)).collect();
    let mut fit = Vec::new();
    for (interface, link) in interfaces.iter().zip(&chosen) {
        let obstacle = check::busy(link).map_or_else(
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
            // An interface that happens to match a pattern is left out, and reported once everything else runs.
            Err(_) => {}
        }
    }
    let native = fit
        .iter()
        .all(|interface| interface.xdp.is_none_or(|features| features.native && features.redirect));
    let mode = match asked.fixed.mode() {
        ModeChoice::Native => Mode::Native,
        ModeChoice::Generic => Mode::Generic,
        ModeChoice::Auto if native => Mode::Native,
        ModeChoice::Auto => Mode::Generic,
    };
    let notes = fit.iter().flat_map(|interface| notes(interface, &host)).collect();
    let links: Vec<Link> = fit.iter().map(|interface| interface.link.clone()).collect();
    let cpus = host_cpus()?;
    let names: Vec<&str> = links.iter().map(|link| link.name.as_str()).collect();
    let threads = default_threads(asked.live.kernel.threads, &host)?;
    let defaults = Defaults { policy, cpus: default_cpus(&names).ok(), threads };
    let named = |why: String| anyhow::anyhow!("--{why}");
    let mut settings = settings(&asked.live, &defaults, &cpus).map_err(named)?;
    settings.without_guard = args.without_order_guard;
    PacketRule::check_headers(&settings.packet_rules, asked.fixed.flows.inner())
        .map_err(|why| named(format!("rule {why}")))?;
    let policies = with_rules(&settings.policy, &settings.packet_rules);
    for unused in steering_without_effect(&asked.live.steering, &policies) {
        output::note(&format!("rxsteer: {unused}"));
    }
    let there: Vec<queue_names::InterfaceQueues<'_>> =
        links.iter().map(|link| (link.name.as_str(), rx_queues(link))).collect();
    queue_names::check(&settings, None, &there, &patterns).map_err(named)?;
    settings.check(&cpus.possible)?;
    let may_be_generic = asked.fixed.mode() == ModeChoice::Auto;
    Ok(Plan { patterns, links, mode, may_be_generic, cpus, settings, defaults, notes, host })
}

/// The notes of `rxsteer check` about an interface, one line each.
fn notes(interface: &Interface, host: &Host) -> Vec<String> {
    let findings = judge::interface(interface, host);
    // A message about checksums follows where such frames arrive.
    let is_noted =
        |finding: &Finding| finding.state != State::Fine && finding.topic != judge::PEER_CHECKSUMS;
    let noted = findings.into_iter().filter(is_noted);
    let line = |finding: Finding| {
        let subject = finding.subject();
        let Finding { what, why, fix, .. } = finding;
        let fix = fix.map(|fix| format!(" -> {fix}")).unwrap_or_default();
        format!("{}: {subject}: {what}: {why}{fix}", interface.link.name)
    };
    noted.map(line).collect()
}

/// RX queues that an interface uses.
pub(super) fn rx_queues(link: &Link) -> u16 {
    let queues = link.rx_queues().or(link.max_rx_queues).unwrap_or(1);
    queues.clamp(1, MAX_RX_QUEUES.into()) as u16
}

/// The default scheduling class of the rings' threads: the highest one that does not starve other processes. A
/// requested class that would starve them is refused.
fn default_threads(asked: Option<ThreadClass>, host: &Host) -> anyhow::Result<ThreadClass> {
    if let Some(class) = asked
        && let Some(why) = starvation_warning(class, host)
    {
        anyhow::bail!("--threads {class}: {why}; nothing is attached");
    }
    let Some(why) = starvation_warning(ThreadClass::DEFAULT, host) else {
        return Ok(ThreadClass::DEFAULT);
    };
    let class = ThreadClass::Nice(ThreadClass::FAIR_NICE);
    if asked.is_none() {
        output::note(&format!("rxsteer: the ring threads run at {class}: {why}"));
    }
    Ok(class)
}

/// Why a class would starve ordinary processes here, and what to do, if it would.
pub(super) fn starvation_warning(class: ThreadClass, host: &Host) -> Option<String> {
    let ThreadClass::Fifo(_) = class else { return None };
    let (what, fix) = judge::real_time_refused(host)?;
    Some(format!("{what}. What to do: {fix}, or threads nice:{}", ThreadClass::FAIR_NICE))
}

/// The matching interfaces.
fn chosen(patterns: &[Pattern], all: &[Link]) -> anyhow::Result<Vec<Link>> {
    for pattern in patterns.iter().filter(|pattern| !pattern.is_open()) {
        let there = all.iter().any(|link| pattern.matches(link));
        anyhow::ensure!(there, "{}", check::not_found(pattern, all));
    }
    let is_meant = |link: &&Link| patterns.iter().any(|pattern| pattern.matches(link));
    let chosen: Vec<Link> = all.iter().filter(is_meant).cloned().collect();
    anyhow::ensure!(
        chosen.len() <= MAX_INTERFACES,
        "{} interfaces match, and one instance steers {MAX_INTERFACES} at most; name fewer",
        chosen.len()
    );
    Ok(chosen)
}

fn is_named(patterns: &[Pattern], link: &Link) -> bool {
    patterns.iter().any(|pattern| !pattern.is_open() && pattern.matches(link))
}

/// Refuses because of the first blocking finding, with what, why and what to do.
fn refuse(findings: &[Finding], of: &str) -> anyhow::Result<()> {
    match findings.iter().find(|finding| finding.blocks) {
        None => Ok(()),
        Some(finding) => {
            let fix = finding.fix.as_ref().map(|fix| format!(". What to do: {fix}"));
            let (subject, Finding { what, why, .. }) = (finding.subject(), finding);
            anyhow::bail!(
                "{of}: {subject}: {what}. Why that matters: {why}{}",
                fix.unwrap_or_default()
            )
        }
    }
}

/// Whether another instance steers one of the interfaces already.
pub(crate) fn is_steered(args: &RunArgs) -> anyhow::Result<bool> {
    let patterns: Vec<Pattern> =
        args.interfaces.iter().map(|text| Pattern::new(text)).collect::<Result<_, _>>()?;
    Ok(chosen(&patterns, &links()?)?.iter().any(|link| check::busy(link).is_some()))
}

/// What prevents steering of an interface that appeared.
fn obstacle(link: &Link, all: &[Link], host: &Host) -> Option<String> {
    let interface = Interface::of_link(link, all);
    let findings = judge::interface(&interface, host);
    let blocking = findings.into_iter().find(|finding| finding.blocks)?;
    Some(format!("{}: {} ({})", blocking.subject(), blocking.what, blocking.why))
}

pub(super) fn host_cpus() -> anyhow::Result<HostCpus> {
    let online = watch::online().context(
        "can't find out which CPUs are online: /sys/devices/system/cpu and /proc/self/status can't be read",
    )?;
    // If the possible CPUs are unknown, the online ones are used.
    let possible = watch::possible().unwrap_or_else(|| online.clone());
    let possible = CpuSet::new(possible.iter().chain(online.iter()));
    Ok(HostCpus { possible: possible.unwrap_or_else(|| online.clone()), online })
}

/// Loads and attaches.
pub(crate) fn start(
    args: &RunArgs,
    asked: &FixedSettings,
    mut plan: Plan,
    socket: PathBuf,
) -> anyhow::Result<Instance<Path>> {
    privileges::raise_memory_limit();
    if plan.mode == Mode::Native {
        match attempt(args, asked, &plan, socket.clone()) {
            Err(Failure::Attach(why)) if plan.may_be_generic => {
                // Another instance that was started at the same time may have been faster.
                let is_meant =
                    |link: &&Link| plan.links.iter().any(|meant| meant.index == link.index);
                if let Some(error) = links()?.iter().filter(is_meant).find_map(check::busy) {
                    return Err(error);
                }
                output::note(&format!("rxsteer: {why}; trying generic mode"));
                plan.mode = Mode::Generic;
            }
            result => return result.map_err(Failure::into_error),
        }
    }
    // Tested before a frame of the user's depends on it.
    match trial::generic(&plan.host) {
        Trial::Works => attempt(args, asked, &plan, socket).map_err(Failure::into_error),
        Trial::Fails { what, .. } => {
            Err(without_xdp(&plan, &format!("this kernel loses frames in generic mode: {what}")))
        }
        Trial::NotTried { why } => Err(without_xdp(
            &plan,
            &format!(
                "some kernels lose frames in generic mode; rxsteer has to test this first, and can't: {why}. Run it \
                 as root (CAP_SYS_ADMIN)"
            ),
        )),
    }
}

/// The error if frames can be steered neither in native nor in generic mode. It recommends the kernel's own steering,
/// which `--fallback` uses.
fn without_xdp(plan: &Plan, why: &str) -> anyhow::Error {
    let names: Vec<&str> = plan.links.iter().map(|link| link.name.as_str()).collect();
    let first = names.first().copied().unwrap_or("IFACE");
    anyhow::anyhow!(
        "{} can't be steered: {why}; nothing is attached. What helps: native mode (rxsteer check {first} says what it \
         requires), or the kernel's own RPS: rxsteer run {first} --fallback, or rxsteer host recommend {first}",
        if names.is_empty() { "the interfaces".to_owned() } else { names.join(", ") }
    )
}

enum Failure {
    Load(anyhow::Error),
    Attach(String),
}

impl Failure {
    fn into_error(self) -> anyhow::Error {
        match self {
            Failure::Load(error) => error,
            Failure::Attach(why) => anyhow::anyhow!("{why}; nothing is attached"),
        }
    }
}

fn attempt(
    args: &RunArgs,
    asked: &FixedSettings,
    plan: &Plan,
    socket: PathBuf,
) -> Result<Instance<Path>, Failure> {
    let setup = setup(args, asked, plan).map_err(Failure::Load)?;
    let loads = |error| Failure::Load(anyhow::anyhow!("{error}; nothing is attached"));
    if let Some(why) = memory::is_short(memory_of(&setup).map_err(loads)?) {
        return Err(Failure::Load(anyhow::anyhow!("{why}; nothing is attached")));
    }
    let path = Path::load(&setup, &plan.settings).map_err(loads)?;
    let fixed = Fixed {
        patterns: plan.patterns.clone(),
        socket,
        network_namespace: network_namespace(),
        flow_cnt: setup.flow_cnt,
        sock_flow_entries: setup.sock_flow_entries,
        rfs_namespaces: asked.rfs_namespaces(),
        memory_bytes: memory::of_maps(),
        inner: setup.inner,
        key_tunnels: setup.key_tunnels,
        flow_stats: setup.flow_stats,
        started: Instant::now(),
        threads_refused: |class| starvation_warning(class, &Host::read()),
        obstacle,
        rx_queues,
        read_host: Host::read,
    };
    let mut instance = Instance::new(path, fixed, plan.settings.clone(), plan.cpus.clone());
    for link in &plan.links {
        instance
            .attach(link)
            .map_err(|why| Failure::Attach(format!("can't attach to {}: {why}", link.name)))?;
    }
    Ok(instance)
}

fn setup(args: &RunArgs, asked: &FixedSettings, plan: &Plan) -> anyhow::Result<Setup> {
    let open = plan.patterns.iter().any(Pattern::is_open);
    let count = |link: &Link| {
        u32::from(tables(plan.mode, link, &plan.cpus, is_named(&plan.patterns, link)))
    };
    let needed: u32 = plan.links.iter().map(count).sum();
    let spare = match plan.mode {
        // Smaller tables allow more of them.
        Mode::Native => asked
            .tables
            .flow_cnt
            .map_or(SPARE_TABLES, |slots| (OPEN_SLOTS / slots).max(SPARE_TABLES)),
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
    let flow_cnt = asked.tables.flow_cnt.unwrap_or_else(|| default_flow_cnt(needed, all, open));
    let flow_cnt = flow_cnt.next_power_of_two();
    anyhow::ensure!(
        u64::from(flow_cnt) * u64::from(all) <= MAX_SLOTS,
        "{all} flow tables of {flow_cnt} slots are more than {MAX_SLOTS} slots, which is the limit; --flow-cnt {} fits",
        prev_power_of_two(MAX_SLOTS / u64::from(all))
    );
    let seed = asked.flows.hash_seed.unwrap_or_else(random_seed);
    Ok(Setup {
        mode: plan.mode,
        possible: plan.cpus.possible.clone(),
        flow_cnt,
        tables: all,
        interfaces: if open { MAX_INTERFACES as u32 } else { plan.links.len() as u32 },
        sock_flow_entries: asked
            .tables
            .sock_flow_entries
            .unwrap_or(DEFAULT_SOCK_FLOW_ENTRIES)
            .next_power_of_two(),
        rfs_namespace: match asked.rfs_namespaces() {
            // The kernel's own number has 32 bits.
            RfsNamespaces::Own => network_namespace().map(|inode| inode as u32),
            RfsNamespaces::All => None,
        },
        secret: seed.0.to_be_bytes(),
        inner: asked.flows.inner(),
        key_tunnels: asked.tunnels.kinds(),
        flow_stats: asked.flow_stats(),
        hz: plan.host.hz,
        drop_on_arrival: false,
        flow_records: asked.records.output.is_some(),
        as_with_short_ticks: args.as_with_short_ticks,
    })
}

/// The slots of each flow table. `needed` tables are used at once; if interfaces may appear later, `all` tables share a
/// fixed number of slots.
fn default_flow_cnt(needed: u32, all: u32, open: bool) -> u32 {
    let share = (DEFAULT_SOCK_FLOW_ENTRIES / needed.max(1)).max(1024);
    if open {
        share.min(prev_power_of_two(u64::from(OPEN_SLOTS / all)) as u32).max(256)
    } else {
        share
    }
}

fn prev_power_of_two(number: u64) -> u64 {
    (number + 1).next_power_of_two() / 2
}

/// Warnings for the user.
pub(crate) fn warnings<P: Datapath>(instance: &Instance<P>, notes: &[String]) -> Vec<NewEvent> {
    let mut warnings = notes.to_vec();
    if instance.settings.shadow {
        warnings.push(
            "in shadow mode every frame is processed as without rxsteer. The moves counted are those of the policy \
             alone: rxsteer does not see frames complete, so it can't count the moves that the order guard would defer"
                .to_owned(),
        );
    }
    if instance.settings.without_guard {
        warnings.push("the order guard is off: flows will be reordered".to_owned());
    }
    let mut events = Vec::new();
    if let Some(why) = instance.path.threads_problem() {
        let text = format!("{why}. While other processes use a CPU, its ring can lose frames");
        events.push(NewEvent::new(EventKind::ThreadsProblem, text));
    } else if let Some(share) = instance.settings.threads.ordinary_share()
        && share < 0.05
    {
        warnings.push(format!(
            "threads at {} leave an ordinary process {:.1} % of a CPU whose ring never empties; nice:{} leaves 5 %",
            instance.settings.threads,
            share * 100.0,
            ThreadClass::FAIR_NICE
        ));
    }
    if instance.interfaces.is_empty() {
        warnings.push("no interface matches yet; waiting for one to appear".to_owned());
    }
    let warning = |text| NewEvent::new(EventKind::Warning, text);
    warnings.into_iter().map(warning).chain(events).collect()
}
