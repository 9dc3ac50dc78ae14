//! The counts of one flow on one CPU: one cache line, written by that CPU alone.
//!
//! ```text
//!  word 0     1                  2        3      4      5     6              7
//!       seq   stamp | flags      packets  bytes  first  last  packets before  last before
//! ```
//!
//! A reader takes all words of a block as of one moment, though its CPU goes on writing: `seq` is
//! odd while it writes, and the reader starts over when it is, or when it changed meanwhile (a
//! seqlock: Boehm, "Can seqlocks get along with programming language memory models?", MSPC '12,
//! section 5). So totals never tear, and the writer never waits.
//!
//! `stamp` is the flow's: clearing a flow changes the stamp in its head, and a block that has
//! another one counts nothing until its CPU starts it over. So a clear leaves no CPU out, and
//! visits none. What was before is kept in the last two words: how old and how busy a flow is, is no
//! matter of counts.

use crate::aging::Activity;
use crate::lines::Line;
use crate::record::{FlowTotals, Sample};
use crate::sync::{Ordering, fence, load_own, wait_a_little};

const SEQ: usize = 0;
const TAG: usize = 1;
const PACKETS: usize = 2;
const BYTES: usize = 3;
const FIRST: usize = 4;
const LAST: usize = 5;
const PACKETS_BEFORE: usize = 6;
const LAST_BEFORE: usize = 7;

fn tag(stamp: u32, tcp_flags: u8) -> u64 {
    u64::from(stamp) << 32 | u64::from(tcp_flags)
}

/// Whether the block counts what came since the flow's last clear.
#[inline(always)]
pub(crate) fn is_of(block: &Line, stamp: u32) -> bool {
    // ORDER: Relaxed, as all reads of its own block by the CPU that writes it.
    (block[TAG].load(Ordering::Relaxed) >> 32) as u32 == stamp
}

/// The latest time since the last clear, or before it if nothing came since.
#[inline(always)]
pub(crate) fn last_ns(block: &Line) -> u64 {
    // ORDER: Relaxed; one number, and an old one will do.
    block[LAST].load(Ordering::Relaxed)
}

/// Packets and the latest time, also of what was cleared, of a block that is of this flow. Not as of
/// one moment.
pub(crate) fn ever(block: &Line) -> Activity {
    // ORDER: Relaxed, as above.
    let load = |word: usize| block[word].load(Ordering::Relaxed);
    Activity {
        packets: load(PACKETS).wrapping_add(load(PACKETS_BEFORE)),
        last_ns: load(LAST).max(load(LAST_BEFORE)),
    }
}

/// Counts a packet in a block that is of the flow's stamp. To be called by the one who writes it.
#[inline(always)]
pub(crate) fn add(block: &Line, packet: &Sample) {
    let seq = begin(block);
    count(block, packet);
    end(block, seq);
}

/// Starts a block with its first packet of a flow. To be called by the one who writes it.
pub(crate) fn start(block: &Line, stamp: u32, packet: &Sample) {
    let seq = begin(block);
    for word in [PACKETS_BEFORE, LAST_BEFORE] {
        // ORDER: Relaxed; between `begin` and `end`.
        block[word].store(0, Ordering::Relaxed);
    }
    count_first(block, stamp, packet);
    end(block, seq);
}

/// Starts a block over after a clear. To be called by the one who writes it.
pub(crate) fn start_over(block: &Line, stamp: u32, packet: &Sample) {
    let before = ever(block);
    let seq = begin(block);
    // ORDER: Relaxed; between `begin` and `end`.
    block[PACKETS_BEFORE].store(before.packets, Ordering::Relaxed);
    block[LAST_BEFORE].store(before.last_ns, Ordering::Relaxed);
    count_first(block, stamp, packet);
    end(block, seq);
}

