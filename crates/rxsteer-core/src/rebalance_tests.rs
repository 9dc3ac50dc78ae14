//! Properties of the moves, for any loads.

use super::*;
use crate::balance::{Balance, Counted};
use crate::balancer::{Balancer, CpuLoad, Move};
use crate::cpu::CpuId;
use proptest::prelude::*;

const LIMITS: Limits = Limits { threshold: 0.05, moves: 4096, chance: 1.0 };

/// Loads that own their parts.
#[derive(Clone, Debug)]
struct Owned {
    table: Vec<u16>,
    packets: Vec<f64>,
    cpus: Vec<CpuCost>,
    capacity: f64,
}

impl Owned {
    fn loads(&self) -> Loads<'_> {
        Loads {
            table: &self.table,
            packets: &self.packets,
            cpus: &self.cpus,
            capacity: self.capacity,
        }
    }

    fn moves(&self, limits: &Limits) -> Vec<Shift> {
        rebalance(&self.loads(), limits)
    }

    fn after(&self, shifts: &[Shift]) -> Owned {
        let mut after = self.clone();
        for shift in shifts {
            assert_eq!(usize::from(after.table[shift.bucket]), shift.from);
            assert_ne!(shift.from, shift.to);
            after.table[shift.bucket] = shift.to as u16;
        }
        after
    }

    fn load_by_cpu(&self) -> Vec<f64> {
        let mut loads: Vec<f64> = self.cpus.iter().map(|cpu| cpu.other).collect();
        for (cpu, packets) in self.table.iter().zip(&self.packets) {
            loads[usize::from(*cpu)] += packets * self.cpus[usize::from(*cpu)].cost;
        }
        loads
    }

    fn max(&self) -> f64 {
        self.load_by_cpu().into_iter().fold(0.0, f64::max)
    }

    /// No table can be better: the water level, and the largest bucket where it does least.
    fn bound(&self) -> f64 {
        let other: Vec<f64> = self.cpus.iter().map(|cpu| cpu.other).collect();
        let level = water_level(self.packets.iter().sum(), &other, &self.cpus);
        let largest = self.packets.iter().copied().fold(0.0, f64::max);
        let alone = self.cpus.iter().map(|cpu| cpu.other + cpu.cost * largest);
        level
            .max(alone.fold(f64::INFINITY, f64::min))
            .max(other.iter().copied().fold(0.0, f64::max))
    }
}

fn cpu_cost(cost: f64, other: f64) -> CpuCost {
    CpuCost { cost, other, held: 0.0 }
}

/// `cpus` equal CPUs; bucket `i` is on CPU `i % cpus` and has `packets(i)`.
fn even(cpus: u16, buckets: u16, packets: impl Fn(u16) -> f64) -> Owned {
    Owned {
        table: (0..buckets).map(|bucket| bucket % cpus).collect(),
        packets: (0..buckets).map(packets).collect(),
        cpus: vec![cpu_cost(1.0, 0.0); usize::from(cpus)],
        capacity: f64::INFINITY,
    }
}

