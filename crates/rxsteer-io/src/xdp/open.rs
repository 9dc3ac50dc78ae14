//! Opens sockets on the RX queues of interfaces.

use super::error::XdpError;
use super::frames::{Frames, Sent};
use super::program::{Program, XdpMode};
use super::queue::{Completions, Queue};
use super::receive::XdpReceiver;
use super::ring::{Consumer, Producer};
use super::send::XdpSender;
use super::sys::{self, Mapping};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex};

/// The number of entries of a fill ring and of an RX ring: what the kernel can receive while the receiving thread does
/// other work.
const RECEIVE_RING: u32 = 2048;

/// The number of entries of a completion ring, which all senders of a queue share.
const COMPLETION_RING: u32 = 4096;

/// The bytes that the kernel reserves before a received frame (XDP_PACKET_HEADROOM).
const HEADROOM: u32 = 256;

/// The length of an Ethernet header with two VLAN tags.
const LINK_HEADER: u32 = 22;

/// Socket options that the `libc` crate does not name (asm-generic/socket.h).
const SO_PREFER_BUSY_POLL: i32 = 69;
const SO_BUSY_POLL_BUDGET: i32 = 70;

/// The largest number of frames per busy poll: the kernel's weight of a poll.
const BUSY_POLL_BUDGET: i32 = 64;

/// An interface to receive from.
#[derive(Clone, Debug)]
pub struct Port {
    /// Its name, for messages.
    pub name: String,
    /// Its index in this network namespace.
    pub ifindex: u32,
    /// The number of its RX queues. Each queue, 0 to `queues` - 1, gets a socket.
    pub queues: u32,
    /// Its MTU in bytes.
    pub mtu: u32,
}

/// Options of the sockets.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct XdpOptions {
    /// The number of frames in each interface's memory, for the kernel's rings and the workers, divided among its RX
    /// queues. Each queue has at least 4096, the capacity of its rings.
    pub frames: u32,
    /// Whether received frames will be sent on. Then each queue can send the frames of all.
    pub forwards: bool,
    /// `Some(true)` refuses drivers that copy; `Some(false)` makes all drivers copy.
    pub zero_copy: Option<bool>,
    /// How many microseconds a thread polls the driver itself when no frame has been received (SO_BUSY_POLL).
    pub busy_poll_us: Option<u32>,
}

impl Default for XdpOptions {
    fn default() -> XdpOptions {
        XdpOptions { frames: 16_384, forwards: false, zero_copy: None, busy_poll_us: None }
    }
}

/// An interface whose RX queues are open.
#[derive(Debug)]
pub struct XdpPort {
    /// Its name.
    pub name: String,
    /// How the driver runs the XDP program.
    pub mode: XdpMode,
    /// Whether the driver writes into our memory itself, on all queues. If not, the kernel copies each frame once.
    pub zero_copy: bool,
    /// The receivers of the RX queues, in order.
    pub receivers: Vec<XdpReceiver>,
    queues: Vec<Arc<Queue>>,
}

impl XdpPort {
    /// Creates another sender on RX (and TX) queue `queue` modulo the number of queues, for one thread.
    ///
    /// # Errors
    /// [`XdpError`] if the kernel provides no socket.
    pub fn sender(&self, queue: usize) -> Result<XdpSender, XdpError> {
        XdpSender::open(self.queues[queue % self.queues.len()].clone())
    }

    /// The number of queues.
    #[must_use]
    pub fn queue_count(&self) -> usize {
        self.queues.len()
    }
}

