//! Converts the datapath's counters to the counters in the status.

use super::datapath::{Counted, DatapathView};
use super::flows;
use super::former::add_rx;
use super::snapshot::Shown;
use rxsteer_status::{
    BalanceShown, BucketsShown, Command, Counts, CpuStatus, Delay, FlowStatisticsShown,
    InterfaceStatus, MoveShown, RuleShown, RxShown, SettingsShown, Status, ThreadShown,
};
use rxsteer_user::core::counters::{LiveCounter, LiveCpuCounter};
use rxsteer_xdp::{Buckets, Latest};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

/// The state that an instance shows, with matching counts of the datapath for the same interfaces.
fn consistent<D: Copy + PartialEq>(
    latest: &Latest<Shown<D>>,
    view: &impl DatapathView<D>,
) -> (Arc<Shown<D>>, Counted<D>) {
    // Interfaces are rarely attached or detached, so the second attempt normally succeeds. The limit is for hosts where
    // this happens all the time.
    for _ in 0..4 {
        let before = latest.get();
        let counted = view.counted();
        let after = latest.get();
        if after.attachments == before.attachments {
            return (after, counted);
        }
    }
    (latest.get(), view.counted())
}

/// The complete status of an instance.
pub(crate) fn status<D: Copy + PartialEq>(
    latest: &Latest<Shown<D>>,
    view: &impl DatapathView<D>,
    flows: usize,
) -> Status {
    let (instance, counted) = consistent(latest, view);
    let mut cpus = instance.former.cpus.clone();
    let attached: Vec<D> = instance.interfaces.iter().filter_map(|known| known.device).collect();
    for (cpu, device, row) in &counted.received {
        if attached.contains(device) {
            add_rx(cpus.entry(cpu.get()).or_default(), |counter| row.get(counter));
        }
    }
    let mut threads = BTreeMap::new();
    let mut delays = BTreeMap::new();
    for (cpu, row) in &counted.processed {
        let class = row.thread_class().map(|class| class.to_string());
        threads.insert(cpu.get(), ThreadShown::new(class, |counter| row.get(counter)));
        delays.insert(cpu.get(), delay(row.delays()));
        let counts = cpus.entry(cpu.get()).or_default();
        counts.delivered += row.get(LiveCpuCounter::Delivered);
        counts.drops.alloc += row.get(LiveCpuCounter::AllocDrops);
        counts.drops.ring_full += row.get(LiveCpuCounter::Lost);
        counts.waiting += row.get(LiveCpuCounter::Waiting);
    }
    let mut totals = Counts::default();
    cpus.values().for_each(|counts| add(&mut totals, counts));
    // Frames that could not be redirected are also counted as frames that never arrived. It is unknown which CPU
    // received them.
    let errors = instance.former.redirect_errors
        + redirect_errors(&counted, |device| attached.contains(&device));
    totals.drops.redirect_errors = errors;
    totals.drops.ring_full = totals.drops.ring_full.saturating_sub(errors);
    let interfaces = instance.interfaces.iter().map(|known| {
        let mut counts = RxShown::clone(&known.counts);
        let of = counted.received.iter().filter(|(_, device, _)| Some(*device) == known.device);
        of.for_each(|(_, _, row)| counts.add(|counter| row.get(counter)));
        InterfaceStatus {
            name: known.name.clone(),
            ifindex: known.index,
            state: known.state,
            why: known.why.clone(),
            running_ns: known.since.map_or(0, |since| since.elapsed().as_nanos() as u64),
            flow_tables: known.tables,
            kernel_drops: None,
            counts,
        }
    });
    let wanted = instance.settings.cpus.iter().map(|cpu| (cpu.get(), Counts::default()));
    let mut shown: BTreeMap<u16, Counts> = wanted.collect();
    shown.extend(cpus);
    let in_shadow = instance.settings.shadow;
    let would: BTreeMap<u16, u64> = match in_shadow {
        true => view.shadow().into_iter().map(|(cpu, frames)| (cpu.get(), frames)).collect(),
        false => BTreeMap::new(),
    };
    for cpu in would.keys() {
        shown.entry(*cpu).or_default();
    }
    let statistics = (flows > 0).then(|| view.flows(flows));
    let ended = if flows > 0 { view.ended(flows) } else { Vec::new() };
    Status {
        command: Command::Run,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        pid: std::process::id(),
        socket: instance.socket.display().to_string(),
        network_namespace: instance.network_namespace,
        program_id: Some(instance.program_id),
        running_ns: instance.started.elapsed().as_nanos() as u64,
        memory_bytes: instance.memory_bytes,
        policy: instance.settings.policy.to_string(),
        settings: SettingsShown {
            rules: view.rule_hits().into_iter().map(RuleShown::from).collect(),
            ..instance.settings_shown.clone()
        },
        changing: instance.changing,
        guarded: instance.guarded,
        threads_problem: instance.threads_problem.clone(),
        balance: instance.settings.policy.balance().map(|_| balance(&view.buckets())),
        longest_round_ns: instance.rounds.longest_ns(Instant::now()),
        interfaces: interfaces.collect(),
        cpus: shown
            .into_iter()
            .map(|(cpu, counts)| {
                let thread = threads.remove(&cpu).unwrap_or_default();
                let delay = delays.remove(&cpu);
                let would = in_shadow.then(|| would.get(&cpu).copied().unwrap_or(0));
                CpuStatus { cpu, counts, thread, delay, would }
            })
            .collect(),
        reordered: None,
        input_share: None,
        flow_statistics: statistics.as_ref().map(|statistics| FlowStatisticsShown {
            flows: statistics.count,
            packets: statistics.packets,
            ended: totals.rx.get(LiveCounter::FlowPacketsEnded),
            cleared: totals.rx.get(LiveCounter::FlowPacketsCleared) + statistics.cleared,
            refused: totals.rx.get(LiveCounter::FlowPacketsRefused),
            records_lost: totals.rx.get(LiveCounter::FlowRecordsLost),
        }),
        largest_flows: statistics
            .map_or_else(Vec::new, |statistics| flows::largest(statistics.flows, flows)),
        flow_records: None,
        ended_flows: ended.iter().map(flows::ended_shown).collect(),
        events: instance.events.to_vec(),
        totals,
    }
}

