//! Flow records of a running instance: a separate thread takes them from the datapath, and writes and sends them.
//!
//! A thread without privileges opens the outputs before anything is attached. What that thread cannot write, the
//! instance cannot write later, since it has dropped its privileges by then.

use super::privileges;
use crate::record_args::RunRecordArgs;
use anyhow::Context;
use rxsteer_records::files::FileCounts;
use rxsteer_records::ipfix::IpfixCounts;
use rxsteer_records::outputs::Outputs;
use rxsteer_records::{Interface, View};
use rxsteer_status::{Counts, FlowRecordsShown, IpfixShown, RecordFilesShown};
use rxsteer_user::core::counters::LiveCounter;
use rxsteer_user::flows::{CpuTotals, FlowEnd, FlowRecord, FlowTotals, SharedTotals};
use rxsteer_xdp::{CpuShare, FlowRecorder, RecordEnd, RecordedFlow, Timeouts};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// How long the thread sleeps after it found few records: the buffer of the programs has room for 32 000.
const PAUSE: Duration = Duration::from_millis(10);
/// After this many records the thread does not sleep: more are probably waiting.
const MANY: usize = 1000;

/// Opened outputs.
pub(crate) struct Opened {
    outputs: Outputs,
    view: View,
    timeouts: Timeouts,
}

/// The thread that makes records.
pub(crate) struct Recording {
    thread: JoinHandle<()>,
    done: Arc<AtomicBool>,
}

/// The counts of records. Any thread may read them.
#[derive(Debug)]
pub(crate) struct Recorded {
    made: [AtomicU64; 2],
    /// Records and packets that the recorder lost.
    lost: [AtomicU64; 2],
    /// Packets that the programs count as lost, although they are in earlier records.
    reported_of_lost: AtomicU64,
    files: Option<Arc<FileCounts>>,
    ipfix: Option<(SocketAddr, Arc<IpfixCounts>)>,
}

/// Opens the outputs of the arguments, if there are any. `interfaces` are the names given by the user.
pub(crate) fn open(args: &RunRecordArgs, interfaces: &[String]) -> anyhow::Result<Option<Opened>> {
    let names = interfaces.join("+");
    let opening = || -> anyhow::Result<_> {
        // This affects only the present thread.
        privileges::drop_all(false)?;
        args.open(&names)
    };
    let opened = std::thread::scope(|scope| scope.spawn(opening).join());
    let opened =
        opened.map_err(|_| anyhow::anyhow!("the outputs of flow records can't be opened"))?;
    let opened = opened.context("nothing is attached")?;
    let (idle, active) = args.timeouts();
    let timeouts = Timeouts { idle, active };
    Ok(opened.map(|(outputs, view)| Opened { outputs, view, timeouts }))
}

impl Opened {
    /// When records are made of flows that have not ended.
    pub(crate) fn timeouts(&self) -> Timeouts {
        self.timeouts
    }

    /// Starts to make records.
    pub(crate) fn start(
        self,
        recorder: FlowRecorder,
    ) -> anyhow::Result<(Recording, Arc<Recorded>)> {
        let recorded = Arc::new(Recorded {
            made: Default::default(),
            lost: Default::default(),
            reported_of_lost: AtomicU64::default(),
            files: self.outputs.file_counts(),
            ipfix: self.outputs.ipfix_counts(),
        });
        let done = Arc::new(AtomicBool::new(false));
        let thread = std::thread::Builder::new().name("flow-records".to_owned()).spawn({
            let (recorded, done) = (recorded.clone(), done.clone());
            move || record(self, recorder, &recorded, &done)
        });
        Ok((Recording { thread: thread.context("can't record flows")?, done }, recorded))
    }
}

impl Recording {
    /// Completes the records, after all interfaces have been detached.
    pub(crate) fn finish(self) -> anyhow::Result<()> {
        // ORDER: Release; pairs with the Acquire below: the thread then sees all flows that ended before.
        self.done.store(true, Ordering::Release);
        self.thread.thread().unpark();
        self.thread.join().map_err(|_| anyhow::anyhow!("the thread that records flows panicked"))
    }
}

