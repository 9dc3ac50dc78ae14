//! The handler of a replay: it takes as long per packet as asked.

use rxsteer_user::{Handler, PacketList};
use std::time::{Duration, Instant};

/// Spends a fixed time per packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Work {
    pub(crate) per_packet: Duration,
}

impl Handler for Work {
    fn handle(&mut self, list: &PacketList<'_>) {
        if self.per_packet.is_zero() {
            return;
        }
        let until = Instant::now() + self.per_packet * list.len() as u32;
        while Instant::now() < until {
            std::hint::spin_loop();
        }
    }
}
