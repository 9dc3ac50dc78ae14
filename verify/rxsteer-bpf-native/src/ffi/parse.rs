//! The functions of `shim_parse.c`.

use crate::abi;
use rxsteer_core::{FlowKey, FlowWords};
use rxsteer_packet::{DissectOptions, HashWords};

/// The C parser's classification of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// The frame has an IP header that can be read.
    Ip,
    /// The frame does not claim to carry IP.
    NotIp,
    /// The frame claims to carry IP, but its IP header cannot be read.
    Malformed,
}

/// The C parser's result for a frame: `struct steer_packet`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Packet {
    /// The hash of the steering key; 0: no flow.
    pub hash: u32,
    /// The number of its [`Class`].
    pub class: u8,
    /// The TCP flags; 0 without a complete TCP header.
    pub tcp_flags: u8,
    /// Whether `key` is filled.
    pub has_key: u8,
    /// Bits of what was found: whether ports were read, and the kind of the outermost tunnel above.
    pub found: u8,
    /// The flow's addresses, or a fold of them.
    pub addresses: u64,
    /// The flow's ports, protocol and IP version, as in [`FlowWords`]; 0: no flow.
    pub rest: u64,
    /// The id of the outermost VLAN tag, and 0x1000; 0: the frame has no tag.
    pub vlan: u16,
    /// The offset of the flow's IP header.
    pub ip_offset: u16,
    /// The number of the outermost tunnel, if it is requested and there is one.
    pub tunnel: u32,
    /// The flow.
    pub key: FlowKey,
}

const _: () = assert!(size_of::<Packet>() == abi::SIZE_OF_PACKET as usize);

#[link(name = "rxsteer_bpf_native")]
unsafe extern "C" {
    fn native_parse(
        bytes: *const u8,
        length: u32,
        in_place: *mut u8,
        linear: u32,
        options: i32,
        words: *const HashWords,
        packet: *mut Packet,
    );
    fn native_is_reversed(packet: *const Packet) -> u32;
    fn native_hash_ipv4(
        words: *const HashWords,
        src: u32,
        sport: u16,
        dst: u32,
        dport: u16,
        protocol: u8,
    ) -> u32;
    fn native_hash_ipv6(
        words: *const HashWords,
        src: *const [u64; 2],
        sport: u16,
        dst: *const [u64; 2],
        dport: u16,
        protocol: u8,
    ) -> u32;
}

impl Packet {
    /// The class of the frame; `None` if the C code wrote an undefined number.
    #[must_use]
    pub fn class(&self) -> Option<Class> {
        match self.class.into() {
            abi::STEER_IP => Some(Class::Ip),
            abi::STEER_NOT_IP => Some(Class::NotIp),
            abi::STEER_MALFORMED => Some(Class::Malformed),
            _ => None,
        }
    }

    /// The flow, from the key if there is one, otherwise from `addresses` and `rest`.
    #[must_use]
    pub fn flow(&self) -> Option<FlowKey> {
        if self.has_key == 1 {
            return Some(self.key);
        }
        let (src, dst) = (self.addresses & 0xffff_ffff, self.addresses >> 32);
        (self.rest != 0).then(|| FlowWords([src, 0, dst, 0, self.rest]).key())
    }
}

impl Packet {
    /// Whether the source address is above the destination address, for a packet that has a flow.
    #[must_use]
    pub fn is_reversed(&self) -> bool {
        // SAFETY: it lives until the call is over, and the layout is the same on both sides.
        unsafe { native_is_reversed(self) != 0 }
    }
}

/// More bytes than the parser reads in place.
const IN_PLACE: usize = 128;

/// The options in the form of `enum steer_options`; with `numbers`, the number of the outermost tunnel is read.
#[must_use]
pub fn parse_options(options: DissectOptions, numbers: bool) -> i32 {
    let inner = if options.inner { abi::STEER_INNER } else { 0 };
    let numbers = if numbers { abi::STEER_NUMBERS } else { 0 };
    (inner | numbers) as i32 | i32::from(options.key_tunnels.bits())
}

/// The result of `steer_parse()` for a frame whose first `linear` bytes can be read in place. `options` are those of
/// [`parse_options`].
///
/// # Panics
///
/// If the frame has more than 4 GiB.
#[must_use]
pub fn parse(frame: &[u8], linear: usize, options: i32, words: &HashWords) -> Packet {
    let mut packet = Packet::default();
    // A copy followed by other bytes, so that reading past its end changes the result.
    let mut in_place = [0xa5; IN_PLACE];
    let linear = linear.min(frame.len()).min(IN_PLACE);
    in_place[..linear].copy_from_slice(&frame[..linear]);
    let length = u32::try_from(frame.len()).expect("no frame has 4 GiB");
    // SAFETY: all that is pointed to lives until the call is over, the lengths are those of the
    // bytes (`linear` is IN_PLACE at most), and the layouts are the same on both sides.
    unsafe {
        native_parse(
            frame.as_ptr(),
            length,
            in_place.as_mut_ptr(),
            linear as u32,
            options,
            words,
            &raw mut packet,
        );
    }
    packet
}

/// The hash of a flow as the socket programs compute it; 0 for the default key.
#[must_use]
pub fn hash(key: &FlowKey, words: &HashWords) -> u32 {
    let number = |address: [u8; 16]| {
        let number = u128::from_be_bytes(address);
        [(number >> 64) as u64, number as u64]
    };
    let (src, dst) = (number(key.src), number(key.dst));
    let FlowKey { src_port, dst_port, protocol, .. } = *key;
    // SAFETY: numbers, and pointers to what lives until the call is over.
    unsafe {
        match key.ip_version {
            4 => {
                let (src, dst) = ((src[0] >> 32) as u32, (dst[0] >> 32) as u32);
                native_hash_ipv4(words, src, src_port, dst, dst_port, protocol)
            }
            6 => native_hash_ipv6(
                words,
                &raw const src,
                src_port,
                &raw const dst,
                dst_port,
                protocol,
            ),
            _ => 0,
        }
    }
}
