//! The handler of a replay: it takes as long per packet as asked.

use rxsteer_user::{Handler, PacketList};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Spends a fixed time per packet, until somebody interrupts the run: what waits then is processed
/// at no cost.
#[derive(Clone, Debug)]
pub(crate) struct Work {
    pub(crate) per_packet: Duration,
    pub(crate) stop: Arc<AtomicBool>,
}

impl Handler for Work {
    fn handle(&mut self, list: &PacketList<'_>) {
        if self.per_packet.is_zero() {
            return;
        }
        let until = Instant::now() + self.per_packet * list.len() as u32;
        // ORDER: Relaxed; a request without data.
        while Instant::now() < until && !self.stop.load(Ordering::Relaxed) {
            std::hint::spin_loop();
        }
    }
}
