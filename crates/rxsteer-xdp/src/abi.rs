//! The line between Rust and the BPF programs: types made of `bpf/steer_shared.h`, arrays mapped into
//! memory, and the system calls that no library here has a safe form of. All unsafe code of
//! this crate is here.

#![allow(unsafe_code)]

use libbpf_rs::MapCore;
use libbpf_rs::libbpf_sys;
use memmap2::{MmapOptions, MmapRaw};
use rxsteer_core::{DevFlow, FlowKey, ThreadClass};
use rxsteer_packet::HashWords;
use std::io;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

#[allow(
    missing_docs,
    unreachable_pub,
    unused,
    clippy::all,
    clippy::pedantic,
    clippy::undocumented_unsafe_blocks
)]
mod skeleton {
    include!(concat!(env!("OUT_DIR"), "/steer.skel.rs"));
}

/// The programs' variables that both sides use.
pub(crate) use skeleton::types::bss as Shared;
pub(crate) use skeleton::types::{
    steer_config, steer_counters, steer_ended, steer_flow, steer_flow_key, steer_hash_active,
    steer_line, steer_pair, steer_ring, steer_row, steer_running, steer_slot, steer_sparse_slot,
};
pub(crate) use skeleton::{OpenSteerSkel, SteerSkel, SteerSkelBuilder};

/// Highest CPU id the programs' tables have room for, plus one: `STEER_MAX_CPUS`.
pub const MAX_CPUS: u16 = 1024;
/// CPU maps of a configuration, the general one among them: `STEER_MAX_MAPS`.
pub(crate) const MAX_MAPS: usize = 128;
/// CPUs in all of them together: `STEER_MAP_ENTRIES`.
pub(crate) const MAP_ENTRIES: usize = 8192;
/// Interfaces are found by their index modulo this: `STEER_MAX_DEVICES`.
pub(crate) const MAX_DEVICES: u32 = 1024;
/// CPUMAP entries a CPU can have, so that one drains while the other is used: `STEER_GENERATIONS`.
pub(crate) const GENERATIONS: u32 = 2;
/// In tables of CPUs: none.
pub(crate) const NO_CPU: u16 = 0xffff;
/// Lines in one of which a flow is counted: `STEER_WAYS`.
pub(crate) const WAYS: u32 = 4;
/// Sparse slots of a CPU in the table: `STEER_SPARSE_ROW`.
pub(crate) const SPARSE_ROW: u32 = 8;

/// Of a list of CPUs plus one: several, counted together: `STEER_OTHER_CPUS`.
pub(crate) const OTHER_CPUS: u16 = 0xffff;

/// Bits of `enum steer_cpu_bits`.
pub(crate) const CPU_LINGER: u8 = 1;
pub(crate) const CPU_GENERATION: u8 = 2;
pub(crate) const CPU_DESIRED: u8 = 4;
/// Flags of an interface: enum steer_device_flags.
pub(crate) const FLUSHING: u32 = 1;
pub(crate) const MAY_BE_PARTIAL: u32 = 2;

// What one side writes and the other reads must be laid out alike.
const _: () = {
    assert!(size_of::<steer_flow_key>() == size_of::<FlowKey>());
    assert!(
        std::mem::offset_of!(steer_flow_key, src_port) == std::mem::offset_of!(FlowKey, src_port)
    );
    assert!(
        std::mem::offset_of!(steer_flow_key, protocol) == std::mem::offset_of!(FlowKey, protocol)
    );
    assert!(size_of::<skeleton::types::steer_hash_words>() == size_of::<HashWords>());
    assert!(
        size_of::<steer_slot>() == 64
            && std::mem::offset_of!(steer_slot, addresses) == size_of::<DevFlow>()
    );
    assert!(size_of::<steer_line>() == 64 && size_of::<steer_flow>() == 168);
    assert!(size_of::<steer_running>() == 64 && size_of::<steer_hash_active>() == 128);
    assert!(size_of::<steer_row>() == 8);
    assert!(size_of::<steer_pair>() == 16 && size_of::<steer_sparse_slot>() == 24);
};

