//! The types that C programs see. Fields are only ever added at the end: code that reads or writes a structure uses its
//! size.

use std::ffi::{c_char, c_void};

/// What happens to a packet, or to all packets of a list: RXSTEER_CONSUMED, RXSTEER_DROP, or RXSTEER_SEND + a port. Any
/// other value ends the run with an error.
pub type Verdict = u32;

/// The handler has processed the packet. It counts as delivered. With RXSTEER_FORWARD it is not sent on.
pub const RXSTEER_CONSUMED: Verdict = 0;
/// The packet is not sent on. It counts as delivered, and as refused.
pub const RXSTEER_DROP: Verdict = 1;
/// RXSTEER_SEND + n sends the packet on by port n: the interface with that number in the source's list, from 0. This
/// requires RXSTEER_FORWARD. Each flow leaves in order. A packet without room to send counts as dropped.
pub const RXSTEER_SEND: Verdict = 0x10000;
/// As the result of a handler: each packet has its own verdict in the list's `verdicts`.
pub const RXSTEER_PER_PACKET: Verdict = 0xffff_ffff;

/// A packet whose CPU's backlog is full is dropped and counted. Without this flag receiving waits, so that no packet of a
/// capture is lost; for a live interface the kernel then drops packets (kernel_drops).
pub const RXSTEER_DROP_WHEN_FULL: u32 = 1;
/// Threads are not pinned to their CPUs.
pub const RXSTEER_NO_PIN: u32 = 2;
/// Workers check the order of packets, and flows and moves are counted. This costs a table lookup for each packet.
pub const RXSTEER_CHECK_ORDER: u32 = 4;
/// Packets in tunnels (IPIP, 6in4, GRE, VXLAN, Geneve, GTP-U) are steered by the flow of the inner packet.
pub const RXSTEER_LOOK_INTO_TUNNELS: u32 = 8;
/// A live interface also receives frames for other hosts, as at a mirror port, until the run ends or
/// the source is closed.
pub const RXSTEER_PROMISCUOUS: u32 = 16;
/// The handler sends packets on (RXSTEER_SEND). The interfaces are then in promiscuous mode, too, and live: uses AF_XDP.
/// With packet: the host also receives each packet: remove the addresses of the interfaces, and turn forwarding off. Packets
/// leave as they were received. With xdp: the other end of a veth must complete checksums (ethtool -K PEER tx off).
pub const RXSTEER_FORWARD: u32 = 32;

/// Settings. Set the whole structure to zero, then `size` to its sizeof. Zero selects the default of each field.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// sizeof(rxsteer_options). Fields beyond this size count as zero. Fields that the library does not know must be
    /// zero.
    pub size: usize,
    /// The policy: none, rps (the default), bound:…, sparse:…, rfs, rfs+sparse or one with +balance, as in the program
    /// rxsteer.
    pub policy: *const c_char,
    /// The CPUs that packets are steered to: a list such as 0-3,8. The default is all CPUs that this process may use. If it
    /// may not use one of them, no thread is pinned.
    pub cpus: *const c_char,
    /// How many packets may wait for one CPU, 1 to 1,048,576; the default is 1,000.
    pub max_backlog: u32,
    /// How many packets are decided on at once, 1 to 256; the default is 16 for each CPU, from 64 to 256.
    pub batch: u32,
    /// The sum of flags such as RXSTEER_DROP_WHEN_FULL.
    pub flags: u32,
    /// The interval in milliseconds, 1 to 3,600,000, at which each worker calls its handler with an empty list, also
    /// while no packet arrives. Use it for timeouts. The result is ignored, and a late call is not made up for. 0: never.
    pub tick_ms: u32,
    /// The CPUs that receive live interfaces: a list such as 0,2. Each RX queue has a thread, and the threads use these CPUs
    /// in turn. The default is `cpus`. If that is not set either and there are at least four CPUs for each RX queue, the
    /// first CPUs only receive, and packets are steered to the others.
    pub rx_cpus: *const c_char,
}

/// One packet. Its bytes may be read until the handler returns.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Packet {
    /// The captured bytes, starting with the link header. They can't be changed. With packet: a packet may be a segment that
    /// the kernel merged, of up to 64 KiB and more, and its checksum may not be computed yet.
    pub data: *const u8,
    /// When it was received, in nanoseconds since 1970 (CLOCK_REALTIME, which can step back).
    pub timestamp_ns: u64,
    /// The number of bytes at `data`.
    pub captured_len: u32,
    /// Its length on the wire in bytes, which may be larger.
    pub wire_len: u32,
    /// The flow hash that it was steered by; 0 if it has no flow.
    pub hash: u32,
    /// The RX queue that it arrived on.
    pub rx_queue: u16,
    /// The link type of `data`: a LINKTYPE_ number, 1 for Ethernet.
    pub link_type: u16,
    /// The interface that it arrived on: its number in the source's list, from 0. 0 for other sources.
    pub port: u16,
}

/// Packets of one CPU, oldest first.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct List {
    /// The size of this structure in the library. Fields beyond it do not exist.
    pub size: usize,
    /// The size of a packet in the library: access packets through rxsteer_packet_at, not by index.
    pub packet_size: usize,
    /// The packets; see `packet_size`.
    pub packets: *const Packet,
    /// The number of packets; 0 only for a tick, see `tick_ms` of the options.
    pub count: usize,
    /// The CPU whose worker processes them.
    pub cpu: u32,
    /// That worker's number, from 0 to rxsteer_workers() - 1: an index for the handler's data of each CPU.
    pub worker: u32,
    /// A verdict for each packet, RXSTEER_CONSUMED at first. The handler may write them; they apply if it returns
    /// RXSTEER_PER_PACKET.
    pub verdicts: *mut Verdict,
}

/// A function that processes the packets of a list on the list's CPU. Several workers call it at the same time, each with
/// packets of different flows. The lists of a flow come one after the other, in order. The function must return normally:
/// no longjmp, no C++ exception. The list and its packets are not valid after it has returned. Its result is the verdict for
/// all packets of the list, or RXSTEER_PER_PACKET.
pub type Handler = Option<unsafe extern "C" fn(user: *mut c_void, list: *const List) -> Verdict>;

/// The results of a run. Set `size` to its sizeof before rxsteer_get_report.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Report {
    /// sizeof(rxsteer_report). Fields that the library does not know are set to zero.
    pub size: usize,
    /// Packets received, both delivered and dropped.
    pub packets: u64,
    /// Their bytes on the wire.
    pub bytes: u64,
    /// Packets whose handler returned.
    pub delivered: u64,
    /// All packets dropped; the JSON report has them by reason.
    pub dropped: u64,
    /// Frames without an IP packet.
    pub not_ip: u64,
    /// Frames whose outermost IP header can't be read.
    pub malformed: u64,
    /// Packets processed out of order, if the order is checked: a bug of rxsteer.
    pub reordered: u64,
    /// How often a flow moved to another CPU, if the order is checked.
    pub moves: u64,
    /// Problems with the input, such as a truncated capture; the JSON report describes them.
    pub issues: u64,
    /// Workers that ended early.
    pub workers_lost: u64,
    /// Packets of a live interface that the kernel dropped because memory for them was full; not included in `packets`.
    pub kernel_drops: u64,
    /// Packets that the driver was given to send.
    pub sent: u64,
    /// Packets that the handler dropped (RXSTEER_DROP); included in `delivered`.
    pub refused: u64,
}
