//! A channel per worker: what a packet application builds without rxsteer. It spreads packets by a hash, and has no
//! backlogs, flow tables or order guard.

use crate::cpus::pin;
use crossbeam_channel::{Receiver, Sender, bounded};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Packets per list, as in rxsteer's hand-off.
pub(crate) const LIST: usize = 64;
/// The number of lists that fit into a channel.
const ROOM: usize = 64;

/// The sending ends, and the lists that are being filled.
pub(crate) struct Channels {
    senders: Vec<Sender<Vec<u32>>>,
    lists: Vec<Vec<u32>>,
    /// Whether to wait for room in a channel. Otherwise packets for a full channel are dropped, as with a backlog.
    waits: bool,
}

impl Channels {
    /// Creates channels for this many workers; each worker has a receiving end.
    pub(crate) fn new(workers: usize, waits: bool) -> (Channels, Vec<Receiver<Vec<u32>>>) {
        let (senders, receivers) = (0..workers).map(|_| bounded(ROOM)).unzip();
        (Channels { senders, lists: vec![Vec::new(); workers], waits }, receivers)
    }

    /// Sends the length of a frame to the worker of its flow, with a list as soon as it is full. The frame has the addresses and
    /// ports of IPv4 without options or tags.
    pub(crate) fn send(&mut self, frame: &[u8], wire_len: u32) {
        let key = frame.get(26..38).unwrap_or_default();
        let hash = key.iter().fold(0_u32, |hash, byte| {
            (hash.rotate_left(5) ^ u32::from(*byte)).wrapping_mul(0x9E37_79B9)
        });
        let to = ((u64::from(hash) * self.lists.len() as u64) >> 32) as usize;
        self.lists[to].push(wire_len);
        if self.lists[to].len() == LIST {
            self.hand_off(to);
        }
    }

    /// Sends all lists that have packets.
    pub(crate) fn flush(&mut self) {
        for to in 0..self.lists.len() {
            if !self.lists[to].is_empty() {
                self.hand_off(to);
            }
        }
    }

    fn hand_off(&mut self, to: usize) {
        let list = std::mem::take(&mut self.lists[to]);
        if self.waits {
            let _ = self.senders[to].send(list);
        } else {
            let _ = self.senders[to].try_send(list);
        }
    }
}

/// A worker on one CPU: works for `each` per packet, until the sending end is gone.
pub(crate) fn work(cpu: usize, lists: Receiver<Vec<u32>>, each: Duration, done: &AtomicU64) {
    let _ = pin(cpu);
    for list in lists {
        spend(each, list.len() as u64);
        done.fetch_add(list.len() as u64, Ordering::Relaxed);
    }
}

/// Works for `work` on each of `packets` packets.
pub(crate) fn spend(work: Duration, packets: u64) {
    if work.is_zero() {
        return;
    }
    let until = Instant::now() + work * packets as u32;
    while Instant::now() < until {
        std::hint::spin_loop();
    }
}
