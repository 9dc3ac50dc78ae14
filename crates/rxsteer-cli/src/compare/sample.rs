//! Captures in memory what an interface receives for some time.
//!
//! An AF_PACKET socket has a filter for received frames of this interface. The frames become a pcap file without a
//! name, so that all other code reads them like any capture. Time and number of frames are limited, and therefore also
//! the memory ([`MAX_FRAMES`] times [`SNAP_LEN`]).

use anyhow::Context;
use indicatif::ProgressBar;
use nix::errno::Errno;
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::socket::{MsgFlags, recv};
use rxsteer_host::{ETHERNET, Link, Load};
use rxsteer_user::printable;
use socket2::{Domain, Protocol, SockFilter, Socket, Type};
use std::fs::File;
use std::io::{BufWriter, ErrorKind, Write};
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The most frames of a sample: 130 MB of memory, as a capture.
pub(super) const MAX_FRAMES: u64 = 500_000;
/// The bytes that are kept of a frame: the headers of a tunnel and of the packet inside.
const SNAP_LEN: usize = 256;
/// The bytes that may wait in the socket; the kernel may grant less.
const SOCKET_BUFFER: usize = 8 << 20;
/// The period for a limit of frames.
const SECOND: Duration = Duration::from_secs(1);
/// How long to wait for a frame before looking at the clock.
const WAIT: Duration = Duration::from_millis(50);

/// The limits of a sample.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) time: Duration,
    /// The most frames.
    frames: u64,
    /// The most frames per second; later frames of that second are skipped.
    each_second: Option<u64>,
}

impl Limits {
    /// The first `frames` frames, at most [`MAX_FRAMES`].
    pub(super) fn once(time: Duration, frames: u64) -> Limits {
        Limits { time, frames: frames.min(MAX_FRAMES), each_second: None }
    }

    /// Frames of the whole time, with a maximum per second. This selects a part of each second instead of some flows: a
    /// sample of flows would contain a large flow either completely or not at all, and the largest flow decides which
    /// policy is better.
    pub(super) fn paced(time: Duration) -> Limits {
        let seconds = time.as_secs_f64().ceil().max(1.0) as u64;
        Limits { time, frames: MAX_FRAMES, each_second: Some((MAX_FRAMES / seconds).max(1)) }
    }

    /// Whether the sample contains a part of each second.
    pub(super) fn is_paced(&self) -> bool {
        self.each_second.is_some()
    }
}

/// A finished sample.
pub(super) struct Sample {
    /// The capture. It is deleted when this is dropped.
    pub(super) file: File,
    pub(super) frames: u64,
    pub(super) elapsed: Duration,
    /// For how much of that time frames were copied.
    pub(super) watched: Duration,
    /// Frames that the interface received while they were copied, if the kernel reports it.
    pub(super) received: Option<u64>,
    /// Whether there would have been more.
    pub(super) is_cut: bool,
}

impl Sample {
    /// A path with which the capture can be opened.
    pub(super) fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.file.as_raw_fd()))
    }
}

/// A period in which frames are copied.
struct Window {
    socket: Socket,
    /// What the interface had received before.
    received: Option<u64>,
}

impl Window {
    fn open(link: &Link) -> anyhow::Result<Window> {
        let socket = open(link).map_err(|error| refused(link, &error))?;
        Ok(Window { socket, received: received(link) })
    }

    /// What the interface received meanwhile.
    fn close(self, link: &Link) -> Option<u64> {
        let frames = self.received.zip(received(link));
        frames.map(|(before, after)| after.saturating_sub(before))
    }
}

/// The number of frames that `link` has received, if the kernel reports it.
fn received(link: &Link) -> Option<u64> {
    Load::read()?.received.get(&link.name).copied()
}