/// Types of the shared header that are numbers from end to end, so that any bytes are a value.
pub(crate) trait Pod: Copy {}
macro_rules! pod {
    ($($type:ty),*) => { $(impl Pod for $type {})* };
}
pod!(
    steer_counters,
    steer_ring,
    steer_flow,
    steer_flow_key,
    steer_hash_active,
    steer_line,
    steer_ended,
    steer_pair,
    steer_row,
    steer_slot,
    steer_sparse_slot
);

/// A BPF array, mapped into memory: what the programs write is read without a system call.
#[derive(Debug)]
pub(crate) struct Array<T> {
    memory: MmapRaw,
    len: u32,
    /// Bytes from one element to the next: those of a `T`, or fewer where the programs keep only the
    /// first of its words.
    stride: usize,
    of: PhantomData<T>,
}

impl<T: Pod> Array<T> {
    /// Maps `map`, which must be an array made with `BPF_F_MMAPABLE`.
    pub(crate) fn new(map: &impl MapCore) -> io::Result<Array<T>> {
        let len = map.max_entries();
        // The kernel rounds elements up to eight bytes; ours are multiples.
        let stride = map.value_size() as usize;
        assert!(stride <= size_of::<T>() && stride.is_multiple_of(8) && align_of::<T>() <= 8);
        let memory =
            MmapOptions::new().len(len as usize * stride).map_raw(map.as_fd().as_raw_fd())?;
        Ok(Array { memory, len, stride, of: PhantomData })
    }

    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    fn at(&self, index: u32) -> *mut T {
        assert!(index < self.len, "an element of the array");
        // SAFETY: the memory has `len` elements, `stride` bytes each, and `index` is below that.
        unsafe { self.memory.as_mut_ptr().add(index as usize * self.stride).cast() }
    }

    /// The element as it is now; words that are not kept are 0. A program may write it meanwhile: each
    /// of its words is whole, and two may be of different moments.
    pub(crate) fn get(&self, index: u32) -> T {
        let mut value = MaybeUninit::<T>::zeroed();
        let (from, to) = (self.at(index).cast::<u64>(), value.as_mut_ptr().cast::<u64>());
        for word in 0..self.stride / 8 {
            // SAFETY: the words of an element, and as many of a `T`, which has at least as many; the
            // memory is aligned to a page, so each word is.
            unsafe { to.add(word).write_unaligned(from.add(word).read_volatile()) };
        }
        // SAFETY: any bytes are a `T`.
        unsafe { value.assume_init() }
    }

    /// The number that stands `offset` bytes into the element.
    pub(crate) fn get_number(&self, index: u32, offset: usize) -> u32 {
        assert!(offset.is_multiple_of(4) && offset + 4 <= self.stride, "a number of the element");
        // SAFETY: the number lies within the element and is aligned; the programs load and store it whole.
        let number = unsafe { AtomicU32::from_ptr(self.at(index).byte_add(offset).cast()) };
        // ORDER: Acquire: what was counted before it is there, too.
        number.load(Ordering::Acquire)
    }

