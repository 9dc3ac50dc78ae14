//! The CPUMAP entries: each CPU's ring and kernel thread, of one of two generations.
//!
//! An entry is never replaced or deleted before it has drained, since the kernel would run the new thread beside the
//! old one. So a ring of another size, or for a CPU that came back (the scheduler moved its thread away, and leaves it
//! there), is created as the CPU's other generation. Flows move to it one by one, as the order guard allows. When
//! nothing is under way in the old ring, it is deleted.

use crate::abi::{
    Array, GENERATIONS, LINE_WORDS, steer_delays, steer_line, steer_pair, steer_ring,
};
use crate::grace::{Graces, Ticket};
use crate::setup::MIN_QUEUE_SIZE;
use crate::threads::Threads;
use crate::waits::{Reading, Waits};
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use rustix::thread::{Pid, sched_getaffinity};
use rxsteer_core::{CpuId, CpuSet};
use std::cell::Cell;
use std::io;
use std::mem::offset_of;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The rings: what was sent to them, what waits in them, and what they have processed.
#[derive(Debug)]
pub(crate) struct Rings {
    maps: [MapHandle; GENERATIONS as usize],
    /// By CPU: the size of the ring of each generation; 0 if there is none.
    sizes: Box<[[u32; GENERATIONS as usize]]>,
    /// By CPU: the generation in use.
    generations: Box<[u8]>,
    /// By CPU: its thread runs on another CPU, since this CPU was offline.
    displaced: Box<[bool]>,
    pub(crate) ring_states: Array<steer_ring>,
    pub(crate) pairs: Array<steer_pair>,
    pub(crate) tails: Array<steer_line>,
    /// By ring: how many sampled frames had each delay.
    pub(crate) delays: Array<steer_delays>,
    /// By ring: the frames that had been sent to it when it was created.
    sent_when_made: Box<[u32]>,
    /// By ring: the frames sent and seen when that was last noted, and how often in a row they were the same.
    before: Box<[Noted]>,
    accounts: Box<[Cell<Account>]>,
    /// When the rings were last looked at.
    looked: Cell<Option<Instant>>,
    pub(crate) threads: Threads,
    /// By ring: what its thread did, and what the ring lost meanwhile.
    waits: Box<[Cell<Waits>]>,
    /// The start of the time scale of readings.
    begun: Instant,
}

/// The rings as two threads share them: the owner of the path, and a view. One account of lost frames serves both. A
/// view holds the lock only to read, for some microseconds, so the owner waits no longer than that.
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

/// What is known of a ring's frames.
#[derive(Clone, Copy, Debug, Default)]
struct Account {
    /// Frames that the ring refused.
    lost: u64,
    /// The frames sent to it, and the sum of the numbers seen from each source, at the last look.
    sent: u64,
    seen: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Noted {
    sent: u32,
    seen: u32,
    times: u32,
}

/// What had been sent to a ring at one moment: the last number of each RX CPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sent {
    pub(crate) ring: u32,
    tails: Box<[u32]>,
}

/// A snapshot of a ring, which takes a grace period: the frames in `before` had entered the ring, or were refused by
/// it, when `after` was noted.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    before: Sent,
    after: Sent,
}

/// The search for rings in which nothing is under way and from which nothing is undelivered. It takes a grace period:
/// then every poll under way has ended, and the bulk queues are empty.
#[derive(Debug, Default)]
pub(crate) struct Look(Option<(Ticket, Vec<Sent>)>);

impl Look {
    /// Begins to look at `rings`, if there are any, and unless the last look is still under way.
    pub(crate) fn begin(&mut self, rings: &Rings, wanted: Vec<u32>, graces: &Graces) {
        if self.0.is_none() && !wanted.is_empty() {
            let before = wanted.into_iter().map(|ring| rings.sent_by_now(ring)).collect();
            self.0 = Some((graces.begin(), before));
        }
    }

