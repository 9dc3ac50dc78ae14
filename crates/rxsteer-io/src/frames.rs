//! The frames in a block of a packet socket's ring, and their VLAN tags.

use crate::lent::Lent;
use crate::ring::Held;
use libc::tpacket3_hdr;
use std::ptr::NonNull;
use std::sync::Arc;

/// The layout of a frame in a block: its header, then a `sockaddr_ll`, then free bytes, then the frame.
const ADDRESS: usize = size_of::<tpacket3_hdr>().next_multiple_of(libc::TPACKET_ALIGNMENT);
const BEFORE_FREE: usize = ADDRESS + size_of::<libc::sockaddr_ll>();
/// Offset of `sll_pkttype`.
const PACKET_TYPE: usize = 10;
/// `TP_STATUS_GSO_TCP`, since Linux 5.19: segments of TCP merged into one frame.
const TP_STATUS_GSO_TCP: u32 = 1 << 8;
const VLAN_TAG: usize = 4;
const ADDRESSES: usize = 12;
/// The size of the header that the kernel writes before each frame if requested
/// ([`crate::packet::RingOptions::send_header`]): `struct virtio_net_hdr`. It describes what a device must do before it
/// sends the frame. [`crate::ListSender`] accepts it.
pub const SEND_HEADER: usize = 10;
/// In this header: the flag that the checksum must be filled in, and the offsets of its fields.
const NEEDS_CHECKSUM: u8 = 1;
const HEADERS_LEN: usize = 2;
const CHECKSUM_START: usize = 6;

/// The description of a frame in a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RingFrame {
    /// Its offset in [`RingBlock::lent`].
    pub offset: u32,
    /// Bytes captured.
    pub len: u32,
    /// Its original length in bytes, which is larger if the frame was cut off.
    pub wire_len: u32,
    /// When it was received, in nanoseconds since 1970.
    pub time_ns: u64,
    /// Whether that time comes from the NIC.
    pub hardware_time: bool,
    /// The kernel's hash of its flow if requested; else 0.
    pub hash: u32,
    /// A device must still fill in its transport checksum: the frame comes from this host.
    pub checksum_not_ready: bool,
    /// The kernel or the NIC has verified its transport checksum.
    pub checksum_valid: bool,
    /// TCP segments that were merged (GRO) or not yet split.
    pub merged: bool,
    /// It was sent by this host.
    pub outgoing: bool,
    /// The tag control information of a VLAN tag that was removed from the frame and could not be restored.
    pub vlan_lost: Option<u16>,
    /// Whether the [`SEND_HEADER`] bytes before it describe how to send it.
    pub has_send_header: bool,
}

/// A block that the kernel has handed over. It returns to the kernel when this and everything [`Lent`] from it are
/// dropped.
#[derive(Debug)]
pub struct RingBlock {
    held: Arc<Held>,
    /// The offset of the next frame's header, and the number of frames left.
    next: usize,
    left: u32,
    used: u32,
    has_send_header: bool,
}

impl RingBlock {
    pub(crate) fn new(held: Arc<Held>, has_send_header: bool) -> RingBlock {
        let header = held.header();
        RingBlock {
            has_send_header,
            next: header.offset_to_first_pkt as usize,
            left: header.num_pkts,
            used: header.blk_len,
            held,
        }
    }

    /// How many frames [`RingBlock::next_frame`] can still return.
    #[must_use]
    pub fn frames_left(&self) -> u32 {
        self.left
    }

    /// How much of the block is used, in bytes.
    #[must_use]
    pub fn used(&self) -> u32 {
        self.used
    }

    /// The size of the block, in bytes.
    #[must_use]
    pub fn size(&self) -> u32 {
        self.held.bytes().1 as u32
    }

    /// The block's memory, for reading its frames.
    #[must_use]
    pub fn lent(&self) -> Lent {
        let (start, len) = self.held.bytes();
        // SAFETY: `held` keeps the memory mapped and the kernel away from it. `next_frame` writes only before the frame
        // that it returns, in bytes of no frame that was returned before.
        unsafe { Lent::new(start, len, self.held.clone()) }
    }