    /// Replaces the first 8 bytes of the element, if they are `old`.
    pub(crate) fn exchange_word(&self, index: u32, old: u64, new: u64) {
        // SAFETY: an element has 8 bytes at least, and is aligned to them; the programs load and store it in
        // whole numbers.
        let word = unsafe { AtomicU64::from_ptr(self.at(index).cast()) };
        // ORDER: Relaxed: nothing else is published by it. If it is another by now, that is as well.
        let _ = word.compare_exchange(old, new, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Raises the number that stands `offset` bytes into the element to `value`, modulo 2³²; a program that raises it
    /// further meanwhile is not undone.
    pub(crate) fn raise_number(&self, index: u32, offset: usize, value: u32) {
        assert!(offset.is_multiple_of(4) && offset + 4 <= self.stride, "a number of the element");
        // SAFETY: the number lies within the element and is aligned; the programs load and store it whole.
        let number = unsafe { AtomicU32::from_ptr(self.at(index).byte_add(offset).cast()) };
        let raised = |now: u32| (value.wrapping_sub(now) as i32 > 0).then_some(value);
        // ORDER: Release, as the programs publish it. That it is there already is as well.
        let _ = number.fetch_update(Ordering::Release, Ordering::Relaxed, raised);
    }

    /// Replaces the number that stands `offset` bytes into the element, and nothing beside it.
    pub(crate) fn set_number(&self, index: u32, offset: usize, value: u32) {
        assert!(offset.is_multiple_of(4) && offset + 4 <= self.stride, "a number of the element");
        // SAFETY: the number lies within the element and is aligned; the programs load and store it whole.
        let number = unsafe { AtomicU32::from_ptr(self.at(index).byte_add(offset).cast()) };
        // ORDER: Release, as the programs publish it.
        number.store(value, Ordering::Release);
    }

    /// Replaces the element, or what is kept of it. No program may write it meanwhile.
    pub(crate) fn set(&mut self, index: u32, value: T) {
        let (from, to) = ((&raw const value).cast::<u64>(), self.at(index).cast::<u64>());
        for word in 0..self.stride / 8 {
            // SAFETY: as in `get`; the mapping is writable.
            unsafe { to.add(word).write_volatile(from.add(word).read_unaligned()) };
        }
    }
}

/// A number among the programs' variables, mapped into memory.
#[derive(Debug)]
pub(crate) struct Variable {
    memory: MmapRaw,
    offset: usize,
}

impl Variable {
    /// The number that stands `offset` bytes into `map`, which holds the programs' variables.
    pub(crate) fn new(map: &impl MapCore, offset: usize) -> io::Result<Variable> {
        let size = map.value_size() as usize;
        assert!(offset.is_multiple_of(4) && offset + 4 <= size, "a number of the map");
        let memory = MmapOptions::new().len(size).map_raw(map.as_fd().as_raw_fd())?;
        Ok(Variable { memory, offset })
    }

    fn number(&self) -> &AtomicU32 {
        // SAFETY: the number lies within the memory, which lives as long as `self`, and is aligned; the programs load
        // it whole.
        unsafe { AtomicU32::from_ptr(self.memory.as_mut_ptr().add(self.offset).cast()) }
    }

    pub(crate) fn get(&self) -> u32 {
        // ORDER: Relaxed: one thread sets it, and nothing else is published by it.
        self.number().load(Ordering::Relaxed)
    }

    pub(crate) fn set(&self, value: u32) {
        // ORDER: Relaxed, as above.
        self.number().store(value, Ordering::Relaxed);
    }
}

/// Runs a program of the type `syscall`: what it returned.
pub(crate) fn run_program(program: BorrowedFd<'_>) -> io::Result<u32> {
    let mut options = libbpf_sys::bpf_test_run_opts {
        sz: size_of::<libbpf_sys::bpf_test_run_opts>() as libbpf_sys::size_t,
        ..Default::default()
    };
    // SAFETY: the descriptor is open while it is borrowed, and the options live until the call is over.
    let error =
        unsafe { libbpf_sys::bpf_prog_test_run_opts(program.as_raw_fd(), &raw mut options) };
    if error < 0 { Err(io::Error::from_raw_os_error(-error)) } else { Ok(options.retval) }
}

/// The value that `bytes` are, if there are as many as it has.
pub(crate) fn of_bytes<T: Pod>(bytes: &[u8]) -> Option<T> {
    // SAFETY: the length is that of `T`, any bytes are a `T`, and the read needs no alignment.
    (bytes.len() == size_of::<T>()).then(|| unsafe { bytes.as_ptr().cast::<T>().read_unaligned() })
}

/// Lets the programs decide by the configuration that stands in place `index`, or steer the interface of that index.
pub(crate) fn activate(active: &mut u32, index: u32) {
    // SAFETY: the word is valid and aligned; the programs only load it.
    let active = unsafe { AtomicU32::from_ptr(active) };
    // ORDER: Release: what was written into the configuration is there before it is said to hold. The
    // programs' later loads depend on this one.
    active.store(index, Ordering::Release);
}

/// How frames come to the XDP program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// From the driver, before there is a socket buffer.
    Native,
    /// From the kernel's generic receive path, with a socket buffer: works everywhere, saves less.
    Generic,
}

impl std::fmt::Display for Mode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Mode::Native => "native",
            Mode::Generic => "generic",
        })
    }
}

