//! A change of settings, step by step, so that it reorders no flow; and the work between changes.
//!
//! A comment at each step names what the step prevents; docs/in-kernel.md lists the steps in order.

use super::attach::{Attaching, Device, Passing};
use super::{DrainSearches, Path, attach};
use crate::abi::{self, CONFIG_FLUSHING, FLUSHING, MAX_DEVICES, PARSE_NUMBERS};
use crate::compile::{Local, compile};
use crate::grace::Ticket;
use crate::load::{LoadError, Loaded, SOCKET_TRACEPOINTS};
use crate::rings::{Made, Sent};
use crate::setup::Settings;
use rxsteer_core::CpuSet;
use std::io;
use std::os::fd::AsFd;

/// A change whose rings exist. No step waits for a ring, so the change ends within a few grace periods, even if other
/// settings are requested meanwhile.
#[derive(Debug)]
pub(super) enum Change {
    /// These settings become active once no passed frame is under way. If frames passed before the change, all frames go
    /// through the receiving CPU's ring until then.
    Begun(Settings, Passing),
    /// The settings are active, and programs may still use the former ones.
    Activated,
    /// What was sent to each ring when no program used the former settings any more. A grace period later, these frames
    /// are in their rings.
    Limited(Vec<Sent>, Ticket),
}

impl Change {
    /// The settings, if they are not active yet.
    pub(super) fn pending(&self) -> Option<&Settings> {
        match self {
            Change::Begun(settings, _) => Some(settings),
            _ => None,
        }
    }

    /// The same, for replacement by settings that need the same rings and the same wait.
    pub(super) fn pending_mut(&mut self) -> Option<&mut Settings> {
        match self {
            Change::Begun(settings, _) => Some(settings),
            _ => None,
        }
    }
}

impl Path {
    /// Continues the change under way, and begins the requested one if that is possible now. Returns whether none is
    /// left.
    pub(super) fn advance_change(&mut self) -> Result<bool, LoadError> {
        self.replace_pending()?;
        if !self.end_change()? {
            return Ok(false);
        }
        let Some(requested) = self.requested.clone() else { return Ok(true) };
        // A change may fail in every tick, so interfaces must not wait for it.
        let started =
            self.begin_change(&requested).inspect_err(|_| self.arriving_before_change())?;
        Ok(started && self.end_change()?)
    }

    /// Redirects the change under way to the requested settings, if its completed steps are right for these as well. This
    /// way an operator can withdraw a change that keeps failing.
    fn replace_pending(&mut self) -> Result<(), LoadError> {
        let Some(pending) = self.change.as_ref().and_then(Change::pending) else { return Ok(()) };
        let as_done =
            |settings: &Settings| (settings.queue_size, settings.shadow, settings.offline.clone());
        let Some(requested) =
            self.requested.take_if(|settings| as_done(settings) == as_done(pending))
        else {
            return Ok(());
        };
        let attached = self.attach_tracepoints(&requested);
        match self.change.as_mut().and_then(Change::pending_mut) {
            Some(pending) if attached.is_ok() => *pending = requested,
            _ => self.requested = Some(requested),
        }
        attached
    }

    /// Begins the change, unless it must wait for frames or for an interface; returns whether it began.
    fn begin_change(&mut self, settings: &Settings) -> Result<bool, LoadError> {
        // The frames of an interface that arrives go through other rings for a while.
        if self.attaching.iter().any(Attaching::is_first) {
            return Ok(false);
        }
        self.attach_tracepoints(settings)?;
        self.attach_switches()?;
        // First, all frames must be guarded again, and the unguarded ones delivered.
        if !self.guard_again()? || !self.are_unguarded_delivered()? {
            return Ok(false);
        }
        // In shadow mode every frame passes, so no frame may be under way in a ring.
        let enters_shadow = settings.shadow && !self.settings.shadow;
        if enters_shadow && !(self.pass_all()? && self.are_drained()?) {
            return Ok(false);
        }
        if !self.are_readers_gone()? || self.make_rings(settings)? == Made::Later {
            return Ok(false);
        }
        // If frames pass before and after the change, they also pass during it: rings would delay some of them.
        self.is_flushing = self.passes_frames && !settings.shadow;
        self.set_flushing();
        let passing = if self.is_flushing {
            let devices = self.devices.iter().flatten();
            self.passing(&devices.map(|device| device.ifindex).collect::<Vec<u32>>())
        } else {
            Passing::Over
        };
        self.change = Some(Change::Begun(settings.clone(), passing));
        self.requested = None;
        Ok(true)
    }

