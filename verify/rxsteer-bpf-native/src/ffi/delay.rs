//! Delays of sampled frames: `steer_delay.h`, through `shim_policy.c`.

use crate::abi;

/// When sampled frames of one pair were sent: `struct steer_sent`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Sent([u64; abi::STEER_SENT_WORDS as usize]);

#[link(name = "rxsteer_bpf_native")]
unsafe extern "C" {
    fn native_delay_is_sampled(seq: u32) -> u32;
    fn native_delay_note_sent(sent: *mut Sent, dequeued: u32, seq: u32, now: u64);
    fn native_delay_of(sent: *const Sent, seq: u32, now: u64) -> i64;
    fn native_delay_bucket(delay: u64) -> u32;
}

/// Whether the frame with this sequence number is sampled.
#[must_use]
pub fn is_sampled(seq: u32) -> bool {
    // SAFETY: a number in, a number out.
    unsafe { native_delay_is_sampled(seq) != 0 }
}

/// The bucket that counts a delay in nanoseconds.
#[must_use]
pub fn bucket(delay: u64) -> u32 {
    // SAFETY: a number in, a number out.
    unsafe { native_delay_bucket(delay) }
}

impl Sent {
    /// Notes that the sampled frame `seq` is sent at time `now`; the ring's thread has last seen `dequeued`.
    pub fn note(&mut self, dequeued: u32, seq: u32, now: u64) {
        // SAFETY: it lives until the call is over, and the layout is the same on both sides.
        unsafe { native_delay_note_sent(self, dequeued, seq, now) }
    }

    /// The delay of the sampled frame `seq`, which arrives at time `now`, if it is known.
    #[must_use]
    pub fn delay_of(&self, seq: u32, now: u64) -> Option<u64> {
        // SAFETY: as above.
        u64::try_from(unsafe { native_delay_of(self, seq, now) }).ok()
    }
}
