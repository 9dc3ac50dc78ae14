//! Packet sockets with a ring of blocks (AF_PACKET, TPACKET_V3), read in place.
//!
//! The kernel fills the blocks of a ring in turn (net/packet/af_packet.c, `tpacket_rcv`, `prb_*`). A block that is full,
//! or older than the retire timeout, belongs to the process until its status is set back. Here that happens when the last
//! [`Lent`](crate::Lent) of the block is dropped, on any thread. So several blocks can be held at once, and return in any
//! order. However, the kernel takes them strictly in order: at a block that is still held it stops, and drops frames
//! until that block returns.
//!
//! Why not a crate: `netring` (0.28) lends one block at a time and `pcap` one frame, both bound to a borrow of the
//! socket. Neither lets other threads hold blocks.
//!
//! A VLAN tag that the kernel removed from the frame (`tp_vlan_tci`) is restored in place, as in libpcap: the two
//! addresses move into the free bytes before the frame.

pub use crate::filter::FilterInstruction;
use crate::filter::{EVERYTHING, NOTHING};
pub use crate::frames::{RingBlock, RingFrame, SEND_HEADER};
use crate::ring::Mapped;
use crate::sys;
use libc::{c_int, tpacket_req3, tpacket_stats_v3};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// A protocol that no frame has: a socket that is bound to it receives nothing.
const NO_PROTOCOL: u16 = 0xffff;

/// Options of a socket.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RingOptions {
    /// The size of a block in bytes, a multiple of the page size. Frames are cut off at slightly less.
    pub block_size: u32,
    /// The number of blocks.
    pub blocks: u32,
    /// After this time a block with a frame is handed over even if it is not full; whole milliseconds, at least 1.
    pub retire: Duration,
    /// Whether the interface receives frames for other addresses while the socket exists.
    pub promiscuous: bool,
    /// Whether the frames that this host sends are received, too.
    pub outgoing: bool,
    /// Whether the kernel adds its hash to each frame ([`RingFrame::hash`]).
    pub hash: bool,
    /// Whether to use the NIC's timestamps, if available.
    pub hardware_time: bool,
    /// A classic BPF program: frames for which it returns 0 are not received. Without instructions, all frames are
    /// received.
    pub filter: Vec<FilterInstruction>,
    /// Divides the frames among all sockets of the group.
    pub fanout: Option<Fanout>,
    /// Whether the kernel writes before each frame what a device must do before it sends the frame. Then
    /// [`ListSender`](crate::ListSender) can send it on, including merged segments.
    pub send_header: bool,
}

impl Default for RingOptions {
    /// 128 blocks of 256 KiB, handed over after 1 ms at the latest; frames of this host are not received.
    fn default() -> RingOptions {
        RingOptions {
            block_size: 256 * 1024,
            blocks: 128,
            retire: Duration::from_millis(1),
            promiscuous: false,
            outgoing: false,
            hash: false,
            hardware_time: false,
            filter: Vec::new(),
            fanout: None,
            send_header: false,
        }
    }
}

/// A group of sockets that share frames (packet(7), `PACKET_FANOUT`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fanout {
    /// The number of the group.
    pub group: u16,
    /// How frames are divided.
    pub by: FanoutBy,
}

/// How frames are divided among sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FanoutBy {
    /// The kernel's hash of the flow.
    Hash,
    /// The CPU that received the frame.
    Cpu,
    /// One socket until it is full, then the next.
    Rollover,
}