/// Counts a packet in the flow's shared block, which several CPUs write. The odd number is their
/// lock; it is held for a dozen instructions, and only by CPUs that got no block of their own.
/// `stamp` gives the flow's stamp.
#[cold]
pub(crate) fn add_shared(block: &Line, stamp: impl FnOnce() -> u32, packet: &Sample) {
    let mut waited = 0;
    let seq = loop {
        let seq = block[SEQ].load(Ordering::Relaxed);
        // ORDER: Acquire; pairs with the Release in `end`, so that the counts of whoever had the
        // lock before are seen and added to.
        if seq & 1 == 0
            && block[SEQ]
                .compare_exchange(seq, seq + 1, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
        {
            break seq + 1;
        }
        wait_a_little(&mut waited);
    };
    // ORDER: as in `begin`.
    fence(Ordering::Release);
    // The stamp as of now: with one from before a clear, the packets that others counted here since
    // would be thrown away.
    let stamp = stamp();
    if is_of(block, stamp) {
        count(block, packet);
    } else {
        count_first(block, stamp, packet);
    }
    end(block, seq);
}

/// Makes readers start over; returns the odd number.
#[inline(always)]
fn begin(block: &Line) -> u64 {
    // ORDER: Relaxed; no other thread writes it. The fence keeps the stores that follow behind the
    // odd number: it pairs with the fence in `read`. A block that comes from the pool may hold any
    // number.
    let odd = load_own(&block[SEQ]) | 1;
    block[SEQ].store(odd, Ordering::Relaxed);
    fence(Ordering::Release);
    odd
}

/// Lets readers read what was written.
#[inline(always)]
fn end(block: &Line, odd: u64) {
    // ORDER: Release; pairs with the Acquire in `read` and in `add_shared`.
    block[SEQ].store(odd.wrapping_add(1), Ordering::Release);
}

#[inline(always)]
fn count(block: &Line, packet: &Sample) {
    // ORDER: Relaxed; between `begin` and `end`.
    let load = |word: usize| load_own(&block[word]);
    let store = |word: usize, value| block[word].store(value, Ordering::Relaxed);
    store(TAG, load(TAG) | u64::from(packet.tcp_flags));
    store(PACKETS, load(PACKETS) + 1);
    store(BYTES, load(BYTES) + u64::from(packet.bytes));
    if packet.time_ns > load(LAST) {
        store(LAST, packet.time_ns);
    } else if packet.time_ns < load(FIRST) {
        store(FIRST, packet.time_ns);
    }
}

fn count_first(block: &Line, stamp: u32, packet: &Sample) {
    // ORDER: Relaxed; between `begin` and `end`.
    let store = |word: usize, value| block[word].store(value, Ordering::Relaxed);
    store(TAG, tag(stamp, packet.tcp_flags));
    store(PACKETS, 1);
    store(BYTES, u64::from(packet.bytes));
    store(FIRST, packet.time_ns);
    store(LAST, packet.time_ns);
}

/// What the block counts since the flow's last clear, all of it as of one moment.
pub(crate) fn read(block: &Line, stamp: u32) -> FlowTotals {
    let mut waited = 0;
    loop {
        // ORDER: Acquire; pairs with the Release in `end`: what was written before is seen.
        let seq = block[SEQ].load(Ordering::Acquire);
        if seq & 1 == 0 {
            let load = |word: usize| block[word].load(Ordering::Relaxed);
            let tag = load(TAG);
            let totals = FlowTotals {
                packets: load(PACKETS),
                bytes: load(BYTES),
                tcp_flags: tag as u8,
                first_ns: load(FIRST),
                last_ns: load(LAST),
            };
            // ORDER: Acquire; pairs with the fence in `begin`: if any word above is of a later
            // round, its odd number is seen here.
            fence(Ordering::Acquire);
            if block[SEQ].load(Ordering::Relaxed) == seq {
                let is_of = (tag >> 32) as u32 == stamp;
                return if is_of { totals } else { FlowTotals::default() };
            }
        }
        wait_a_little(&mut waited);
    }
}
