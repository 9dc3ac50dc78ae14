//! What C programs see. Fields are only ever added at the end: whoever reads or writes a structure goes by its size.

use std::ffi::{c_char, c_void};

/// What becomes of the packets of a list. Only RXSTEER_CONSUMED is known; all other values are kept for later versions, and
/// end the run with an error.
pub type Verdict = u32;

/// The packets were processed. They count as delivered.
pub const RXSTEER_CONSUMED: Verdict = 0;

/// A packet whose CPU is behind is dropped and counted. Without this flag receiving waits, so that a capture loses nothing;
/// of a live interface the kernel then drops packets (kernel_drops).
pub const RXSTEER_DROP_WHEN_FULL: u32 = 1;
/// Threads are not pinned to their CPUs.
pub const RXSTEER_NO_PIN: u32 = 2;
/// The order is checked on the workers, and flows and moves are counted; costs a table lookup for each packet.
pub const RXSTEER_CHECK_ORDER: u32 = 4;
/// Flows are those inside of tunnels (IPIP, GRE, VXLAN, Geneve, GTP-U).
pub const RXSTEER_LOOK_INTO_TUNNELS: u32 = 8;
/// A live interface also receives frames for other hosts, as at a mirror port. It ends with the source.
pub const RXSTEER_PROMISCUOUS: u32 = 16;

/// How packets are steered. Set all of it to zero, then `size` to its sizeof; zero means the default everywhere.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// sizeof(rxsteer_options). Fields that a program does not know are zero; what this library does not know has to be zero.
    pub size: usize,
    /// none, rps (the default), bound:…, sparse:…, rfs, rfs+sparse or one with +balance, as the program rxsteer reads it.
    pub policy: *const c_char,
    /// The CPUs that packets are steered to: a list such as 0-3,8. By default those that this process may use.
    pub cpus: *const c_char,
    /// Packets that may wait for one CPU, 1 to 1,048,576; the default is 1,000.
    pub max_backlog: u32,
    /// Packets that are decided at once, 1 to 256; the default is 16 for each CPU, from 64 to 256.
    pub batch: u32,
    /// RXSTEER_DROP_WHEN_FULL and the others, added up.
    pub flags: u32,
    /// Calls the handler of each worker about every so many milliseconds, 1 to 3,600,000, with a list of no packets, also while no
    /// packet arrives: the place for timeouts. 0: never.
    pub tick_ms: u32,
}

/// One packet. Its bytes may be read until the handler returns.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Packet {
    /// The captured bytes, from the link header on.
    pub data: *const u8,
    /// When it was received, in nanoseconds since 1970.
    pub timestamp_ns: u64,
    /// How many bytes there are at `data`.
    pub captured_len: u32,
    /// Its length on the wire, in bytes, which may be more.
    pub wire_len: u32,
    /// The flow hash that it was steered by; 0 if it has no flow.
    pub hash: u32,
    /// The RX queue that it arrived on.
    pub rx_queue: u16,
    /// How `data` begins: a LINKTYPE_ number, 1 for Ethernet.
    pub link_type: u16,
}

/// Packets of one CPU, oldest first.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct List {
    /// The size of this structure in the library; fields beyond it are not there.
    pub size: usize,
    /// The size of a packet in the library: take packets by rxsteer_packet_at, not by index.
    pub packet_size: usize,
    /// The packets; see `packet_size`.
    pub packets: *const Packet,
    /// How many packets there are; 0 only for a tick, see `tick_ms` of the options.
    pub count: usize,
    /// The CPU whose worker processes them.
    pub cpu: u32,
    /// That worker's number, from 0 to rxsteer_workers() - 1: an index for what a handler keeps for each CPU.
    pub worker: u32,
}

/// A function that processes the packets of a list on the list's CPU. Workers call it at the same time, each with packets of
/// its own flows; a flow's lists come one after the other, in order. It must return: no longjmp, no C++ exception. The list
/// and its packets are gone when it has returned.
pub type Handler = Option<unsafe extern "C" fn(user: *mut c_void, list: *const List) -> Verdict>;

/// What a run did. Set `size` to its sizeof before rxsteer_get_report.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Report {
    /// sizeof(rxsteer_report). Fields that the library does not know become zero.
    pub size: usize,
    /// Packets received: delivered and dropped together.
    pub packets: u64,
    /// Their bytes on the wire.
    pub bytes: u64,
    /// Packets whose handler returned.
    pub delivered: u64,
    /// Packets dropped, for whatever reason; the JSON report has them by reason.
    pub dropped: u64,
    /// Frames that carry no IP packet.
    pub not_ip: u64,
    /// Frames whose outermost IP header can't be read.
    pub malformed: u64,
    /// Packets processed out of order, where that is checked: a bug of rxsteer.
    pub reordered: u64,
    /// Times a flow went to another CPU than before, where order is checked.
    pub moves: u64,
    /// Things that were wrong with the input, such as a capture that is cut short; the JSON report has them in words.
    pub issues: u64,
    /// Workers that ended early.
    pub workers_lost: u64,
    /// Packets of a live interface that the kernel dropped, since memory for them was full; not in `packets`.
    pub kernel_drops: u64,
}
