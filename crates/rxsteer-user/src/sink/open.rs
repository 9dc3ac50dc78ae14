//! Opens all outputs before anything starts, so that errors show at that time.

use super::SinkError;
use super::interface::Interface;
use super::spec::{SinkKind, SinkSpec};
use super::write::{MadePipe, Out, Zstd};
use crate::sink::stream::Stream;
use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat};
use rustix::io::Errno;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How long to wait before checking again whether a pipe has a reader.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// An output of one CPU, and the pipe to remove afterwards.
pub(super) type Opened = (Out, Option<MadePipe>);

/// Opens these names. Pipes are opened when all of them have a reader. `waiting` is called once with those that have
/// none.
pub(super) fn open(
    spec: &SinkSpec,
    names: &[String],
    stop: &AtomicBool,
    waiting: impl FnOnce(&[&str]),
) -> Result<Vec<Opened>, SinkError> {
    match spec.kind() {
        SinkKind::Pcap { zstd } => {
            if let Some(folder) = spec.folder().filter(|folder| !folder.exists()) {
                let made = fs::create_dir(folder);
                made.map_err(|error| SinkError::create(folder, error))?;
            }
            names.iter().map(|name| open_file(Path::new(name), zstd)).collect()
        }
        SinkKind::Pipe => open_pipes(names, stop, waiting),
        SinkKind::Tap => {
            names.iter().map(|name| Ok((Out::Interface(Interface::tap(name)?), None))).collect()
        }
        SinkKind::Veth => {
            names.iter().map(|name| Ok((Out::Interface(Interface::packet(name)?), None))).collect()
        }
    }
}

fn open_file(path: &Path, zstd: bool) -> Result<Opened, SinkError> {
    let create = |path: &Path| {
        // Opening a pipe waits for its reader, and a signal would not end the wait.
        if path.metadata().is_ok_and(|metadata| metadata.file_type().is_fifo()) {
            return Err(io::Error::other("it is a pipe; use pipe: for it"));
        }
        let file = File::create(path)?;
        Ok(if zstd { Out::Zstd(Zstd::new(file)?) } else { Out::File(Stream::new(file)) })
    };
    create(path).map(|out| (out, None)).map_err(|error| SinkError::create(path, error))
}

fn open_pipes(
    names: &[String],
    stop: &AtomicBool,
    waiting: impl FnOnce(&[&str]),
) -> Result<Vec<Opened>, SinkError> {
    let mut waiting = Some(waiting);
    let mut made =
        names.iter().map(|name| make_pipe(Path::new(name))).collect::<Result<Vec<_>, _>>()?;
    let mut opened: Vec<Option<File>> = names.iter().map(|_| None).collect();
    loop {
        for (name, pipe) in names.iter().zip(&mut opened) {
            if pipe.is_none() {
                *pipe = open_pipe(Path::new(name))?;
            }
        }
        let without = names.iter().zip(&opened).filter(|(_, pipe)| pipe.is_none());
        let without: Vec<&str> = without.map(|(name, _)| name.as_str()).collect();
        if without.is_empty() {
            break;
        }
        if let Some(waiting) = waiting.take() {
            waiting(&without);
        }
        // ORDER: Relaxed; a request without data.
        if stop.load(Ordering::Relaxed) {
            return Err(SinkError::NoReader(without.join(", ")));
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    let streams = opened.into_iter().flatten().map(|pipe| Out::Pipe(Stream::new(pipe)));
    Ok(streams.zip(made.drain(..)).collect())
}

/// Creates a named pipe if the path does not exist. Refuses an existing file that is not a pipe.
fn make_pipe(path: &Path) -> Result<Option<MadePipe>, SinkError> {
    match fs::metadata(path) {
        Ok(found) if found.file_type().is_fifo() => Ok(None),
        Ok(_) => Err(SinkError::NotAPipe(path.to_owned())),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let mode = Mode::RUSR | Mode::WUSR;
            let made = mknodat(CWD, path, FileType::Fifo, mode, 0);
            made.map_err(|error| SinkError::create(path, error.into()))?;
            Ok(Some(MadePipe(path.to_owned())))
        }
        Err(error) => Err(SinkError::create(path, error)),
    }
}

/// The pipe, if it has a reader.
fn open_pipe(path: &Path) -> Result<Option<File>, SinkError> {
    let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(pipe) => Ok(Some(File::from(pipe))),
        Err(Errno::NXIO) => Ok(None),
        Err(error) => Err(SinkError::create(path, error.into())),
    }
}
