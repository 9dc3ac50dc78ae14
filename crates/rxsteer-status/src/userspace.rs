//! The counts of a running userspace path, under the names that an instance of the in-kernel path uses.
//!
//! ```text
//!  RX thread ── RxProgress ─────┐                            ┌─► cpus      received there, delivered there
//!                               ├─► Reading: once, then ─────┼─► totals    received = delivered + dropped + waiting
//!  worker ───── WorkerProgress ─┘                            └─► received  on some RX queues: an interface
//! ```
//!
//! This adds no work to the threads: they keep their counts where other threads can read them.

use crate::status::{Counts, CpuStatus, Drops, RxShown, ThreadShown};
use crate::{Delay, RuleShown, SettingsShown};
use rxsteer_core::counters::{LiveCounter, SteerCounter};
use rxsteer_core::{DropReason, Drops as DropsByReason};
use rxsteer_user::packet::DissectOptions;
use rxsteer_user::{Control, Receiver, RxProgress, WorkerProgress};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// A running userspace path, which any thread can examine.
#[derive(Debug)]
pub struct Watched {
    /// Each with the CPU on which it receives.
    receivers: Vec<(u16, Arc<RxProgress>)>,
    workers: Vec<Arc<WorkerProgress>>,
    control: Control,
}

/// All counts of a userspace path.
///
/// The packets add up: each packet with a decision is delivered, dropped or waiting. A packet that was received, but
/// has no decision yet, is not counted.
#[derive(Debug)]
pub struct Reading {
    /// The number of changes of settings before this reading.
    changes: u64,
    sent: Vec<Sent>,
    done: Vec<Done>,
}

/// What one RX thread has received and sent.
#[derive(Debug)]
struct Sent {
    cpu: u16,
    rx: RxShown,
    /// The number of changes of settings that it has applied.
    changes: u64,
    changing: bool,
    kernel_drops: u64,
    read: u64,
    to_read: u64,
    /// Dropped before they had a target.
    dropped: DropsByReason,
    /// For each CPU, the packets queued and dropped.
    backlogs: Vec<(u16, u64, DropsByReason)>,
}

/// What one worker has done.
#[derive(Debug)]
struct Done {
    cpu: u16,
    packets: u64,
    dropped: DropsByReason,
    reordered: u64,
    delay: Delay,
}

impl Watched {
    /// The path with these receivers, which must be all of its receivers, and this control.
    #[must_use]
    pub fn new(receivers: &[Receiver], control: Control) -> Watched {
        let receiver = |receiver: &Receiver| (receiver.cpu().get(), receiver.progress());
        Watched {
            receivers: receivers.iter().map(receiver).collect(),
            workers: control.workers(),
            control,
        }
    }

    /// The handle that changes its settings.
    #[must_use]
    pub fn control(&self) -> &Control {
        &self.control
    }

    /// Reads all counts.
    #[must_use]
    pub fn read(&self) -> Reading {
        let changes = self.control.changes();
        // Workers are read first: what they processed was counted as queued before (`rxsteer_user::Count`).
        let done: Vec<Done> = self.workers.iter().map(|worker| done(worker)).collect();
        let sent = self.receivers.iter().map(|(cpu, progress)| sent(*cpu, progress)).collect();
        Reading { changes, sent, done }
    }

    /// The active settings. `mode` is how packets are received; `dissect` determines how far the parser looks into
    /// frames; `flow_stats` is as in [`SettingsShown`].
    #[must_use]
    pub fn settings(&self, mode: &str, dissect: DissectOptions, flow_stats: bool) -> SettingsShown {
        let (config, max_backlog) = self.control.settings();
        let maps = config.rps_maps.iter().map(|(queue, cpus)| format!("{queue}={cpus}"));
        SettingsShown {
            policy: config.policy.to_string(),
            mode: mode.to_owned(),
            cpus: config.cpus.to_string(),
            rules: self.control.rule_hits().into_iter().map(RuleShown::from).collect(),
            rps_maps: maps.collect(),
            fallback: config.fallback.to_string(),
            rfs_cpus: config.rfs_cpus.as_ref().map(ToString::to_string),
            offline: config.offline.as_ref().map(ToString::to_string),
            queue_size: max_backlog,
            flow_limit: config.flow_limit,
            threads: "other".to_owned(),
            shadow: false,
            flow_cnt: config.flow_cnt().next_power_of_two(),
            sock_flow_entries: config.sock_flow_entries.next_power_of_two(),
            rfs_namespaces: None,
            inner: dissect.inner,
            key_tunnels: dissect.key_tunnels.to_string(),
            flow_stats,
            order_guard: true,
        }
    }