fn any_loads() -> impl Strategy<Value = Owned> {
    (1..20usize, 1..200usize).prop_flat_map(|(cpus, buckets)| {
        let packets = prop_oneof![
            4 => (0..2000u32).prop_map(f64::from),
            1 => Just(0.0),
            1 => (0..200_000u32).prop_map(f64::from),
        ];
        let cpu = (1..5u8, prop_oneof![Just(0u32), 0..100_000u32]);
        let cpu = cpu.prop_map(|(cost, other)| cpu_cost(f64::from(cost), f64::from(other)));
        (
            prop::collection::vec(0..cpus as u16, buckets),
            prop::collection::vec(packets, buckets),
            prop::collection::vec(cpu, cpus),
        )
            .prop_map(|(table, packets, cpus)| Owned {
                table,
                packets,
                cpus,
                capacity: f64::INFINITY,
            })
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn limit_of_moves_holds_and_no_load_rises_above_the_maximum(
        owned in any_loads(),
        moves in 0..40usize,
    ) {
        let shifts = owned.moves(&Limits { moves, ..LIMITS });
        prop_assert!(shifts.len() <= moves);
        let after = owned.after(&shifts);
        prop_assert!(after.max() <= owned.max() * (1.0 + 1e-12), "{} {}", owned.max(), after.max());
        let sorted = |owned: &Owned| {
            let mut loads = owned.load_by_cpu();
            loads.sort_by(|a, b| b.total_cmp(a));
            loads
        };
        let is_lower = sorted(&after).partial_cmp(&sorted(&owned)) == Some(core::cmp::Ordering::Less);
        prop_assert!(shifts.is_empty() || is_lower, "each call makes the busiest CPUs less busy");
    }

    #[test]
    fn what_is_balanced_stays(owned in any_loads()) {
        let mut now = owned;
        for round in 0.. {
            prop_assert!(round < 50, "it comes to rest");
            let shifts = now.moves(&LIMITS);
            if shifts.is_empty() {
                break;
            }
            now = now.after(&shifts);
        }
        prop_assert!(now.moves(&LIMITS).is_empty());
    }

    #[test]
    fn names_of_cpus_do_not_matter(
        owned in any_loads(),
        turn in 1..19usize,
    ) {
        let count = owned.cpus.len();
        // Equal CPUs without buckets are interchangeable, so each has a bucket here.
        let mut owned = owned;
        owned.cpus.fill(cpu_cost(1.0, 0.0));
        for cpu in 0..count as u16 {
            owned.table.push(cpu);
            owned.packets.push(1.0);
        }
        let renamed = |cpu: usize| (cpu + turn) % count;
        let mut other = owned.clone();
        for cpu in &mut other.table {
            *cpu = renamed(usize::from(*cpu)) as u16;
        }
        let shifts = |owned: &Owned, rename: &dyn Fn(usize) -> usize| -> Vec<_> {
            let moves = owned.moves(&LIMITS);
            moves.iter().map(|s| (s.bucket, rename(s.from), rename(s.to))).collect()
        };
        prop_assert_eq!(shifts(&owned, &renamed), shifts(&other, &|cpu| cpu));
    }

    #[test]
    fn many_small_buckets_come_within_the_threshold(
        cpus in 2..17u16,
        seed in any::<u64>(),
    ) {
        let mut random = seed | 1;
        let mut draw = |below: u64| {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (random >> 33) % below
        };
        let mut owned = even(cpus, 1024, |_| 0.0);
        for bucket in 0..1024 {
            owned.packets[bucket] = 500.0 + draw(1000) as f64;
            owned.table[bucket] = (draw(u64::from(cpus)) * draw(2)) as u16;
        }
        let mut now = owned.clone();
        for _ in 0..4 {
            now = now.after(&now.moves(&LIMITS));
        }
        prop_assert!(now.max() <= now.bound() * 1.1, "{} of {}", now.max(), now.bound());
    }
}

#[test]
fn small_buckets_leave_the_cpu_of_a_large_flow() {
    // 64 buckets of 100 on each of 4 CPUs; one flow as large as a CPU's share of all.
    let owned = even(4, 256, |bucket| if bucket == 2 { 8500.0 } else { 100.0 });
    let shifts = owned.moves(&LIMITS);
    assert!(shifts.iter().all(|shift| shift.from == 2 && shift.bucket != 2), "{shifts:?}");
    let after = owned.after(&shifts);
    assert!(after.max() <= after.bound() * 1.05, "{:?}", after.load_by_cpu());
    assert!(after.moves(&LIMITS).is_empty());
}

#[test]
fn two_large_flows_part() {
    let owned = even(4, 256, |bucket| if bucket == 2 || bucket == 6 { 9000.0 } else { 100.0 });
    let after = owned.after(&owned.moves(&LIMITS));
    assert_ne!(after.table[2], after.table[6]);
    assert!(after.max() <= after.bound() * 1.1, "{:?}", after.load_by_cpu());
}

#[test]
fn flow_larger_than_a_cpu_is_left_alone() {
    let mut owned = even(2, 256, |_| 0.0);
    owned.packets[5] = 1e6;
    assert_eq!(owned.moves(&LIMITS), []);
}

#[test]
fn slow_and_busy_cpus_get_less() {
    let mut owned = even(4, 1024, |_| 100.0);
    owned.cpus[1].cost = 2.0;
    owned.cpus[3].other = 20_000.0;
    let after = owned.after(&owned.moves(&LIMITS));
    let loads = after.load_by_cpu();
    assert!(after.max() <= after.bound() * 1.05, "{loads:?}");
    let held = |cpu: u16| after.table.iter().filter(|entry| **entry == cpu).count();
    assert!(held(1) < 200 && held(3) < 200 && held(0) > 280, "{loads:?}");
}

#[test]
fn buckets_leave_a_cpu_that_is_taken_by_other_work() {
    // Its buckets are 5 % of its time, and the other work is the rest.
    let mut owned = even(2, 1024, |_| 100.0);
    owned.cpus[0].other = 1_000_000.0;
    let after = owned.after(&owned.moves(&LIMITS));
    let held = after.table.iter().filter(|cpu| **cpu == 0).count();
    assert!(held < 40, "{held}");
}

#[test]
fn chance_moves_nothing() {
    // 100 packets on each CPU, give or take 20: two standard deviations.
    let owned = even(4, 256, |bucket| {
        if bucket < 4 { [80.0, 120.0, 95.0, 105.0][usize::from(bucket)] } else { 0.0 }
    });
    assert_eq!(owned.moves(&LIMITS), []);
}

#[test]
fn balancer_follows_what_is_counted() {
    let balance = Balance { buckets: 256, ..Balance::default() };
    let cpus: Vec<CpuId> = (0..2).filter_map(CpuId::new).collect();
    let mut table = balance.first_table(&cpus);
    let mut counted = Counted::new(256, 2);
    let mut balancer = Balancer::new(&balance, &counted);
    let loads = [0, 1].map(|cpu| CpuLoad::unmeasured(cpus[cpu]));
    let mut moved = 0;
    for round in 0..3 {
        for bucket in 0..128 {
            counted.add(bucket, 100, 7, 30);
        }
        let moves = balancer.interval(&table, &loads, &counted, 0);
        assert_eq!(moves.is_empty(), round > 0, "the first interval suffices");
        for Move { bucket, from, to, large, .. } in moves {
            assert_eq!((from, to, large.get()), (cpus[0], cpus[1], 7));
            table[usize::from(bucket)] = to;
            moved += 1;
        }
    }
    assert!((60..=64).contains(&moved), "half of them: {moved}");
}

#[test]
fn idle_cpus_are_left_alone() {
    let balance = Balance { buckets: 256, ..Balance::default() };
    let cpus: Vec<CpuId> = (0..2).filter_map(CpuId::new).collect();
    let table = balance.first_table(&cpus);
    let moves = |ours_ns: u64| {
        let mut counted = Counted::new(256, 2);
        let mut balancer = Balancer::new(&balance, &counted);
        (0..128).for_each(|bucket| counted.add(bucket, 100, 0, 0));
        let load = |cpu, packets, ours_ns| CpuLoad { cpu, ours_ns, packets, other_ns: 0 };
        let loads = [load(cpus[0], 12_800, ours_ns), load(cpus[1], 0, 0)];
        balancer.interval(&table, &loads, &counted, 100_000_000).len()
    };
    assert_eq!(moves(1_000_000), 0, "one percent busy");
    assert!(moves(50_000_000) > 0);
}

#[test]
fn nothing_moves_while_all_cpus_are_offline() {
    let balance = Balance { buckets: 256, ..Balance::default() };
    let cpus: Vec<CpuId> = (0..2).filter_map(CpuId::new).collect();
    let table = balance.first_table(&cpus);
    let mut counted = Counted::new(256, 2);
    let mut balancer = Balancer::new(&balance, &counted);
    (0..128).for_each(|bucket| counted.add(bucket, 100, 0, 0));
    assert_eq!(balancer.interval(&table, &[], &counted, 100_000_000), []);
    // They come back.
    (0..128).for_each(|bucket| counted.add(bucket, 100, 0, 0));
    let loads = [0, 1].map(|cpu| CpuLoad::unmeasured(cpus[cpu]));
    assert!(!balancer.interval(&table, &loads, &counted, 100_000_000).is_empty());
}

#[test]
fn work_of_other_rules_counts() {
    let balance = Balance { buckets: 256, ..Balance::default() };
    let cpus: Vec<CpuId> = (0..2).filter_map(CpuId::new).collect();
    let table = balance.first_table(&cpus);
    let mut counted = Counted::new(256, 2);
    let mut balancer = Balancer::new(&balance, &counted);
    (0..256).for_each(|bucket| counted.add(bucket, 100, 0, 0));
    counted.add(256 + 1, 6400, 0, 0);
    let loads = [0, 1].map(|cpu| CpuLoad::unmeasured(cpus[cpu]));
    let moves = balancer.interval(&table, &loads, &counted, 0);
    assert!(!moves.is_empty() && moves.iter().all(|m| m.from == cpus[1]), "{moves:?}");
}

#[test]
fn what_changes_by_more_than_chance_counts_at_once() {
    let balance = Balance { buckets: 256, ..Balance::default() };
    let cpus: Vec<CpuId> = (0..2).filter_map(CpuId::new).collect();
    let mut table = balance.first_table(&cpus);
    let mut counted = Counted::new(256, 2);
    let mut balancer = Balancer::new(&balance, &counted);
    let loads = [0, 1].map(|cpu| CpuLoad::unmeasured(cpus[cpu]));
    let mut end = |crowd: u32| {
        (0..256).for_each(|bucket| counted.add(bucket, 100, 0, 0));
        (0..32).for_each(|bucket| counted.add(bucket, crowd, 0, 0));
        let moves = balancer.interval(&table, &loads, &counted, 0);
        moves.iter().for_each(|one| table[usize::from(one.bucket)] = one.to);
        table[..32].iter().filter(|cpu| **cpu == cpus[0]).count()
    };
    assert_eq!((end(0), end(0)), (32, 32));
    let held = end(800);
    assert!(held < 24, "half of the crowd's buckets, or other ones, go at once: {held}");
}

#[test]
fn small_buckets_leave_until_held_flows_can_go() {
    // CPU 0 has small buckets, and from bucket 0, which belongs to CPU 1, a flow that is held there.
    let small = |bucket: u16| if bucket == 1 { 200.0 } else { 10.0 };
    let mut owned = even(2, 82, small);
    owned.table[0] = 1;
    owned.capacity = 1000.0;
    let leave = |owned: &Owned| {
        let moves = owned.moves(&LIMITS);
        assert!(moves.iter().all(|shift| shift.bucket != 1), "{moves:?}");
        moves.iter().filter(|shift| shift.from == 0).count() as f64
    };
    let before = leave(&owned);
    owned.cpus[0].held = 800.0;
    let load = owned.load_by_cpu()[0];
    assert!(load + owned.cpus[0].held > 950.0 && before == 0.0, "{load}");
    let left = load - 10.0 * leave(&owned);
    assert!((120.0..=150.0).contains(&left), "{left}");
}

/// Two CPUs that complete at most 1000 packets each in an interval.
struct Machine {
    table: Vec<CpuId>,
    counted: Counted,
    balancer: Balancer,
    cpus: [CpuId; 2],
}

impl Machine {
    const SMALL: core::ops::Range<usize> = 100..128;

    fn new() -> Machine {
        let balance = Balance { buckets: 256, ..Balance::default() };
        let cpus = [0, 1].map(|id| CpuId::new(id).unwrap());
        let counted = Counted::new(256, 2);
        let balancer = Balancer::new(&balance, &counted);
        Machine { table: balance.first_table(&cpus).into_vec(), counted, balancer, cpus }
    }

    /// An interval with two large flows and small ones; the buckets that move, with the CPU that gets each.
    fn interval(&mut self, is_stuck: bool) -> Vec<(usize, CpuId)> {
        let mut at = [0, 0];
        for (bucket, packets) in
            [(0, 600), (1, 600)].into_iter().chain(Machine::SMALL.map(|bucket| (bucket, 10)))
        {
            self.counted.add(bucket, packets, 7, 30);
            let stays = is_stuck && bucket < 2;
            at[if stays { 0 } else { self.table[bucket].index() }] += packets;
        }
        let load = |cpu: CpuId| {
            let packets = u64::from(at[cpu.index()].min(1000));
            CpuLoad { cpu, ours_ns: packets * 100_000, packets, other_ns: 0 }
        };
        let moves =
            self.balancer.interval(&self.table, &self.cpus.map(load), &self.counted, 100_000_000);
        let moved: Vec<_> = moves.iter().map(|one| (usize::from(one.bucket), one.to)).collect();
        moved.iter().for_each(|(bucket, to)| self.table[*bucket] = *to);
        moved
    }

    fn small_on(&self, cpu: usize) -> usize {
        Machine::SMALL.filter(|bucket| self.table[*bucket].index() == cpu).count()
    }
}

#[test]
fn small_flows_leave_a_cpu_whose_large_ones_can_not() {
    let mut machine = Machine::new();
    let first = machine.interval(true);
    assert!(first.iter().any(|(bucket, to)| *bucket < 2 && *to == machine.cpus[1]), "{first:?}");
    let mut large = 0;
    for _ in 0..5 {
        large += machine.interval(true).iter().filter(|(bucket, _)| *bucket < 2).count();
    }
    assert_eq!(large, 0, "the other large flow keeps its place");
    assert_eq!([0, 1].map(|cpu| machine.small_on(cpu)), [0, Machine::SMALL.len()]);
    // The large flow follows its bucket: both CPUs get as much.
    let rest: Vec<_> = (0..8).flat_map(|_| machine.interval(false)).collect();
    assert!(rest.iter().all(|(bucket, _)| *bucket >= 2), "{rest:?}");
    let small = machine.small_on(0);
    assert!((11..=17).contains(&small), "{small} of {}", Machine::SMALL.len());
}

#[test]
fn large_flows_that_follow_their_bucket_do_not_count_as_waiting() {
    let mut machine = Machine::new();
    machine.interval(false);
    let later: Vec<_> = (0..8).flat_map(|_| machine.interval(false)).collect();
    assert!(later.iter().all(|(bucket, _)| *bucket >= 2), "{later:?}");
    let small = machine.small_on(0);
    assert!((11..=17).contains(&small), "{small} of {}", Machine::SMALL.len());
}
