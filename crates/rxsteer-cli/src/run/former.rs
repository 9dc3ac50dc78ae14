//! The counts of former interfaces.

use rxsteer_status::{Counts, RxShown};
use rxsteer_user::core::CpuId;
use rxsteer_user::core::counters::LiveCounter;
use rxsteer_xdp::RxCounts;
use std::collections::BTreeMap;

/// The counts of interfaces that are no longer attached. The datapath keeps them only until another interface gets the
/// number.
#[derive(Clone, Debug, Default)]
pub(crate) struct DetachedCounts {
    pub(super) cpus: BTreeMap<u16, Counts>,
    pub(super) redirect_errors: u64,
}

impl DetachedCounts {
    /// Adds the counts of an interface; returns their sum.
    pub(crate) fn keep(&mut self, received: &[(CpuId, RxCounts)]) -> RxShown {
        let mut sum = RxShown::default();
        for (cpu, row) in received {
            self.redirect_errors += row.get(LiveCounter::RedirectErrors);
            add_rx(self.cpus.entry(cpu.get()).or_default(), |counter| row.get(counter));
            sum.add(|counter| row.get(counter));
        }
        sum
    }
}

/// Adds the counters of the receiving side.
pub(super) fn add_rx(sum: &mut Counts, count: impl Fn(LiveCounter) -> u64) {
    sum.drops.flow_limit += count(LiveCounter::FlowLimitDrops);
    sum.rx.add(count);
}
