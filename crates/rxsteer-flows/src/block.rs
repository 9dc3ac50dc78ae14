//! The counts of one flow on one CPU: one cache line, which that CPU alone writes.
//!
//! ```text
//!  word 0     1                  2        3      4      5     6              7
//!       seq   stamp | marks      packets  bytes  first  last  packets before  last before
//! ```
//!
//! A reader reads all words of a block as of one moment, although the CPU may keep writing. `seq` is odd during a
//! write. The reader starts over when `seq` is odd or when `seq` changed meanwhile (a seqlock: Boehm, "Can
//! seqlocks get along with programming language memory models?", MSPC '12, section 5). So totals never tear, and
//! the writer never waits.
//!
//! `stamp` is the flow's stamp. Clearing a flow changes the stamp in its head. A block with another stamp counts
//! as zero until its CPU starts it over. So a clear takes effect on every CPU and visits none. The last two words
//! keep the values from before the clear, since a clear does not change the age and the activity of a flow.

use crate::aging::Activity;
use crate::lines::Line;
use crate::record::{self, FlowTotals, Sample};
use crate::sync::{Ordering, fence, load_own, wait_a_little};

const SEQ: usize = 0;
const TAG: usize = 1;
const PACKETS: usize = 2;
const BYTES: usize = 3;
const FIRST: usize = 4;
const LAST: usize = 5;
const PACKETS_BEFORE: usize = 6;
const LAST_BEFORE: usize = 7;

/// The marks are those of the first packet, with the TCP flags of all.
fn tag(stamp: u32, marks: u32) -> u64 {
    u64::from(stamp) << 32 | u64::from(marks)
}

/// Whether the block counts the packets since the flow's last clear.
#[inline(always)]
pub(crate) fn is_of(block: &Line, stamp: u32) -> bool {
    // ORDER: Relaxed, as in all reads of a block by the CPU that writes it.
    (block[TAG].load(Ordering::Relaxed) >> 32) as u32 == stamp
}

/// The latest time since the last clear, or the latest time before it if no packet came since.
#[inline(always)]
pub(crate) fn last_ns(block: &Line) -> u64 {
    // ORDER: Relaxed; it is one number, and an older value is acceptable.
    block[LAST].load(Ordering::Relaxed)
}

/// The packets and the latest time of a block of this flow, cleared ones included. The two are not read as of one
/// moment.
pub(crate) fn ever(block: &Line) -> Activity {
    // ORDER: Relaxed, as above.
    let load = |word: usize| block[word].load(Ordering::Relaxed);
    Activity {
        packets: load(PACKETS).wrapping_add(load(PACKETS_BEFORE)),
        last_ns: load(LAST).max(load(LAST_BEFORE)),
    }
}

/// Counts a packet in a block with the flow's stamp. Only the thread that writes the block may call this.
#[inline(always)]
pub(crate) fn add(block: &Line, packet: &Sample) {
    let seq = begin(block);
    count(block, packet);
    end(block, seq);
}

/// Starts a block with its first packet of a flow. Only the thread that writes the block may call this.
pub(crate) fn start(block: &Line, stamp: u32, packet: &Sample) {
    let seq = begin(block);
    for word in [PACKETS_BEFORE, LAST_BEFORE] {
        // ORDER: Relaxed; between `begin` and `end`.
        block[word].store(0, Ordering::Relaxed);
    }
    count_first(block, stamp, packet);
    end(block, seq);
}

/// Starts a block over after a clear. Only the thread that writes the block may call this.
pub(crate) fn start_over(block: &Line, stamp: u32, packet: &Sample) {
    let before = ever(block);
    let seq = begin(block);
    // ORDER: Relaxed; between `begin` and `end`.
    block[PACKETS_BEFORE].store(before.packets, Ordering::Relaxed);
    block[LAST_BEFORE].store(before.last_ns, Ordering::Relaxed);
    count_first(block, stamp, packet);
    end(block, seq);
}

/// Counts a packet in the flow's shared block, which several CPUs write. The odd number is their lock. A CPU holds
/// the lock for a dozen instructions, and only CPUs without a block of their own take it. `stamp` returns the
/// flow's stamp.
#[cold]
pub(crate) fn add_shared(block: &Line, stamp: impl FnOnce() -> u32, packet: &Sample) {
    let mut waited = 0;
    let seq = loop {
        let seq = block[SEQ].load(Ordering::Relaxed);
        // ORDER: Acquire; pairs with the Release in `end`, so that this CPU sees the counts of the last lock
        // holder and adds to them.
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
    // The stamp is read here: a stamp from before a clear would discard the packets that other CPUs have counted
    // in this block since the clear.
    let stamp = stamp();
    if is_of(block, stamp) {
        count(block, packet);
    } else {
        count_first(block, stamp, packet);
    }
    end(block, seq);
}

/// Makes readers start over. Returns the odd number.
#[inline(always)]
fn begin(block: &Line) -> u64 {
    // ORDER: Relaxed; no other thread writes this word. The fence keeps the following stores after the odd
    // number; it pairs with the fence in `read`. A block from the pool may hold any number.
    let odd = load_own(&block[SEQ]) | 1;
    block[SEQ].store(odd, Ordering::Relaxed);
    fence(Ordering::Release);
    odd
}

/// Lets readers read the block again.
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
    store(TAG, load(TAG) | u64::from(packet.marks as u8));
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
    store(TAG, tag(stamp, packet.marks));
    store(PACKETS, 1);
    store(BYTES, u64::from(packet.bytes));
    store(FIRST, packet.time_ns);
    store(LAST, packet.time_ns);
}

/// The counts of the block since the flow's last clear, all as of one moment.
pub(crate) fn read(block: &Line, stamp: u32) -> FlowTotals {
    let mut waited = 0;
    loop {
        // ORDER: Acquire; pairs with the Release in `end`: earlier writes are seen.
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
                vlan: record::vlan(tag as u32),
                rx_queue: record::rx_queue(tag as u32),
            };
            // ORDER: Acquire; pairs with the fence in `begin`: if any word above belongs to a later round, the odd
            // number of that round is seen here.
            fence(Ordering::Acquire);
            if block[SEQ].load(Ordering::Relaxed) == seq {
                let is_of = (tag >> 32) as u32 == stamp;
                return if is_of { totals } else { FlowTotals::default() };
            }
        }
        wait_a_little(&mut waited);
    }
}