fn record(opened: Opened, mut recorder: FlowRecorder, recorded: &Recorded, done: &AtomicBool) {
    let Opened { mut outputs, view, .. } = opened;
    loop {
        let is_last = done.load(Ordering::Acquire);
        let count = recorder.take(|flow| {
            let (record, interface) = record_of(flow);
            recorded.count(&record);
            outputs.take(&view.row_of(&record, &interface));
        });
        recorded.update_lost(&recorder);
        if is_last {
            outputs.finish();
            return;
        }
        outputs.tick();
        if count < MANY {
            std::thread::park_timeout(PAUSE);
        }
    }
}

/// The record of a flow in the output's form, and its interface.
fn record_of(flow: &RecordedFlow) -> (FlowRecord, Interface) {
    let share = |(cpu, CpuShare { packets, bytes }): &_| CpuTotals {
        cpu: *cpu,
        packets: *packets,
        bytes: *bytes,
    };
    let CpuShare { packets, bytes } = flow.other_cpus;
    let mut record = FlowRecord::default();
    record.key = flow.key;
    record.per_cpu = flow.cpus.iter().map(share).collect();
    record.shared = SharedTotals { packets, bytes };
    record.totals = FlowTotals {
        packets: packets + record.per_cpu.iter().map(|cpu| cpu.packets).sum::<u64>(),
        bytes: bytes + record.per_cpu.iter().map(|cpu| cpu.bytes).sum::<u64>(),
        tcp_flags: flow.tcp_flags,
        first_ns: flow.first_ns,
        last_ns: flow.last_ns,
        vlan: flow.vlan,
        rx_queue: 0,
    };
    record.moves = flow.moves;
    record.end = Some(match flow.end {
        RecordEnd::Idle => FlowEnd::Idle,
        RecordEnd::Active => FlowEnd::Active,
        RecordEnd::Evicted => FlowEnd::Evicted,
        RecordEnd::Finished => FlowEnd::Finished,
    });
    (record, Interface { name: flow.interface.to_string(), index: flow.ifindex })
}

impl Recorded {
    fn count(&self, record: &FlowRecord) {
        // ORDER: Relaxed, here and below; these figures are only for display.
        self.made[0].fetch_add(1, Ordering::Relaxed);
        self.made[1].fetch_add(record.totals.packets, Ordering::Relaxed);
    }

    fn update_lost(&self, recorder: &FlowRecorder) {
        let (lost, reported_of_lost) = recorder.lost();
        self.lost[0].store(lost.records, Ordering::Relaxed);
        self.lost[1].store(lost.packets, Ordering::Relaxed);
        self.reported_of_lost.store(reported_of_lost, Ordering::Relaxed);
    }

    /// The part of the status about records; `totals` are the counts of the programs.
    pub(crate) fn shown(&self, totals: &Counts) -> FlowRecordsShown {
        let load = |number: &AtomicU64| number.load(Ordering::Relaxed);
        let unrecorded = totals.rx.get(LiveCounter::FlowPacketsUnrecorded);
        FlowRecordsShown {
            records: load(&self.made[0]),
            packets: load(&self.made[1]),
            records_lost: load(&self.lost[0]) + totals.rx.get(LiveCounter::FlowRecordsLost),
            packets_lost: load(&self.lost[1])
                + unrecorded.saturating_sub(load(&self.reported_of_lost)),
            files: self.files.as_ref().map(|files| {
                let (written, lost) = (files.written(), files.lost());
                RecordFilesShown {
                    complete: files.files(),
                    records: written.records,
                    packets: written.packets,
                    records_lost: lost.records,
                    packets_lost: lost.packets,
                    problem: files.problem(),
                }
            }),
            ipfix: self.ipfix.as_ref().map(|(collector, counts)| IpfixShown {
                collector: collector.to_string(),
                records: counts.records(),
                messages: counts.messages(),
                records_lost: counts.lost(),
            }),
        }
    }
}