    /// Returns the next frame, with its VLAN tag restored.
    pub fn next_frame(&mut self) -> Option<RingFrame> {
        if self.left == 0 {
            return None;
        }
        let (start, len) = self.held.bytes();
        let at = self.next;
        // The kernel's offsets are correct. A damaged block ends here, so that no other memory is read.
        if !at.is_multiple_of(align_of::<tpacket3_hdr>()) || at.checked_add(BEFORE_FREE)? > len {
            self.left = 0;
            return None;
        }
        // SAFETY: the header lies within the block, aligned, and the kernel does not write a block that is held.
        let header = unsafe { start.add(at).cast::<tpacket3_hdr>().read() };
        // SAFETY: as above; the byte lies in the address after the header.
        let packet_type = unsafe { start.add(at + ADDRESS + PACKET_TYPE).read() };
        self.left -= 1;
        self.next = at + header.tp_next_offset as usize;
        let mut frame = RingFrame {
            offset: (at + usize::from(header.tp_mac)) as u32,
            len: header.tp_snaplen,
            wire_len: header.tp_len,
            time_ns: u64::from(header.tp_sec) * 1_000_000_000 + u64::from(header.tp_nsec),
            hardware_time: header.tp_status & libc::TP_STATUS_TS_RAW_HARDWARE != 0,
            hash: header.hv1.tp_rxhash,
            checksum_not_ready: header.tp_status & libc::TP_STATUS_CSUMNOTREADY != 0,
            checksum_valid: header.tp_status & libc::TP_STATUS_CSUM_VALID != 0,
            merged: header.tp_status & TP_STATUS_GSO_TCP != 0,
            outgoing: packet_type == libc::PACKET_OUTGOING,
            vlan_lost: None,
            has_send_header: self.has_send_header,
        };
        let beyond = u64::from(frame.offset) + u64::from(frame.len) > len as u64;
        let before = BEFORE_FREE + if self.has_send_header { SEND_HEADER } else { 0 };
        if beyond || usize::from(header.tp_mac) < before {
            self.left = 0;
            return None;
        }
        if header.tp_status & libc::TP_STATUS_VLAN_VALID != 0 {
            let has_room = usize::from(header.tp_mac) >= before + VLAN_TAG;
            if has_room && frame.len as usize >= ADDRESSES {
                put_back_tag(start, &mut frame, &header);
            } else {
                frame.vlan_lost = Some(header.hv1.tp_vlan_tci as u16);
            }
        }
        Some(frame)
    }
}

/// Moves the addresses of `frame` into the free bytes before it, and writes the tag after them.
fn put_back_tag(block: NonNull<u8>, frame: &mut RingFrame, header: &tpacket3_hdr) {
    // A kernel before 3.14 does not report the protocol; then it is 802.1Q.
    let has_protocol = header.tp_status & libc::TP_STATUS_VLAN_TPID_VALID != 0;
    let protocol = if has_protocol { header.hv1.tp_vlan_tpid } else { libc::ETH_P_8021Q as u16 };
    let mut tag = [0; VLAN_TAG];
    tag[..2].copy_from_slice(&protocol.to_be_bytes());
    tag[2..].copy_from_slice(&(header.hv1.tp_vlan_tci as u16).to_be_bytes());
    let old = frame.offset as usize;
    frame.offset -= VLAN_TAG as u32;
    frame.len += VLAN_TAG as u32;
    frame.wire_len += VLAN_TAG as u32;
    let new = frame.offset as usize;
    if frame.has_send_header {
        move_send_header(block, old, new);
    }
    // SAFETY: the caller has checked that both places lie in the block, between the frame's address and its end. No
    // reference to them exists: the frame has not been returned yet, and the bytes before it are of no frame.
    unsafe {
        std::ptr::copy(block.add(old).as_ptr(), block.add(new).as_ptr(), ADDRESSES);
        std::ptr::copy_nonoverlapping(tag.as_ptr(), block.add(new + ADDRESSES).as_ptr(), VLAN_TAG);
    }
}

/// Moves the header that precedes the frame at `old` to before `new`, where the frame begins now, longer by a VLAN tag.
fn move_send_header(block: NonNull<u8>, old: usize, new: usize) {
    let mut header = [0; SEND_HEADER];
    // SAFETY: the caller has checked that the header before both places lies in the block, after the frame's address.
    unsafe {
        let from = block.add(old - SEND_HEADER).as_ptr();
        std::ptr::copy_nonoverlapping(from, header.as_mut_ptr(), SEND_HEADER);
    }
    let longer = |header: &mut [u8; SEND_HEADER], at: usize| {
        let value = u16::from_ne_bytes([header[at], header[at + 1]]);
        let value = value.saturating_add(VLAN_TAG as u16);
        header[at..at + 2].copy_from_slice(&value.to_ne_bytes());
    };
    if header[0] & NEEDS_CHECKSUM != 0 {
        longer(&mut header, CHECKSUM_START);
    }
    if header[HEADERS_LEN..HEADERS_LEN + 2] != [0, 0] {
        longer(&mut header, HEADERS_LEN);
    }
    // SAFETY: as above; no reference to those bytes exists.
    unsafe {
        let to = block.add(new - SEND_HEADER).as_ptr();
        std::ptr::copy_nonoverlapping(header.as_ptr(), to, SEND_HEADER);
    }
}