/// Opens a socket on each RX queue of all `ports`. From then on these sockets receive the frames, and the kernel's stack
/// does not.
///
/// # Errors
/// [`XdpError`]. Then nothing has changed.
pub fn open(ports: &[Port], options: &XdpOptions) -> Result<Vec<XdpPort>, XdpError> {
    if ports.iter().all(|port| port.queues == 0) {
        return Ok(Vec::new());
    }
    let most = ports.iter().map(|port| port.mtu + LINK_HEADER + HEADROOM).max().unwrap_or(0);
    let frame_bytes = if most <= 2048 { 2048 } else { page_bytes() };
    if let Some(port) = ports.iter().find(|port| port.mtu + LINK_HEADER + HEADROOM > frame_bytes) {
        let room = frame_bytes - LINK_HEADER - HEADROOM;
        return Err(XdpError::Mtu(port.name.clone(), port.mtu, room));
    }
    // Both rings can be full of frames while a burst is read.
    let shares: Vec<u32> = ports
        .iter()
        .flat_map(|port| {
            let share = (options.frames / port.queues.max(1)).max(2 * RECEIVE_RING);
            (0..port.queues).map(move |_| share)
        })
        .collect();
    let all: u64 = shares.iter().map(|share| u64::from(*share)).sum();
    let bytes = all * u64::from(frame_bytes);
    if bytes >= 1 << 32 {
        return Err(XdpError::TooMuchMemory(bytes));
    }
    let frames = Frames::new(frame_bytes, &shares);
    let frames = Arc::new(frames.map_err(|_| XdpError::NoMemory(bytes, None))?);
    let mut first_home = 0;
    ports
        .iter()
        .map(|port| {
            let opened = open_port(port, options, &frames, first_home);
            first_home += port.queues;
            opened
        })
        .collect()
}

fn page_bytes() -> u32 {
    rustix::param::page_size() as u32
}

fn open_port(
    port: &Port,
    options: &XdpOptions,
    frames: &Arc<Frames>,
    first_home: u32,
) -> Result<XdpPort, XdpError> {
    let program = Arc::new(Program::attach(&port.name, port.ifindex, port.queues)?);
    let mode = program.mode;
    let mut opened = XdpPort {
        name: port.name.clone(),
        mode,
        zero_copy: true,
        receivers: Vec::new(),
        queues: Vec::new(),
    };
    for number in 0..port.queues {
        let home = first_home + number;
        let Socket { queue, fill, rx } = open_queue(port, number, mode, options, frames, home)?;
        opened.zero_copy &= sys::is_zero_copy(&queue.socket).unwrap_or(false);
        opened.queues.push(queue.clone());
        let receiver = XdpReceiver::new(queue, program.clone(), fill, rx, home);
        program.redirect(number, receiver.socket())?;
        opened.receivers.push(receiver);
    }
    Ok(opened)
}

struct Socket {
    queue: Arc<Queue>,
    fill: Producer<u64>,
    rx: Consumer<libc::xdp_desc>,
}