    /// Continues the change under way; returns whether none is left.
    pub(super) fn end_change(&mut self) -> io::Result<bool> {
        if self.change.is_none() {
            return Ok(true);
        }
        while let Some(change) = &mut self.change {
            match change {
                Change::Begun(settings, passing) => {
                    if !passing.is_over(&self.graces)? {
                        return Ok(false);
                    }
                    let settings = settings.clone();
                    if !self.change_to(&settings)? {
                        return Ok(false);
                    }
                }
                Change::Activated => {
                    if !self.are_readers_gone()? {
                        return Ok(false);
                    }
                    self.is_flushing = false;
                    self.set_flushing();
                    if !self.settings.mechanisms().rfs {
                        self.desired_links = None;
                    }
                    self.before_limit = None;
                    self.change = self.settings.flow_limit.map(|_| {
                        let sent = self.loaded.rings.lock().sent_to_all();
                        Change::Limited(sent, self.graces.begin())
                    });
                }
                Change::Limited(sent, ticket) => {
                    if !self.graces.has_passed(ticket)? {
                        return Ok(false);
                    }
                    let sent = std::mem::take(sent);
                    self.before_limit = Some(self.loaded.rings.lock().snapshot_since(sent));
                    self.change = None;
                }
            }
        }
        self.arriving_before_change();
        Ok(true)
    }

    /// Makes the settings active, unless a program still uses the inactive configuration; returns whether it did.
    fn change_to(&mut self, settings: &Settings) -> io::Result<bool> {
        if !self.activate(settings, false)? {
            return Ok(false);
        }
        self.settings = settings.clone();
        self.quiet_ticks = 0;
        self.change = Some(Change::Activated);
        Ok(true)
    }

    /// Writes which interfaces flush: as soon as this returns, all their frames go through the receiving CPU's ring.
    pub(super) fn set_flushing(&mut self) {
        for number in 0..self.devices.len() {
            let Some(device) = &self.devices[number] else { continue };
            let (index, is_flushing) = (device.ifindex, self.is_flushing);
            let attaching = self.attaching.iter().find(|attaching| attaching.number == number);
            let flushes = match attaching {
                // It is not in the table yet.
                Some(Attaching { passing: None, .. }) => continue,
                Some(Attaching { passing: Some(_), .. }) => true,
                None => is_flushing,
            };
            let flags = &mut self.bss().steer_devices[(index % MAX_DEVICES) as usize].flags;
            *flags = if flushes { *flags | FLUSHING } else { *flags & !FLUSHING };
        }
    }

    /// The number of the active configuration.
    pub(super) fn active_part(&self) -> u32 {
        self.loaded.skel.maps.bss_data.as_deref().map_or(0, |bss| bss.steer_active & 1)
    }

    /// Whether no program uses the inactive configuration any more, so that it can be rewritten.
    pub(super) fn are_readers_gone(&mut self) -> io::Result<bool> {
        let Some(ticket) = &mut self.read_until else { return Ok(true) };
        if !self.graces.has_passed(ticket)? {
            return Ok(false);
        }
        self.read_until = None;
        if !self.loaded.rules.read_tunnels(self.active_part()) {
            self.bss().steer_rule_options = 0;
        }
        Ok(true)
    }

    /// Writes the inactive configuration, and activates it; with `unguarded`, without the order guard (see
    /// `unguarded.rs`). Programs may use the former one until [`Path::are_readers_gone`]. Does nothing while programs
    /// still use the inactive one; returns whether it activated the configuration.
    pub(super) fn activate(&mut self, settings: &Settings, unguarded: bool) -> io::Result<bool> {
        if !self.are_readers_gone()? {
            return Ok(false);
        }
        self.prepare_buckets(settings);
        let sizes = (self.loaded.hz, self.loaded.sizes.flow_log);
        let rings = self.loaded.rings.lock();
        let part = 1 - self.active_part();
        let first_row = part * self.loaded.sizes.tables;
        let mut config =
            compile(settings, Local::Passes, sizes, first_row, &self.buckets.table, |cpu| {
                rings.generation(cpu)
            });
        config.unguarded = u8::from(unguarded);
        let none = Settings { shadow: false, ..settings.without_steering() };
        let flushing = compile(&none, Local::ByRing, sizes, 0, &[], |cpu| rings.generation(cpu));
        drop(rings);
        self.write_rows(settings, part);
        let name = |device: &Option<Device>| device.as_ref().map(|device| device.name.clone());
        let names = self.devices.iter().map(|device| name(device).unwrap_or_default()).collect();
        self.loaded.rules.write(part, &settings.packet_rules, names)?;
        let reads_tunnels = self.loaded.rules.read_tunnels(part);
        let bss = self.bss();
        if reads_tunnels {
            bss.steer_rule_options = PARSE_NUMBERS;
        }
        bss.steer_configs[CONFIG_FLUSHING as usize] = flushing;
        bss.steer_configs[part as usize] = config;
        abi::activate(&mut bss.steer_active, part);
        self.read_until = Some(self.graces.begin());
        self.passes_frames = settings.has_passed_flows();
        self.passes_all = false;
        Ok(true)
    }

