//! The implementation of an `rxsteer *`, in safe Rust.

use crate::error::Error;
use crate::types::{
    RXSTEER_CHECK_ORDER, RXSTEER_DROP_WHEN_FULL, RXSTEER_LOOK_INTO_TUNNELS, RXSTEER_NO_PIN,
    RXSTEER_PROMISCUOUS, Report,
};
use rxsteer::source::{
    CaptureOptions, CaptureSource, PacketOptions, PacketSource, Source, SourceIssue,
    SyntheticSource,
};
use rxsteer::{CpuId, CpuSet, Handler, OnFull, PipelineBuilder, allowed_cpus, printable};
use std::ffi::CString;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// The kinds of sources: the word before the colon.
const KINDS: [&str; 3] = ["capture", "live", "synthetic"];
/// Kinds that are reserved for later versions, so that they are not read as file names.
const LATER_KINDS: [&str; 2] = ["packet", "xdp"];

/// The settings of a program, read from its options.
#[derive(Debug, Default)]
pub(crate) struct Settings {
    pub(crate) policy: Option<String>,
    pub(crate) cpus: Option<String>,
    pub(crate) max_backlog: u32,
    pub(crate) batch: u32,
    pub(crate) flags: u32,
    pub(crate) tick_ms: u32,
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
    source: Mutex<Option<Box<dyn Source>>>,
    /// The flags that end the run: that of the receive path, and that of a source that can wait.
    stop: Vec<Arc<AtomicBool>>,
    running: AtomicBool,
    finished: OnceLock<Finished>,
}

impl Instance {
    pub(crate) fn open(source: &[u8], settings: &Settings) -> Result<Instance, Error> {
        let builder = builder(settings)?;
        let source = open_source(source, settings.flags & RXSTEER_PROMISCUOUS != 0)?;
        let run = Arc::new(AtomicBool::new(false));
        let stop = source.stop_waiting().into_iter().chain([run.clone()]).collect();
        Ok(Instance {
            workers: builder.workers().iter().collect(),
            builder: builder.stop_flag(run),
            source: Mutex::new(Some(source)),
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
        // ORDER: Relaxed; a request without data.
        self.stop.iter().for_each(|flag| flag.store(true, Ordering::Relaxed));
    }

    /// Whether a thread is in [`Instance::run`].
    pub(crate) fn is_running(&self) -> bool {
        // ORDER: Relaxed; it detects errors of a program, and orders nothing.
        self.running.load(Ordering::Relaxed)
    }

    /// Receives all packets of the source. `handler` gets each worker's number.
    pub(crate) fn run<H: Handler>(
        &self,
        mut handler: impl FnMut(u32) -> H,
        refused: impl FnOnce() -> Option<String>,
    ) -> Result<(), Error> {
        let source = self.source.lock().unwrap_or_else(PoisonError::into_inner).take();
        let mut source =
            source.ok_or("the source was run already; open it again to run it again")?;
        let running = Running::new(&self.running);
        let workers = &self.workers;
        let number =
            |cpu| workers.iter().position(|worker| *worker == cpu).unwrap_or_default() as u32;
        let report = self.builder.run(&mut source, |cpu| handler(number(cpu)));
        drop(running);
        let report = report?;
        let issues = source.take_issues();
        let mut json = report.to_json();
        json.insert("errors".to_owned(), issues.iter().map(issue).collect());
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
        };
        // JSON escapes control characters, NUL among them.
        let json = CString::new(serde_json::Value::Object(json).to_string())?;
        // A source is run only once, so this is the first time.
        let _ = self.finished.set(Finished { report, json });
        match refused() {
            Some(message) => Err(message.into()),
            None => Ok(()),
        }
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

fn builder(settings: &Settings) -> Result<PipelineBuilder, Error> {
    let known = RXSTEER_DROP_WHEN_FULL
        | RXSTEER_NO_PIN
        | RXSTEER_CHECK_ORDER
        | RXSTEER_LOOK_INTO_TUNNELS
        | RXSTEER_PROMISCUOUS;
    let unknown = settings.flags & !known;
    if unknown != 0 {
        return Err(format!(
            "flags: this version does not know {unknown:#x}; use a newer library, or leave it out"
        )
        .into());
    }
    let has = |flag| settings.flags & flag != 0;
    let policy = settings.policy.as_deref().unwrap_or("rps");
    let policy =
        policy.parse().map_err(|error| format!("policy '{}': {error}", printable(policy)))?;
    let cpus: CpuSet = match &settings.cpus {
        Some(cpus) => {
            cpus.parse().map_err(|error| format!("cpus '{}': {error}", printable(cpus)))?
        }
        None => allowed_cpus()
            .ok_or("the system does not say which CPUs there are; set the option cpus")?,
    };
    let on_full = if has(RXSTEER_DROP_WHEN_FULL) { OnFull::Drop } else { OnFull::Wait };
    let mut builder = PipelineBuilder::new(policy, cpus)
        .on_full(on_full)
        .pin(!has(RXSTEER_NO_PIN))
        .check_order(has(RXSTEER_CHECK_ORDER))
        .look_into_tunnels(has(RXSTEER_LOOK_INTO_TUNNELS));
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

/// Opens `KIND:NAME`, or the capture of this name.
fn open_source(source: &[u8], promiscuous: bool) -> Result<Box<dyn Source>, Error> {
    use std::os::unix::ffi::OsStrExt;
    let kind =
        source.split(|byte| *byte == b':').next().and_then(|kind| std::str::from_utf8(kind).ok());
    let kind = kind.filter(|kind| kind.len() < source.len());
    let (kind, name) = match kind {
        Some(kind) if LATER_KINDS.contains(&kind) => {
            let kinds = KINDS.join(":, ");
            return Err(format!(
                "this version reads no source '{kind}:', only {kinds}:; use a newer library"
            )
            .into());
        }
        Some(kind) if KINDS.contains(&kind) => (kind, &source[kind.len() + 1..]),
        _ => ("capture", source),
    };
    if kind == "synthetic" {
        let spec = std::str::from_utf8(name)?.parse()?;
        return Ok(Box::new(SyntheticSource::new(spec, 1, (0, 1))));
    }
    if kind == "live" {
        let mut options = PacketOptions::default();
        options.promiscuous = promiscuous;
        return Ok(Box::new(PacketSource::with(std::str::from_utf8(name)?, options)?));
    }
    let path = PathBuf::from(std::ffi::OsStr::from_bytes(name));
    Ok(Box::new(CaptureSource::open(&[path], CaptureOptions::default())?))
}