/// Why a socket could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PacketError {
    /// The interface does not exist.
    #[error("there is no interface '{0}' in this network namespace; `ip link` lists them")]
    NoInterface(String),
    /// The process lacks the capability.
    #[error(
        "packet sockets require the capability CAP_NET_RAW; run as root, or: setcap cap_net_raw+ep PROGRAM"
    )]
    Permission,
    /// There is no memory for the ring.
    #[error("can't allocate a ring of {} MiB ({error}); use fewer or smaller blocks", .bytes >> 20)]
    RingMemory {
        /// The size in bytes.
        bytes: u64,
        /// The kernel's error.
        #[source]
        error: io::Error,
    },
    /// The kernel refused the filter.
    #[error("the kernel refused the filter of {0} instructions: {1}")]
    Filter(usize, #[source] io::Error),
    /// Another call failed; holds its purpose.
    #[error("can't {0}: {1}")]
    System(&'static str, #[source] io::Error),
}

/// Keeps an interface in promiscuous mode, until this is dropped or the process ends.
#[derive(Debug)]
pub struct Promiscuous {
    _socket: OwnedFd,
}

impl Promiscuous {
    /// Makes the interface of this index receive frames for other addresses.
    ///
    /// # Errors
    /// [`PacketError`]; this requires CAP_NET_RAW.
    pub fn on(index: u32) -> Result<Promiscuous, PacketError> {
        let socket = open_socket()?;
        join_promiscuous(socket.as_fd(), index)?;
        Ok(Promiscuous { _socket: socket })
    }
}

fn open_socket() -> Result<OwnedFd, PacketError> {
    sys::packet_socket().map_err(|error| match error.raw_os_error() {
        Some(libc::EPERM) => PacketError::Permission,
        _ => PacketError::System("open a packet socket", error),
    })
}

fn join_promiscuous(socket: BorrowedFd<'_>, index: u32) -> Result<(), PacketError> {
    let membership = libc::packet_mreq {
        mr_ifindex: index as c_int,
        mr_type: libc::PACKET_MR_PROMISC as u16,
        mr_alen: 0,
        mr_address: [0; 8],
    };
    sys::set_option(socket, libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &membership)
        .map_err(|error| PacketError::System("use promiscuous mode", error))
}

/// The kernel's counts since they were last read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingCounts {
    /// Frames that passed the filter, including those dropped.
    pub packets: u64,
    /// Frames dropped because no block was free.
    pub drops: u64,
    /// How often the kernel found the next block still held.
    pub freezes: u64,
}

/// The result of a wait for frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waited {
    /// There may be a block.
    Ready,
    /// No frame arrived.
    TimedOut,
    /// The interface went down; it may come up again.
    Down,
    /// The interface is gone.
    Gone,
}

/// A packet socket and its ring.
#[derive(Debug)]
pub struct PacketSocket {
    // Declared before the ring, since the mapping itself keeps the socket alive.
    fd: OwnedFd,
    ring: Arc<Mapped>,
    index: u32,
    next: u32,
    has_fanout: bool,
    has_send_header: bool,
}

impl PacketSocket {
    /// Receives from the interface with this index.
    ///
    /// # Errors
    /// [`PacketError`] if the kernel refuses an operation.
    pub fn open(index: u32, options: &RingOptions) -> Result<PacketSocket, PacketError> {
        let mut socket = PacketSocket::prepare(index, options)?;
        socket.resume().map_err(|error| PacketError::System("bind to the interface", error))?;
        if let Some(fanout) = options.fanout {
            socket
                .join(fanout)
                .map_err(|error| PacketError::System("join the fanout group", error))?;
        }
        Ok(socket)
    }

