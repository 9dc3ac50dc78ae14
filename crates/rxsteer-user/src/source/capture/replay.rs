//! The source: reads one capture after the other, for one or more rounds, and puts the frames into blocks.

use super::container::Format;
use super::damage::{Damage, Halt};
use super::open::{CaptureOptions, Input, OpenError};
use super::pcap::Pcap;
use super::pcapng::Pcapng;
use super::queues::Queues;
use super::record::{Frame, Step, Time};
use super::window::Window;
use crate::block::{Block, FrameInfo, MAX_TIME_NS};
use crate::source::{Fill, IssueKind, Source, SourceIssue};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The largest number of records examined in one call of `fill`: a reader whose share is empty still returns to its
/// caller from time to time.
const LOOKS: usize = 64 * 1024;

/// The largest number of issues that are reported for one file.
const MAX_ISSUES: usize = 64;

/// Frames of capture files.
///
/// ```
/// use rxsteer_user::block::Block;
/// use rxsteer_user::source::capture::{CaptureOptions, CaptureSource};
/// use rxsteer_user::source::{Fill, Source};
///
/// // A pcap file header, and one packet of 3 bytes.
/// let mut pcap = Vec::new();
/// for number in [0xa1b2c3d4_u32, 0x0004_0002, 0, 0, 65535, 1, 1_700_000_000, 250, 3, 3] {
///     pcap.extend(number.to_le_bytes());
/// }
/// pcap.extend(*b"abc");
///
/// let reader = Box::new(std::io::Cursor::new(pcap));
/// let mut source = CaptureSource::from_reader("example", reader, CaptureOptions::default())?;
/// let mut block = Block::new();
/// while source.fill(&mut block) == Fill::More {}
/// assert_eq!(block.bytes_of(&block.frames()[0]), b"abc");
/// assert_eq!(block.frames()[0].timestamp_ns, 1_700_000_000_000_250_000);
/// assert!(source.take_issues().is_empty());
/// # Ok::<(), rxsteer_user::source::capture::OpenError>(())
/// ```
pub struct CaptureSource {
    inputs: Vec<Input>,
    /// The input being read, or the one to open next.
    next_input: usize,
    /// The number of rounds left, including this one.
    rounds_left: u32,
    first_round: bool,
    current: Option<Reader>,
    window: Window,
    clock: Clock,
    queues: Queues,
    issues: Vec<SourceIssue>,
    issues_of_file: usize,
    /// Frames read from the current file, of all shares.
    frames_of_file: u64,
    skipped: u64,
    /// A flag that ends the wait for any of its pipes when it is set.
    stop_waiting: Arc<AtomicBool>,
    /// Bytes read, before decompression.
    read_bytes: Arc<AtomicU64>,
    /// The part of these that belongs to the files before the current one.
    bytes_before: u64,
    all_bytes: Option<u64>,
    /// The first input with packets whose time is not valid, and the number of such packets in all.
    untimed: Option<(usize, u64)>,
}

enum Reader {
    Pcap(Pcap),
    Pcapng(Pcapng),
}

/// Why reading from a file paused or ended.
enum Stop {
    /// The block is full, or the call has examined enough records.
    Pause,
    FileEnd,
    Damage(Damage),
}

impl CaptureSource {
    /// Checks all of `paths`, in this order, and prepares to read them. `-` is standard input.
    ///
    /// # Errors
    /// [`OpenError`] if one of them can't be read as a capture, or the options don't fit.
    pub fn open(paths: &[PathBuf], options: CaptureOptions) -> Result<CaptureSource, OpenError> {
        options.check()?;
        if paths.is_empty() {
            return Err(OpenError::NoFiles);
        }
        if paths.iter().filter(|path| path.as_os_str() == "-").count() > 1 {
            return Err(OpenError::StdinTwice);
        }
        let check = |path: &PathBuf| Input::check(path, options);
        let mut inputs = paths.iter().map(check).collect::<Result<Vec<Input>, OpenError>>()?;
        // This comes last, since it may have to wait for pipes.
        let (read_bytes, stop_waiting) = (Arc::new(AtomicU64::new(0)), Arc::default());
        for input in &mut inputs {
            input.await_pipe(&read_bytes, &stop_waiting)?;
        }
        Ok(CaptureSource { stop_waiting, ..CaptureSource::new(inputs, options, read_bytes) })
    }

