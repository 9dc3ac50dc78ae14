//! Where events go: as messages to people, or as JSON lines to programs.
//!
//! ```text
//!  --events FILE   JSON lines to FILE ─┐
//!  --events -      … to stdout         ├─ by a thread of its own; messages to stderr as without it
//!  under systemd   … to the journal  ──┘  (instead of messages)
//!  otherwise       messages to stderr
//! ```
//!
//! The thread that makes events never waits for a reader. Lines for which a slow reader leaves no room are counted and
//! omitted.

use crate::input::refuse_input;
use crate::output;
use anyhow::Context;
use clap::{Args, ValueHint};
use nix::sys::stat::fstat;
use rxsteer_status::{Audience, Event, EventKind, EventLog, NewEvent};
use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{
    Receiver, RecvTimeoutError, SyncSender, TrySendError, channel, sync_channel,
};
use std::time::{Duration, Instant};

/// The most lines that may wait for a slow reader.
const ROOM: usize = 1024;
/// How long the program waits at its end for the last lines to be written.
const END: Duration = Duration::from_secs(1);

/// Where events go.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct EventsArg {
    /// Also write events to this file, or with - to standard output: one JSON object per line
    ///
    /// Each line has number, time_ns (Unix time), kind, text and fields, e.g.
    /// {"number":3,"time_ns":1795448400000000000, "kind":"cpu_offline","text":"CPU 1 went offline:
    /// …","fields":{"cpus":"1"}}. rxsteer appends to an existing file. With -, the final report goes to standard
    /// error. Without this option, a process that systemd started writes these lines to the journal, instead of its
    /// messages. Example: --events - | jq -r .kind
    #[arg(long = "events", value_name = "FILE|-", value_hint = ValueHint::FilePath,
          help_heading = "Output")]
    pub(crate) to: Option<PathBuf>,
}

impl EventsArg {
    /// Refuses standard output for events if JSON already uses it.
    pub(crate) fn refuse_beside_json(&self, json: bool) -> anyhow::Result<()> {
        anyhow::ensure!(
            !(json && self.is_stdout()),
            "--events - and --json both take standard output; name a file with --events FILE"
        );
        Ok(())
    }

    /// Refuses a file that is read, or that another output writes: appended events would damage it.
    pub(crate) fn refuse_beside(
        &self,
        read: impl IntoIterator<Item = impl AsRef<Path>>,
        written: impl IntoIterator<Item = PathBuf>,
    ) -> anyhow::Result<()> {
        let Some(path) = self.to.as_ref().filter(|_| !self.is_stdout()) else { return Ok(()) };
        refuse_input(path, "--events", read)?;
        anyhow::ensure!(
            written.into_iter().all(|other| other != *path),
            "--events {} is also the name of another output; name another file",
            rxsteer_user::shown(path)
        );
        Ok(())
    }

    /// Prints the report; to standard error if events use standard output.
    pub(crate) fn report(&self, report: &str) -> anyhow::Result<()> {
        if self.is_stdout() {
            output::note(report.trim_end());
            Ok(())
        } else {
            output::print(report)
        }
    }

    /// Refuses a file that cannot be created, without creating it.
    ///
    /// # Errors
    /// If its folder does not exist, or if it is a folder itself.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        let Some(path) = self.to.as_deref().filter(|_| !self.is_stdout()) else { return Ok(()) };
        let name = rxsteer_user::shown(path);
        anyhow::ensure!(
            !path.is_dir(),
            "{name} is a folder, and --events requires a file; name a file in it"
        );
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new("."));
        // A folder that this user may not examine may exist.
        let is_missing =
            std::fs::metadata(folder).is_err_and(|error| error.kind() == ErrorKind::NotFound);
        anyhow::ensure!(
            !is_missing,
            "there is no folder {} for --events {name}; create it first",
            rxsteer_user::shown(folder)
        );
        Ok(())
    }

    /// Whether events use standard output.
    pub(crate) fn is_stdout(&self) -> bool {
        self.to.as_deref() == Some(Path::new("-"))
    }
}

/// The destination of events, opened but not in use yet.
pub(crate) struct EventsTo {
    /// Name and writer of the JSON lines, if there are any.
    to: Option<(String, Box<dyn Write + Send>)>,
    /// Whether messages are printed for people.
    messages: bool,
    /// Whether the lines use standard output.
    stdout: bool,
}

