//! The CPUMAP entries: each CPU's ring and kernel thread, of one of two generations.
//!
//! The owner never replaces or deletes an entry before it has drained, since the kernel would run the new thread beside
//! the old one. A ring is replaced to change its size, or when its CPU was offline (the scheduler moved its thread to
//! another CPU, and leaves it there). The new ring is the CPU's other generation. Flows move to it one by one, as the
//! order guard allows. When nothing is under way in the old ring, the owner deletes it.
//!
//! `rings/drained.rs` finds which rings have drained, and `rings/lost.rs` finds frames that rings lost.

mod drained;
mod lost;

pub(crate) use drained::{DrainSearch, Sent, Snapshot};
use lost::Account;

use crate::abi::{
    Array, GENERATIONS, LINE_WORDS, steer_delays, steer_line, steer_pair, steer_ring,
};
use crate::setup::MIN_QUEUE_SIZE;
use crate::threads::Threads;
use crate::waits::Waits;
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use rustix::thread::{Pid, sched_getaffinity};
use rxsteer_core::{CpuId, CpuSet};
use std::cell::Cell;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// The rings: what was sent to them, what waits in them, and what they have processed.
#[derive(Debug)]
pub(crate) struct Rings {
    maps: [MapHandle; GENERATIONS as usize],
    /// By CPU: the size of the ring of each generation; 0 if there is none.
    sizes: Box<[[u32; GENERATIONS as usize]]>,
    /// By CPU: the generation in use.
    generations: Box<[u8]>,
    /// By CPU: whether its thread runs on another CPU, since this CPU was offline.
    displaced: Box<[bool]>,
    pub(crate) ring_states: Array<steer_ring>,
    pub(crate) pairs: Array<steer_pair>,
    pub(crate) tails: Array<steer_line>,
    /// By ring: how many sampled frames had each delay.
    pub(crate) delays: Array<steer_delays>,
    /// By ring: the frames that had been sent to it when it was created.
    sent_when_made: Box<[u32]>,
    /// By ring: the frames sent and seen at the last tick, and for how many ticks these numbers have not changed.
    before: Box<[Noted]>,
    accounts: Box<[Cell<Account>]>,
    /// The time of the last search for lost frames.
    checked: Cell<Option<Instant>>,
    pub(crate) threads: Threads,
    /// By ring: what its thread did, and what the ring lost meanwhile.
    waits: Box<[Cell<Waits>]>,
    /// The start of the time scale of readings.
    started: Instant,
}

/// The rings, shared by two threads: the owner of the path, and a view. Both use the same account of lost frames. A
/// view holds the lock for some microseconds, so the owner never waits longer than that.
#[derive(Clone, Debug)]
pub(crate) struct SharedRings(Arc<Mutex<Rings>>);

impl SharedRings {
    pub(crate) fn new(rings: Rings) -> SharedRings {
        SharedRings(Arc::new(Mutex::new(rings)))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Rings> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Noted {
    sent: u32,
    seen: u32,
    times: u32,
}

/// The result of a request for rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Made {
    Done,
    /// The other generation of a CPU has not drained yet.
    Later,
}

impl Rings {
    pub(crate) fn new(
        maps: [MapHandle; GENERATIONS as usize],
        threads: Threads,
        ring_states: Array<steer_ring>,
        pairs: Array<steer_pair>,
        tails: Array<steer_line>,
        delays: Array<steer_delays>,
    ) -> Rings {
        let cpus = (ring_states.len() / GENERATIONS) as usize;
        Rings {
            maps,
            sizes: vec![[0; GENERATIONS as usize]; cpus].into(),
            generations: vec![0; cpus].into(),
            displaced: vec![false; cpus].into(),
            sent_when_made: vec![0; ring_states.len() as usize].into(),
            before: vec![Noted::default(); ring_states.len() as usize].into(),
            accounts: vec![Cell::new(Account::default()); ring_states.len() as usize].into(),
            checked: Cell::new(None),
            threads,
            waits: vec![Cell::new(Waits::default()); ring_states.len() as usize].into(),
            started: Instant::now(),
            ring_states,
            pairs,
            tails,
            delays,
        }
    }

