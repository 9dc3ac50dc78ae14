//! The CPUMAP entries: each CPU's ring and kernel thread, in one of two banks.
//!
//! An entry is never replaced or deleted before it has drained: the kernel would let the new thread run
//! beside the old one. So a ring of another size, or for a CPU that came back (the scheduler moved its
//! thread away and leaves it there), is made in the CPU's other bank; flows go over one by one as the
//! order guard allows; and when nothing is under way in the old one, it is deleted.

use crate::abi::{Array, BANKS, steer_dst, steer_line, steer_pair};
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use rustix::thread::{Pid, sched_getaffinity};
use rxsteer_core::{CpuId, CpuSet};
use std::cell::Cell;
use std::io;
use std::mem::offset_of;
use std::os::fd::{AsRawFd, BorrowedFd};

/// What is sent to, waiting in, and done by the rings.
#[derive(Debug)]
pub(crate) struct Rings {
    maps: [MapHandle; BANKS as usize],
    /// By CPU: the size of the ring in each bank, 0 where there is none.
    sizes: Box<[[u32; BANKS as usize]]>,
    /// By CPU: the bank in use.
    banks: Box<[u8]>,
    /// By CPU: its thread runs elsewhere, since the CPU was away.
    displaced: Box<[bool]>,
    pub(crate) dsts: Array<steer_dst>,
    pub(crate) pairs: Array<steer_pair>,
    pub(crate) tails: Array<steer_line>,
    /// By dst: what it had been sent when its ring was made.
    sent_when_made: Box<[u32]>,
    /// By dst: what it had been sent and had seen when that was last noted, and how often in a row it was
    /// the same.
    before: Box<[Noted]>,
    /// By dst: frames that were found lost though no later one has shown it yet.
    found_lost: Box<[Cell<u64>]>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Noted {
    sent: u32,
    seen: u32,
    times: u32,
}

/// A ring that nothing is under way in, and by src the last number sent there when that was found.
#[derive(Clone, Debug)]
pub(crate) struct Drained {
    pub(crate) dst: u32,
    tails: Box<[u32]>,
}

/// So many looks in a row nothing has to move before a thread that can't be looked at is taken to sleep.
const STILL: u32 = 20;

/// Whether what was asked for is so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Made {
    Done,
    /// The other bank of a CPU has not drained yet.
    Later,
}

impl Rings {
    pub(crate) fn new(
        maps: [MapHandle; BANKS as usize],
        dsts: Array<steer_dst>,
        pairs: Array<steer_pair>,
        tails: Array<steer_line>,
    ) -> Rings {
        let cpus = (dsts.len() / BANKS) as usize;
        Rings {
            maps,
            sizes: vec![[0; BANKS as usize]; cpus].into(),
            banks: vec![0; cpus].into(),
            displaced: vec![false; cpus].into(),
            sent_when_made: vec![0; dsts.len() as usize].into(),
            before: vec![Noted::default(); dsts.len() as usize].into(),
            found_lost: vec![Cell::new(0); dsts.len() as usize].into(),
            dsts,
            pairs,
            tails,
        }
    }

    fn cpus(&self) -> u32 {
        self.banks.len() as u32
    }

    /// The bank that a CPU's frames go to, once a configuration says so.
    pub(crate) fn bank(&self, cpu: CpuId) -> u32 {
        self.banks.get(cpu.index()).map_or(0, |bank| u32::from(*bank))
    }

    /// The CPU is away: its thread runs elsewhere until it gets a new one.
    pub(crate) fn displace(&mut self, cpu: CpuId) {
        if let Some(displaced) = self.displaced.get_mut(cpu.index()) {
            *displaced = true;
        }
    }

    /// Sees that each of `cpus` has a ring of `size` packets, in the bank that is in use from the next
    /// configuration on.
    pub(crate) fn ensure(
        &mut self,
        cpus: &CpuSet,
        size: u32,
        program: BorrowedFd<'_>,
    ) -> io::Result<Made> {
        // By CPU: the bank its frames are to go to.
        let mut planned = Vec::new();
        for cpu in cpus.iter() {
            let index = cpu.index();
            let bank = usize::from(self.banks[index]);
            if self.sizes[index][bank] == size && !self.displaced[index] {
                continue;
            }
            let place = if self.sizes[index][bank] == 0 { bank } else { 1 - bank };
            if self.sizes[index][place] != 0 {
                return Ok(Made::Later);
            }
            planned.push((cpu, place));
        }
        for (cpu, place) in &planned {
            self.make(*cpu, *place, size, program)?;
        }
        // All together: a bank that isn't in use is deleted once it has drained, so none may be said to be out
        // of use before there is a configuration that sends nothing there.
        for (cpu, place) in planned {
            self.banks[cpu.index()] = place as u8;
            self.displaced[cpu.index()] = false;
        }
        Ok(Made::Done)
    }

