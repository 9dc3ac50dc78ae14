//! The steps of user space in a change, in both procedures. Between any two steps the world continues.
//!
//! The model follows `path/change.rs`, `path/unguarded.rs` and `rings.rs` of rxsteer-xdp, which operate on the kernel's
//! maps.

use super::settings::Settings;
use super::world::{CPUS, Pair, RINGS, RX_CPUS, World};
use rand::RngExt;
use rxsteer_bpf_native::abi::STEER_GENERATIONS;
use rxsteer_bpf_native::policy::Rules;

/// The procedure for a change away from unguarded frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Machine {
    /// The present procedure: the same rules with the guard; all rings drain past a snapshot; the new rules.
    Phases,
    /// The prototype: the new rules at once, with the previous ones beside them (`previous.h`).
    Previous,
}

/// A rule that can be left out, to show that the model needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// Both: after a policy under which frames pass, all frames go through the rings for a grace period.
    Flush,
    /// Both: an unused ring is deleted only once it has drained.
    RetiredDrains,
    /// Both: frames go unguarded only once rings have drained past a snapshot.
    UnguardedAfterSnapshot,
    /// Both: and only if no frame went off target since.
    UnguardedOnTarget,
    /// Both: then older slots are unset, since their numbers wrap.
    SlotsUnset,
    /// Both: the snapshot takes a grace period, because of bulk queues.
    LongSnapshot,
    /// Both: a snapshot has the numbers of all RX CPUs, and an RX CPU that sent nothing since is no evidence.
    LaterFrame,
    /// Phases: the guard is activated first.
    GuardFirst,
    /// Phases: and then rings drain past a snapshot.
    RingsDrain,
    /// Previous: the previous rules decide as long as their ring has not drained.
    PreviousDecides,
    /// Previous: the snapshot is taken after the change of rules.
    SnapshotAfterChange,
    /// Previous: flows of boundary slots follow only their slots.
    BoundarySlots,
    /// Previous: a second change keeps the previous rules.
    SecondChange,
    /// Previous: the previous rules send to the rings that were used under them.
    OldGeneration,
    /// Previous: a ring that has not drained past the change is not deleted.
    HeldRingStays,
}

/// What had been sent to a ring, by RX CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sent {
    ring: u32,
    tails: [u32; RX_CPUS as usize],
}

/// A snapshot of a ring, which takes a grace period: the frames in `before` had entered the ring, or were refused by
/// it, when `after` was noted.
#[derive(Clone, Copy, Debug)]
struct Snapshot {
    before: Sent,
    after: Sent,
}

pub(crate) struct Control {
    pub(crate) world: World,
    machine: Machine,
    without: Option<Rule>,
    pub(crate) settings: Settings,
    requested: Option<Settings>,
    generations: [u32; CPUS as usize],
    displaced: [bool; CPUS as usize],
    /// By ring: its size.
    sizes: [u32; RINGS as usize],
    pub(crate) is_unguarded: bool,
    /// The snapshots past which rings must drain. Phases: before rules may change. Previous: until a ring is released.
    left: Option<Vec<Snapshot>>,
    approach: Option<(Vec<Snapshot>, u64)>,
    off_target_before: u64,
    marked: Vec<Sent>,
    /// Ticks and frames from the request of a change away from unguarded frames until the new rules were active.
    pub(crate) waited: Vec<u64>,
    waits: u64,
    pub(crate) changes: u64,
    pub(crate) second_changes: u64,
}

impl Control {
    pub(crate) fn new(mut world: World, machine: Machine, without: Option<Rule>) -> Control {
        let mut settings = Settings::random(&mut world.rng);
        settings.offline = None;
        let mut control = Control {
            machine,
            without,
            settings,
            requested: None,
            generations: [0; CPUS as usize],
            displaced: [false; CPUS as usize],
            sizes: [0; RINGS as usize],
            is_unguarded: false,
            left: None,
            approach: None,
            off_target_before: 0,
            marked: Vec::new(),
            waited: Vec::new(),
            waits: 0,
            changes: 0,
            second_changes: 0,
            world,
        };
        for cpu in 0..CPUS {
            control.make(cpu * STEER_GENERATIONS, control.settings.queue_size);
        }
        let settings = control.settings.clone();
        control.activate(&settings, false, false);
        control
    }

    fn lacks(&self, rule: Rule) -> bool {
        self.without == Some(rule)
    }