    /// Reads a capture from a reader. Messages use `name` for it.
    ///
    /// # Errors
    /// [`OpenError`] if it isn't a capture, or the options require to read it more than once.
    pub fn from_reader(
        name: impl AsRef<Path>,
        reader: Box<dyn Read + Send>,
        options: CaptureOptions,
    ) -> Result<CaptureSource, OpenError> {
        options.check()?;
        let read_bytes = Arc::new(AtomicU64::new(0));
        let mut input = Input::pipe(name.as_ref(), options)?;
        input.begin_pipe(reader, &read_bytes)?;
        Ok(CaptureSource::new(vec![input], options, read_bytes))
    }

    fn new(
        inputs: Vec<Input>,
        options: CaptureOptions,
        read_bytes: Arc<AtomicU64>,
    ) -> CaptureSource {
        let rounds = options.repeat.max(1);
        let bytes_of = |input: &Input| match input {
            Input::File { bytes, .. } => Some(*bytes),
            Input::Pipe { .. } => None,
        };
        let round_bytes =
            inputs.iter().map(bytes_of).try_fold(0_u64, |sum, b| Some(sum.saturating_add(b?)));
        CaptureSource {
            inputs,
            next_input: 0,
            rounds_left: rounds,
            first_round: true,
            current: None,
            window: Window::new(),
            clock: Clock::default(),
            queues: Queues::new(options.rx_queues, options.share),
            issues: Vec::new(),
            issues_of_file: 0,
            frames_of_file: 0,
            skipped: 0,
            stop_waiting: Arc::default(),
            read_bytes,
            bytes_before: 0,
            untimed: None,
            all_bytes: round_bytes.map(|bytes| bytes.saturating_mul(u64::from(rounds))),
        }
    }

    /// Opens the next file; `false` if there is none.
    fn begin_file(&mut self) -> bool {
        if self.next_input == self.inputs.len() {
            if self.rounds_left == 1 {
                return false;
            }
            self.rounds_left -= 1;
            self.first_round = false;
            self.next_input = 0;
            self.queues.restart();
            self.clock.begin_round();
        }
        self.frames_of_file = 0;
        self.issues_of_file = 0;
        // ORDER: Relaxed; this thread did the adding.
        self.bytes_before = self.read_bytes.load(Ordering::Relaxed);
        self.queues.begin_file(self.next_input);
        match self.inputs[self.next_input].open(&self.read_bytes) {
            Ok(opened) => {
                let format = opened.format;
                self.window.restart(opened);
                self.begin_format(format);
            }
            // The file was valid when all were checked, so the run goes on.
            Err(error) => {
                let what = format!("could be opened before, but not now: {error}");
                self.report(IssueKind::Gone, None, what);
                self.end_file();
            }
        }
        true
    }

    fn begin_format(&mut self, format: Format) {
        match format {
            Format::Pcapng => self.current = Some(Reader::Pcapng(Pcapng::new())),
            Format::Pcap => match Pcap::open(&mut self.window, &mut self.queues) {
                Ok(pcap) => self.current = Some(Reader::Pcap(pcap)),
                Err(Halt::Damage(damage)) => self.give_up(damage),
                Err(Halt::Wait) => unreachable!("a fresh window waits"),
            },
        }
    }

    fn end_file(&mut self) {
        self.current = None;
        self.window.close();
        self.next_input += 1;
    }

    /// Reports damage and ends the file.
    fn give_up(&mut self, damage: Damage) {
        let used = match self.frames_of_file {
            0 => "no packet comes before it".to_owned(),
            1 => "the 1 packet before it was used".to_owned(),
            frames => format!("the {frames} packets before it were used"),
        };
        let message = format!("{}; {used}; get an intact copy for the rest", damage.what);
        self.report(damage.kind, Some(damage.offset), message);
        self.end_file();
    }

    /// Stores an issue for the caller. Later rounds would only repeat the issues of the first.
    fn report(&mut self, kind: IssueKind, offset: Option<u64>, message: String) {
        self.issues_of_file += 1;
        if !self.first_round || self.issues_of_file > MAX_ISSUES {
            return;
        }
        let message = if self.issues_of_file == MAX_ISSUES {
            format!("{message} (what else is wrong with this file is not listed)")
        } else {
            message
        };
        let file = self.inputs[self.next_input].name().to_owned();
        self.issues.push(SourceIssue { file, kind, offset, message });
    }