    /// All steps except binding: the socket receives nothing yet.
    fn prepare(index: u32, options: &RingOptions) -> Result<PacketSocket, PacketError> {
        let fd = open_socket()?;
        let set = |name: c_int, value: c_int, purpose: &'static str| {
            sys::set_option(fd.as_fd(), libc::SOL_PACKET, name, &value)
                .map_err(|error| PacketError::System(purpose, error))
        };
        set(libc::PACKET_VERSION, libc::tpacket_versions::TPACKET_V3 as c_int, "use TPACKET_V3")?;
        if !options.outgoing {
            // Available since Linux 4.20.
            set(libc::PACKET_IGNORE_OUTGOING, 1, "leave out outgoing frames")?;
        }
        if options.hardware_time {
            let raw = libc::SOF_TIMESTAMPING_RAW_HARDWARE as c_int;
            set(libc::PACKET_TIMESTAMP, raw, "ask for the NIC's times")?;
        }
        if options.send_header {
            set(libc::PACKET_VNET_HDR, 1, "ask for what is needed to send frames on")?;
        }
        let bytes = u64::from(options.block_size) * u64::from(options.blocks);
        let no_memory = |error| PacketError::RingMemory { bytes, error };
        sys::set_option(fd.as_fd(), libc::SOL_PACKET, libc::PACKET_RX_RING, &request(options))
            .map_err(no_memory)?;
        let ring =
            Mapped::new(fd.as_fd(), options.block_size, options.blocks).map_err(no_memory)?;
        if !options.filter.is_empty() {
            sys::attach_filter(fd.as_fd(), &options.filter)
                .map_err(|error| PacketError::Filter(options.filter.len(), error))?;
        }
        let mut socket = PacketSocket {
            fd,
            ring: Arc::new(ring),
            index,
            next: 0,
            has_fanout: false,
            has_send_header: options.send_header,
        };
        socket.resume().map_err(|error| PacketError::System("bind to the interface", error))?;
        if options.promiscuous {
            join_promiscuous(socket.as_fd(), index)?;
        }
        Ok(socket)
    }

    fn join(&mut self, fanout: Fanout) -> io::Result<()> {
        let by = match fanout.by {
            FanoutBy::Hash => libc::PACKET_FANOUT_HASH,
            FanoutBy::Cpu => libc::PACKET_FANOUT_CPU,
            FanoutBy::Rollover => libc::PACKET_FANOUT_ROLLOVER,
        };
        let value = (u32::from(fanout.group) | by << 16) as c_int;
        sys::set_option(self.as_fd(), libc::SOL_PACKET, libc::PACKET_FANOUT, &value)?;
        self.has_fanout = true;
        Ok(())
    }

    /// Replaces the ring if the next block is held and the kernel waits for it ([`PacketSocket::is_stuck`]). Returns the
    /// old ring, whose blocks are still held, and the kernel's counts for it; `None` if the block has returned in the
    /// meantime. No count includes the frames that arrive between the two rings, for some microseconds.
    ///
    /// # Errors
    /// [`PacketError`] if the kernel refuses a second ring. Then the first one remains in use.
    pub fn replace_ring(
        &mut self,
        options: &RingOptions,
    ) -> Result<Option<(RingInUse, RingCounts)>, PacketError> {
        let system = |error| PacketError::System("replace a ring", error);
        let mut fresh = PacketSocket::prepare(self.index, options)?;
        // A filter takes effect at once. Binding again would wait for all readers in the kernel.
        sys::attach_filter(self.fd.as_fd(), &[NOTHING]).map_err(system)?;
        let bound = if self.is_stuck() { Some(fresh.resume()) } else { None };
        let Some(Ok(())) = bound else {
            let filter =
                if options.filter.is_empty() { &[EVERYTHING] } else { &options.filter[..] };
            sys::attach_filter(self.fd.as_fd(), filter).map_err(system)?;
            return bound.map_or(Ok(None), |bound| bound.map(|()| None).map_err(system));
        };
        let counts = self.counts().map_err(system)?;
        // The old ring stays while blocks of it are held, and must receive no frame in this time.
        self.pause().map_err(system)?;
        Ok(Some((std::mem::replace(self, fresh).ring(), counts)))
    }

    /// The next block that the kernel has handed over, if there is one.
    pub fn next_block(&mut self) -> Option<RingBlock> {
        let held = Mapped::take(&self.ring, self.next)?;
        self.next = (self.next + 1) % self.ring.blocks();
        Some(RingBlock::new(held, self.has_send_header))
    }

    /// Whether the block that the kernel must fill next is still held: then no frame arrives until it returns.
    #[must_use]
    pub fn is_stuck(&self) -> bool {
        self.ring.is_held(self.next)
    }

    /// The ring, to check whether blocks of it are held after the socket is dropped.
    fn ring(&self) -> RingInUse {
        RingInUse(Arc::downgrade(&self.ring))
    }

    /// Waits for a block, at most for `timeout`. While the last block that was handed over is held, this returns at once.
    ///
    /// # Errors
    /// If the system call fails.
    pub fn wait(&self, timeout: Duration) -> io::Result<Waited> {
        if !sys::poll_in(self.fd.as_fd(), timeout)? {
            return Ok(Waited::TimedOut);
        }
        Ok(match sys::take_error(self.fd.as_fd())? {
            0 => Waited::Ready,
            _ if !interface_exists(self.index) => Waited::Gone,
            _ => Waited::Down,
        })
    }

    /// Stops receiving. Frames in the ring stay there, and an open block is handed over after its timeout. (A member of a
    /// fanout group can't be bound again: it continues to receive.)
    ///
    /// # Errors
    /// If the system call fails.
    pub fn pause(&mut self) -> io::Result<()> {
        if self.has_fanout {
            return Ok(());
        }
        sys::bind_packet(self.fd.as_fd(), self.index, NO_PROTOCOL)
    }

    /// Receives again.
    ///
    /// # Errors
    /// If the system call fails.
    pub fn resume(&mut self) -> io::Result<()> {
        sys::bind_packet(self.fd.as_fd(), self.index, libc::ETH_P_ALL as u16)
    }

    /// The kernel's counts since the last call.
    ///
    /// # Errors
    /// If the system call fails.
    pub fn counts(&self) -> io::Result<RingCounts> {
        let counts: tpacket_stats_v3 =
            sys::packet_statistics(self.fd.as_fd(), libc::PACKET_STATISTICS)?;
        Ok(RingCounts {
            packets: counts.tp_packets.into(),
            drops: counts.tp_drops.into(),
            freezes: counts.tp_freeze_q_cnt.into(),
        })
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsRawFd for PacketSocket {
    fn as_raw_fd(&self) -> c_int {
        self.fd.as_raw_fd()
    }
}

/// A ring that may outlive its socket.
#[derive(Clone, Debug)]
pub struct RingInUse(Weak<Mapped>);

impl RingInUse {
    /// Whether its memory still exists: the socket is open, or a block is held.
    #[must_use]
    pub fn is_in_use(&self) -> bool {
        self.0.strong_count() != 0
    }
}

fn request(options: &RingOptions) -> tpacket_req3 {
    // Frames of TPACKET_V3 have no fixed size; the kernel only requires that the numbers fit.
    const FRAME: u32 = 2048;
    tpacket_req3 {
        tp_block_size: options.block_size,
        tp_block_nr: options.blocks,
        tp_frame_size: FRAME,
        tp_frame_nr: options.block_size / FRAME * options.blocks,
        tp_retire_blk_tov: u32::try_from(options.retire.as_millis()).unwrap_or(u32::MAX).max(1),
        tp_sizeof_priv: 0,
        tp_feature_req_word: if options.hash { libc::TP_FT_REQ_FILL_RXHASH } else { 0 },
    }
}

/// The index of the interface with this name.
///
/// # Errors
/// [`PacketError::NoInterface`], with the name as given.
pub fn interface_index(name: &str) -> Result<u32, PacketError> {
    sys::interface_index(name).ok_or_else(|| PacketError::NoInterface(name.to_owned()))
}

/// Whether the network namespace has an interface with this index.
#[must_use]
pub fn interface_exists(index: u32) -> bool {
    sys::interface_name(index).is_some()
}

/// The link type of an interface, as the kernel's number (linux/if_arp.h, `ARPHRD_*`).
///
/// # Errors
/// If the interface is gone.
pub fn interface_type(name: &str) -> io::Result<u16> {
    sys::interface_type(name)
}

/// The MTU of an interface in bytes.
///
/// # Errors
/// If the interface is gone.
pub fn interface_mtu(name: &str) -> io::Result<u32> {
    sys::interface_mtu(name)
}