    fn cpus(&self) -> u32 {
        self.generations.len() as u32
    }

    /// The generation that a CPU's frames go to, once a configuration is active that uses it.
    pub(crate) fn generation(&self, cpu: CpuId) -> u32 {
        self.generations.get(cpu.index()).map_or(0, |generation| u32::from(*generation))
    }

    /// Notes that the CPU is offline: its ring's thread runs on other CPUs until the ring is replaced.
    pub(crate) fn displace(&mut self, cpu: CpuId) {
        if let Some(displaced) = self.displaced.get_mut(cpu.index()) {
            *displaced = true;
        }
    }

    /// Ensures that each of `cpus` has a ring of `size` packets, of the generation that the next configuration uses.
    pub(crate) fn ensure(
        &mut self,
        cpus: &CpuSet,
        size: u32,
        programs: [BorrowedFd<'_>; GENERATIONS as usize],
    ) -> io::Result<Made> {
        // Pairs of a CPU and the generation that its frames will go to.
        let mut planned = Vec::new();
        for cpu in cpus.iter() {
            let index = cpu.index();
            let generation = usize::from(self.generations[index]);
            if self.sizes[index][generation] == size && !self.displaced[index] {
                continue;
            }
            let next = if self.sizes[index][generation] == 0 { generation } else { 1 - generation };
            if self.sizes[index][next] != 0 {
                return Ok(Made::Later);
            }
            planned.push((cpu, next));
        }
        for (cpu, next) in &planned {
            self.make(*cpu, *next, size, programs[*next])?;
        }
        // The class is set before a configuration sends frames to the new rings.
        self.threads.adopt(&self.all());
        // All generations are switched together. A generation that is not in use is deleted once it has drained, so
        // none may be marked unused before a configuration is active that sends nothing to it.
        for (cpu, next) in planned {
            self.generations[cpu.index()] = next as u8;
            self.displaced[cpu.index()] = false;
        }
        Ok(Made::Done)
    }

    fn make(
        &mut self,
        cpu: CpuId,
        generation: usize,
        size: u32,
        program: BorrowedFd<'_>,
    ) -> io::Result<()> {
        let number = u32::from(cpu.get()) * GENERATIONS + generation as u32;
        // The new thread registers itself with its first frame.
        let ring = steer_ring { pid: 0, ..self.ring_states.get(number) };
        self.ring_states.set(number, ring);
        put_ring(&self.maps[generation], cpu, size, program)?;
        self.sizes[cpu.index()][generation] = size;
        self.threads.forget(number);
        self.waits_of(number, Waits::begin);
        self.sent_when_made[number as usize] = self.sent(number);
        Ok(())
    }

    /// The number of frames that all CPUs sent to `ring`, modulo 2³².
    fn sent(&self, ring: u32) -> u32 {
        (0..self.cpus()).fold(0, |sum: u32, rx_cpu| sum.wrapping_add(self.tail(rx_cpu, ring)))
    }

    /// The last sequence number from `rx_cpu` to `ring`.
    fn tail(&self, rx_cpu: u32, ring: u32) -> u32 {
        let line = rx_cpu * (self.cpus() * GENERATIONS).div_ceil(LINE_WORDS) + ring / LINE_WORDS;
        self.tails.get_number(line, (ring % LINE_WORDS) as usize * size_of::<u32>())
    }

    /// What has been sent to `ring` until now.
    fn sent_by_now(&self, ring: u32) -> Sent {
        Sent { ring, tails: (0..self.cpus()).map(|rx_cpu| self.tail(rx_cpu, ring)).collect() }
    }

    /// Notes the CPUs whose ring thread was moved to another CPU; returns whether there are new ones. The list of online
    /// CPUs does not show a CPU that was offline only between two reads of it. But if its thread had work, the kernel
    /// allows the thread to run on any CPU, and does not undo that.
    pub(crate) fn find_displaced(&mut self) -> bool {
        let in_use = (0..).zip(self.generations.iter().zip(&self.sizes));
        let moved: Vec<usize> = in_use
            .filter(|(cpu, (generation, sizes))| {
                sizes[usize::from(**generation)] != 0 && !self.displaced[*cpu]
            })
            .filter(|(cpu, (generation, _))| {
                let ring = *cpu as u32 * GENERATIONS + u32::from(**generation);
                runs_elsewhere(self.ring_states.get(ring).pid, *cpu)
            })
            .map(|(cpu, _)| cpu)
            .collect();
        moved.iter().for_each(|cpu| self.displaced[*cpu] = true);
        !moved.is_empty()
    }

    /// Notes the numbers of frames sent and seen. The tick calls this: a ring whose numbers have not changed since the last
    /// call is at rest.
    pub(crate) fn note_sent(&mut self) {
        self.check_losses();
        for ring in self.all() {
            let (sent, seen) = (self.sent(ring), self.ring_states.get(ring).passed as u32);
            let before = self.before[ring as usize];
            let is_same = before.sent == sent && before.seen == seen;
            let times = if is_same { before.times.saturating_add(1) } else { 0 };
            self.before[ring as usize] = Noted { sent, seen, times };
            self.read_thread(ring);
        }
    }

    /// All existing rings.
    pub(crate) fn all(&self) -> Vec<u32> {
        self.existing().collect()
    }

    fn existing(&self) -> impl Iterator<Item = u32> + '_ {
        let rings = (0..).zip(&self.sizes);
        rings.flat_map(|(cpu, sizes)| {
            (0..GENERATIONS)
                .filter(move |generation| sizes[*generation as usize] != 0)
                .map(move |generation| cpu * GENERATIONS + generation)
        })
    }