    /// Reads frames of the current file into `block`, which had `before` frames when the caller asked for more. It waits
    /// for a pipe only while the block has no new frames.
    fn read_frames(&mut self, block: &mut Block, before: usize, looks: &mut usize) -> Stop {
        while *looks > 0 && !block.is_full() {
            *looks -= 1;
            self.window.set_waits(block.len() == before);
            let step = match &mut self.current {
                Some(Reader::Pcap(pcap)) => pcap.next(&mut self.window),
                Some(Reader::Pcapng(pcapng)) => pcapng.next(&mut self.window, &mut self.queues),
                None => return Stop::Pause,
            };
            match step {
                Ok(Step::Frame(frame)) => {
                    self.frames_of_file += 1;
                    if !deliver(&frame, &mut self.clock, &self.queues, block) {
                        let file = self.next_input;
                        self.untimed.get_or_insert((file, 0)).1 += 1;
                    }
                }
                Ok(Step::Other) => {}
                Ok(Step::LeftOut(issue)) => {
                    self.skipped += 1;
                    if let Some(issue) = issue {
                        self.report(issue.kind, Some(issue.offset), issue.what);
                    }
                }
                Ok(Step::Refused(issue)) => {
                    self.report(issue.kind, Some(issue.offset), issue.what);
                }
                Ok(Step::End) => return Stop::FileEnd,
                Err(Halt::Wait) => return Stop::Pause,
                Err(Halt::Damage(damage)) => return Stop::Damage(damage),
            }
        }
        Stop::Pause
    }
}

/// Returns whether the frame's time was valid.
#[inline]
fn deliver(frame: &Frame<'_>, clock: &mut Clock, queues: &Queues, block: &mut Block) -> bool {
    let (timestamp_ns, counts) = clock.stamp(frame.time);
    let rx_queue = queues.of_frame(frame.rx_queue, frame.link, frame.bytes);
    if queues.are_mine(rx_queue) {
        let info = FrameInfo::new(frame.link, timestamp_ns, frame.wire_len).on_rx_queue(rx_queue);
        let taken = block.push(frame.bytes, info);
        debug_assert!(taken, "the block was not full");
    }
    counts
}

impl Source for CaptureSource {
    /// Counts the records of all shares and rounds. Sources that share captures count the same records.
    fn skipped_records(&self) -> u64 {
        self.skipped
    }

    fn fill(&mut self, block: &mut Block) -> Fill {
        let before = block.len();
        let mut looks = LOOKS;
        loop {
            if self.current.is_none() {
                // A file that can no longer be opened has no frames, and the next is tried.
                if looks == 0 {
                    return Fill::More;
                }
                looks -= 1;
                if !self.begin_file() {
                    return Fill::End;
                }
                continue;
            }
            match self.read_frames(block, before, &mut looks) {
                Stop::Pause => return Fill::More,
                Stop::FileEnd => self.end_file(),
                Stop::Damage(damage) => self.give_up(damage),
            }
        }
    }

    fn start_time_ns(&self) -> Option<u64> {
        self.clock.first
    }

    fn stop_waiting(&self) -> Option<Arc<AtomicBool>> {
        Some(Arc::clone(&self.stop_waiting))
    }

    fn take_issues(&mut self) -> Vec<SourceIssue> {
        if let Some((input, packets)) = self.untimed.take() {
            let message = format!(
                "{packets} packet(s), here or in files after it, have a time before 1970 or after 2262-04-11, which \
                 rxsteer can't represent; they get the time of the packet before them"
            );
            let file = self.inputs[input].name().to_owned();
            self.issues.push(SourceIssue { file, kind: IssueKind::Time, offset: None, message });
        }
        std::mem::take(&mut self.issues)
    }

    fn progress(&self) -> Option<(u64, u64)> {
        // A file may have grown since its length was read.
        let all = self.all_bytes?;
        // ORDER: Relaxed; this thread did the adding.
        let read = self.read_bytes.load(Ordering::Relaxed);
        // Bytes that were read ahead are not done. For compressed data the result is an estimate.
        let of_file = read.saturating_sub(self.bytes_before) as f64 * self.window.taken();
        Some(((self.bytes_before + of_file as u64).min(all), all))
    }
}

/// The capture time over several rounds.
#[derive(Debug, Default)]
struct Clock {
    /// The offset that is added to the times of this round.
    shift: u64,
    /// The first time in the captures.
    first: Option<u64>,
    /// The latest time assigned.
    latest: u64,
}

impl Clock {
    /// The time of a frame, and whether its own time was valid. A frame without a valid time gets the latest time
    /// assigned.
    #[inline]
    fn stamp(&mut self, time: Time) -> (u64, bool) {
        let Time::At(time) = time else { return (self.latest, time == Time::None) };
        if self.first.is_none() {
            self.first = Some(time);
        }
        match time.checked_add(self.shift).filter(|time| *time <= MAX_TIME_NS) {
            Some(time) => {
                self.latest = self.latest.max(time);
                (time, true)
            }
            None => (self.latest, false),
        }
    }

    /// Begins a round just after the latest time.
    fn begin_round(&mut self) {
        self.shift = self.latest.saturating_add(1).saturating_sub(self.first.unwrap_or(0));
    }
}
