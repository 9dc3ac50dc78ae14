//! Attaches interfaces, with their flow tables, and detaches them.

use super::Path;
use crate::abi::{self, FLUSHING, MAX_DEVICES, MAY_BE_PARTIAL, Mode};
use crate::compile::Rows;
use crate::grace::{Graces, Ticket};
use crate::gro;
use crate::live::DeviceId;
use crate::rings::DrainSearch;
use crate::setup::Settings;
use crate::view::KnownDevice;
use rxsteer_core::Policy;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};
use thiserror::Error;

/// Why an interface could not be attached; the interface is unchanged.
#[derive(Debug, Error)]
pub enum AttachError {
    /// The maximum number of interfaces is attached already.
    #[error("{0} interfaces are attached already, which is the limit")]
    TooMany(u32),
    /// No flow tables are left for its RX queues.
    #[error(
        "its {0} RX queues need a flow table each, and only {1} are left in a row; start rxsteer with a smaller --flow-cnt, \
         which makes more tables of the same memory, or give the interface fewer queues (ethtool -L)"
    )]
    NoTables(u32, u32),
    /// Its index collides with that of another interface in the table of interfaces.
    #[error(
        "its index {0} collides with interface index {1} in a table of {MAX_DEVICES}; delete and recreate it to get \
         another index"
    )]
    Collision(u32, u32),
    /// Another XDP program is attached.
    #[error("another XDP program is attached to it, and rxsteer does not replace it")]
    Busy,
    /// The driver does not support this mode.
    #[error("its driver refuses XDP in {0} mode; try --mode generic")]
    NotSupported(Mode),
    /// Programs may still use the entries of an interface that was detached a moment ago.
    #[error(
        "an interface was detached a moment ago, and frames may still be under way there; try it again"
    )]
    StillDetaching,
    /// Something else.
    #[error("the kernel refused to attach: {0}")]
    Refused(#[from] io::Error),
}

/// The state of an interface's attachment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkState {
    /// Frames pass our program.
    Attached,
    /// Frames no longer pass our program: the interface is gone, or another process detached the program.
    Gone,
}

/// An interface that is attached.
#[derive(Debug)]
pub(super) struct Device {
    pub(super) ifindex: u32,
    pub(super) name: String,
    first_table: u32,
    queues: u32,
    link: OwnedFd,
}

/// An interface whose frames are not steered yet.
#[derive(Debug)]
pub(super) struct Attaching {
    pub(super) number: usize,
    may_be_partial: bool,
    /// Whether its attachment continues although a requested change has not begun.
    is_before_change: bool,
    /// `None` until the table of interfaces names it: frames pass as if no program were attached. Afterwards they go
    /// through the receiving CPU's ring until this wait is over.
    pub(super) passing: Option<Passing>,
}

impl Attaching {
    /// Whether a change that has not begun waits for it.
    pub(super) fn is_first(&self) -> bool {
        self.is_before_change || self.passing.is_some()
    }
}

/// An interface that was detached. Until the grace period is over, programs may use its entry and its tables.
#[derive(Debug)]
pub(super) struct Detaching {
    id: DeviceId,
    device: Detached,
    ticket: Ticket,
}

/// The remaining entries of a detached interface.
#[derive(Debug)]
pub(super) struct Detached {
    pub(super) ifindex: u32,
    pub(super) name: String,
    pub(super) first_table: u32,
    pub(super) queues: u32,
}

/// The wait until all passed frames are in the stack: every poll has ended, and GRO holds none of them any more.
#[derive(Debug)]
pub(super) enum Passing {
    /// Until every poll under way has ended. GRO may hold frames for this long afterwards.
    Polled(Ticket, Duration),
    /// Until GRO has passed on the frames that it held.
    Held(Instant),
    /// Until the poll in which GRO did so has ended as well.
    HandedOn(Ticket),
    /// No frame that has passed is under way.
    Over,
}