    /// The flow limit computes the number of waiting frames from sequence numbers. While the limit is active, every frame
    /// that can carry its number does so; earlier frames may have none. If an RX CPU sends no more, its last earlier
    /// frames would count as waiting. So this marks them delivered once they are.
    pub(super) fn mark_delivered_before_limit(&mut self) -> io::Result<()> {
        let rings = self.loaded.rings.lock();
        if let Some(snapshots) = &self.before_limit
            && rings.have_drained_past(snapshots, &mut self.searches.limit, &self.graces)?
        {
            rings.mark_snapshots_delivered(snapshots);
            self.before_limit = None;
        }
        Ok(())
    }

    /// Creates a ring for every CPU that may receive frames or get them.
    pub(super) fn make_rings(&mut self, settings: &Settings) -> Result<Made, LoadError> {
        let online = self.possible.iter().filter(|cpu| settings.is_online(*cpu));
        let Some(online) = CpuSet::new(online) else { return Ok(Made::Done) };
        let Loaded { rings, skel, .. } = &self.loaded;
        let programs = [skel.progs.steer_cpumap.as_fd(), skel.progs.steer_cpumap_1.as_fd()];
        Ok(rings.lock().ensure(&online, settings.queue_size, programs)?)
    }

    /// Marks the retired rings that are drained as delivered, and deletes them when they are still drained a grace period
    /// later. A program that began before a ring was marked may have sent one more frame to it.
    pub(super) fn free_retired_rings(&mut self) -> Result<(), LoadError> {
        let mut rings = self.loaded.rings.lock();
        let DrainSearches { marked, retired, .. } = &mut self.searches;
        for ring in marked.end(&rings, &self.graces)? {
            // A change may have put the ring into use again since the search began.
            if rings.retired().contains(&ring.ring) {
                rings.delete(ring.ring)?;
            }
        }
        let drained = retired.end(&rings, &self.graces)?;
        drained.iter().for_each(|ring| rings.mark_delivered(ring));
        let drained = drained.into_iter().map(|ring| ring.ring).collect();
        marked.begin(&rings, drained, &self.graces);
        retired.begin(&rings, rings.retired(), &self.graces);
        Ok(())
    }

    pub(super) fn attach_tracepoints(&mut self, settings: &Settings) -> Result<(), LoadError> {
        if needs_switches(settings) {
            self.attach_switches()?;
        }
        if settings.mechanisms().rfs && self.desired_links.is_none() {
            let progs = &self.loaded.skel.progs;
            let [receives, sends, closes] = SOCKET_TRACEPOINTS;
            self.desired_links = Some([
                attach(receives, &progs.steer_receives)?,
                attach(sends, &progs.steer_sends)?,
                attach(closes, &progs.steer_closes)?,
            ]);
        }
        Ok(())
    }

    pub(super) fn attach_switches(&mut self) -> Result<(), LoadError> {
        if self.switches.is_none() {
            self.switches = Some(attach("sched_switch", &self.loaded.skel.progs.steer_switch)?);
        }
        Ok(())
    }

    /// Attaches or detaches the program at sched_switch. Under policies that do not move flows, it is attached only while
    /// some flows still have to follow a change, or while something waits for rings to drain past a snapshot.
    pub(super) fn update_switch_program(&mut self, is_regular: bool) -> Result<(), LoadError> {
        let deferred = self.deferred();
        let is_quiet = deferred == self.deferred_before;
        self.deferred_before = deferred;
        self.quiet_ticks =
            if is_quiet { self.quiet_ticks.saturating_add(u32::from(is_regular)) } else { 0 };
        if needs_switches(&self.settings) {
            return self.attach_switches();
        }
        {
            let rings = self.loaded.rings.lock();
            let drained = self.searches.deferring.end(&rings, &self.graces)?;
            drained.iter().for_each(|ring| rings.mark_delivered(ring));
        }
        if is_quiet {
            if self.quiet_ticks >= QUIET_TICKS && !self.is_draining && !self.waits_for_rings() {
                self.switches = None;
            }
            return Ok(());
        }
        self.attach_switches()?;
        // The thread may have fallen asleep while the program was detached. Without this, a flow that sends rarely would
        // be deferred at each of its packets.
        let rings = self.loaded.rings.lock();
        self.searches.deferring.begin(&rings, rings.all(), &self.graces);
        Ok(())
    }

    fn deferred(&self) -> u64 {
        (0..self.loaded.counts.len()).map(|index| self.loaded.counts.get(index).deferred).sum()
    }
}

/// After this many regular ticks without a deferred frame, no more are expected.
const QUIET_TICKS: u32 = 20;

/// Whether flows move although the settings stay the same.
fn needs_switches(settings: &Settings) -> bool {
    settings.remember_flows() && !settings.shadow
}
