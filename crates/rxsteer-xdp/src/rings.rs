//! The CPUMAP entries: each CPU's ring and kernel thread, in one of two banks.
//!
//! An entry is never replaced or deleted before it has drained: the kernel would let the new thread run
//! beside the old one. So a ring of another size, or for a CPU that came back (the scheduler moved its
//! thread away and leaves it there), is made in the CPU's other bank; flows go over one by one as the
//! order guard allows; and when nothing is under way in the old one, it is deleted.

use crate::abi::{Array, BANKS, steer_dst, steer_line, steer_line64, steer_pair};
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
    pub(crate) lost: Array<steer_line64>,
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
        lost: Array<steer_line64>,
    ) -> Rings {
        let cpus = (dsts.len() / BANKS) as usize;
        Rings {
            maps,
            sizes: vec![[0; BANKS as usize]; cpus].into(),
            banks: vec![0; cpus].into(),
            displaced: vec![false; cpus].into(),
            dsts,
            pairs,
            tails,
            lost,
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

    /// What `dst` was sent by all CPUs, less what never came into its ring, modulo 2³².
    fn sent(&self, dst: u32) -> u32 {
        let tail_row = (self.cpus() * BANKS).div_ceil(16);
        let lost_row = (self.cpus() * BANKS).div_ceil(8);
        (0..self.cpus()).fold(0u32, |sent, src| {
            let tail = self.tails.get(src * tail_row + dst / 16).word[(dst % 16) as usize];
            let lost = self.lost.get(src * lost_row + dst / 8).word[(dst % 8) as usize];
            sent.wrapping_add(tail).wrapping_sub(lost as u32)
        })
    }

    /// Frames numbered for `dst` that never came into its ring.
    pub(crate) fn lost(&self, dst: u32) -> u64 {
        let row = (self.cpus() * BANKS).div_ceil(8);
        (0..self.cpus())
            .map(|src| self.lost.get(src * row + dst / 8).word[(dst % 8) as usize])
            .sum()
    }

    /// Frames that are under way to `dst`; those handed over but not delivered yet not among them.
    pub(crate) fn waiting(&self, dst: u32) -> u32 {
        let sent = self.sent(dst);
        (sent.wrapping_sub(self.dsts.get(dst).passed as u32) as i32).max(0) as u32
    }

    /// Whether nothing is under way to `dst`, and nothing it handed over is undelivered.
    fn is_drained(&self, dst: u32) -> bool {
        let sent = self.sent(dst);
        let state = self.dsts.get(dst);
        let is_delivered = |src: &u16| {
            let pair = self.pairs.get(dst * self.cpus() + u32::from(*src));
            pair.delivered.wrapping_sub(pair.dequeued) as i32 >= 0
        };
        let sources = state.source_count.min(self.cpus()) as usize;
        state.passed as u32 == sent && state.sources[..sources].iter().all(is_delivered)
    }

    /// Whether nothing is under way anywhere.
    pub(crate) fn are_all_drained(&self) -> bool {
        self.existing().all(|dst| self.is_drained(dst))
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
    /// packets a full ring refused don't wait for a next one. Says whether the ring is drained.
    pub(crate) fn settle(&self, dst: u32) -> bool {
        let tail_row = (self.cpus() * BANKS).div_ceil(16);
        let word = (dst % 16) as usize;
        let tails: Vec<u32> = (0..self.cpus())
            .map(|src| self.tails.get(src * tail_row + dst / 16).word[word])
            .collect();
        if !self.is_drained(dst) {
            return false;
        }
        for (src, tail) in (0..).zip(tails) {
            let index = dst * self.cpus() + src;
            if self.pairs.get(index).delivered != tail {
                // Should a frame come meanwhile, its thread may have said more: then this takes some of it
                // back, which can only hold a flow, until the thread says it again.
                self.pairs.set_number(index, offset_of!(steer_pair, delivered), tail);
            }
        }
        true
    }

    /// Deletes a ring that was settled a grace period ago, if it is drained still.
    pub(crate) fn delete(&mut self, dst: u32) -> io::Result<bool> {
        if !self.is_drained(dst) {
            return Ok(false);
        }
        let (cpu, bank) = (dst / BANKS, (dst % BANKS) as usize);
        self.maps[bank].delete(&cpu.to_ne_bytes()).map_err(io::Error::other)?;
        self.sizes[cpu as usize][bank] = 0;
        Ok(true)
    }
}