impl Passing {
    pub(super) fn is_over(&mut self, graces: &Graces) -> io::Result<bool> {
        loop {
            let has_ended = match self {
                Passing::Polled(ticket, _) | Passing::HandedOn(ticket) => {
                    graces.has_passed(ticket)?
                }
                Passing::Held(until) => Instant::now() >= *until,
                Passing::Over => return Ok(true),
            };
            if !has_ended {
                return Ok(false);
            }
            *self = match self {
                Passing::Polled(_, hold) if !hold.is_zero() => {
                    Passing::Held(Instant::now() + *hold)
                }
                Passing::Held(_) => Passing::HandedOn(graces.begin()),
                _ => Passing::Over,
            };
        }
    }
}

impl Path {
    /// Attaches an interface with this name and number of RX queues. This works without capabilities. With
    /// `may_be_partial`, the program lets frames pass whose TCP or UDP checksum the sender left to a device; virtual
    /// interfaces (veth, tun, virtio) receive such frames. The following ticks complete the attachment: for a few
    /// milliseconds, all frames of the interface go through the receiving CPU's ring.
    ///
    /// # Errors
    /// [`AttachError`].
    pub fn attach(
        &mut self,
        ifindex: u32,
        name: &str,
        rx_queues: u16,
        may_be_partial: bool,
    ) -> Result<DeviceId, AttachError> {
        let is_free = |number: &usize| {
            let leaves = |detaching: &Detaching| usize::from(detaching.id.0) == *number;
            self.devices[*number].is_none() && !self.detaching.iter().any(leaves)
        };
        let number = (0..self.devices.len()).find(is_free);
        let number = number
            .ok_or(AttachError::TooMany(self.devices.len() as u32))
            .map_err(|why| self.for_now(why))?;
        let queues = match self.mode {
            Mode::Native => u32::from(rx_queues.max(1)),
            // Several CPUs may receive from one queue at the same time, so there is one flow table per CPU. Rows are per queue.
            Mode::Generic => self.loaded.sizes.cpus.max(rx_queues.into()),
        };
        let first_table = self.free_tables(queues).map_err(|why| self.for_now(why))?;
        let place = |index: u32| index % MAX_DEVICES;
        if let Some(other) =
            self.devices.iter().flatten().find(|other| place(other.ifindex) == place(ifindex))
        {
            return Err(match other.ifindex {
                same if same == ifindex => AttachError::Busy,
                other => AttachError::Collision(ifindex, other),
            });
        }
        if self.detaching.iter().any(|detaching| place(detaching.device.ifindex) == place(ifindex))
        {
            return Err(AttachError::StillDetaching);
        }
        // Until the table names the interface, its frames pass as if no program were attached.
        let (program, mode) = (&self.loaded.skel.progs.steer_entry, self.mode);
        let link = abi::link_xdp(program.as_fd(), ifindex, mode).map_err(|error| {
            match rustix::io::Errno::from_io_error(&error) {
                Some(rustix::io::Errno::BUSY | rustix::io::Errno::EXIST) => AttachError::Busy,
                Some(rustix::io::Errno::OPNOTSUPP) => AttachError::NotSupported(mode),
                _ => AttachError::Refused(error),
            }
        })?;
        self.clear_counts(number as u32);
        self.tables[first_table as usize..][..queues as usize].fill(true);
        let name = name.to_owned();
        self.devices[number] = Some(Device { ifindex, name, first_table, queues, link });
        // In generic mode a frame is already a socket buffer, which keeps the mark.
        let may_be_partial = may_be_partial && mode == Mode::Native;
        // An interface that is attached after a change was requested waits for the change. Otherwise the change would
        // never begin if interfaces are attached without a pause.
        let is_before_change = self.requested.is_none() && self.change.is_none();
        self.attaching.push(Attaching { number, may_be_partial, is_before_change, passing: None });
        // If this fails, the next tick reports the same error.
        let _ = self.advance_attaching();
        self.publish();
        Ok(DeviceId(number as u16))
    }

    /// The error `why`. While entries of detached interfaces are still in use, the error may be temporary.
    fn for_now(&self, why: AttachError) -> AttachError {
        if self.detaching.is_empty() { why } else { AttachError::StillDetaching }
    }

