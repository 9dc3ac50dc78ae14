//! The in-kernel path as an instance needs it. This is a trait, so that tests can simulate what happens to a running
//! instance (an interface is deleted, a CPU goes offline, another process detaches the program).

use crate::summaries::CpuActivity;
use rxsteer_user::core::counters::{LiveCounter, LiveCpuCounter};
use rxsteer_user::core::matching::PacketRule;
use rxsteer_user::core::{CpuId, FlowKey};
use rxsteer_xdp::{
    Buckets, CpuCounts, DeviceId, FlowExplained, FlowStatistics, LinkState, LiveFlow, Mode, Path,
    Progress, RxCounts, Settings, View,
};
use std::collections::BTreeMap;

/// The counters at one moment.
#[derive(Clone, Debug)]
pub(crate) struct Counted<D> {
    /// By receiving CPU and interface.
    pub(crate) received: Vec<(CpuId, D, RxCounts)>,
    /// By the CPU that frames were sent to.
    pub(crate) processed: Vec<(CpuId, CpuCounts)>,
}

/// The programs in the kernel.
pub(crate) trait Datapath: Sized + 'static {
    /// An interface that is attached.
    type Device: Copy + PartialEq + std::fmt::Debug + Send + Sync + 'static;
    /// The view of the datapath for another thread.
    type View: DatapathView<Self::Device>;

    fn mode(&self) -> Mode;
    fn program_id(&self) -> u32;
    /// Attaches to an interface that needs this many flow tables. With `may_be_partial`, frames without a complete
    /// checksum pass.
    fn attach(
        &mut self,
        ifindex: u32,
        name: &str,
        tables: u16,
        may_be_partial: bool,
    ) -> Result<Self::Device, String>;
    /// Sets the interface's new name.
    fn rename(&mut self, device: Self::Device, name: &str);
    /// Detaches at once.
    fn detach(&mut self, device: Self::Device);
    /// Whether a detached interface's counts are complete. The ticks update this.
    fn is_fully_detached(&self, device: Self::Device) -> bool;
    /// Whether the program is still attached to the interface.
    fn is_attached(&self, device: Self::Device) -> bool;
    /// The number of frames of the interface that passed because their checksum is not complete.
    fn partial_checksums(&self, device: Self::Device) -> u64;
    /// Begins a change; [`Datapath::tick`] continues it.
    fn apply(&mut self, settings: &Settings) -> Result<(), String>;
    /// The active settings, while requested ones are not active yet; otherwise `None`.
    fn settings_in_force(&self) -> Option<Settings>;
    /// The owner calls this ten times a second, and more often while [`Datapath::needs_tick_soon`]. Returns whether a
    /// change is under way. Failed operations are retried.
    fn tick(&mut self) -> Result<bool, String>;
    /// Whether something continues as soon as a grace period is over.
    fn needs_tick_soon(&self) -> bool;
    /// Whether frames are unguarded, because the policy never moves a flow.
    fn is_unguarded(&self) -> bool;
    /// Why the rings' threads are not in the requested scheduling class, if they are not.
    fn threads_problem(&self) -> Option<String>;
    fn begin_drain(&mut self) -> Result<(), String>;
    fn is_drained(&mut self) -> bool;
    /// What each CPU received from an interface, also after the interface was detached.
    fn received(&self, device: Self::Device) -> Vec<(CpuId, RxCounts)>;
    /// The active rules before the policy, and how many packets each has matched since it was set.
    fn rule_hits(&self) -> Vec<(PacketRule, u64)>;
    /// What each CPU has done until now, for events. The last lost frames may be missing.
    fn activity(&self) -> BTreeMap<u16, CpuActivity>;
}

/// The programs in the kernel, for another thread. Nothing here blocks the datapath's owner.
pub(crate) trait DatapathView<D>: Send + 'static {
    /// The interface, as the datapath's owner identifies it.
    fn device(&self, id: DeviceId) -> D;
    fn counted(&self) -> Counted<D>;
    /// Where buckets are, and which moved by load.
    fn buckets(&self) -> Buckets;
    /// For each CPU, the frames that would have been sent to it in shadow mode.
    fn shadow(&self) -> Vec<(CpuId, u64)>;
    /// As [`Datapath::rule_hits`].
    fn rule_hits(&self) -> Vec<(PacketRule, u64)>;
    /// Where a flow is, and why.
    fn explain(&self, key: &FlowKey) -> FlowExplained;
    /// The `most` flows with the most packets, and sums over all of them.
    fn flows(&self, most: usize) -> FlowStatistics;
    /// Clears flow statistics: when this returns, flows are counted from 0.
    fn clear_flows(&self) -> Result<(), String>;
    /// Takes the programs' records of flows that ended. The caller calls this ten times a second.
    fn take_records(&self);
    /// The `most` flows that ended last and are kept, oldest first, with their numbers.
    fn ended(&self, most: usize) -> Vec<(u64, LiveFlow)>;
}

