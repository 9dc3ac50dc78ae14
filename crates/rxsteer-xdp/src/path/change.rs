//! A change of settings, step by step, so that it reorders no flow; and the work between changes.
//!
//! A comment at each step says what it prevents; docs/in-kernel.md lists the steps in order.

use super::attach::Device;
use super::{Looks, Path, attach};
use crate::abi::{self, CONFIG_FLUSHING, FLUSHING, MAX_DEVICES, PARSE_NUMBERS};
use crate::compile::{Local, compile};
use crate::load::{LoadError, Loaded, SOCKET_TRACEPOINTS};
use crate::rings::Made;
use crate::setup::Settings;
use rxsteer_core::CpuSet;
use std::io;
use std::os::fd::AsFd;

impl Path {
    /// Makes the change if that is possible now; returns whether it was made.
    pub(super) fn change_to(&mut self, settings: &Settings) -> Result<bool, LoadError> {
        self.attach_tracepoints(settings)?;
        self.attach_switches()?;
        // First, frames that went unguarded are guarded again.
        self.guard_again()?;
        if !self.are_unguarded_delivered()? {
            return Ok(false);
        }
        if settings.shadow && !self.settings.shadow {
            // In shadow mode every frame passes, so nothing may be under way.
            let passing = self.settings.without_steering();
            self.decide_by(&passing)?;
            if !self.are_drained()? {
                return Ok(false);
            }
        }
        if self.make_rings(settings)? == Made::Later {
            return Ok(false);
        }
        // If frames pass before and after the change, they also pass in between: the rings would delay some of them.
        self.set_flushing(self.passes_frames && !settings.shadow)?;
        self.decide_by(settings)?;
        self.set_flushing(false)?;
        if !settings.policy.is_rfs() {
            self.desired_links = None;
        }
        self.before_limit = match settings.flow_limit {
            Some(_) => {
                let sent = self.loaded.rings.lock().sent_to_all();
                self.graces.wait()?;
                Some(self.loaded.rings.lock().snapshot_since(sent))
            }
            None => None,
        };
        self.settings = settings.clone();
        self.quiet_ticks = 0;
        Ok(true)
    }

    /// Switches flushing on or off. When it is on, all frames of all interfaces go through the ring of the receiving
    /// CPU from the moment this returns.
    fn set_flushing(&mut self, flushes: bool) -> io::Result<()> {
        let indices: Vec<u32> =
            self.devices.iter().flatten().map(|device| device.ifindex).collect();
        for index in &indices {
            let device_index = (index % MAX_DEVICES) as usize;
            let flags = &mut self.bss().steer_devices[device_index].flags;
            *flags = if flushes { *flags | FLUSHING } else { *flags & !FLUSHING };
        }
        if flushes { self.wait_for_passed(&indices) } else { Ok(()) }
    }

    /// The number of the active configuration.
    pub(super) fn active_part(&self) -> u32 {
        self.loaded.skel.maps.bss_data.as_deref().map_or(0, |bss| bss.steer_active & 1)
    }

    /// Writes the inactive configuration, activates it, and waits until no program uses the former one.
    pub(super) fn decide_by(&mut self, settings: &Settings) -> io::Result<()> {
        self.activate(settings, false)?;
        self.wait_for_readers()
    }

    /// Waits until no program uses the inactive configuration any more, so that it can be rewritten.
    fn wait_for_readers(&mut self) -> io::Result<()> {
        if self.may_be_read {
            self.graces.wait()?;
            self.may_be_read = false;
            let reads_tunnels = self.loaded.rules.read_tunnels(self.active_part());
            if !reads_tunnels {
                self.bss().steer_rule_options = 0;
            }
        }
        Ok(())
    }

    /// Writes the inactive configuration, and activates it; with `unguarded`, without the order guard: see
    /// `unguarded.rs`. Programs may use the former one for a grace period.
    pub(super) fn activate(&mut self, settings: &Settings, unguarded: bool) -> io::Result<()> {
        self.wait_for_readers()?;
        self.passes_frames = settings.has_passed_flows();
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
        self.may_be_read = true;
        Ok(())
    }

    /// The flow limit computes the number of waiting frames from sequence numbers. Since the limit was activated, every
    /// frame that can carry its number does so. If a source no longer sends, its last frames from before are marked
    /// delivered once they are.
    pub(super) fn mark_delivered_before_limit(&mut self) -> io::Result<()> {
        let rings = self.loaded.rings.lock();
        if let Some(snapshots) = &self.before_limit
            && rings.have_drained_past(snapshots, &mut self.looks.limit, &mut self.graces)?
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
        let Looks { marked, retired, .. } = &mut self.looks;
        for ring in marked.end(&rings, &self.graces)? {
            // A change may have made the ring again since the look began.
            if rings.retired().contains(&ring.ring) {
                rings.delete(ring.ring)?;
            }
        }
        let drained = retired.end(&rings, &self.graces)?;
        drained.iter().for_each(|ring| rings.mark_delivered(ring));
        marked.begin(
            &rings,
            drained.into_iter().map(|ring| ring.ring).collect(),
            &mut self.graces,
        )?;
        retired.begin(&rings, rings.retired(), &mut self.graces)?;
        Ok(())
    }

    pub(super) fn attach_tracepoints(&mut self, settings: &Settings) -> Result<(), LoadError> {
        if needs_switches(settings) {
            self.attach_switches()?;
        }
        if settings.policy.is_rfs() && self.desired_links.is_none() {
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

    /// If flows do not move by themselves, the program at sched_switch is attached only while some flows wait to follow
    /// a change, or while something waits for rings to drain past a snapshot.
    pub(super) fn look_at_switches(&mut self) -> Result<(), LoadError> {
        let deferred = self.deferred();
        let is_quiet = deferred == self.deferred_before;
        self.deferred_before = deferred;
        self.quiet_ticks = if is_quiet { self.quiet_ticks.saturating_add(1) } else { 0 };
        if needs_switches(&self.settings) {
            return self.attach_switches();
        }
        {
            let rings = self.loaded.rings.lock();
            let drained = self.looks.deferring.end(&rings, &self.graces)?;
            drained.iter().for_each(|ring| rings.mark_delivered(ring));
        }
        if is_quiet {
            if self.quiet_ticks >= QUIET_TICKS && !self.is_draining && !self.waits_for_rings() {
                self.switches = None;
            }
            return Ok(());
        }
        self.attach_switches()?;
        // The thread may have fallen asleep unseen. A flow that sends less often than switches are looked at would
        // otherwise be deferred at each of its packets.
        let rings = self.loaded.rings.lock();
        self.looks.deferring.begin(&rings, rings.all(), &mut self.graces)?;
        Ok(())
    }

    fn deferred(&self) -> u64 {
        (0..self.loaded.counts.len()).map(|index| self.loaded.counts.get(index).deferred).sum()
    }
}

/// The number of ticks without a deferred frame after which no more are expected.
const QUIET_TICKS: u32 = 20;

/// Whether flows move even though the settings stay.
fn needs_switches(settings: &Settings) -> bool {
    settings.remember_flows() && !settings.shadow
}