    fn rules(&self, settings: &Settings, unguarded: bool, has_previous: bool) -> Rules {
        settings.rules(&self.generations, unguarded, has_previous)
    }

    /// Activates rules.
    fn activate(&mut self, settings: &Settings, unguarded: bool, has_previous: bool) {
        let rules = self.rules(settings, unguarded, has_previous);
        self.world.active = self.world.add(rules, Some(settings));
    }

    fn make(&mut self, ring: u32, size: u32) {
        self.world.set_ring(ring, true);
        self.sizes[ring as usize] = size;
    }

    /// Requests other settings. If a CPU goes offline, its thread runs on another CPU from then on.
    pub(crate) fn apply(&mut self, settings: Settings) {
        for cpu in 0..CPUS as u16 {
            if self.settings.is_online(cpu) && !settings.is_online(cpu) {
                self.displaced[usize::from(cpu)] = true;
            }
        }
        self.requested = Some(settings);
        self.waits = 0;
    }

    pub(crate) fn is_changed(&self) -> bool {
        self.requested.is_none()
    }

    pub(crate) fn tick(&mut self) {
        self.mark_idle_delivered();
        if self.machine == Machine::Previous {
            self.release_drained();
        }
        self.free_retired();
        if let Some(requested) = self.requested.clone() {
            let was_unguarded = self.is_unguarded || self.waits != 0;
            if self.change_to(&requested) {
                if was_unguarded {
                    self.waited.push(self.waits);
                }
                self.requested = None;
                self.changes += 1;
            } else {
                self.waits += 1;
            }
        } else {
            self.approach_unguarded();
        }
        self.world.meanwhile();
    }

    fn change_to(&mut self, next: &Settings) -> bool {
        self.approach = None;
        if self.machine == Machine::Phases && !self.is_guarded_and_drained() {
            return false;
        }
        // The rings that unguarded frames go to.
        let used: [u32; CPUS as usize] =
            std::array::from_fn(|cpu| cpu as u32 * STEER_GENERATIONS + self.generations[cpu]);
        let config = self.world.active;
        let early = self.snapshot();
        if !self.make_rings(next) {
            return false;
        }
        if self.machine == Machine::Previous {
            if self.is_unguarded {
                self.keep_previous(config);
            } else if self.left.is_some() {
                self.second_changes += 1;
                if self.lacks(Rule::SecondChange) {
                    self.left = None;
                }
            }
        }
        let has_previous =
            self.machine == Machine::Previous && (self.is_unguarded || self.left.is_some());
        if self.settings.passes_frames() && !self.lacks(Rule::Flush) {
            let rules = Settings::flushing(&self.generations, has_previous);
            self.world.flushing = Some(self.world.add(rules, None));
            self.world.grace();
        }
        self.activate(next, false, has_previous);
        self.world.grace();
        self.world.flushing = None;
        self.world.meanwhile();
        if self.machine == Machine::Previous && self.is_unguarded {
            let late = self.snapshot();
            let mut left = if self.lacks(Rule::SnapshotAfterChange) { early } else { late };
            left.retain(|snapshot| used.contains(&snapshot.before.ring));
            self.left = Some(left);
        }
        self.is_unguarded = false;
        self.settings = next.clone();
        true
    }

    /// Phases: the same rules with the guard, until no frame is under way that no slot records.
    fn is_guarded_and_drained(&mut self) -> bool {
        if self.is_unguarded && !self.lacks(Rule::GuardFirst) {
            self.activate(&self.settings.clone(), false, false);
            self.world.grace();
            self.left = Some(self.snapshot());
        }
        self.is_unguarded = false;
        let Some(left) = self.left.take() else { return true };
        if self.have_drained_past(&left) || self.lacks(Rule::RingsDrain) {
            return true;
        }
        self.left = Some(left);
        false
    }

    /// Previous: keeps the active rules, and the rings with their frames.
    fn keep_previous(&mut self, mut config: usize) {
        if self.lacks(Rule::OldGeneration) || self.lacks(Rule::BoundarySlots) {
            let mut rules = self.world.config(config).clone();
            if self.lacks(Rule::BoundarySlots) {
                rules.boundary_slots = 0;
            } else {
                rules = self.rules(&self.settings, false, false);
            }
            config = self.world.add(rules, None);
        }
        self.world.keep_previous(config);
        if self.lacks(Rule::PreviousDecides) {
            (0..CPUS).for_each(|cpu| self.world.policy.release(cpu));
        }
    }

