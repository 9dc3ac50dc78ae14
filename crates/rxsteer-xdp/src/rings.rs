//! The CPUMAP entries: each CPU's ring and kernel thread, in one of two banks.
//!
//! An entry is never replaced or deleted before it has drained: the kernel would let the new thread run
//! beside the old one. So a ring of another size, or for a CPU that came back (the scheduler moved its
//! thread away and leaves it there), is made in the CPU's other bank; flows go over one by one as the
//! order guard allows; and when nothing is under way in the old one, it is deleted.

use crate::abi::{Array, BANKS, steer_dst, steer_line, steer_pair};
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use rxsteer_core::{CpuId, CpuSet};
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
    /// By dst: what it had been sent when that was last noted.
    sent_before: Box<[u32]>,
}

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
            sent_before: vec![0; dsts.len() as usize].into(),
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
        let mut made = Made::Done;
        for cpu in cpus.iter() {
            let index = cpu.index();
            let bank = usize::from(self.banks[index]);
            if self.sizes[index][bank] == size && !self.displaced[index] {
                continue;
            }
            let place = if self.sizes[index][bank] == 0 { bank } else { 1 - bank };
            if self.sizes[index][place] != 0 {
                made = Made::Later;
                continue;
            }
            self.make(cpu, place, size, program)?;
            self.banks[index] = place as u8;
            self.displaced[index] = false;
        }
        Ok(made)
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

    /// Frames that never came to `dst` and frames that are under way to it. Whether the last ones were
    /// lost shows with the next one that comes, or when nothing moves any more.
    pub(crate) fn lost_and_waiting(&self, dst: u32) -> (u64, u64) {
        let sent = self.sent(dst);
        let state = self.dsts.get(dst);
        let seen = state.passed.wrapping_add(state.lost) as u32;
        let rest = u64::from((sent.wrapping_sub(seen) as i32).max(0) as u32);
        let at_rest = self.sent_before[dst as usize] == sent && self.is_asleep(state.pid);
        if at_rest { (state.lost + rest, 0) } else { (state.lost, rest) }
    }

    /// To be called now and then: whether numbers went on since the last time tells what is at rest.
    pub(crate) fn note_sent(&mut self) {
        for dst in 0..self.dsts.len() {
            self.sent_before[dst as usize] = self.sent(dst);
        }
    }

    /// Whether the kernel thread sleeps. It does so only when its ring is empty and all it took from there
    /// is delivered. One that can't be seen is taken to.
    fn is_asleep(&self, pid: u32) -> bool {
        let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { return true };
        // After the name in brackets, which may itself hold brackets.
        let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next());
        matches!(state, Some('S' | 'I'))
    }

    /// Whether nothing is under way to `dst`, and nothing it handed over is undelivered: `sent` is what was
    /// sent to it before the last grace period, in which all bulk queues were emptied.
    fn is_drained(&self, dst: u32, sent: u32) -> bool {
        self.sent(dst) == sent && self.is_asleep(self.dsts.get(dst).pid)
    }

    /// The rings there are that nothing is under way in. `grace` waits until every poll that is under way
    /// now is over.
    pub(crate) fn drained(&self, rings: Vec<u32>, grace: impl FnOnce()) -> Vec<u32> {
        if rings.is_empty() {
            return rings;
        }
        let sent: Vec<u32> = rings.iter().map(|dst| self.sent(*dst)).collect();
        grace();
        let rings = rings.into_iter().zip(sent);
        rings.filter(|(dst, sent)| self.is_drained(*dst, *sent)).map(|(dst, _)| dst).collect()
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

    /// Declares everything sent to a drained ring delivered or lost, which is so; then flows whose last
    /// packets a full ring refused don't wait for a next one.
    pub(crate) fn settle(&self, dst: u32) {
        for src in 0..self.cpus() {
            let (index, tail) = (dst * self.cpus() + src, self.tail(src, dst));
            if self.pairs.get(index).delivered != tail {
                // Should a frame come meanwhile, its thread may have said more: then this takes some of it
                // back, which can only hold a flow, until the thread says it again.
                self.pairs.set_number(index, offset_of!(steer_pair, delivered), tail);
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
