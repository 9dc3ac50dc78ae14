//! The in-kernel path, as its owner uses it: load, attach, change, read, drain, detach.
//!
//! A change of settings takes several steps, so that it reorders no flow. A comment at each step names what the step
//! prevents; the order guard in `bpf/steer_policy.h` does the rest.

mod attach;
mod balance;
mod change;
mod unguarded;
mod view;

pub use attach::{AttachError, LinkState};

use crate::abi::{self, Mode};
use crate::buckets::Buckets;
use crate::flows::EndedFlows;
use crate::grace::{Grace, Graces, Ticket};
use crate::latest::Latest;
use crate::load::{LoadError, Loaded, load};
use crate::rings::{DrainSearch, Snapshot};
use crate::setup::{Settings, SettingsError, Setup};
use crate::threads::ThreadsError;
use crate::view::Known;
use libbpf_rs::{Link, ProgramMut};
use rxsteer_core::{CpuSet, ThreadClass};
use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// Whether a change is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The settings are active, and no frame or ring of the former ones remains.
    Done,
    /// The settings are active, and rings of the former ones still drain.
    Draining,
    /// A change is under way, or frames of an interface are not steered yet.
    Waiting,
}

/// The searches of the ticks for drained rings; each search takes several ticks.
#[derive(Debug, Default)]
struct DrainSearches {
    /// Rings at rest.
    idle: DrainSearch,
    /// Rings past the frames that were sent before the flow limit.
    limit: DrainSearch,
    /// Retired rings, to mark them delivered, and those that were marked, to delete them.
    retired: DrainSearch,
    marked: DrainSearch,
    /// Rings that waiting flows can leave.
    deferring: DrainSearch,
    /// All rings, when nothing may be under way.
    all: DrainSearch,
}

/// The loaded programs with everything that is attached.
pub struct Path {
    pub(crate) loaded: Loaded,
    mode: Mode,
    possible: CpuSet,
    /// Indexed by interface number.
    devices: Vec<Option<attach::Device>>,
    /// Indexed by flow table: whether it is in use.
    tables: Vec<bool>,
    settings: Settings,
    /// Requested settings; the change to them has not begun.
    requested: Option<Settings>,
    /// The change under way.
    change: Option<change::Change>,
    /// The scheduling class of the rings' threads before that request. The class itself changes at once.
    threads_before: ThreadClass,
    is_draining: bool,
    /// Whether frames are guarded.
    unguarded: unguarded::Unguarded,
    /// Whether the active configuration lets frames pass. It may be an intermediate one on the way to `requested`.
    passes_frames: bool,
    /// Whether the active configuration is the intermediate one that lets all frames pass.
    passes_all: bool,
    /// Whether all frames of all interfaces go through the receiving CPU's ring.
    is_flushing: bool,
    pub(crate) graces: Graces,
    /// Until this is over, programs may still read the inactive configuration.
    read_until: Option<Ticket>,
    /// Interfaces whose frames are not steered yet, and those that were detached and may still be in use.
    attaching: Vec<attach::Attaching>,
    detaching: Vec<attach::Detaching>,
    /// These links count, and are always attached.
    _counting: [Link; 3],
    /// The program that sees a ring's thread go to sleep: needed where flows may move.
    switches: Option<Link>,
    /// The programs that observe where applications receive, send and close, for rfs.
    desired_links: Option<[Link; 3]>,
    /// Set when a flow limit is activated: a snapshot of the frames sent before, which may lack sequence numbers.
    before_limit: Option<Vec<Snapshot>>,
    searches: DrainSearches,
    /// The number of deferred frames at the last tick, and the number of ticks since it last grew.
    deferred_before: u64,
    quiet_ticks: u32,
    /// The time of the last regular tick: see `REGULAR`.
    regular: Option<Instant>,
    /// Where buckets are, and what is counted to move them.
    buckets: Buckets,
    counting: Option<balance::Counting>,
    /// Reads `/proc/stat`; tests replace it.
    read_stat: fn() -> Option<String>,
    /// What is published to views.
    known: Latest<Known>,
    /// Flows that ended because their interface was detached, in addition to those that the programs report.
    ended: EndedFlows,
}