    /// Whether flows can move, so that the order guard applies.
    #[must_use]
    pub fn is_guarded(&self) -> bool {
        self.control.settings().0.remembers_flows()
    }
}

impl Reading {
    /// The counts of each CPU that receives or processes.
    #[must_use]
    pub fn cpus(&self) -> Vec<CpuStatus> {
        let mut cpus: BTreeMap<u16, (Counts, Option<Delay>)> = BTreeMap::new();
        for sent in &self.sent {
            let receiving = &mut cpus.entry(sent.cpu).or_default().0;
            receiving.rx.merge(&sent.rx);
            receiving.drops.add(&shown(&sent.dropped));
            for (cpu, queued, dropped) in &sent.backlogs {
                // As in the kernel, a drop by the flow limit counts for the CPU that received the packet.
                let flow_limit = dropped.get(DropReason::FlowLimit);
                cpus.entry(sent.cpu).or_default().0.drops.flow_limit += flow_limit;
                let target = &mut cpus.entry(*cpu).or_default().0;
                target.waiting += queued;
                target.drops.add(&Drops { flow_limit: 0, ..shown(dropped) });
            }
        }
        for done in &self.done {
            let (counts, delay) = cpus.entry(done.cpu).or_default();
            counts.delivered += done.packets;
            counts.drops.add(&shown(&done.dropped));
            // Packets of this CPU that another worker took over are not found here.
            counts.waiting = counts.waiting.saturating_sub(done.packets + done.dropped.total());
            *delay = Some(done.delay.clone());
        }
        let cpu = |(cpu, (counts, delay))| CpuStatus {
            cpu,
            counts,
            thread: ThreadShown::default(),
            delay,
            would: None,
        };
        cpus.into_iter().map(cpu).collect()
    }

    /// The sums over all CPUs: `received` is the sum of `delivered`, `waiting` and all drops.
    #[must_use]
    pub fn totals(&self) -> Counts {
        let mut totals = Counts::default();
        for sent in &self.sent {
            totals.rx.merge(&sent.rx);
            totals.drops.add(&shown(&sent.dropped));
            for (_, queued, dropped) in &sent.backlogs {
                totals.waiting += queued;
                totals.drops.add(&shown(dropped));
            }
        }
        for done in &self.done {
            totals.delivered += done.packets;
            totals.drops.add(&shown(&done.dropped));
            totals.waiting = totals.waiting.saturating_sub(done.packets + done.dropped.total());
        }
        totals
    }

    /// What these receivers received, and how many packets the kernel dropped before them.
    ///
    /// # Panics
    /// If the number of receivers differs.
    #[must_use]
    pub fn received(&self, receivers: Range<usize>) -> (RxShown, u64) {
        let mut sum = RxShown::default();
        let of = &self.sent[receivers];
        of.iter().for_each(|sent| sum.merge(&sent.rx));
        (sum, of.iter().map(|sent| sent.kernel_drops).sum())
    }

    /// Whether all RX threads use the present settings.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.sent.iter().all(|sent| sent.changes >= self.changes)
    }

    /// Whether packets are under way that were sent with former settings.
    #[must_use]
    pub fn is_changing(&self) -> bool {
        !self.holds() || self.sent.iter().any(|sent| sent.changing)
    }

    /// Packets that were processed before or at the same time as an earlier one of their flow; 0 if order is not
    /// checked.
    #[must_use]
    pub fn reordered(&self) -> u64 {
        self.done.iter().map(|done| done.reordered).sum()
    }

    /// The share of the input that was read, 0.0 to 1.0; `None` if its length is unknown.
    #[must_use]
    pub fn input_share(&self) -> Option<f64> {
        let (read, to_read) = self.sent.iter().fold((0, 0), |(read, to_read), sent| {
            (read + sent.read.min(sent.to_read), to_read + sent.to_read)
        });
        (to_read > 0).then(|| read as f64 / to_read as f64)
    }
}