    /// Continues to steer the interfaces that were attached; returns whether all are steered.
    pub(super) fn advance_attaching(&mut self) -> io::Result<bool> {
        if self.attaching.is_empty() {
            return Ok(true);
        }
        // A change waits only for frames of the interfaces that it began with, so new interfaces wait for the change.
        if self.change.is_some() {
            return Ok(false);
        }
        if self.requested.is_none() {
            self.arriving_before_change();
        }
        if !self.attaching.iter().any(Attaching::is_first) {
            return Ok(false);
        }
        // While an interface flushes, its frames go through other rings. All frames are guarded until those rings have
        // drained.
        let are_guarded = self.guard_again()?;
        if self.is_unguarded() {
            return Ok(false);
        }
        for at in 0..self.attaching.len() {
            if self.attaching[at].passing.is_none() && self.attaching[at].is_before_change {
                self.attaching[at].passing = Some(self.begin_to_steer(at));
            }
        }
        if !are_guarded {
            return Ok(false);
        }
        let (before, mut result) = (self.attaching.len(), Ok(()));
        let graces = &self.graces;
        self.attaching.retain_mut(|attaching| {
            let Some(passing) = &mut attaching.passing else { return true };
            !passing.is_over(graces).unwrap_or_else(|why| {
                result = Err(why);
                false
            })
        });
        self.set_flushing();
        if self.attaching.len() != before {
            // A program that read the flag before may still send a frame to a ring.
            self.searches.all = DrainSearch::default();
        }
        result.map(|()| self.attaching.is_empty())
    }

    /// Puts all waiting interfaces before the next change, so that none waits for more than one change.
    pub(super) fn arriving_before_change(&mut self) {
        self.attaching.iter_mut().for_each(|attaching| attaching.is_before_change = true);
    }

    /// Enters an interface in the table of interfaces: from now on the program steers its frames. Returns the wait during
    /// which they flush.
    fn begin_to_steer(&mut self, at: usize) -> Passing {
        let Attaching { number, may_be_partial, .. } = self.attaching[at];
        let Some(Device { ifindex, name, first_table, queues, .. }) = &self.devices[number] else {
            return Passing::Over;
        };
        let (ifindex, name, first_table, queues) = (*ifindex, name.clone(), *first_table, *queues);
        self.write_rows_of(&name, first_table, queues);
        self.loaded.rules.name_interface(number, &name);
        let all_pass =
            self.settings.policy == Policy::None && self.settings.packet_rules.is_empty();
        let flushes = !self.settings.shadow && !all_pass;
        let device = &mut self.bss().steer_devices[(ifindex % MAX_DEVICES) as usize];
        device.device = number as u16;
        device.queues = queues as u16;
        device.first_table = first_table;
        // GRO may still hold frames that passed without our program just before; see steer_shared.h. If all frames
        // pass, they stay after those frames in any case.
        device.flags = if flushes { FLUSHING } else { 0 };
        if may_be_partial {
            device.flags |= MAY_BE_PARTIAL;
        }
        abi::activate(&mut device.ifindex, ifindex);
        if flushes { self.passing(&[ifindex]) } else { Passing::Over }
    }

    /// Detaches an interface at once. Frames in rings are still delivered; to keep the order, drain first
    /// ([`Path::begin_drain`]). The interface's counts are kept until another interface gets its number; they are complete
    /// once [`Path::is_fully_detached`].
    pub fn detach(&mut self, id: DeviceId) {
        let Some(device) = self.devices.get_mut(usize::from(id.0)).and_then(Option::take) else {
            return;
        };
        self.attaching.retain(|attaching| attaching.number != usize::from(id.0));
        let Device { ifindex, name, first_table, queues, link } = device;
        drop(link);
        let device = Detached { ifindex, name, first_table, queues };
        self.detaching.push(Detaching { id, device, ticket: self.graces.begin() });
    }

    /// Whether the interface is detached, and no program works for it any more. The ticks update this.
    #[must_use]
    pub fn is_fully_detached(&self, id: DeviceId) -> bool {
        let is_attached = self.devices.get(usize::from(id.0)).is_some_and(Option::is_some);
        !is_attached && !self.detaching.iter().any(|detaching| detaching.id == id)
    }