/// Sends events to their destination.
pub(crate) struct EventsOut {
    messages: bool,
    stdout: bool,
    lines: Option<Lines>,
}

/// The events of a command without an instance: keeps the last ones, and sends each to its destination.
pub(crate) struct Events {
    log: EventLog,
    out: EventsOut,
}

/// The thread that writes JSON lines.
struct Lines {
    to: SyncSender<String>,
    ended: Receiver<()>,
    /// Whether each line begins with its level, for the journal.
    levels: bool,
    /// Lines for which there was no room.
    lost: u64,
}

impl EventsTo {
    /// Opens the file, if one is given.
    ///
    /// # Errors
    /// When the file can't be opened.
    pub(crate) fn open(arg: &EventsArg) -> anyhow::Result<EventsTo> {
        arg.check()?;
        let to: Option<(String, Box<dyn Write + Send>)> = match &arg.to {
            Some(_) if arg.is_stdout() => {
                Some(("standard output".to_owned(), Box::new(std::io::stdout())))
            }
            Some(path) => {
                let name = rxsteer_user::shown(path);
                let mut options = OpenOptions::new();
                options.append(true);
                // Opening a pipe waits for its reader, and no signal would end that.
                if path.metadata().is_ok_and(|metadata| metadata.file_type().is_fifo()) {
                    let tried = options.clone().custom_flags(nix::libc::O_NONBLOCK).open(path);
                    tried.with_context(|| {
                        format!("no program reads the pipe {name} for --events; start one first")
                    })?;
                }
                let file = options.create(true).open(path);
                let file = file.with_context(|| format!("can't open {name} for --events"))?;
                Some((name, Box::new(file)))
            }
            None if is_journal(std::io::stderr()) => {
                Some(("the journal".to_owned(), Box::new(std::io::stderr())))
            }
            None => None,
        };
        let messages = arg.to.is_some() || to.is_none();
        Ok(EventsTo { to, messages, stdout: arg.is_stdout() })
    }

    /// Starts to write. This starts a thread with the privileges of the calling thread, so call it once they are
    /// dropped.
    ///
    /// # Errors
    /// When the thread can't be started.
    pub(crate) fn begin(self) -> anyhow::Result<EventsOut> {
        let levels = !self.messages;
        let lines = self.to.map(|(name, to)| Lines::begin(name, to, levels)).transpose()?;
        Ok(EventsOut { messages: self.messages, stdout: self.stdout, lines })
    }
}

impl EventsOut {
    /// For tests: accepts events and discards them.
    #[cfg(test)]
    pub(crate) fn nowhere() -> EventsOut {
        EventsOut { messages: false, stdout: false, lines: None }
    }

    /// Only messages, for commands without `--events`.
    pub(crate) fn messages() -> EventsOut {
        EventsOut { messages: true, stdout: false, lines: None }
    }

    /// Whether JSON lines are written.
    pub(crate) fn has_lines(&self) -> bool {
        self.lines.is_some()
    }

    /// Handles one event; never waits for a reader.
    pub(crate) fn take(&mut self, event: &Event) {
        if self.messages
            && let Some(text) = message(event)
        {
            output::note(&text);
        }
        if let Some(lines) = &mut self.lines {
            lines.take(event);
        }
    }

    /// Waits until the last lines are written, but at most a second.
    pub(crate) fn close(self) {
        let Some(Lines { to, ended, lost, .. }) = self.lines else { return };
        drop(to);
        if ended.recv_timeout(END) == Err(RecvTimeoutError::Timeout) {
            output::note(
                "rxsteer: the last events were not written, because their reader does not read",
            );
        }
        if lost > 0 {
            output::note(&format!(
                "rxsteer: {lost} events were left out, because their reader was too slow"
            ));
        }
    }
}

impl Events {
    pub(crate) fn new(now: Instant, out: EventsOut) -> Events {
        Events { log: EventLog::new(now), out }
    }

    /// Whether JSON lines are written.
    pub(crate) fn has_lines(&self) -> bool {
        self.out.has_lines()
    }

    /// The last events.
    pub(crate) fn latest(&self) -> Arc<[Event]> {
        self.log.latest()
    }

    /// Adds what happened, unless there are too many of its kind.
    pub(crate) fn add(&mut self, now: Instant, event: NewEvent) {
        if let Some(event) = self.log.add(event, now) {
            self.out.take(&event);
        }
    }