fn open_queue(
    port: &Port,
    number: u32,
    mode: XdpMode,
    options: &XdpOptions,
    frames: &Arc<Frames>,
    home: u32,
) -> Result<Socket, XdpError> {
    let socket = sys::socket().map_err(|error| XdpError::of("open an AF_XDP socket", error))?;
    // Without forwarding, a socket does not need the memory of others: each registers its share, so the limit of locked
    // memory counts it once.
    let (base, bytes) = if options.forwards {
        (0, frames.bytes() as u64)
    } else {
        let share = frames.share_of(home);
        (frames.address(share.start), frames.address(share.end) - frames.address(share.start))
    };
    let memory = libc::xdp_umem_reg {
        addr: frames.start().as_ptr() as u64 + base,
        len: bytes,
        chunk_size: frames.frame_bytes(),
        headroom: 0,
        flags: 0,
        tx_metadata_len: 0,
    };
    sys::set(&socket, libc::SOL_XDP, libc::XDP_UMEM_REG, &memory).map_err(|error| {
        match error.raw_os_error() {
            Some(libc::ENOBUFS | libc::ENOMEM | libc::EAGAIN) => {
                XdpError::NoMemory(bytes, memlock_limit())
            }
            _ => XdpError::of("register memory for frames", error),
        }
    })?;
    let sizes = [
        (libc::XDP_UMEM_FILL_RING, RECEIVE_RING),
        (libc::XDP_UMEM_COMPLETION_RING, COMPLETION_RING),
        (libc::XDP_RX_RING, RECEIVE_RING),
    ];
    for (option, size) in sizes {
        sys::set(&socket, libc::SOL_XDP, option, &size)
            .map_err(|error| XdpError::of("make the rings of an AF_XDP socket", error))?;
    }
    let (fill, completion, rx) =
        rings(&socket).map_err(|error| XdpError::of("map a ring", error))?;
    if let Some(busy_poll_us) = options.busy_poll_us {
        busy_poll(&socket, busy_poll_us)
            .map_err(|error| XdpError::of("busy-poll (it requires Linux 5.11)", error))?;
    }
    let copies = match (options.zero_copy, mode) {
        (Some(true), XdpMode::Native) => libc::XDP_ZEROCOPY,
        (Some(false), _) | (None, XdpMode::Generic) => libc::XDP_COPY,
        (None, XdpMode::Native) => 0,
        (Some(true), XdpMode::Generic) => {
            let why = std::io::Error::other("the driver has no native XDP");
            return Err(XdpError::NoZeroCopy(port.name.clone(), number, why));
        }
    };
    let flags = copies | libc::XDP_USE_NEED_WAKEUP;
    sys::bind(&socket, port.ifindex, number, flags, None).map_err(|error| {
        match error.raw_os_error() {
            Some(libc::EBUSY) => XdpError::OtherSocket(port.name.clone(), number),
            Some(libc::ENODEV) => XdpError::NoInterface(port.name.clone()),
            _ if options.zero_copy == Some(true) => {
                XdpError::NoZeroCopy(port.name.clone(), number, error)
            }
            _ => XdpError::of("bind an AF_XDP socket", error),
        }
    })?;
    let queue = Queue {
        socket,
        ifindex: port.ifindex,
        number,
        completions: Mutex::new(Completions { ring: completion, sent: Sent::new(frames) }),
        frames: frames.clone(),
        base,
        stalled: AtomicU32::new(0),
    };
    Ok(Socket { queue: Arc::new(queue), fill, rx })
}

type Rings = (Producer<u64>, Consumer<u64>, Consumer<libc::xdp_desc>);

fn rings(socket: &OwnedFd) -> std::io::Result<Rings> {
    let offsets = sys::ring_offsets(socket)?;
    let map = |at: &libc::xdp_ring_offset, entries: u32, entry: usize, page: u64| {
        Mapping::of_socket(socket.as_fd(), at.desc as usize + entries as usize * entry, page)
    };
    let address = size_of::<u64>();
    let fill = map(&offsets.fr, RECEIVE_RING, address, libc::XDP_UMEM_PGOFF_FILL_RING)?;
    let completion =
        map(&offsets.cr, COMPLETION_RING, address, libc::XDP_UMEM_PGOFF_COMPLETION_RING)?;
    let desc = size_of::<libc::xdp_desc>();
    let rx = map(&offsets.rx, RECEIVE_RING, desc, libc::XDP_PGOFF_RX_RING as u64)?;
    Ok((
        Producer::new(fill, &offsets.fr, RECEIVE_RING),
        Consumer::new(completion, &offsets.cr, COMPLETION_RING),
        Consumer::new(rx, &offsets.rx, RECEIVE_RING),
    ))
}

fn busy_poll(socket: &OwnedFd, micros: u32) -> std::io::Result<()> {
    let micros = i32::try_from(micros).unwrap_or(i32::MAX);
    sys::set(socket, libc::SOL_SOCKET, SO_PREFER_BUSY_POLL, &1_i32)?;
    sys::set(socket, libc::SOL_SOCKET, libc::SO_BUSY_POLL, &micros)?;
    sys::set(socket, libc::SOL_SOCKET, SO_BUSY_POLL_BUDGET, &BUSY_POLL_BUDGET)
}

/// The limit of locked memory in bytes; `None` if there is no limit.
fn memlock_limit() -> Option<u64> {
    rustix::process::getrlimit(rustix::process::Resource::Memlock).current
}
