//! Sequence numbers that frames carry: `steer_seq.h`, through `shim_parse.c`.

use crate::abi;

/// Entries of the table of addresses.
const PLACES: usize = abi::STEER_ADDRESSES as usize;

/// A frame's number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Number {
    /// Its sequence number among the frames from `rx_cpu` to `ring`.
    pub seq: u32,
    /// The CPU that sent it, below [`abi::STEER_MAX_CPUS`].
    pub rx_cpu: u32,
    /// The ring that it was sent to: CPU and generation.
    pub ring: u32,
}

/// The table of addresses that both sides use.
#[derive(Debug)]
pub struct Addresses(Box<[u64; PLACES]>);

impl Default for Addresses {
    fn default() -> Self {
        Self(Box::new([0; PLACES]))
    }
}

#[link(name = "rxsteer_bpf_native")]
unsafe extern "C" {
    fn native_encode_seq(
        bytes: *mut u8,
        length: u32,
        addresses: *mut u64,
        number: *const [u32; 3],
    ) -> i32;
    fn native_decode_seq(
        bytes: *mut u8,
        length: u32,
        addresses: *const u64,
        number: *mut [u32; 3],
    ) -> i32;
}

impl Addresses {
    /// Writes the number into the frame, if it can carry one.
    pub fn encode_seq(&mut self, frame: &mut [u8], number: Number) -> bool {
        let number = [number.seq, number.rx_cpu, number.ring];
        let length = frame.len() as u32;
        // SAFETY: all that is pointed to lives until the call is over, with the lengths that are said.
        unsafe {
            native_encode_seq(frame.as_mut_ptr(), length, self.0.as_mut_ptr(), &raw const number)
                != 0
        }
    }

    /// Removes the number from the frame, if it carries one.
    pub fn decode_seq(&self, frame: &mut [u8]) -> Option<Number> {
        let mut number = [0; 3];
        let length = frame.len() as u32;
        // SAFETY: as above.
        let carries = unsafe {
            native_decode_seq(frame.as_mut_ptr(), length, self.0.as_ptr(), &raw mut number)
        };
        let [seq, rx_cpu, ring] = number;
        (carries != 0).then_some(Number { seq, rx_cpu, ring })
    }
}