impl Datapath for Path {
    type Device = DeviceId;
    type View = View;

    fn mode(&self) -> Mode {
        Path::mode(self)
    }

    fn program_id(&self) -> u32 {
        Path::program_id(self)
    }

    fn attach(
        &mut self,
        ifindex: u32,
        name: &str,
        tables: u16,
        may_be_partial: bool,
    ) -> Result<DeviceId, String> {
        Path::attach(self, ifindex, name, tables, may_be_partial).map_err(|error| error.to_string())
    }

    fn rename(&mut self, device: DeviceId, name: &str) {
        Path::rename(self, device, name);
    }

    fn detach(&mut self, device: DeviceId) {
        Path::detach(self, device);
    }

    fn is_fully_detached(&self, device: DeviceId) -> bool {
        Path::is_fully_detached(self, device)
    }

    fn is_attached(&self, device: DeviceId) -> bool {
        self.link_state(device) == LinkState::Attached
    }

    fn partial_checksums(&self, device: DeviceId) -> u64 {
        Path::partial_checksums(self, device)
    }

    fn apply(&mut self, settings: &Settings) -> Result<(), String> {
        Path::apply(self, settings).map_err(|error| error.to_string())
    }

    fn settings_in_force(&self) -> Option<Settings> {
        Path::settings_in_force(self)
    }

    fn tick(&mut self) -> Result<bool, String> {
        let progress = Path::tick(self).map_err(|error| error.to_string())?;
        Ok(progress != Progress::Done)
    }

    fn needs_tick_soon(&self) -> bool {
        Path::needs_tick_soon(self)
    }

    fn is_unguarded(&self) -> bool {
        Path::is_unguarded(self)
    }

    fn threads_problem(&self) -> Option<String> {
        Path::threads_problem(self).map(|why| why.to_string())
    }

    fn begin_drain(&mut self) -> Result<(), String> {
        Path::begin_drain(self).map_err(|error| error.to_string())
    }

    fn is_drained(&mut self) -> bool {
        Path::is_drained(self)
    }

    fn received(&self, device: DeviceId) -> Vec<(CpuId, RxCounts)> {
        Path::received(self, device)
    }

    fn rule_hits(&self) -> Vec<(PacketRule, u64)> {
        Path::rule_hits(self)
    }

    fn activity(&self) -> BTreeMap<u16, CpuActivity> {
        let counters = self.counters();
        let mut cpus: BTreeMap<u16, CpuActivity> = BTreeMap::new();
        for (cpu, _, row) in &counters.received {
            let counts = cpus.entry(cpu.get()).or_default();
            counts.received += row.get(LiveCounter::Received);
            counts.moves += row.get(LiveCounter::Moves);
            counts.deferred += row.get(LiveCounter::Deferred);
            counts.drops.flow_limit += row.get(LiveCounter::FlowLimitDrops);
        }
        for (cpu, row) in &counters.processed {
            let counts = cpus.entry(cpu.get()).or_default();
            counts.delivered = row.get(LiveCpuCounter::Delivered);
            counts.drops.ring_full = row.get(LiveCpuCounter::Lost);
            counts.drops.alloc = row.get(LiveCpuCounter::AllocDrops);
            counts.while_waiting = row.get(LiveCpuCounter::LostWaiting);
            counts.while_busy = row.get(LiveCpuCounter::LostBusy);
            counts.in_bursts = row.get(LiveCpuCounter::LostBurst);
            counts.waited_ns = row.get(LiveCpuCounter::ThreadWaited);
            counts.longest_wait_ns = row.get(LiveCpuCounter::LongestWait);
            counts.class = row.thread_class().map(|class| class.to_string());
        }
        cpus
    }
}

impl DatapathView<DeviceId> for View {
    fn device(&self, id: DeviceId) -> DeviceId {
        id
    }

    fn counted(&self) -> Counted<DeviceId> {
        let counters = self.counters();
        Counted { received: counters.received, processed: counters.processed }
    }

    fn buckets(&self) -> Buckets {
        View::buckets(self)
    }

    fn shadow(&self) -> Vec<(CpuId, u64)> {
        View::shadow(self)
    }

    fn rule_hits(&self) -> Vec<(PacketRule, u64)> {
        View::rule_hits(self)
    }

    fn explain(&self, key: &FlowKey) -> FlowExplained {
        View::explain(self, key)
    }

    fn flows(&self, most: usize) -> FlowStatistics {
        View::flows(self, most)
    }

    fn clear_flows(&self) -> Result<(), String> {
        View::clear_flows(self).map_err(|why| why.to_string())
    }

    fn take_records(&self) {
        View::take_records(self);
    }

    fn ended(&self, most: usize) -> Vec<(u64, LiveFlow)> {
        View::ended(self, most)
    }
}
