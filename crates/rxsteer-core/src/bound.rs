//! Bound queues: all packets of an RX queue go to one CPU. Several queues may share a CPU (N:1).
//!
//! Source: "net: hand off skb list to other cpu" (RFC v2), the `processing_cpu` file of each RX queue. As in
//! hand-off-patch, the packets of a queue without a binding stay on the CPU that receives them.

use crate::cpu::CpuId;
use alloc::boxed::Box;
use alloc::vec;

/// The CPU that processes each RX queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bindings {
    by_queue: Box<[CpuId]>,
}

impl Bindings {
    /// The bindings `(queue, cpu)`. Queues that are not listed stay unbound.
    #[must_use]
    pub fn new(bindings: &[(u16, CpuId)]) -> Bindings {
        let rows = bindings.iter().map(|(queue, _)| usize::from(*queue) + 1).max().unwrap_or(0);
        let mut by_queue = vec![CpuId::NONE; rows].into_boxed_slice();
        for (queue, cpu) in bindings {
            by_queue[usize::from(*queue)] = *cpu;
        }
        Bindings { by_queue }
    }

    /// The CPU that `rx_queue` is bound to.
    #[inline(always)]
    #[must_use]
    pub fn cpu(&self, rx_queue: u16) -> Option<CpuId> {
        self.by_queue.get(usize::from(rx_queue)).copied().filter(|cpu| *cpu != CpuId::NONE)
    }
}