impl std::fmt::Debug for Path {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Path").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl Path {
    /// Loads the programs and attaches the tracepoints that `settings` need. It attaches no interface yet.
    ///
    /// # Errors
    /// [`LoadError`]; nothing has changed in that case.
    ///
    /// # Panics
    /// When `settings` were not checked with [`Settings::check`].
    pub fn load(setup: &Setup, settings: &Settings) -> Result<Path, LoadError> {
        Path::with(load(setup)?, setup, settings)
    }

    /// The second part of [`Path::load`], once the programs are loaded.
    fn with(loaded: Loaded, setup: &Setup, settings: &Settings) -> Result<Path, LoadError> {
        assert_eq!(settings.check(&setup.possible), Ok(()), "checked by the caller");
        loaded.can_decide_by(settings)?;
        let progs = &loaded.skel.progs;
        let counting = [
            attach("xdp_cpumap_enqueue", &progs.steer_enqueue)?,
            attach("xdp_cpumap_kthread", &progs.steer_kthread)?,
            attach("xdp_redirect_err", &progs.steer_redirect_error)?,
        ];
        let mut path = Path {
            devices: (0..loaded.sizes.interfaces).map(|_| None).collect(),
            tables: vec![false; loaded.sizes.tables as usize],
            loaded,
            mode: setup.mode,
            possible: setup.possible.clone(),
            settings: settings.clone(),
            requested: None,
            change: None,
            threads_before: settings.threads,
            is_draining: false,
            unguarded: unguarded::Unguarded::default(),
            passes_frames: false,
            passes_all: false,
            is_flushing: false,
            graces: Graces::new(Grace::new()?)?,
            read_until: None,
            attaching: Vec::new(),
            detaching: Vec::new(),
            _counting: counting,
            switches: None,
            desired_links: None,
            before_limit: None,
            searches: DrainSearches::default(),
            deferred_before: 0,
            quiet_ticks: 0,
            regular: None,
            buckets: Buckets::default(),
            counting: None,
            read_stat: balance::read_stat,
            known: Latest::new(Known::of(settings)),
            ended: EndedFlows::default(),
        };
        path.attach_tracepoints(settings)?;
        path.loaded.rings.lock().threads.begin_with(settings.threads);
        path.make_rings(settings)?;
        // No program is attached yet.
        path.activate(settings, false)?;
        Ok(path)
    }

    /// Changes to `settings`: at once where possible, otherwise in the following ticks. A flow moves once its earlier
    /// packets are delivered, so none is reordered.
    ///
    /// # Errors
    /// [`SettingsError`]; then nothing changes.
    pub fn apply(&mut self, settings: &Settings) -> Result<(), SettingsError> {
        let latest = self.latest();
        for cpu in self.possible.iter().filter(|cpu| latest.is_online(*cpu)) {
            // The ring's thread now runs on another CPU, and stays there. So the CPU needs a new thread when it is online
            // again. That can happen before this change, or without it: settings that leave no CPU online are refused.
            if !settings.is_online(cpu) {
                self.loaded.rings.lock().displace(cpu);
            }
        }
        settings.check(&self.possible)?;
        self.loaded.can_decide_by(settings)?;
        let is_at_rest = self.requested.is_none() && self.change.is_none();
        if self.settings_in_force().is_none() {
            self.threads_before = self.settings.threads;
        }
        if self.set_threads(settings.threads)? && is_at_rest && *settings == self.settings {
            // There is no other change.
            return Ok(());
        }
        self.requested = Some(settings.clone());
        self.is_draining = false;
        Ok(())
    }

    /// The settings of the change under way, if they are not active yet.
    fn pending(&self) -> Option<&Settings> {
        self.change.as_ref().and_then(change::Change::pending)
    }

    /// The settings that are active once all requests are completed.
    fn latest(&self) -> &Settings {
        self.requested.as_ref().or(self.pending()).unwrap_or(&self.settings)
    }

