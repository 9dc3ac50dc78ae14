//! Numbered datagrams from real sockets: slower than [`crate::LiveFrames`], but they work with any driver, and use the
//! sender's stack.
//!
//! They carry the same content as the frames of `LiveFrames`, so `OrderCheck` and [`crate::MovingApplication`] read
//! both.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::application::connected;
use crate::cpus::pin;
use crate::error::Result;
use crate::namespace::Namespace;

/// `LAB_MAGIC` of lab.h.
pub(crate) const MAGIC: u64 = 0x5258_5354;
/// Datagrams of one flow in a row.
const TRAIN: u64 = 4;
/// The size of a datagram in bytes, so that its frame is as long as those of `LiveFrames`.
const BYTES: usize = 48;
/// The pause between two rounds of all flows.
const PAUSE: Duration = Duration::from_micros(200);

/// A sender in its own thread, which ends when this is dropped.
#[derive(Debug)]
pub struct Datagrams {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    rest: AtomicBool,
    sent: AtomicU64,
}

impl Datagrams {
    /// Starts to send on `cpu`; flow i goes from `pairs[i].0` to `pairs[i].1`.
    pub fn start(
        namespace: &Namespace,
        pairs: &[(SocketAddr, SocketAddr)],
        cpu: usize,
    ) -> Result<Self> {
        let sockets: Vec<UdpSocket> =
            namespace.inside(|| pairs.iter().map(connected).collect::<Result<_>>())?;
        let shared = Arc::new(Shared::default());
        let report = Arc::clone(&shared);
        let thread = std::thread::spawn(move || {
            // The datagrams are the same on any CPU.
            let _ = pin(cpu);
            send(&sockets, &report);
        });
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Pauses the sender.
    pub fn pause(&self) {
        self.shared.rest.store(true, Ordering::Relaxed);
    }

    /// Continues to send.
    pub fn resume(&self) {
        self.shared.rest.store(false, Ordering::Relaxed);
    }

    /// The number of datagrams sent.
    pub fn sent(&self) -> u64 {
        self.shared.sent.load(Ordering::Relaxed)
    }
}

impl Drop for Datagrams {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // The thread cannot fail.
            let _ = thread.join();
        }
    }
}

fn send(sockets: &[UdpSocket], shared: &Shared) {
    let mut numbers = vec![0_u64; sockets.len()];
    let mut bytes = [0; BYTES];
    while !shared.stop.load(Ordering::Relaxed) {
        if shared.rest.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(1));
            continue;
        }
        for (flow, (socket, number)) in (0..).zip(sockets.iter().zip(&mut numbers)) {
            bytes[..8].copy_from_slice(&(MAGIC << 32 | flow).to_be_bytes());
            for _ in 0..TRAIN {
                bytes[8..16].copy_from_slice(&number.to_be_bytes());
                // A refused datagram (a full queue, or the error of an earlier datagram) was not sent.
                if socket.send(&bytes).is_ok() {
                    *number += 1;
                    shared.sent.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
        std::thread::sleep(PAUSE);
    }
}