/// Captures what `link` receives, within `limits` or until `stop` is set; `bar` shows the progress.
pub(super) fn take(
    link: &Link,
    limits: Limits,
    stop: &AtomicBool,
    bar: &ProgressBar,
) -> anyhow::Result<Sample> {
    let mut window = Window::open(link)?;
    let file = memfd_create("rxsteer-sample", MFdFlags::MFD_CLOEXEC);
    let file = File::from(file.context("can't make a file in memory")?);
    let mut capture = BufWriter::new(&file);
    capture.write_all(&header(link)).context("can't write to memory")?;
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let started = Instant::now();
    let mut second = started;
    let mut frame = [0; SNAP_LEN];
    let (mut frames, mut of_second) = (0, 0);
    let (mut paused, mut passed) = (Duration::ZERO, Some(0));
    // ORDER: Relaxed; the flag is a request and carries no data.
    let is_over = || started.elapsed() >= limits.time || stop.load(Ordering::Relaxed);
    while frames < limits.frames && !is_over() {
        if second.elapsed() >= SECOND {
            (second, of_second) = (Instant::now(), 0);
            bar.set_position(u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX));
            bar.set_message(format!("{frames} frames"));
        }
        if limits.each_second.is_some_and(|most| of_second >= most) {
            let count = window.close(link);
            passed = passed.zip(count).map(|(sum, count)| sum + count);
            let closed = Instant::now();
            while second.elapsed() < SECOND && !is_over() {
                std::thread::sleep(WAIT.min(SECOND.saturating_sub(second.elapsed())));
            }
            window = Window::open(link)?;
            paused += closed.elapsed();
            continue;
        }
        // With MSG_TRUNC the kernel returns the frame's whole length.
        let length = match recv(window.socket.as_raw_fd(), &mut frame, MsgFlags::MSG_TRUNC) {
            Ok(length) => length,
            Err(Errno::EAGAIN | Errno::EINTR) => continue,
            // The interface went down, or was removed; what was captured counts.
            Err(Errno::ENETDOWN | Errno::ENODEV | Errno::ENXIO) => break,
            Err(error) => {
                let name = printable(&link.name);
                return Err(error).with_context(|| format!("can't capture on {name}"));
            }
        };
        let kept = &frame[..length.min(SNAP_LEN)];
        // Pauses are left out of the times: a flow that continues after one was not idle.
        let at = since_1970 + started.elapsed().saturating_sub(paused);
        capture.write_all(&record(at, kept.len(), length)).context("can't write to memory")?;
        capture.write_all(kept).context("can't write to memory")?;
        frames += 1;
        of_second += 1;
    }
    capture.flush().context("can't write to memory")?;
    drop(capture);
    let (elapsed, count) = (started.elapsed(), window.close(link));
    Ok(Sample {
        file,
        frames,
        elapsed,
        watched: elapsed.saturating_sub(paused),
        received: passed.zip(count).map(|(sum, count)| sum + count),
        is_cut: frames == limits.frames && !limits.is_paced(),
    })
}

fn refused(link: &Link, error: &std::io::Error) -> anyhow::Error {
    let name = printable(&link.name);
    if error.kind() == ErrorKind::PermissionDenied {
        return anyhow::anyhow!(
            "can't capture on {name}: this requires CAP_NET_RAW, which this process does not have. Run it as root, or give \
             it a capture: sudo tcpdump -i {name} -c 100000 -w - | rxsteer compare -"
        );
    }
    anyhow::anyhow!("can't capture on {name}: {error}")
}

/// A socket that receives only from `link`. Frames of devices without an Ethernet header begin with the IP header.
fn open(link: &Link) -> std::io::Result<Socket> {
    // ETH_P_ALL of include/uapi/linux/if_ether.h, in network byte order.
    let all = Protocol::from(i32::from(3_u16.to_be()));
    let kind = if link.hardware_type == ETHERNET { Type::RAW } else { Type::DGRAM };
    let socket = Socket::new(Domain::PACKET, kind, Some(all))?;
    socket.attach_filter(&filter(link.index))?;
    // If the kernel's limit is lower, that applies.
    let _ = socket.set_recv_buffer_size(SOCKET_BUFFER);
    socket.set_nonblocking(true)?;
    // Frames received before the filter was set can be from any interface.
    let mut byte = [0];
    while recv(socket.as_raw_fd(), &mut byte, MsgFlags::empty()).is_ok() {}
    socket.set_nonblocking(false)?;
    socket.set_read_timeout(Some(WAIT))?;
    Ok(socket)
}