    /// Previous: releases rings that have drained past the change. When all are released, no frame needs the previous
    /// rules.
    fn release_drained(&mut self) {
        let Some(left) = self.left.take() else { return };
        let rest: Vec<Snapshot> =
            left.into_iter().filter(|snapshot| !self.have_drained_past(&[*snapshot])).collect();
        for cpu in 0..CPUS {
            if !rest.iter().any(|snapshot| snapshot.before.ring / 2 == cpu) {
                self.world.policy.release(cpu);
            }
        }
        self.world.meanwhile();
        if !rest.is_empty() {
            self.left = Some(rest);
            return;
        }
        self.activate(&self.settings.clone(), false, false);
        self.world.grace();
    }

    fn approach_unguarded(&mut self) {
        // Previous: rings that are not released need no check, since the snapshot is later than the change.
        if self.is_unguarded || !self.settings.can_be_unguarded() {
            return;
        }
        let now = self.world.seen.off_target;
        let is_quiet = now == std::mem::replace(&mut self.off_target_before, now);
        match self.approach.take() {
            Some((snapshots, off_target)) => {
                if !self.have_drained_past(&snapshots) && !self.lacks(Rule::UnguardedAfterSnapshot)
                {
                    self.approach = Some((snapshots, off_target));
                } else if self.is_on_target(&snapshots, off_target)
                    || self.lacks(Rule::UnguardedOnTarget)
                {
                    self.activate(&self.settings.clone(), true, false);
                    self.world.grace();
                    self.is_unguarded = true;
                    self.left = None;
                }
            }
            None if !is_quiet && !self.lacks(Rule::UnguardedOnTarget) => {}
            None => {
                self.world.grace();
                let snapshot = self.long_snapshot();
                self.approach = Some((snapshot, now));
            }
        }
    }

    fn is_on_target(&mut self, snapshots: &[Snapshot], off_target: u64) -> bool {
        if !self.lacks(Rule::UnguardedAfterSnapshot) {
            snapshots.iter().for_each(|snapshot| self.mark_delivered(&snapshot.before));
        }
        if !self.lacks(Rule::SlotsUnset) {
            self.unset_slots(snapshots);
        }
        self.world.grace();
        let is_so = self.world.seen.off_target == off_target;
        if !is_so && self.machine == Machine::Phases {
            self.left = Some(self.snapshot());
        }
        is_so
    }

    fn unset_slots(&mut self, snapshots: &[Snapshot]) {
        for (queue, slot, last) in self.world.slots() {
            let snapshot = snapshots.iter().find(|snapshot| snapshot.before.ring == last.ring());
            let is_after = snapshot.is_none_or(|snapshot| {
                let tail = snapshot.before.tails[last.rx_cpu as usize];
                last.seq.wrapping_sub(tail).wrapping_sub(1) < 1 << 30
            });
            let is_same = self.world.slot(queue, slot) == Some(last);
            if !self.settings.is_boundary_slot(queue, slot) && !is_after && is_same {
                self.world.policy.unset(queue, slot);
            }
            if self.world.rng.random_ratio(1, 4) {
                self.world.step();
            }
        }
    }

    fn make_rings(&mut self, next: &Settings) -> bool {
        let mut planned = Vec::new();
        for cpu in 0..CPUS {
            let ring = cpu * STEER_GENERATIONS + self.generations[cpu as usize];
            let is_fit = self.sizes[ring as usize] == next.queue_size;
            if !next.is_online(cpu as u16) || (is_fit && !self.displaced[cpu as usize]) {
                continue;
            }
            let other = ring ^ 1;
            if self.world.rings[other as usize].exists {
                return false;
            }
            planned.push(other);
        }
        // The slots' numbers for frames sent to the CPU's rings before are now older.
        for ring in planned {
            self.make(ring, next.queue_size);
            self.generations[ring as usize / 2] = ring % 2;
            self.displaced[ring as usize / 2] = false;
        }
        true
    }