fn done(worker: &WorkerProgress) -> Done {
    let mut delay = Delay::default();
    let (packets, dropped) = (worker.packets.get(), worker.drops.get());
    for (ns, packets) in worker.delay.buckets() {
        delay.record(ns, packets);
    }
    Done { cpu: worker.cpu.get(), packets, dropped, reordered: worker.reordered.get(), delay }
}

fn sent(cpu: u16, progress: &RxProgress) -> Sent {
    // Read first: a thread that has applied a change reports whether the change is complete.
    let changes = progress.changes.get();
    let changing = progress.changing.get() != 0;
    let dropped = progress.drops.get();
    let backlogs: Vec<(u16, u64, DropsByReason)> = progress
        .backlogs
        .iter()
        .map(|to| (to.cpu.get(), to.queued.get(), to.drops.get()))
        .collect();
    let queued: u64 = backlogs.iter().map(|(_, queued, _)| queued).sum();
    let refused: u64 = backlogs.iter().map(|(_, _, dropped)| dropped.total()).sum();
    let mut rx = RxShown::default();
    rx.add(|counter| match counter {
        LiveCounter::Received => queued + refused + dropped.total(),
        LiveCounter::Bytes => progress.bytes.get(),
        LiveCounter::Local => progress.steered(SteerCounter::Local),
        LiveCounter::Bound => progress.steered(SteerCounter::Bound),
        LiveCounter::Hashed => progress.steered(SteerCounter::Hashed),
        LiveCounter::InSlots => progress.steered(SteerCounter::InSlots),
        LiveCounter::Rfs => progress.steered(SteerCounter::Rfs),
        LiveCounter::Matched => progress.steered(SteerCounter::Matched),
        LiveCounter::Deferred => progress.steered(SteerCounter::Deferred),
        LiveCounter::NotIp => progress.not_ip.get(),
        LiveCounter::Malformed => progress.malformed.iter().map(rxsteer_user::Count::get).sum(),
        LiveCounter::Moves => progress.moves.get(),
        LiveCounter::Redirected => queued,
        LiveCounter::Batches => progress.backlogs.iter().map(|to| to.lists.get()).sum(),
        // Every packet is queued to a worker, including those that no rule steers. Drops are in `Drops`; the flow table
        // counts flows.
        LiveCounter::Passed
        | LiveCounter::Unnumbered
        | LiveCounter::PartialChecksums
        | LiveCounter::RedirectErrors
        | LiveCounter::FlowLimitDrops
        | LiveCounter::Flows
        | LiveCounter::FlowsEnded
        | LiveCounter::FlowPacketsRefused
        | LiveCounter::FlowPacketsEnded
        | LiveCounter::FlowPacketsCleared
        | LiveCounter::FlowPacketsUnrecorded
        | LiveCounter::FlowRecordsLost => 0,
    });
    Sent {
        cpu,
        rx,
        changes,
        changing,
        kernel_drops: progress.kernel_drops.get(),
        read: progress.done.get(),
        to_read: progress.total.get(),
        dropped,
        backlogs,
    }
}

/// Drops, under the names that the status uses.
fn shown(drops: &DropsByReason) -> Drops {
    Drops {
        ring_full: drops.get(DropReason::BacklogFull),
        alloc: drops.get(DropReason::NoBuffer),
        redirect_errors: 0,
        flow_limit: drops.get(DropReason::FlowLimit),
        worker_lost: drops.get(DropReason::WorkerLost),
        interface_removed: drops.get(DropReason::InterfaceRemoved),
        tx_full: drops.get(DropReason::TxFull),
    }
}

#[cfg(test)]
#[path = "userspace_tests.rs"]
mod tests;