    /// The drained ones of the rings that the look is at, with what had been sent to them; none while the look is under
    /// way.
    pub(crate) fn end(&mut self, rings: &Rings, graces: &Graces) -> io::Result<Vec<Sent>> {
        match self.0.take() {
            Some((ticket, before)) if !graces.is_over(ticket)? => {
                self.0 = Some((ticket, before));
                Ok(Vec::new())
            }
            Some((_, before)) => Ok(rings.drained_since(before)),
            None => Ok(Vec::new()),
        }
    }
}

/// If the state of a thread cannot be read, the thread counts as asleep after this many looks in a row without
/// progress.
const STILL: u32 = 20;

/// The shortest time between two looks at lost frames.
const BETWEEN_LOOKS: Duration = Duration::from_millis(1);

/// The frames in a bulk queue, and the frames that a thread takes from its ring at a time.
const BULK: u32 = 8;

/// Whether a ring's thread sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sleep {
    No,
    /// Its state cannot be read, and nothing has moved for long.
    Seeming,
    Sure,
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
            looked: Cell::new(None),
            threads,
            waits: vec![Cell::new(Waits::default()); ring_states.len() as usize].into(),
            begun: Instant::now(),
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

    /// Reads what was sent to rings and what they have seen, and finds the frames lost since the last look: gaps in the
    /// numbers, and frames under way beyond the room in the ring. It does nothing right after another look, since each
    /// of a thread's counts may take a moment to become visible here, independently of the others.
    pub(crate) fn look(&self) {
        if self.looked.get().is_some_and(|looked| looked.elapsed() < BETWEEN_LOOKS) {
            return;
        }
        self.looked.set(Some(Instant::now()));
        let has_ring = |ring: &u32| {
            self.sizes[(ring / GENERATIONS) as usize][(ring % GENERATIONS) as usize] != 0
        };
        // A deleted ring needs no look once all its frames are accounted for.
        let is_open = |ring: &u32| {
            let account = self.accounts[*ring as usize].get();
            account.sent != account.lost + self.ring_states.get(*ring).passed
        };
        let all = 0..self.ring_states.len();
        all.filter(|ring| has_ring(ring) || is_open(ring)).for_each(|ring| self.look_at(ring));
    }

    fn look_at(&self, ring: u32) {
        let mut account = self.accounts[ring as usize].get();
        let passed = self.ring_states.get(ring).passed;
        let by_gaps = account.seen.saturating_sub(passed);
        let by_room = account.sent.saturating_sub(passed + self.room(ring));
        account.lost = account.lost.max(by_gaps).max(by_room);
        let since = |now: u32, before: u64| {
            u64::from((now.wrapping_sub(before as u32) as i32).max(0) as u32)
        };
        let dequeued = |rx_cpu| {
            self.pairs.get_number(ring * self.cpus() + rx_cpu, offset_of!(steer_pair, dequeued))
        };
        let seen = (0..self.cpus()).map(dequeued).fold(0, u32::wrapping_add);
        account.seen += since(seen, account.seen);
        account.sent += since(self.sent(ring), account.sent);
        self.accounts[ring as usize].set(account);
    }

    /// The most frames that can be under way to `ring`: in the ring, in the batch that its thread has taken out, and in
    /// the bulk queue that each source holds until its poll ends, with the frame that finds that queue full.
    fn room(&self, ring: u32) -> u64 {
        let size = self.sizes[(ring / GENERATIONS) as usize][(ring % GENERATIONS) as usize];
        u64::from(size + BULK + (BULK + 1) * self.cpus())
    }

    /// The frames that were sent to `ring` until the last look and got lost, and those that are under way. The number
    /// of lost frames never decreases; [`Rings::find_lost`] finds the last ones.
    pub(crate) fn lost_and_waiting(&self, ring: u32) -> (u64, u64) {
        let account = self.accounts[ring as usize].get();
        let passed = self.ring_states.get(ring).passed;
        (account.lost, account.sent.saturating_sub(passed + account.lost).min(self.room(ring)))
    }

    /// What had been sent to the rings that have not seen all of it, for [`Rings::find_lost`] a grace period later.
    pub(crate) fn short(&self) -> Vec<Sent> {
        let is_short = |ring: &u32| self.lost_and_waiting(*ring).1 != 0;
        (0..self.ring_states.len()).filter(is_short).map(|ring| self.sent_by_now(ring)).collect()
    }

    /// Finds the last lost frames: frames that were sent to a ring in which nothing is under way, and that the ring has
    /// not seen. `short` is from a grace period ago. Frames counted as lost are never recounted, so the count would be
    /// too high if such a frame arrived after all. That can only happen if the state of a thread cannot be read and the
    /// thread does not run for long.
    pub(crate) fn find_lost(&self, short: Vec<Sent>) {
        for ring in self.drained_since(short) {
            self.look_at(ring.ring);
            let mut account = self.accounts[ring.ring as usize].get();
            // Frames sent after the ring was found drained are excluded.
            let later = sum(&ring.tails).wrapping_sub(account.sent as u32) as i32;
            let sent = account.sent.saturating_add_signed(i64::from(later));
            account.lost =
                account.lost.max(sent.saturating_sub(self.ring_states.get(ring.ring).passed));
            self.accounts[ring.ring as usize].set(account);
        }
    }

    /// Notes the CPUs whose ring thread was moved away; returns whether there are new ones. A CPU that was offline only
    /// for a moment, between two reads of the online CPUs, is not reported. But the kernel then lets its thread run on
    /// any CPU if the thread had work, and does not undo that.
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

    /// Notes what was sent and seen. The tick calls this: numbers that did not change since the last call show which
    /// rings are at rest.
    pub(crate) fn note_sent(&mut self) {
        self.look();
        for ring in self.all() {
            let (sent, seen) = (self.sent(ring), self.ring_states.get(ring).passed as u32);
            let before = self.before[ring as usize];
            let is_same = before.sent == sent && before.seen == seen;
            let times = if is_same { before.times.saturating_add(1) } else { 0 };
            self.before[ring as usize] = Noted { sent, seen, times };
            self.read_thread(ring);
        }
    }

    /// Notes what the ring's thread did since the last reading, and what the ring lost meanwhile.
    fn read_thread(&self, ring: u32) {
        let Some(scheduled) = self.threads.scheduled(ring) else { return };
        let (lost, waiting) = self.lost_and_waiting(ring);
        let passed = self.ring_states.get(ring).passed;
        // The account counts a gap only when fewer frames arrive than were lost, which is too late to find the cause.
        // When read in this order, gaps show at once; on machines that reorder reads, the result may be slightly too
        // high. The account remains the authoritative count.
        let lost = lost.max(self.accounts[ring as usize].get().seen.saturating_sub(passed));
        let reading =
            Reading { at: self.begun.elapsed(), scheduled, passed, is_waiting: waiting != 0 };
        self.waits_of(ring, |waits| waits.note(reading, lost));
    }

    /// What the ring's thread did, and what the ring lost meanwhile.
    pub(crate) fn waits(&self, ring: u32) -> Waits {
        self.waits[ring as usize].get().by_now(self.accounts[ring as usize].get().lost)
    }

    fn waits_of(&self, ring: u32, change: impl FnOnce(&mut Waits)) {
        let cell = &self.waits[ring as usize];
        let mut waits = cell.get();
        change(&mut waits);
        cell.set(waits);
    }

    /// Whether the kernel thread sleeps. It sleeps only when its ring is empty and all frames that it took from the
    /// ring are delivered. A thread that never had work counts as asleep. If the state cannot be read (the pid is
    /// unknown before the ring's first frames, and in another PID namespace), the thread counts as asleep when nothing
    /// has moved for long.
    fn sleep_of(&self, ring: u32, pid: u32) -> Sleep {
        let is_there =
            self.sizes[(ring / GENERATIONS) as usize][(ring % GENERATIONS) as usize] != 0;
        if !is_there || self.sent(ring) == self.sent_when_made[ring as usize] {
            return Sleep::Sure;
        }
        let before = self.before[ring as usize];
        // If frames were sent since the last look, the ring has not been still for long.
        let is_still = before.times >= STILL && before.sent == self.sent(ring);
        let it_seems = if is_still { Sleep::Seeming } else { Sleep::No };
        if pid == 0 {
            return it_seems;
        }
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // The state follows the name in brackets, and the name may itself contain brackets.
        match stat.rsplit_once(')') {
            Some((name, state)) if name.contains("(cpumap/") => {
                let is_asleep = matches!(state.trim_start().chars().next(), Some('S' | 'I'));
                if is_asleep { Sleep::Sure } else { Sleep::No }
            }
            _ => it_seems,
        }
    }

    /// Those of `before`, which is from a grace period ago, to which nothing was sent since, and which are drained.
    pub(crate) fn drained_since(&self, before: Vec<Sent>) -> Vec<Sent> {
        let is_drained = |ring: &Sent| {
            // This first reads whether the thread sleeps, and then whether the same frames were concerned.
            self.sleep_of(ring.ring, self.ring_states.get(ring.ring).pid) != Sleep::No
                && self.sent_by_now(ring.ring) == *ring
        };
        before.into_iter().filter(is_drained).collect()
    }

    /// What had been sent to all rings, for [`Rings::snapshot_since`] a grace period later.
    pub(crate) fn sent_to_all(&self) -> Vec<Sent> {
        self.existing().map(|ring| self.sent_by_now(ring)).collect()
    }

    /// A snapshot of the numbers of the rings in `before`, which is from a grace period ago.
    pub(crate) fn snapshot_since(&self, before: Vec<Sent>) -> Vec<Snapshot> {
        let after = |before: Sent| Snapshot { after: self.sent_by_now(before.ring), before };
        before.into_iter().map(after).collect()
    }

    /// Whether all frames sent before the snapshots are delivered or dropped. That is so when a frame that was numbered
    /// after the snapshot is delivered, since then all frames that were in the ring before it are delivered too; or
    /// when nothing is under way in the ring.
    ///
    /// `look` finds the rings of the latter kind.
    pub(crate) fn have_drained_past(
        &self,
        snapshots: &[Snapshot],
        look: &mut Look,
        graces: &Graces,
    ) -> io::Result<bool> {
        let has_gone_on = |snapshot: &Snapshot| {
            let delivered =
                |rx_cpu: u32| self.pairs.get(snapshot.after.ring * self.cpus() + rx_cpu).delivered;
            let mut tails = (0..).zip(&snapshot.after.tails);
            tails.any(|(rx_cpu, tail)| (delivered(rx_cpu).wrapping_sub(*tail) as i32) > 0)
        };
        let drained = look.end(self, graces)?;
        let is_drained = |wanted: &u32| drained.iter().any(|ring| ring.ring == *wanted);
        let rest = snapshots.iter().filter(|snapshot| !has_gone_on(snapshot));
        let rest: Vec<u32> = rest.map(|snapshot| snapshot.after.ring).collect();
        if rest.iter().all(is_drained) {
            return Ok(true);
        }
        look.begin(self, rest, graces);
        Ok(false)
    }

    /// Marks as delivered the frames sent before the snapshots. All rings must have drained past these, so the frames
    /// are in fact delivered or lost.
    pub(crate) fn mark_snapshots_delivered(&self, snapshots: &[Snapshot]) {
        snapshots.iter().for_each(|snapshot| self.mark_delivered(&snapshot.before));
    }

    /// Whether sequence number `seq` from `rx_cpu` to `ring` is later than the snapshots. A ring without a snapshot was
    /// created later; or it was deleted before, when all that had been sent there was delivered.
    pub(crate) fn is_after(
        &self,
        snapshots: &[Snapshot],
        (rx_cpu, ring): (u32, u32),
        seq: u32,
    ) -> bool {
        let snapshot = snapshots.iter().find(|snapshot| snapshot.before.ring == ring);
        let Some(snapshot) = snapshot else { return self.existing().any(|other| other == ring) };
        let tail = snapshot.before.tails.get(rx_cpu as usize);
        tail.is_none_or(|tail| seq.wrapping_sub(*tail).wrapping_sub(1) < 1 << 30)
    }

    /// Whether the frames sent before the snapshots are marked as delivered.
    pub(crate) fn are_delivered(&self, snapshots: &[Snapshot]) -> bool {
        let delivered =
            |ring: u32, rx_cpu: u32| self.pairs.get(ring * self.cpus() + rx_cpu).delivered;
        snapshots.iter().all(|snapshot| {
            let mut tails = (0..).zip(&snapshot.before.tails);
            tails.all(|(rx_cpu, tail)| {
                delivered(snapshot.before.ring, rx_cpu).wrapping_sub(*tail) as i32 >= 0
            })
        })
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

    /// The rings that no configuration sends to any more, if there are any.
    pub(crate) fn retired(&self) -> Vec<u32> {
        self.existing()
            .filter(|ring| {
                ring % GENERATIONS != u32::from(self.generations[(ring / GENERATIONS) as usize])
            })
            .collect()
    }

    /// Marks as delivered all frames that were sent to a ring until it was found drained; they are in fact delivered or
    /// lost. Flows whose last packets a full ring refused then need not wait for another packet. Frames sent since then
    /// are excluded (a flow that waits for its last packets still goes to this ring).
    pub(crate) fn mark_delivered(&self, ring: &Sent) {
        for (rx_cpu, tail) in (0..).zip(&ring.tails) {
            let index = ring.ring * self.cpus() + rx_cpu;
            self.pairs.raise_number(index, offset_of!(steer_pair, delivered), *tail);
        }
    }

    /// Marks as delivered the frames of rings that have been at rest for at least one look. Then flows whose last
    /// frames carried no number may move without first sending a frame with one. This is done only if the thread is
    /// seen to sleep and no frame is missing: then the thread can have no frame left to deliver.
    ///
    /// This takes two calls, since `look` takes a grace period.
    pub(crate) fn mark_idle_delivered(&self, look: &mut Look, graces: &Graces) -> io::Result<()> {
        look.end(self, graces)?.iter().for_each(|ring| self.mark_delivered(ring));
        let is_undelivered = |ring: u32, rx_cpu: u32| {
            let delivered = self.pairs.get(ring * self.cpus() + rx_cpu).delivered;
            self.tail(rx_cpu, ring).wrapping_sub(delivered) as i32 > 0
        };
        let is_at_rest = |ring: &u32| {
            // A thread that only seems to sleep is not enough: frames counted as lost may still be in the ring.
            self.before[*ring as usize].times > 0
                && self.sleep_of(*ring, self.ring_states.get(*ring).pid) == Sleep::Sure
                && (0..self.cpus()).any(|rx_cpu| is_undelivered(*ring, rx_cpu))
                && self.lost_and_waiting(*ring).1 == 0
        };
        look.begin(self, self.existing().filter(is_at_rest).collect(), graces);
        Ok(())
    }

    /// Deletes a ring that was marked delivered, and that was still drained a grace period later.
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

fn sum(counts: &[u32]) -> u32 {
    counts.iter().fold(0, |sum: u32, count| sum.wrapping_add(*count))
}

/// Whether `pid` is the ring thread of `cpu` and may run on another CPU. (A bound thread that has slept since its CPU
/// went offline is unchanged: it may run nowhere for the time being.)
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