    /// The rings that no configuration sends to any more.
    pub(crate) fn retired(&self) -> Vec<u32> {
        self.existing()
            .filter(|ring| {
                ring % GENERATIONS != u32::from(self.generations[(ring / GENERATIONS) as usize])
            })
            .collect()
    }

    /// Deletes a ring that was marked delivered and was still drained a grace period later.
    pub(crate) fn delete(&mut self, ring: u32) -> io::Result<()> {
        let (cpu, generation) = (ring / GENERATIONS, (ring % GENERATIONS) as usize);
        remove_ring(&self.maps[generation], cpu)?;
        self.sizes[cpu as usize][generation] = 0;
        self.threads.forget(ring);
        Ok(())
    }
}

fn put_ring(map: &MapHandle, cpu: CpuId, size: u32, program: BorrowedFd<'_>) -> io::Result<()> {
    let mut value = [0; 8];
    value[..4].copy_from_slice(&size.to_ne_bytes());
    value[4..].copy_from_slice(&program.as_raw_fd().to_ne_bytes());
    let key = u32::from(cpu.get()).to_ne_bytes();
    map.update(&key, &value, MapFlags::ANY).map_err(io::Error::other)
}

fn remove_ring(map: &MapHandle, cpu: u32) -> io::Result<()> {
    map.delete(&cpu.to_ne_bytes()).map_err(io::Error::other)
}

/// Tests whether a ring can be created and deleted again. Nothing may send to it.
pub(crate) fn try_ring(map: &MapHandle, cpu: CpuId, program: BorrowedFd<'_>) -> io::Result<()> {
    put_ring(map, cpu, MIN_QUEUE_SIZE, program)?;
    remove_ring(map, u32::from(cpu.get()))
}

/// Whether `pid` is the ring thread of `cpu` and may run on another CPU. (If the thread has slept since its CPU went
/// offline, it is still bound to that CPU, and can run nowhere until the CPU is online again.)
fn runs_elsewhere(pid: u32, cpu: usize) -> bool {
    let Some(thread) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return false };
    let Ok(may_run_on) = sched_getaffinity(Some(thread)) else { return false };
    let elsewhere = may_run_on.count() - u32::from(may_run_on.is_set(cpu));
    // In another PID namespace the pid may belong to another process.
    let is_ours = || {
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        name.starts_with(&format!("cpumap/{cpu}/"))
    };
    elsewhere != 0 && is_ours()
}

#[cfg(test)]
#[path = "rings_tests.rs"]
pub(crate) mod tests;
