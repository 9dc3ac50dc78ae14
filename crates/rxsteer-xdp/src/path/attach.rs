//! Interfaces that come and go: attaching, with flow tables of their own, and detaching.

use super::{Path, grace};
use crate::abi::{self, MAX_DEVICES, Mode};
use crate::gro;
use rxsteer_core::Policy;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use thiserror::Error;

/// An attached interface: its number in counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceId(pub u16);

/// Why an interface could not be attached; it is as it was.
#[derive(Debug, Error)]
pub enum AttachError {
    /// As many interfaces are attached as there is room for.
    #[error("{0} interfaces are attached already, which is all there is room for")]
    TooMany(u32),
    /// No flow tables are left for its RX queues.
    #[error(
        "its {0} RX queues need flow tables, and only {1} are left; start with more interfaces or a smaller --flow-cnt"
    )]
    NoTables(u32, u32),
    /// Its index meets that of another in the table of interfaces.
    #[error(
        "its index {0} can't be told from interface index {1} in a table of {MAX_DEVICES}; make it anew to get another"
    )]
    Collision(u32, u32),
    /// Another XDP program is attached.
    #[error("another XDP program is attached to it, which is left alone")]
    Busy,
    /// The driver does not do what is asked.
    #[error("its driver refuses XDP in {0} mode; try --mode generic")]
    NotSupported(Mode),
    /// Something else.
    #[error("the kernel refused to attach: {0}")]
    Refused(#[from] io::Error),
}

/// How an interface's attachment is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkState {
    /// Frames pass our program.
    Attached,
    /// They do not any more: the interface is gone, or somebody detached the program.
    Gone,
}

/// An interface that is attached.
#[derive(Debug)]
pub(super) struct Device {
    pub(super) ifindex: u32,
    first_table: u32,
    queues: u32,
    link: OwnedFd,
}

impl Path {
    /// Attaches an interface with so many RX queues. Works without capabilities.
    ///
    /// # Errors
    /// [`AttachError`].
    pub fn attach(&mut self, ifindex: u32, rx_queues: u16) -> Result<DeviceId, AttachError> {
        let number = self.devices.iter().position(Option::is_none);
        let number = number.ok_or(AttachError::TooMany(self.devices.len() as u32))?;
        let queues = match self.mode {
            Mode::Native => u32::from(rx_queues.max(1)),
            // Several CPUs may receive one queue at a time: tables are by CPU.
            Mode::Generic => self.loaded.sizes.cpus,
        };
        let first_table = self.free_tables(queues)?;
        let place = (ifindex % MAX_DEVICES) as usize;
        let other = self.bss().steer_devices[place].ifindex;
        if other == ifindex {
            // The table's entry is in use, by an attachment that was not detached yet.
            return Err(AttachError::Busy);
        }
        if other != 0 {
            return Err(AttachError::Collision(ifindex, other));
        }
        // Until the table names it, its frames go on as without us.
        let (program, mode) = (&self.loaded.skel.progs.steer_entry, self.mode);
        let link = abi::link_xdp(program.as_fd(), ifindex, mode).map_err(|error| {
            match rustix::io::Errno::from_io_error(&error) {
                Some(rustix::io::Errno::BUSY | rustix::io::Errno::EXIST) => AttachError::Busy,
                Some(rustix::io::Errno::OPNOTSUPP) => AttachError::NotSupported(mode),
                _ => AttachError::Refused(error),
            }
        })?;
        self.clear(number as u32, first_table, queues);
        // While it settles its frames go through other rings, and all are guarded until those have drained.
        self.leave_plain();
        let settles = !(self.settings.shadow || self.settings.policy == Policy::None);
        let device = &mut self.bss().steer_devices[place];
        device.device = number as u16;
        device.queues = queues as u16;
        device.first_table = first_table;
        // Frames that go on just now without us may be held by GRO: see steer_shared.h. Where all go straight
        // on, they stay with them.
        device.settling = u32::from(settles);
        abi::activate(&mut device.ifindex, ifindex);
        if settles {
            self.wait_for_straight(&[ifindex]);
        } else {
            grace();
        }
        self.bss().steer_devices[place].settling = 0;
        self.tables[first_table as usize..][..queues as usize].fill(true);
        self.devices[number] = Some(Device { ifindex, first_table, queues, link });
        Ok(DeviceId(number as u16))
    }

    /// Detaches an interface at once. What is under way in rings is still delivered; to keep order,
    /// drain first ([`Path::begin_drain`]). Its counts are kept until another interface gets its number.
    pub fn detach(&mut self, id: DeviceId) {
        let Some(device) = self.devices.get_mut(usize::from(id.0)).and_then(Option::take) else {
            return;
        };
        let place = (device.ifindex % MAX_DEVICES) as usize;
        self.tables[device.first_table as usize..][..device.queues as usize].fill(false);
        drop(device.link);
        grace();
        self.bss().steer_devices[place].ifindex = 0;
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

    pub(crate) fn devices(&self) -> impl Iterator<Item = (DeviceId, u32, u32)> + '_ {
        let tables = |device: &Device| (device.first_table, device.queues);
        let devices = (0..).zip(&self.devices);
        devices.filter_map(move |(number, device)| {
            device.as_ref().map(tables).map(|(first, queues)| (DeviceId(number), first, queues))
        })
    }

    /// Waits until what went straight on until now is in the stack: every poll is over, and nothing of it is held
    /// by GRO any more.
    pub(super) fn wait_for_straight(&self, indices: &[u32]) {
        grace();
        let hold = gro::longest_hold(indices, self.loaded.hz);
        if !hold.is_zero() {
            std::thread::sleep(hold);
            // The poll that handed it on is over, too.
            grace();
        }
    }

    fn free_tables(&self, queues: u32) -> Result<u32, AttachError> {
        let free = self.tables.iter().filter(|taken| !**taken).count() as u32;
        let mut windows = self.tables.windows(queues as usize);
        let found = windows.position(|tables| tables.iter().all(|taken| !taken));
        found.map(|first| first as u32).ok_or(AttachError::NoTables(queues, free))
    }

    /// Nothing of a former interface is left in the tables and counts of a new one.
    fn clear(&mut self, number: u32, first_table: u32, queues: u32) {
        let log = self.loaded.sizes.flow_log;
        for slot in first_table << log..(first_table + queues) << log {
            self.loaded.slots.set(slot, Default::default());
        }
        for cpu in 0..self.loaded.sizes.cpus {
            let index = cpu * self.loaded.sizes.interfaces + number;
            self.loaded.counts.set(index, Default::default());
        }
    }
}