/// The delays of sampled frames, without empty buckets at the end.
fn delay(counts: &[u64]) -> Delay {
    let used = counts.iter().rposition(|count| *count != 0).map_or(0, |last| last + 1);
    Delay { buckets: counts[..used].to_vec() }
}

/// The number of latest moves of buckets that are shown.
const MAX_MOVES: usize = 16;

/// Where buckets are, and which moved.
fn balance(buckets: &Buckets) -> BalanceShown {
    let mut held = BTreeMap::<u16, u32>::new();
    for cpu in &buckets.table {
        *held.entry(cpu.get()).or_default() += 1;
    }
    let by_cpu = held.into_iter().map(|(cpu, buckets)| BucketsShown { cpu, buckets }).collect();
    let now = SystemTime::now();
    let latest = buckets.latest.iter().take(MAX_MOVES).map(|(at, one)| MoveShown {
        ago_ms: now.duration_since(*at).map_or(0, |ago| ago.as_millis() as u64),
        bucket: one.bucket,
        from: one.from.get(),
        to: one.to.get(),
        large_flow: (!one.large.is_none()).then(|| one.large.get()),
        why: one.to_string(),
    });
    BalanceShown {
        buckets: buckets.table.len() as u32,
        by_cpu,
        moved: buckets.moved,
        latest: latest.collect(),
        problem: buckets.problem.clone(),
    }
}

fn redirect_errors<D: Copy>(counted: &Counted<D>, is_meant: impl Fn(D) -> bool) -> u64 {
    let rows = counted.received.iter().filter(|(_, device, _)| is_meant(*device));
    rows.map(|(_, _, row)| row.get(LiveCounter::RedirectErrors)).sum()
}

fn add(sum: &mut Counts, counts: &Counts) {
    sum.rx.merge(&counts.rx);
    sum.delivered += counts.delivered;
    sum.waiting += counts.waiting;
    sum.drops.add(&counts.drops);
}
