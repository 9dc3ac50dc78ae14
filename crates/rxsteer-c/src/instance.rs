//! The implementation of an `rxsteer *`, in safe Rust.

use crate::error::Error;
use crate::input::{self, Input, Named};
use crate::types::{
    RXSTEER_CHECK_ORDER, RXSTEER_DROP_WHEN_FULL, RXSTEER_FORWARD, RXSTEER_LOOK_INTO_TUNNELS,
    RXSTEER_NO_PIN, RXSTEER_PROMISCUOUS, Report,
};
use rxsteer::forward::{ForwardCounts, LivePort, Outputs, Wiring};
use rxsteer::source::{Source, SourceIssue, apart};
use rxsteer::{CpuId, CpuSet, Handler, OnFull, PipelineBuilder, allowed_cpus, printable};
use std::ffi::CString;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// The settings of a program, read from its options.
#[derive(Debug, Default)]
pub(crate) struct Settings {
    pub(crate) policy: Option<String>,
    pub(crate) cpus: Option<String>,
    pub(crate) max_backlog: u32,
    pub(crate) batch: u32,
    pub(crate) flags: u32,
    pub(crate) tick_ms: u32,
    pub(crate) rx_cpus: Option<String>,
}

impl Settings {
    fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }
}

/// What a worker's handler gets.
#[derive(Debug)]
pub(crate) struct WorkerParts {
    /// The worker's number.
    pub(crate) worker: u32,
    /// The ports of RX queues.
    pub(crate) wiring: Wiring,
    /// Where packets are sent on; without ports if they can't be.
    pub(crate) outputs: Outputs,
    /// The flags that end the run.
    pub(crate) stop: Vec<Arc<AtomicBool>>,
}

/// What handlers did beyond processing.
#[derive(Debug, Default)]
pub(crate) struct Done {
    pub(crate) counts: ForwardCounts,
    /// Why the first worker was ended, if one was.
    pub(crate) refused: Option<String>,
}

/// The results of a run.
#[derive(Debug)]
struct Finished {
    report: Report,
    json: CString,
}

/// A source with its steering settings. Opaque to C.
pub struct Instance {
    builder: PipelineBuilder,
    workers: Vec<CpuId>,
    /// The run takes it.
    input: Mutex<Option<Input>>,
    /// Whether packets can be sent on.
    forwards: bool,
    /// The flags that end the run: that of the receive path, and that of a source that can wait.
    stop: Vec<Arc<AtomicBool>>,
    running: AtomicBool,
    finished: OnceLock<Finished>,
}

impl Instance {
    pub(crate) fn open(source: &[u8], settings: &Settings) -> Result<Instance, Error> {
        let forwards = settings.has(RXSTEER_FORWARD);
        let cpus = |name, list: &Option<String>| {
            list.as_ref().map(|list| input::cpus(name, list)).transpose()
        };
        let (cpus, rx_cpus) = (cpus("cpus", &settings.cpus)?, cpus("rx_cpus", &settings.rx_cpus)?);
        let named = Named::read(source, forwards, rx_cpus.as_ref().or(cpus.as_ref()))?;
        let builder = builder(settings, &named, cpus, rx_cpus)?;
        named.check(forwards, &builder)?;
        let (run, live) = (Arc::default(), Arc::default());
        let mut input = named.open(settings.has(RXSTEER_PROMISCUOUS), forwards, &live)?;
        let waits = input.sources().iter().filter_map(Source::stop_waiting);
        let stop = waits.chain([Arc::clone(&run)]).collect();
        Ok(Instance {
            workers: builder.workers().iter().collect(),
            builder: builder.stop_flag(run),
            input: Mutex::new(Some(input)),
            forwards,
            stop,
            running: AtomicBool::new(false),
            finished: OnceLock::new(),
        })
    }

    /// How many workers call the handler.
    pub(crate) fn workers(&self) -> usize {
        self.workers.len()
    }

    /// Ends the run early. Packets that were received are still processed.
    pub(crate) fn stop(&self) {
        set(&self.stop);
    }

    /// Whether a thread is in [`Instance::run`].
    pub(crate) fn is_running(&self) -> bool {
        // ORDER: Relaxed; it detects errors of a program, and orders nothing.
        self.running.load(Ordering::Relaxed)
    }

    /// Receives all packets of the source. `handler` makes each worker's handler; `done` is called when all of them were
    /// dropped.
    pub(crate) fn run<H: Handler>(
        &self,
        mut handler: impl FnMut(WorkerParts) -> H,
        done: impl FnOnce() -> Done,
    ) -> Result<(), Error> {
        let input = self.input.lock().unwrap_or_else(PoisonError::into_inner).take();
        let mut input = input.ok_or("the source was run already; open it again to run it again")?;
        let running = Running::new(&self.running);
        let mut parts = self.parts(input.ports())?;
        let number = |cpu| self.workers.iter().position(|worker| *worker == cpu);
        let report = self.builder.run_all(input.sources(), |cpu| {
            let parts = number(cpu).and_then(|number| parts[number].take());
            handler(parts.expect("each worker has one handler"))
        });
        drop(running);
        let mut report = report?;
        report.handlers.clear();
        let done = done();
        let sources = input.sources();
        let issues: Vec<_> = sources.iter_mut().flat_map(Source::take_issues).collect();
        let mut json = report.to_json();
        json.insert("errors".to_owned(), issues.iter().map(issue).collect());
        json.insert("sent".to_owned(), done.counts.sent.into());
        json.insert("refused".to_owned(), done.counts.refused.into());
        let lost = report.per_cpu.iter().filter(|cpu| cpu.failure.is_some()).count();
        let report = Report {
            size: size_of::<Report>(),
            packets: report.packets,
            bytes: report.bytes,
            delivered: report.delivered,
            dropped: report.drops.total(),
            not_ip: report.not_ip,
            malformed: report.malformed.iter().sum(),
            reordered: report.reordered,
            moves: report.moves,
            issues: issues.len() as u64,
            workers_lost: lost as u64,
            kernel_drops: report.kernel_drops,
            sent: done.counts.sent,
            refused: done.counts.refused,
        };
        // JSON escapes control characters, NUL among them.
        let json = CString::new(serde_json::Value::Object(json).to_string())?;
        // A source is run only once, so this is the first time.
        let _ = self.finished.set(Finished { report, json });
        match done.refused {
            Some(message) => Err(message.into()),
            None => Ok(()),
        }
    }