/// Attaches an XDP program to an interface by a BPF link: it goes when the descriptor is closed.
pub(crate) fn link_xdp(program: BorrowedFd<'_>, ifindex: u32, mode: Mode) -> io::Result<OwnedFd> {
    let flags = match mode {
        Mode::Native => libbpf_sys::XDP_FLAGS_DRV_MODE,
        Mode::Generic => libbpf_sys::XDP_FLAGS_SKB_MODE,
    };
    let options = libbpf_sys::bpf_link_create_opts {
        sz: size_of::<libbpf_sys::bpf_link_create_opts>() as libbpf_sys::size_t,
        flags,
        ..Default::default()
    };
    // SAFETY: the descriptor is open while it is borrowed, and the options live until the call is over.
    let fd = unsafe {
        libbpf_sys::bpf_link_create(
            program.as_raw_fd(),
            ifindex as i32,
            libbpf_sys::BPF_XDP,
            &options,
        )
    };
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(-fd));
    }
    // SAFETY: the call returned a descriptor that nothing else has.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The interface that an XDP link is attached to; 0 when it is no longer.
pub(crate) fn link_ifindex(link: BorrowedFd<'_>) -> io::Result<u32> {
    let mut info = libbpf_sys::bpf_link_info::default();
    let mut length = size_of::<libbpf_sys::bpf_link_info>() as u32;
    // SAFETY: the descriptor is open, and `info` has the length that is given.
    let error = unsafe {
        libbpf_sys::bpf_obj_get_info_by_fd(
            link.as_raw_fd(),
            (&raw mut info).cast(),
            &raw mut length,
        )
    };
    if error < 0 {
        return Err(io::Error::from_raw_os_error(-error));
    }
    // SAFETY: the link is an XDP link, so this is the member that was written; it is a number.
    Ok(unsafe { info.__bindgen_anon_1.xdp.ifindex })
}

/// Puts the thread `pid` into a scheduling class (sched_setattr(2)).
pub(crate) fn set_class(pid: u32, class: ThreadClass) -> io::Result<()> {
    let (policy, nice, priority) = crate::threads::kernel_values(class);
    let attributes = libc::sched_attr {
        size: size_of::<libc::sched_attr>() as u32,
        sched_policy: policy,
        sched_flags: 0,
        sched_nice: nice,
        sched_priority: priority,
        sched_runtime: 0,
        sched_deadline: 0,
        sched_period: 0,
    };
    // SAFETY: the structure is valid for the call and says its own size; the kernel only reads it.
    let error =
        unsafe { libc::syscall(libc::SYS_sched_setattr, pid, &raw const attributes, 0_u32) };
    if error == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The hash's key words as the programs have them.
pub(crate) fn hash_words(words: &HashWords) -> skeleton::types::steer_hash_words {
    skeleton::types::steer_hash_words {
        nh_ipv4: words.nh_ipv4,
        nh_ipv6: words.nh_ipv6,
        finish_ipv4: words.finish_ipv4,
        finish_ipv6: words.finish_ipv6,
    }
}

/// A key of the programs.
pub(crate) fn key_of(key: &steer_flow_key) -> FlowKey {
    FlowKey {
        src: key.src,
        dst: key.dst,
        src_port: key.src_port,
        dst_port: key.dst_port,
        protocol: key.protocol,
        ip_version: key.ip_version,
        reserved: [0; 2],
    }
}