    fn make(
        &mut self,
        cpu: CpuId,
        bank: usize,
        size: u32,
        program: BorrowedFd<'_>,
    ) -> io::Result<()> {
        let number = u32::from(cpu.get()) * BANKS + bank as u32;
        // The new thread makes itself known with its first frame.
        let dst = steer_dst { pid: 0, ..self.dsts.get(number) };
        self.dsts.set(number, dst);
        let mut value = [0; 8];
        value[..4].copy_from_slice(&size.to_ne_bytes());
        value[4..].copy_from_slice(&program.as_raw_fd().to_ne_bytes());
        let key = u32::from(cpu.get()).to_ne_bytes();
        self.maps[bank].update(&key, &value, MapFlags::ANY).map_err(io::Error::other)?;
        self.sizes[cpu.index()][bank] = size;
        self.sent_when_made[number as usize] = self.sent(number);
        Ok(())
    }

    /// What `dst` was sent by all CPUs, modulo 2³².
    fn sent(&self, dst: u32) -> u32 {
        (0..self.cpus()).fold(0u32, |sent, src| sent.wrapping_add(self.tail(src, dst)))
    }

    fn tail(&self, src: u32, dst: u32) -> u32 {
        let row = (self.cpus() * BANKS).div_ceil(16);
        self.tails.get(src * row + dst / 16).word[(dst % 16) as usize]
    }

    /// Frames that never came to `dst` and frames that are under way to it. Those lost never get fewer. Whether
    /// the last ones were lost shows with the next one that comes, or by [`Rings::find_lost`].
    pub(crate) fn lost_and_waiting(&self, dst: u32) -> (u64, u64) {
        let state = self.dsts.get(dst);
        let lost = state.lost.max(self.found_lost[dst as usize].get());
        let seen = state.passed.wrapping_add(lost) as u32;
        let waiting = (self.sent(dst).wrapping_sub(seen) as i32).max(0);
        (lost, u64::from(waiting as u32))
    }

    /// Finds what was lost last of all: frames that were sent to a ring in which nothing is under way, and that
    /// it has not seen. A guess would not do: what is called lost and comes after all would have to be taken back.
    pub(crate) fn find_lost(&self, grace: impl FnOnce()) {
        let is_short = |dst: &u32| self.lost_and_waiting(*dst).1 != 0;
        for ring in self.drained((0..self.dsts.len()).filter(is_short).collect(), grace) {
            let state = self.dsts.get(ring.dst);
            let sent = ring.tails.iter().fold(0u32, |sent, tail| sent.wrapping_add(*tail));
            let seen = state.passed.wrapping_add(state.lost) as u32;
            let rest = u64::from((sent.wrapping_sub(seen) as i32).max(0) as u32);
            self.found_lost[ring.dst as usize].set(state.lost + rest);
        }
    }

    /// Notes the CPUs whose thread was moved away; returns whether there are new ones. That a CPU was offline
    /// for a moment, between two looks at which ones are, nobody tells. But the kernel then lets its thread run
    /// anywhere if it had work, and does not take that back.
    pub(crate) fn find_displaced(&mut self) -> bool {
        let in_use = (0..).zip(self.banks.iter().zip(&self.sizes));
        let moved: Vec<usize> = in_use
            .filter(|(cpu, (bank, sizes))| sizes[usize::from(**bank)] != 0 && !self.displaced[*cpu])
            .filter(|(cpu, (bank, _))| {
                let dst = *cpu as u32 * BANKS + u32::from(**bank);
                runs_elsewhere(self.dsts.get(dst).pid, *cpu)
            })
            .map(|(cpu, _)| cpu)
            .collect();
        moved.iter().for_each(|cpu| self.displaced[*cpu] = true);
        !moved.is_empty()
    }

    /// To be called now and then: whether numbers went on since the last time tells what is at rest.
    pub(crate) fn note_sent(&mut self) {
        for dst in 0..self.dsts.len() {
            let (sent, seen) = (self.sent(dst), self.dsts.get(dst).passed as u32);
            let before = &mut self.before[dst as usize];
            let is_same = before.sent == sent && before.seen == seen;
            let times = if is_same { before.times.saturating_add(1) } else { 0 };
            *before = Noted { sent, seen, times };
        }
    }