    /// Continues what is under way: a change, an interface that was attached or detached, or rings that drain. The owner
    /// calls this every 50 to 250 ms, and every few milliseconds while [`Path::needs_tick_soon`]. It never waits.
    ///
    /// # Errors
    /// When the kernel refuses a ring (memory) or a tracepoint; the former settings then stay active.
    pub fn tick(&mut self) -> Result<Progress, LoadError> {
        let is_regular = self.regular.is_none_or(|at| at.elapsed() >= REGULAR);
        if is_regular {
            self.regular = Some(Instant::now());
            self.loaded.rings.lock().note_sent();
        }
        self.loaded.rings.lock().mark_idle_delivered(&mut self.searches.idle, &self.graces)?;
        self.mark_delivered_before_limit()?;
        // During a change programs may still use the rings that it replaces.
        if self.change.is_none() {
            self.free_retired_rings()?;
        }
        let is_displaced = self.loaded.rings.lock().find_displaced();
        if is_displaced && self.requested.is_none() && !self.is_draining {
            // A CPU was offline and is online again. No change was requested, but only a change replaces the ring.
            self.requested = Some(self.latest().clone());
        }
        self.balance();
        self.are_readers_gone()?;
        self.advance_detaching()?;
        let have_arrived = self.advance_attaching()?;
        self.publish();
        // A failed change is tried again in the next tick.
        if !self.advance_change()? || !have_arrived {
            return Ok(Progress::Waiting);
        }
        self.publish();
        if !self.loaded.rings.lock().retired().is_empty() {
            return Ok(Progress::Draining);
        }
        self.update_switch_program(is_regular)?;
        if !self.is_draining {
            self.approach_unguarded()?;
        }
        Ok(Progress::Done)
    }

    /// Lets frames pass again: the frames of each flow pass once its earlier frames are delivered.
    ///
    /// # Errors
    /// As [`Path::tick`].
    pub fn begin_drain(&mut self) -> Result<(), LoadError> {
        self.requested = None;
        if let Some(change::Change::Begun(settings, passing)) = &mut self.change {
            // All frames pass from then on, so the change need not wait for earlier ones.
            (*settings, *passing) = (settings.without_steering(), attach::Passing::Over);
        }
        self.is_draining = true;
        self.quiet_ticks = 0;
        self.attach_switches()?;
        self.continue_drain()?;
        Ok(())
    }

    /// Whether the owner should call [`Path::tick`] again within a few milliseconds. Until a grace period is over, frames
    /// take a longer way through other rings, or memory stays reserved.
    #[must_use]
    pub fn needs_tick_soon(&self) -> bool {
        let waits = self.change.is_some() || self.read_until.is_some();
        waits || !self.attaching.is_empty() || !self.detaching.is_empty()
    }

    /// Continues until no change is under way and all frames of attached interfaces are steered, for an owner that has
    /// nothing else to do.
    ///
    /// # Errors
    /// As [`Path::tick`].
    pub fn tick_until_done(&mut self) -> Result<(), LoadError> {
        while self.tick()? == Progress::Waiting {
            std::thread::sleep(TICK_PAUSE);
        }
        Ok(())
    }

    /// Whether nothing is under way in any ring, and nothing is sent to one. The owner calls this repeatedly after
    /// [`Path::begin_drain`].
    #[must_use]
    pub fn is_drained(&mut self) -> bool {
        // An unknown state counts as not drained.
        self.is_draining && self.continue_drain().unwrap_or(false)
    }

    fn continue_drain(&mut self) -> io::Result<bool> {
        let is_at_rest = self.end_change()? && self.advance_attaching()?;
        let is_guarded = is_at_rest && self.guard_again()? && self.are_unguarded_delivered()?;
        Ok(is_guarded && self.pass_all()? && self.are_drained()?)
    }

    /// Whether nothing is under way in any ring. The answer takes several calls.
    fn are_drained(&mut self) -> io::Result<bool> {
        let rings = self.loaded.rings.lock();
        let (search, all) = (&mut self.searches.all, rings.all());
        let drained = search.end(&rings, &self.graces)?;
        let is_drained = drained.iter().map(|ring| &ring.ring).eq(&all);
        if !is_drained {
            search.begin(&rings, all, &self.graces);
        }
        Ok(is_drained)
    }