    fn free_retired(&mut self) {
        let marked = std::mem::take(&mut self.marked);
        for sent in self.drained(&marked) {
            self.world.set_ring(sent.ring, false);
        }
        let is_held = |ring: u32| {
            let left = self.left.iter().flatten();
            self.machine == Machine::Previous
                && left.into_iter().any(|snapshot| snapshot.before.ring == ring)
        };
        let is_retired = |ring: u32| {
            self.world.rings[ring as usize].exists
                && ring % 2 != self.generations[ring as usize / 2]
                && (!is_held(ring) || self.lacks(Rule::HeldRingStays))
        };
        let retired: Vec<Sent> =
            (0..RINGS).filter(|ring| is_retired(*ring)).map(|ring| self.sent(ring)).collect();
        if self.lacks(Rule::RetiredDrains) {
            retired.iter().for_each(|sent| self.world.set_ring(sent.ring, false));
            return;
        }
        self.world.grace();
        let drained = self.drained(&retired);
        drained.iter().for_each(|sent| self.mark_delivered(sent));
        self.marked = drained;
        self.world.grace();
    }

    fn sent(&self, ring: u32) -> Sent {
        Sent { ring, tails: self.world.tails.map(|of_rx_cpu| of_rx_cpu[ring as usize]) }
    }

    fn all_sent(&self) -> Vec<Sent> {
        let exists = |ring: &u32| self.world.rings[*ring as usize].exists;
        (0..RINGS).filter(exists).map(|ring| self.sent(ring)).collect()
    }

    /// A snapshot of all rings, when all relevant frames have already entered them.
    fn snapshot(&self) -> Vec<Snapshot> {
        self.all_sent().into_iter().map(|sent| Snapshot { before: sent, after: sent }).collect()
    }

    /// A snapshot of all rings, when relevant frames may still be in bulk queues.
    fn long_snapshot(&mut self) -> Vec<Snapshot> {
        let before = self.all_sent();
        if self.lacks(Rule::LongSnapshot) {
            return self.snapshot();
        }
        self.world.grace();
        let after = |before: Sent| Snapshot { after: self.sent(before.ring), before };
        before.into_iter().map(after).collect()
    }

    /// The rings of `before`, which is from a grace period ago, to which nothing was sent since and which are drained,
    /// as far as user space can detect that.
    fn drained(&mut self, before: &[Sent]) -> Vec<Sent> {
        let mut drained = Vec::new();
        for sent in before {
            let is_known = self.world.rng.random_ratio(1, 2);
            if is_known && self.world.sleeps(sent.ring) && self.sent(sent.ring) == *sent {
                drained.push(*sent);
            }
        }
        drained
    }

    fn have_drained_past(&mut self, snapshots: &[Snapshot]) -> bool {
        let has_gone_on = |control: &Control, Snapshot { after: sent, .. }: &Snapshot| {
            (0..).zip(sent.tails).any(|(rx_cpu, tail): (u32, u32)| {
                let delivered = control.world.policy.delivered((rx_cpu, sent.ring));
                let after = delivered.wrapping_sub(tail) as i32;
                after > 0 || (after == 0 && control.lacks(Rule::LaterFrame))
            })
        };
        let rest: Vec<Snapshot> =
            snapshots.iter().filter(|snapshot| !has_gone_on(self, snapshot)).copied().collect();
        if rest.is_empty() {
            return true;
        }
        let now: Vec<Sent> = rest.iter().map(|snapshot| self.sent(snapshot.before.ring)).collect();
        self.world.grace();
        let drained = self.drained(&now);
        rest.iter().all(|snapshot| {
            drained.iter().any(|drained| drained.ring == snapshot.before.ring)
                || has_gone_on(self, snapshot)
        })
    }

    fn mark_delivered(&mut self, sent: &Sent) {
        for (rx_cpu, tail) in (0..).zip(sent.tails) {
            let pair: Pair = (rx_cpu, sent.ring);
            self.world.policy.mark_delivered(pair, tail);
        }
    }

    fn mark_idle_delivered(&mut self) {
        let now = self.all_sent();
        self.world.grace();
        for sent in self.drained(&now) {
            self.mark_delivered(&sent);
        }
    }

    /// The numbers of a ring at rest occasionally advance by 2³¹. While frames go unguarded, user space does not see
    /// that.
    pub(crate) fn wrap(&mut self) {
        let ring = self.world.rng.random_range(0..RINGS);
        let is_in_snapshot = self.left.is_some() || self.approach.is_some();
        let is_marked = self.marked.iter().any(|sent| sent.ring == ring);
        if self.is_unguarded && !is_in_snapshot && !is_marked {
            self.world.wrap(ring);
        }
    }
}

impl std::fmt::Debug for Control {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Control")
            .field("requested", &self.requested)
            .field("sizes", &self.sizes)
            .field("generations", &self.generations)
            .field("left", &self.left)
            .field("rings", &self.world.rings)
            .finish_non_exhaustive()
    }
}
