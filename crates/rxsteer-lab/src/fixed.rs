//! Every frame goes to one CPU, or in turns to two, without a guard: the baseline for steering.

use std::os::fd::{AsFd, AsRawFd};

use libbpf_rs::{Link as BpfLink, MapCore, MapFlags, Object};

use crate::error::{Bpf, Result};
use crate::namespace::Namespace;
use crate::objects::{ObjectSpec, map, on_each_cpu, program};
use crate::testbed::End;

static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/fixed.o"));

/// Where the fixed steering sends frames.
#[derive(Debug, Clone, Copy)]
pub struct FixedRoute {
    /// The CPU of the first `every` frames, or of all frames.
    pub cpu: u32,
    /// The CPU of the next `every` frames.
    pub other: u32,
    /// How many frames go to each CPU in turn; 0: all go to `cpu`.
    pub every: u32,
    /// Whether frames are dropped on arrival, before they cause further cost.
    pub drop: bool,
    /// Frames that may wait for a CPU.
    pub queue_size: u32,
}

/// Fixed steering on an interface; it is detached when this is dropped.
#[derive(Debug)]
pub struct Fixed {
    object: Object,
    _link: BpfLink,
}

impl Fixed {
    /// Attaches the fixed steering.
    pub fn attach(namespace: &Namespace, end: &End, route: FixedRoute) -> Result<Self> {
        let FixedRoute { cpu, other, every, drop, queue_size } = route;
        let settings: Vec<u8> =
            [cpu, every, other, u32::from(drop)].into_iter().flat_map(u32::to_ne_bytes).collect();
        let spec = ObjectSpec {
            bytes: OBJECT,
            programs: &["fixed_entry", "fixed_arrive"],
            settings: &settings,
            map: ("fixed_cpus", cpu.max(other) + 1),
        };
        let object = spec.load()?;
        let arrive = program(&object, "fixed_arrive")?.as_fd().as_raw_fd();
        let cpus = map(&object, "fixed_cpus")?;
        for cpu in [cpu, other] {
            let value = [queue_size.to_ne_bytes(), arrive.to_ne_bytes()].concat();
            cpus.update(&cpu.to_ne_bytes(), &value, MapFlags::ANY)
                .bpf(|| format!("make a CPUMAP entry for CPU {cpu}"))?;
        }
        let index = i32::try_from(end.index).unwrap_or(i32::MAX);
        let link = namespace.inside(|| {
            let what = || format!("attach a program to {}", end.name);
            program(&object, "fixed_entry")?.attach_xdp(index).bpf(what)
        })?;
        Ok(Self { object, _link: link })
    }
}

impl Fixed {
    /// The kernel's ids of the program that redirects, and of the program where frames arrive.
    pub fn program_ids(&self) -> Result<[u32; 2]> {
        let id = |name| -> Result<u32> {
            let program = program(&self.object, name)?;
            libbpf_rs::Program::id_from_fd(program.as_fd()).bpf(|| format!("find {name}"))
        };
        Ok([id("fixed_entry")?, id("fixed_arrive")?])
    }
}

/// A program that does nothing at each context switch: the baseline for a program that does something.
#[derive(Debug)]
pub struct EmptySwitch {
    object: Object,
    _link: BpfLink,
}

impl EmptySwitch {
    /// Attaches the program.
    pub fn attach() -> Result<Self> {
        let spec = ObjectSpec {
            bytes: OBJECT,
            programs: &["fixed_switch"],
            settings: &[0; 16],
            map: ("fixed_cpus", 1),
        };
        let object = spec.load()?;
        let link = program(&object, "fixed_switch")?
            .attach()
            .bpf(|| "attach an empty program to sched_switch".to_owned())?;
        Ok(Self { object, _link: link })
    }

    /// The kernel's id of the program.
    pub fn program_id(&self) -> Result<u32> {
        let program = program(&self.object, "fixed_switch")?;
        libbpf_rs::Program::id_from_fd(program.as_fd()).bpf(|| "find fixed_switch".to_owned())
    }
}

/// Programs that do nothing at each receive and send of a socket.
#[derive(Debug)]
pub struct EmptySockets {
    object: Object,
    _links: Vec<BpfLink>,
}

impl EmptySockets {
    const PROGRAMS: [&str; 2] = ["fixed_receives", "fixed_sends"];

    /// Attaches the programs.
    pub fn attach() -> Result<Self> {
        let spec = ObjectSpec {
            bytes: OBJECT,
            programs: &Self::PROGRAMS,
            settings: &[0; 16],
            map: ("fixed_cpus", 1),
        };
        let object = spec.load()?;
        let attach = |name: &&str| {
            program(&object, name)?.attach().bpf(|| format!("attach the empty program {name}"))
        };
        let links = Self::PROGRAMS.iter().map(attach).collect::<Result<_>>()?;
        Ok(Self { object, _links: links })
    }

    /// The kernel's ids of the programs at receives and at sends.
    pub fn program_ids(&self) -> Result<[u32; 2]> {
        let id = |name: &str| {
            let program = program(&self.object, name)?;
            libbpf_rs::Program::id_from_fd(program.as_fd()).bpf(|| format!("find {name}"))
        };
        Ok([id(Self::PROGRAMS[0])?, id(Self::PROGRAMS[1])?])
    }
}

/// Counts the frames that the CPUMAP of any program delivers, until this is dropped.
#[derive(Debug)]
pub struct Arrivals {
    object: Object,
    _link: BpfLink,
}

impl Arrivals {
    /// Starts to count.
    pub fn new() -> Result<Self> {
        let spec = ObjectSpec {
            bytes: OBJECT,
            programs: &["fixed_count"],
            settings: &[0; 16],
            map: ("fixed_arrivals", 1),
        };
        let object = spec.load()?;
        let link = program(&object, "fixed_count")?
            .attach()
            .bpf(|| "attach a count to xdp_cpumap_kthread".to_owned())?;
        Ok(Self { object, _link: link })
    }

    /// The number of frames that each CPU took.
    pub fn by_cpu(&self) -> Result<Vec<u64>> {
        on_each_cpu(&self.object, "fixed_arrivals", 0)
    }
}