    /// Reports what was suppressed some time ago. The caller must call this once a second.
    pub(crate) fn overdue(&mut self, now: Instant) {
        self.log.overdue(now).iter().for_each(|event| self.out.take(event));
    }

    /// Prints a message about an event whose kind has none; not if events replace messages.
    pub(crate) fn message(&self, text: &str) {
        if self.out.messages {
            output::note(text);
        }
    }

    /// Prints text that is not an event; to standard error if events use standard output.
    pub(crate) fn print(&self, text: &str) -> anyhow::Result<()> {
        if self.out.stdout {
            output::note(text.trim_end());
            Ok(())
        } else {
            output::print(text)
        }
    }

    /// Ends: reports what was suppressed, and writes the last lines.
    pub(crate) fn close(mut self, now: Instant) {
        self.log.rest(now).iter().for_each(|event| self.out.take(event));
        self.out.close();
    }
}

impl Lines {
    /// Writes lines to `to`, whose name is `name`.
    fn begin(name: String, to: Box<dyn Write + Send>, levels: bool) -> anyhow::Result<Lines> {
        let (sender, lines) = sync_channel(ROOM);
        let (end, ended) = channel();
        let write = move || {
            write_all(&name, to, &lines);
            // The receiver is gone if the program ends in another way.
            let _ = end.send(());
        };
        let thread = std::thread::Builder::new().name("rxsteer-events".to_owned()).spawn(write);
        thread.context("can't write events")?;
        Ok(Lines { to: sender, ended, levels, lost: 0 })
    }

    fn take(&mut self, event: &Event) {
        let Ok(line) = serde_json::to_string(event) else { return };
        let level = if self.levels { level(event) } else { "" };
        match self.to.try_send(format!("{level}{line}\n")) {
            Ok(()) => {}
            Err(TrySendError::Full(_)) => self.lost += 1,
            // The reader has closed standard output.
            Err(TrySendError::Disconnected(_)) => {}
        }
    }
}

/// Writes each line, and prints a message when writing begins to fail and when it works again. Ends when there are no
/// more lines, or when the reader of a pipe is gone.
fn write_all(name: &str, mut to: Box<dyn Write + Send>, lines: &Receiver<String>) {
    let mut failed: u64 = 0;
    for line in lines {
        match to.write_all(line.as_bytes()).and_then(|()| to.flush()) {
            Ok(()) if failed > 0 => {
                output::note(&format!(
                    "rxsteer: events are written to {name} again; {failed} are missing there"
                ));
                failed = 0;
            }
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => return,
            Err(error) => {
                failed += 1;
                if failed == 1 {
                    output::note(&format!(
                        "rxsteer: events can't be written to {name}: {error}. Until that works again, events are \
                         missing there; rxsteer status --json has the last ones"
                    ));
                }
            }
        }
    }
    if failed > 0 {
        output::note(&format!("rxsteer: {failed} events are missing in {name}"));
    }
}

/// The message to people, if there is one for this kind of event.
fn message(event: &Event) -> Option<String> {
    let is_for_people = event.known_kind().is_none_or(|kind| kind.audience() == Audience::Everyone);
    // The interfaces that are steered are the program's output; other events are remarks.
    let prefix = if event.kind == EventKind::InterfaceSteered.name() { "" } else { "rxsteer: " };
    is_for_people.then(|| format!("{prefix}{}", event.text))
}

/// Whether `stream` goes to the journal: systemd sets its device and inode (systemd.exec(5), JOURNAL_STREAM).
fn is_journal(stream: impl AsFd) -> bool {
    let Some(device_and_inode) = std::env::var_os("JOURNAL_STREAM") else { return false };
    fstat(stream).is_ok_and(|stat| {
        device_and_inode.to_str() == Some(&format!("{}:{}", stat.st_dev, stat.st_ino))
    })
}

/// The syslog level, which the journal removes from the line (sd-daemon(3)): 6 is information, 4 a warning.
fn level(event: &Event) -> &'static str {
    match event.known_kind() {
        Some(
            EventKind::InterfaceSteered
            | EventKind::CpuOnline
            | EventKind::ChangeDone
            | EventKind::Reloaded
            | EventKind::Moves,
        ) => "<6>",
        _ => "<4>",
    }
}

#[cfg(test)]
#[path = "events_out_tests.rs"]
mod tests;
