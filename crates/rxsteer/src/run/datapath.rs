//! What an instance needs of the in-kernel path. A trait, so that what happens to a running instance (an
//! interface goes, a CPU goes, somebody takes the program off) can be played in tests.

use rxsteer_user::core::{CpuId, FlowKey};
use rxsteer_xdp::{
    CpuCounts, DeviceId, LinkState, LiveFlow, Mode, Path, Progress, RxCounts, Settings, Whereabouts,
};

/// Counters of one moment.
#[derive(Clone, Debug)]
pub(crate) struct Counted<D> {
    /// By receiving CPU and interface.
    pub(crate) received: Vec<(CpuId, D, RxCounts)>,
    /// By the CPU that frames were sent to.
    pub(crate) processed: Vec<(CpuId, CpuCounts)>,
}

/// The programs in the kernel.
pub(crate) trait Datapath {
    /// An interface that is attached.
    type Device: Copy + PartialEq + std::fmt::Debug;

    /// The same interface, as the datapath's owner knows it.
    fn device(id: DeviceId) -> Self::Device;
    fn mode(&self) -> Mode;
    fn program_id(&self) -> u32;
    /// Attaches to an interface that needs so many flow tables.
    fn attach(&mut self, ifindex: u32, tables: u16) -> Result<Self::Device, String>;
    /// Detaches at once.
    fn detach(&mut self, device: Self::Device);
    /// Whether the program still is where it was attached.
    fn is_attached(&self, device: Self::Device) -> bool;
    /// Begins a change; [`Datapath::tick`] goes on with it.
    fn apply(&mut self, settings: &Settings) -> Result<(), String>;
    /// To be called ten times a second; whether a change is under way. What fails is tried again.
    fn tick(&mut self) -> Result<bool, String>;
    /// Whether frames go unguarded, since the policy changes its mind about no flow.
    fn is_plain(&self) -> bool;
    fn begin_drain(&mut self) -> Result<(), String>;
    fn is_drained(&mut self) -> bool;
    fn counted(&self) -> Counted<Self::Device>;
    /// Where a flow is and why.
    fn whereabouts(&self, key: &FlowKey) -> Whereabouts;
    /// Every flow that is counted.
    fn flows(&self) -> Vec<LiveFlow>;
}

impl Datapath for Path {
    type Device = DeviceId;

    fn device(id: DeviceId) -> DeviceId {
        id
    }

    fn mode(&self) -> Mode {
        Path::mode(self)
    }

    fn program_id(&self) -> u32 {
        Path::program_id(self)
    }

    fn attach(&mut self, ifindex: u32, tables: u16) -> Result<DeviceId, String> {
        Path::attach(self, ifindex, tables).map_err(|error| error.to_string())
    }

    fn detach(&mut self, device: DeviceId) {
        Path::detach(self, device);
    }

    fn is_attached(&self, device: DeviceId) -> bool {
        self.link_state(device) == LinkState::Attached
    }

    fn apply(&mut self, settings: &Settings) -> Result<(), String> {
        Path::apply(self, settings).map_err(|error| error.to_string())
    }

    fn tick(&mut self) -> Result<bool, String> {
        let progress = Path::tick(self).map_err(|error| error.to_string())?;
        Ok(progress != Progress::Settled)
    }

    fn is_plain(&self) -> bool {
        Path::is_plain(self)
    }

    fn begin_drain(&mut self) -> Result<(), String> {
        Path::begin_drain(self).map_err(|error| error.to_string())
    }

    fn is_drained(&mut self) -> bool {
        Path::is_drained(self)
    }

    fn counted(&self) -> Counted<DeviceId> {
        let counters = self.counters();
        Counted { received: counters.received, processed: counters.processed }
    }

    fn whereabouts(&self, key: &FlowKey) -> Whereabouts {
        Path::whereabouts(self, key)
    }

    fn flows(&self) -> Vec<LiveFlow> {
        Path::flows(self)
    }
}