    /// Frees the entries of interfaces that were detached at least a grace period ago.
    pub(super) fn advance_detaching(&mut self) -> io::Result<()> {
        let mut result = Ok(());
        let graces = &self.graces;
        let is_fully_detached = |detaching: &mut Detaching| {
            graces.has_passed(&mut detaching.ticket).unwrap_or_else(|why| {
                result = Err(why);
                false
            })
        };
        let left: Vec<Detaching> = self.detaching.extract_if(.., is_fully_detached).collect();
        for Detaching { id, device, .. } in left {
            let Detached { ifindex, first_table, queues, .. } = device;
            self.tables[first_table as usize..][..queues as usize].fill(false);
            let entry = &mut self.bss().steer_devices[(ifindex % MAX_DEVICES) as usize];
            if entry.ifindex == ifindex {
                entry.ifindex = 0;
            }
            self.publish();
            self.end_flows(id, device);
        }
        result
    }

    /// Sets the interface's new name. CPU maps and bindings for that name take effect in the next tick.
    pub fn rename(&mut self, id: DeviceId, name: &str) {
        let device = self.devices.get_mut(usize::from(id.0)).and_then(Option::as_mut);
        if let Some(device) = device {
            name.clone_into(&mut device.name);
            if !self.is_draining {
                let latest = self.latest().clone();
                self.requested.get_or_insert(latest);
            }
        }
    }

    /// Whether frames of the interface still pass our program.
    #[must_use]
    pub fn link_state(&self, id: DeviceId) -> LinkState {
        let device = self.devices.get(usize::from(id.0)).and_then(Option::as_ref);
        match device.map(|device| abi::link_ifindex(device.link.as_fd())) {
            Some(Ok(ifindex)) if ifindex != 0 => LinkState::Attached,
            _ => LinkState::Gone,
        }
    }

    pub(super) fn known_devices(&self) -> Vec<KnownDevice> {
        let devices = (0..).zip(&self.devices);
        let known = devices.filter_map(|(number, device)| {
            let Device { ifindex, name, first_table, queues, .. } = device.as_ref()?;
            Some(KnownDevice {
                id: DeviceId(number),
                ifindex: *ifindex,
                name: name.clone(),
                first_table: *first_table,
                queues: *queues,
            })
        });
        known.collect()
    }

    /// Writes the rows of all interfaces' RX queues for `settings`, in the part of configuration `part`.
    pub(super) fn write_rows(&mut self, settings: &Settings, part: u32) {
        let rows = Rows::new(settings);
        for device in self.devices.iter().flatten() {
            for queue in 0..device.queues {
                let index = part * self.loaded.sizes.tables + device.first_table + queue;
                self.loaded.rows.set(index, rows.of(&device.name, queue as u16));
            }
        }
    }

    /// Writes the rows of an interface that is not steered yet, for the active configuration.
    fn write_rows_of(&mut self, name: &str, first_table: u32, queues: u32) {
        let part = self.bss().steer_active & 1;
        let rows = Rows::new(&self.settings);
        for queue in 0..queues {
            let index = part * self.loaded.sizes.tables + first_table + queue;
            self.loaded.rows.set(index, rows.of(name, queue as u16));
        }
    }

    /// The number of entries of the CPU map for the flows of a flow table.
    pub(crate) fn map_len(&self, table: u32) -> usize {
        let has = |device: &&Device| {
            (device.first_table..device.first_table + device.queues).contains(&table)
        };
        let device = self.devices.iter().flatten().find(has);
        let map = device.map_or(&self.settings.cpus, |device| {
            self.settings.map_of(&device.name, (table - device.first_table) as u16)
        });
        map.len()
    }

    /// Begins to wait for the passed frames of these interfaces.
    pub(super) fn passing(&self, indices: &[u32]) -> Passing {
        Passing::Polled(self.graces.begin(), gro::longest_hold(indices, self.loaded.hz))
    }

    fn free_tables(&self, queues: u32) -> Result<u32, AttachError> {
        let free = self.tables.iter().filter(|taken| !**taken).count() as u32;
        let mut windows = self.tables.windows(queues as usize);
        let found = windows.position(|tables| tables.iter().all(|taken| !taken));
        found.map(|first| first as u32).ok_or(AttachError::NoTables(queues, free))
    }

    /// Clears the counts of a former interface for a new one. The former interface's tables were emptied when it was
    /// detached.
    fn clear_counts(&mut self, number: u32) {
        for cpu in 0..self.loaded.sizes.cpus {
            let index = cpu * self.loaded.sizes.interfaces + number;
            self.loaded.counts.set(index, Default::default());
        }
    }
}