    /// Lets all frames pass: the frames of each flow pass once its earlier frames are delivered. Returns whether every
    /// program does so by now.
    fn pass_all(&mut self) -> io::Result<bool> {
        if self.settings.shadow {
            // Frames already pass, and the slots name rings to which nothing was sent.
            return Ok(true);
        }
        if !self.passes_all {
            if !self.activate(&self.settings.without_steering(), false)? {
                return Ok(false);
            }
            self.passes_all = true;
        }
        self.are_readers_gone()
    }

    /// The active settings, while requested ones are not active yet; otherwise `None`.
    #[must_use]
    pub fn settings_in_force(&self) -> Option<Settings> {
        let in_force = Settings { threads: self.threads_before, ..self.settings.clone() };
        (self.pending().is_some() || self.requested.is_some()).then_some(in_force)
    }

    /// Sets the scheduling class of all rings' threads, at once: no frame has to wait for this. Returns whether the class
    /// was another one.
    fn set_threads(&mut self, class: ThreadClass) -> Result<bool, SettingsError> {
        if class == self.settings.threads {
            return Ok(false);
        }
        let mut rings = self.loaded.rings.lock();
        let all = rings.all();
        rings.threads.set_class(&all, class)?;
        drop(rings);
        self.settings.threads = class;
        let changing = self.change.as_mut().and_then(change::Change::pending_mut);
        for settings in self.requested.iter_mut().chain(changing) {
            settings.threads = class;
        }
        Ok(true)
    }

    /// Why the threads of the rings are not in the requested class, if they are not.
    #[must_use]
    pub fn threads_problem(&self) -> Option<ThreadsError> {
        self.loaded.rings.lock().threads.problem().cloned()
    }

    /// The active settings.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Where the XDP program gets its frames from.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Jiffies a second.
    #[must_use]
    pub fn hz(&self) -> u32 {
        self.loaded.hz
    }

    /// The kernel's id of our XDP program.
    #[must_use]
    pub fn program_id(&self) -> u32 {
        libbpf_rs::Program::id_from_fd(self.loaded.skel.progs.steer_entry.as_fd()).unwrap_or(0)
    }

    /// The programs' names in `src/bpf`, with their kernel ids. The kernel reports the cost of programs by these ids.
    #[must_use]
    pub fn programs(&self) -> Vec<(&'static str, u32)> {
        let progs = &self.loaded.skel.progs;
        let all = [
            ("steer_entry", &progs.steer_entry),
            ("steer_cpumap", &progs.steer_cpumap),
            ("steer_cpumap_1", &progs.steer_cpumap_1),
            ("steer_kthread", &progs.steer_kthread),
            ("steer_switch", &progs.steer_switch),
            ("steer_enqueue", &progs.steer_enqueue),
            ("steer_redirect_error", &progs.steer_redirect_error),
            ("steer_receives", &progs.steer_receives),
            ("steer_sends", &progs.steer_sends),
            ("steer_closes", &progs.steer_closes),
        ];
        let id = |program: &ProgramMut<'_>| libbpf_rs::Program::id_from_fd(program.as_fd());
        // Programs that were not loaded have no descriptor.
        let loaded = all.into_iter().filter(|(_, program)| program.autoload());
        loaded.filter_map(|(name, program)| Some((name, id(program).ok()?))).collect()
    }

    fn bss(&mut self) -> &mut abi::Shared {
        match self.loaded.skel.maps.bss_data.as_deref_mut() {
            Some(bss) => bss,
            None => unreachable!("the programs have variables"),
        }
    }
}

/// The shortest time between two regular ticks. Code that counts ticks counts these, even while the owner ticks faster.
const REGULAR: Duration = Duration::from_millis(90);

/// The time between two ticks of [`Path::tick_until_done`].
const TICK_PAUSE: Duration = Duration::from_millis(1);

fn attach(name: &'static str, program: &ProgramMut<'_>) -> Result<Link, LoadError> {
    program.attach_trace().map_err(|error| LoadError::Tracepoint(name, error))
}

#[cfg(test)]
#[path = "path/tests.rs"]
mod tests;
