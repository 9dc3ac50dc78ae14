//! The steps of user space in a change. Between any two steps the world continues.
//!
//! The model follows `path/change.rs`, `path/unguarded.rs` and `rings.rs` of rxsteer-xdp, which operate on the kernel's
//! maps.

use super::settings::Settings;
use super::world::{CPUS, Pair, RINGS, RX_CPUS, World};
use rand::RngExt;
use rxsteer_bpf_native::abi::STEER_GENERATIONS;
use rxsteer_bpf_native::policy::LastPacket;

/// A rule that a test can leave out, to show that the model needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// After a policy under which frames pass, all frames go through the rings for a grace period.
    Flush,
    /// An unused ring is deleted only once it has drained.
    RetiredDrains,
    /// Frames are sent unguarded only once rings have drained past a snapshot.
    UnguardedAfterSnapshot,
    /// Frames are sent unguarded only if no frame went off target since that snapshot.
    UnguardedOnTarget,
    /// Before frames are sent unguarded, older slots are unset, since their numbers wrap.
    SlotsUnset,
    /// Slots of rings that had been deleted are unset as well.
    DeletedRingsUnset,
    /// The snapshot takes a grace period, because of bulk queues.
    LongSnapshot,
    /// A snapshot has the numbers of all RX CPUs, and an RX CPU that sent nothing since is no evidence.
    LaterFrame,
    /// Before a change, the guard is activated first.
    GuardFirst,
    /// After that, the rules change only once rings have drained past a snapshot.
    RingsDrain,
    /// Before the guard is activated, slots that were set while frames were unguarded are unset, since their numbers
    /// may have wrapped.
    OldSlotsUnset,
}

/// What had been sent to a ring, by RX CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sent {
    ring: u32,
    tails: [u32; RX_CPUS as usize],
}

/// A snapshot of a ring. It takes a grace period: when `after` was noted, the ring had accepted or refused all frames
/// in `before`.
#[derive(Clone, Copy, Debug)]
struct Snapshot {
    before: Sent,
    after: Sent,
}

/// A change whose rings exist. Each step takes a grace period, in which the ticks do other work.
#[derive(Clone, Debug)]
enum Step {
    /// All frames go through the rings, if frames passed.
    Begun(Settings),
    /// The settings are active, and programs may still use the former ones.
    Activated,
}

pub(crate) struct Control {
    pub(crate) world: World,
    without: Option<Rule>,
    pub(crate) settings: Settings,
    requested: Option<Settings>,
    step: Option<Step>,
    generations: [u32; CPUS as usize],
    displaced: [bool; CPUS as usize],
    /// By ring: its size.
    sizes: [u32; RINGS as usize],
    pub(crate) is_unguarded: bool,
    /// The snapshots past which rings must drain before rules may change.
    left: Option<Vec<Snapshot>>,
    approach: Option<(Vec<Snapshot>, u64)>,
    off_target_before: u64,
    marked: Vec<Sent>,
    /// Ticks and frames from the request of a change away from unguarded frames until the new rules were active.
    pub(crate) waited: Vec<u64>,
    waits: u64,
    pub(crate) changes: u64,
}

impl Control {
    pub(crate) fn new(mut world: World, without: Option<Rule>) -> Control {
        let mut settings = Settings::random(&mut world.rng);
        settings.offline = None;
        let mut control = Control {
            without,
            settings,
            requested: None,
            step: None,
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
            world,
        };
        for cpu in 0..CPUS {
            control.make(cpu * STEER_GENERATIONS, control.settings.queue_size);
        }
        let settings = control.settings.clone();
        control.activate(&settings, false);
        control
    }

    fn lacks(&self, rule: Rule) -> bool {
        self.without == Some(rule)
    }

    /// Activates rules.
    fn activate(&mut self, settings: &Settings, unguarded: bool) {
        let rules = settings.rules(&self.generations, unguarded);
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
        // During a change programs may still use the rings that it replaces.
        if self.step.is_none() {
            self.free_retired();
        }
        if let Some(step) = self.step.take() {
            self.world.grace();
            self.advance(step);
        } else if let Some(requested) = self.requested.clone() {
            let was_unguarded = self.is_unguarded || self.waits != 0;
            if self.begin_change(&requested) {
                if was_unguarded {
                    self.waited.push(self.waits);
                }
            } else {
                self.waits += 1;
            }
        } else {
            self.approach_unguarded();
        }
        self.world.run_other_events();
    }

    /// Begins the change, if that is possible now.
    fn begin_change(&mut self, next: &Settings) -> bool {
        self.approach = None;
        let before = self.generations;
        if !self.is_guarded_and_drained() || !self.make_rings(next) {
            return false;
        }
        if self.settings.passes_frames() && !self.lacks(Rule::Flush) {
            self.flush_by(&before);
        }
        self.step = Some(Step::Begun(next.clone()));
        true
    }

    /// All frames go through the ring of the receiving CPU, of these generations.
    fn flush_by(&mut self, generations: &[u32; CPUS as usize]) {
        let rules = Settings::flushing(generations);
        self.world.flushing = Some(self.world.add(rules, None));
    }

    /// The next step, a grace period after the last one.
    fn advance(&mut self, step: Step) {
        match step {
            Step::Begun(next) => {
                self.activate(&next, false);
                if self.world.flushing.is_some() {
                    self.flush_by(&self.generations.clone());
                }
                self.settings = next;
                self.step = Some(Step::Activated);
            }
            Step::Activated => {
                self.world.flushing = None;
                self.requested = None;
                self.changes += 1;
            }
        }
    }

    /// The same rules with the guard, until no frame is under way that no slot records.
    fn is_guarded_and_drained(&mut self) -> bool {
        if self.is_unguarded && !self.lacks(Rule::GuardFirst) {
            if !self.lacks(Rule::OldSlotsUnset) {
                self.unset_slots(|_| false);
            }
            self.activate(&self.settings.clone(), false);
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

    fn approach_unguarded(&mut self) {
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
                    self.activate(&self.settings.clone(), true);
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
            // A ring without a snapshot had been deleted: all that was sent there is delivered.
            let keeps_deleted = self.lacks(Rule::DeletedRingsUnset);
            self.unset_slots(|last| {
                let of_ring = |snapshot: &&Snapshot| snapshot.before.ring == last.ring();
                let is_after = |snapshot: &Snapshot| {
                    let tail = snapshot.before.tails[last.rx_cpu as usize];
                    last.seq.wrapping_sub(tail).wrapping_sub(1) < 1 << 30
                };
                snapshots.iter().find(of_ring).map_or(keeps_deleted, is_after)
            });
        }
        self.world.grace();
        let is_so = self.world.seen.off_target == off_target;
        if !is_so {
            self.left = Some(self.snapshot());
        }
        is_so
    }

    /// Unsets slots, except those whose packet must stay, and boundary slots.
    fn unset_slots(&mut self, stays: impl Fn(&LastPacket) -> bool) {
        for (queue, slot, last) in self.world.slots() {
            let is_same = self.world.slot(queue, slot) == Some(last);
            if !self.settings.is_boundary_slot(queue, slot) && !stays(&last) && is_same {
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
        let is_retired = |ring: u32| {
            self.world.rings[ring as usize].exists
                && ring % 2 != self.generations[ring as usize / 2]
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

    /// The rings of `before`, which must be a grace period old, to which nothing was sent since and which user space
    /// can find drained.
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

    /// The numbers of a ring at rest occasionally advance by 2³¹. While frames are unguarded, user space does not see
    /// this.
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