    /// Whether the kernel thread sleeps. It does so only when its ring is empty and all it took from there
    /// is delivered. One that had nothing to do yet does; one that can't be looked at (its number is not known
    /// before its first frames, nor in another PID namespace) is taken to when nothing has moved for long.
    fn is_asleep(&self, dst: u32, pid: u32) -> bool {
        let is_there = self.sizes[(dst / BANKS) as usize][(dst % BANKS) as usize] != 0;
        if !is_there || self.sent(dst) == self.sent_when_made[dst as usize] {
            return true;
        }
        let before = self.before[dst as usize];
        // What was sent since the last look has not been still for long.
        let is_still = before.times >= STILL && before.sent == self.sent(dst);
        if pid == 0 {
            return is_still;
        }
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // After the name in brackets, which may itself hold brackets.
        match stat.rsplit_once(')') {
            Some((name, state)) if name.contains("(cpumap/") => {
                matches!(state.trim_start().chars().next(), Some('S' | 'I'))
            }
            _ => is_still,
        }
    }

    fn tails(&self, dst: u32) -> Box<[u32]> {
        (0..self.cpus()).map(|src| self.tail(src, dst)).collect()
    }

    /// The rings of `rings` that nothing is under way in, and nothing they handed over is undelivered.
    /// `grace` waits until every poll that is under way now is over: then bulk queues are empty, too.
    pub(crate) fn drained(&self, rings: Vec<u32>, grace: impl FnOnce()) -> Vec<Drained> {
        if rings.is_empty() {
            return Vec::new();
        }
        let before = rings.into_iter().map(|dst| Drained { dst, tails: self.tails(dst) });
        let before: Vec<Drained> = before.collect();
        grace();
        let is_drained = |ring: &Drained| {
            // First whether its thread sleeps, then whether that was still about the same numbers.
            self.is_asleep(ring.dst, self.dsts.get(ring.dst).pid)
                && self.tails(ring.dst) == ring.tails
        };
        before.into_iter().filter(is_drained).collect()
    }

    /// Every ring there is.
    pub(crate) fn all(&self) -> Vec<u32> {
        self.existing().collect()
    }

    fn existing(&self) -> impl Iterator<Item = u32> + '_ {
        let rings = (0..).zip(&self.sizes);
        rings.flat_map(|(cpu, sizes)| {
            (0..BANKS)
                .filter(move |bank| sizes[*bank as usize] != 0)
                .map(move |bank| cpu * BANKS + bank)
        })
    }

    /// The rings that no configuration sends to any more, if there are any.
    pub(crate) fn retired(&self) -> Vec<u32> {
        self.existing()
            .filter(|dst| dst % BANKS != u32::from(self.banks[(dst / BANKS) as usize]))
            .collect()
    }

    /// Declares everything that was sent to a ring until it was found drained delivered or lost, which is so;
    /// then flows whose last packets a full ring refused don't wait for a next one. What was sent since (a
    /// flow that waits for its last packets still goes there) is not meant.
    pub(crate) fn settle(&self, ring: &Drained) {
        for (src, tail) in (0..).zip(&ring.tails) {
            let index = ring.dst * self.cpus() + src;
            if self.pairs.get(index).delivered != *tail {
                // Should a frame come meanwhile, its thread may have said more: then this takes some of it
                // back, which can only hold a flow, until the thread says it again.
                self.pairs.set_number(index, offset_of!(steer_pair, delivered), *tail);
            }
        }
    }

    /// Deletes a ring that was settled, and drained still a grace period after that.
    pub(crate) fn delete(&mut self, dst: u32) -> io::Result<()> {
        let (cpu, bank) = (dst / BANKS, (dst % BANKS) as usize);
        self.maps[bank].delete(&cpu.to_ne_bytes()).map_err(io::Error::other)?;
        self.sizes[cpu as usize][bank] = 0;
        Ok(())
    }
}

/// Whether `pid` is the ring thread of `cpu` and may run on another CPU. (One that was bound when its CPU went
/// and that sleeps still is where it was: it may run nowhere for the time being.)
fn runs_elsewhere(pid: u32, cpu: usize) -> bool {
    let Some(thread) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return false };
    let Ok(may_run_on) = sched_getaffinity(Some(thread)) else { return false };
    let elsewhere = may_run_on.count() - u32::from(may_run_on.is_set(cpu));
    // In another PID namespace the number may be a stranger's.
    let is_ours = || {
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        name.starts_with(&format!("cpumap/{cpu}/"))
    };
    elsewhere != 0 && is_ours()
}

#[cfg(test)]
#[path = "rings_tests.rs"]
pub(crate) mod tests;