    /// The parts of each worker's handler, by its number.
    fn parts(&self, ports: &[LivePort]) -> Result<Vec<Option<WorkerParts>>, Error> {
        let wiring = Wiring::of(ports);
        let outputs = if self.forwards { ports } else { &[] };
        let numbers = (0..).take(self.workers.len());
        let parts = numbers.map(|worker| {
            Ok(Some(WorkerParts {
                worker,
                wiring: wiring.clone(),
                outputs: Outputs::new(outputs)?,
                stop: self.stop.clone(),
            }))
        });
        parts.collect()
    }

    pub(crate) fn report(&self) -> Result<&Report, Error> {
        self.finished().map(|finished| &finished.report)
    }

    pub(crate) fn json(&self) -> Result<&CString, Error> {
        self.finished().map(|finished| &finished.json)
    }

    fn finished(&self) -> Result<&Finished, Error> {
        self.finished
            .get()
            .ok_or_else(|| "there is no report: rxsteer_run has not returned yet, or failed".into())
    }
}

/// Sets the flags that end a run.
pub(crate) fn set(stop: &[Arc<AtomicBool>]) {
    // ORDER: Relaxed; a request without data.
    stop.iter().for_each(|flag| flag.store(true, Ordering::Relaxed));
}

/// Marks the instance as running while this lives.
struct Running<'a>(&'a AtomicBool);

impl Running<'_> {
    fn new(running: &AtomicBool) -> Running<'_> {
        // ORDER: Relaxed, as in `is_running`.
        running.store(true, Ordering::Relaxed);
        Running(running)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        // ORDER: Relaxed, as in `is_running`.
        self.0.store(false, Ordering::Relaxed);
    }
}

fn issue(issue: &SourceIssue) -> serde_json::Value {
    serde_json::json!({
        "file": issue.file.to_string_lossy(),
        "offset": issue.offset,
        "message": issue.message,
    })
}

fn builder(
    settings: &Settings,
    source: &Named,
    cpus: Option<CpuSet>,
    rx_cpus: Option<CpuSet>,
) -> Result<PipelineBuilder, Error> {
    let known = RXSTEER_DROP_WHEN_FULL
        | RXSTEER_NO_PIN
        | RXSTEER_CHECK_ORDER
        | RXSTEER_LOOK_INTO_TUNNELS
        | RXSTEER_PROMISCUOUS
        | RXSTEER_FORWARD;
    let unknown = settings.flags & !known;
    if unknown != 0 {
        return Err(format!(
            "flags: this version does not know {unknown:#x}; use a newer library, or leave it out"
        )
        .into());
    }
    let policy = settings.policy.as_deref().unwrap_or("rps");
    let policy =
        policy.parse().map_err(|error| format!("policy '{}': {error}", printable(policy)))?;
    let interfaces = source.interfaces();
    let queues = interfaces.last().map_or(0, |last| last.rx_queues.end);
    let all = || {
        allowed_cpus().ok_or("the system does not say which CPUs there are; set the option cpus")
    };
    let (cpus, rx_cpus) = match (cpus, rx_cpus) {
        (None, None) => apart(all()?, queues),
        (Some(cpus), None) => (cpus.clone(), cpus.iter().collect()),
        (cpus, Some(rx_cpus)) => (cpus.map_or_else(all, Ok)?, rx_cpus.iter().collect()),
    };
    let on_full = if settings.has(RXSTEER_DROP_WHEN_FULL) { OnFull::Drop } else { OnFull::Wait };
    let mut builder = PipelineBuilder::new(policy, cpus)
        .on_full(on_full)
        .pin(!settings.has(RXSTEER_NO_PIN))
        .check_order(settings.has(RXSTEER_CHECK_ORDER))
        .look_into_tunnels(settings.has(RXSTEER_LOOK_INTO_TUNNELS));
    if !interfaces.is_empty() {
        builder = builder.interfaces(interfaces, rx_cpus);
    }
    if settings.max_backlog != 0 {
        builder = builder.max_backlog(settings.max_backlog);
    }
    if settings.batch != 0 {
        builder = builder.batch(settings.batch as usize);
    }
    if settings.tick_ms != 0 {
        builder = builder.tick(Duration::from_millis(settings.tick_ms.into()));
    }
    builder.check()?;
    Ok(builder)
}
