//! The state of an instance for the thread that answers clients.

use super::former::DetachedCounts;
use super::rounds::Rounds;
use rxsteer_status::{Event, RxShown, SettingsShown, State};
use rxsteer_xdp::Settings;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

/// The state that an instance shows to the thread that answers clients.
#[derive(Debug)]
pub(crate) struct Shown<D> {
    pub(crate) socket: PathBuf,
    pub(crate) network_namespace: Option<u64>,
    pub(crate) started: Instant,
    pub(crate) memory_bytes: Option<u64>,
    pub(crate) program_id: u32,
    pub(crate) settings: Settings,
    pub(crate) settings_shown: SettingsShown,
    pub(crate) changing: bool,
    pub(crate) guarded: bool,
    pub(crate) threads_problem: Option<String>,
    pub(crate) interfaces: Vec<InterfaceShown<D>>,
    pub(crate) former: Arc<DetachedCounts>,
    /// How often interfaces were attached or detached. If the number has not changed after a read of the datapath, the
    /// read matches `interfaces`.
    pub(crate) attachments: u64,
    pub(crate) rounds: Arc<Rounds>,
    /// The last events.
    pub(crate) events: Arc<[Event]>,
}

/// The state of an interface, as it is shown.
#[derive(Debug)]
pub(crate) struct InterfaceShown<D> {
    pub(crate) name: String,
    pub(crate) index: u32,
    pub(crate) state: State,
    pub(crate) why: Option<String>,
    pub(crate) tables: u16,
    pub(crate) device: Option<D>,
    /// When it was attached, if it still is.
    pub(crate) since: Option<Instant>,
    /// The counts of an interface that is no longer attached.
    pub(crate) counts: Arc<RxShown>,
}