/// Classic BPF, which rejects frames that the interface sends (PACKET_OUTGOING) and those of other interfaces. Offsets
/// and numbers are those of include/uapi/linux/filter.h, bpf_common.h and if_packet.h.
fn filter(index: u32) -> [SockFilter; 6] {
    const ANCILLARY: u32 = 0_u32.wrapping_sub(0x1000);
    const PACKET_TYPE: u32 = ANCILLARY + 4;
    const INTERFACE: u32 = ANCILLARY + 8;
    const OUTGOING: u32 = 4;
    const LOAD: u16 = 0x20;
    const IS_EQUAL: u16 = 0x15;
    const RETURN: u16 = 0x06;
    [
        SockFilter::new(LOAD, 0, 0, PACKET_TYPE),
        SockFilter::new(IS_EQUAL, 3, 0, OUTGOING),
        SockFilter::new(LOAD, 0, 0, INTERFACE),
        SockFilter::new(IS_EQUAL, 0, 1, index),
        SockFilter::new(RETURN, 0, 0, u32::MAX),
        SockFilter::new(RETURN, 0, 0, 0),
    ]
}

/// The head of a pcap file with times in nanoseconds (draft-ietf-opsawg-pcap).
fn header(link: &Link) -> [u8; 24] {
    const ETHERNET_FRAMES: u32 = 1;
    const RAW_IP: u32 = 101;
    let link_type = if link.hardware_type == ETHERNET { ETHERNET_FRAMES } else { RAW_IP };
    words([0xa1b2_3c4d, 2 | (4 << 16), 0, 0, SNAP_LEN as u32, link_type])
}

/// The head of a record: its time, the number of bytes kept, and the original length.
fn record(at: Duration, kept: usize, length: usize) -> [u8; 16] {
    words([at.as_secs() as u32, at.subsec_nanos(), kept as u32, length as u32])
}

/// As little-endian bytes on every machine.
fn words<const WORDS: usize, const BYTES: usize>(words: [u32; WORDS]) -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    for (place, word) in bytes.chunks_exact_mut(4).zip(words) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use rxsteer_user::block::Block;
    use rxsteer_user::source::capture::{CaptureOptions, CaptureSource};
    use rxsteer_user::source::{Fill, Source};

    #[test]
    fn written_capture_is_read() {
        let ethernet = Link { hardware_type: ETHERNET, ..Link::default() };
        let tun = Link { hardware_type: 0xfffe, ..Link::default() };
        for (link, name) in [(ethernet, "ethernet"), (tun, "raw")] {
            let mut file = tempfile::NamedTempFile::new().unwrap();
            file.write_all(&header(&link)).unwrap();
            file.write_all(&record(Duration::new(7, 5), 60, 1500)).unwrap();
            file.write_all(&[0x45; 60]).unwrap();
            file.flush().unwrap();
            let files = [file.path().to_path_buf()];
            let mut source = CaptureSource::open(&files, CaptureOptions::default()).unwrap();
            let mut block = Block::new();
            while source.fill(&mut block) == Fill::More {}
            let [frame] = block.frames() else { panic!("{name}: {}", block.len()) };
            let info = frame.info();
            assert_eq!((info.timestamp_ns, info.wire_len), (7_000_000_005, 1500), "{name}");
            assert_eq!(block.bytes_of(frame), [0x45; 60], "{name}");
            assert!(source.take_issues().is_empty());
        }
    }
}
