//! The C policy, compiled for the host CPU, decides as `rxsteer-core` does, and keeps the same state.

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use rxsteer_bpf_native::abi::{
    STEER_BY_BOUND, STEER_BY_HASH, STEER_BY_LOCAL, STEER_BY_MATCH, STEER_BY_RFS, STEER_BY_SLOT,
};
use rxsteer_bpf_native::check::{Kind, Scenario, Seen, World, packets};
use rxsteer_bpf_native::policy::NativePolicy;

/// Runs of one policy, and packets in each.
const RUNS: u64 = 50;
const PACKETS: u64 = 20_000;

/// CPU ids: few and close, or far apart.
const CPUS: [&[u16]; 3] =
    [&[0, 1, 2, 3], &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9], &[0, 3, 17, 64, 130, 201]];

/// The coverage of all runs of a policy, per million packets.
fn run(kind: Kind) -> Seen {
    let mut all = Seen::default();
    for seed in 0..RUNS {
        let mut rng = ChaCha8Rng::seed_from_u64(seed << 8 | kind as u64);
        let cpus = CPUS[seed as usize % CPUS.len()];
        let scenario = Scenario::new(kind, cpus, &mut rng);
        let subject = NativePolicy::new(scenario.sizes());
        all.add(&World::new(subject, scenario, rng).run(packets(PACKETS)));
    }
    assert!(all.packets >= RUNS * PACKETS);
    all.of_a_million()
}

#[test]
fn none() {
    let seen = run(Kind::None);
    assert!(seen.by(STEER_BY_LOCAL) > 900_000, "{seen:?}");
}

#[test]
fn rps() {
    let seen = run(Kind::Rps);
    assert!(
        seen.by(STEER_BY_HASH) > 900_000 && seen.deferred > 100_000 && seen.moved > 4_000,
        "{seen:?}"
    );
    assert!(seen.dropped > 1_000 && seen.second_generation > 100_000, "{seen:?}");
}

#[test]
fn rps_as_run() {
    let seen = run(Kind::RpsAsRun);
    assert!(
        seen.by(STEER_BY_HASH) > 900_000 && seen.deferred == 0 && seen.moved > 4_000,
        "{seen:?}"
    );
    assert!(seen.unguarded > 100_000 && seen.second_generation > 100_000, "{seen:?}");
}

#[test]
fn bound() {
    let seen = run(Kind::Bound);
    assert!(
        seen.by(STEER_BY_LOCAL) > 100_000
            && seen.by(STEER_BY_BOUND) > 100_000
            && seen.dropped > 10_000,
        "{seen:?}"
    );
    assert!(seen.second_generation > 100_000, "{seen:?}");
}

#[test]
fn sparse() {
    let seen = run(Kind::Sparse);
    assert!(
        seen.by(STEER_BY_HASH) > 100_000 && seen.by(STEER_BY_SLOT) > 10_000 && seen.moved > 5_000,
        "{seen:?}"
    );
}

#[test]
fn rfs() {
    let seen = run(Kind::Rfs);
    assert!(
        seen.by(STEER_BY_HASH) > 100_000 && seen.by(STEER_BY_RFS) > 50_000 && seen.moved > 5_000,
        "{seen:?}"
    );
    assert!(seen.by(STEER_BY_LOCAL) > 50_000, "else local: {seen:?}");
}

#[test]
fn rfs_and_sparse() {
    let seen = run(Kind::RfsSparse);
    assert!(
        seen.by(STEER_BY_HASH) > 100_000
            && seen.by(STEER_BY_SLOT) > 10_000
            && seen.by(STEER_BY_RFS) > 50_000,
        "{seen:?}"
    );
}

#[test]
fn balance() {
    let seen = run(Kind::Balance);
    assert!(seen.by(STEER_BY_HASH) > 900_000 && seen.moved > 4_000, "{seen:?}");
    assert!(seen.bucket_moves > 30_000, "{seen:?}");
}

#[test]
fn rfs_and_sparse_and_balance() {
    let seen = run(Kind::RfsSparseBalance);
    assert!(
        seen.by(STEER_BY_HASH) > 100_000
            && seen.by(STEER_BY_SLOT) > 10_000
            && seen.by(STEER_BY_RFS) > 50_000
            && seen.bucket_moves > 30_000,
        "{seen:?}"
    );
}

#[test]
fn rules_before_the_policy() {
    let seen = run(Kind::Matched);
    assert!(
        seen.by(STEER_BY_MATCH) > 300_000
            && seen.by(STEER_BY_HASH) > 200_000
            && seen.by(STEER_BY_SLOT) > 10_000
            && seen.by(STEER_BY_RFS) > 10_000
            && seen.deferred > 100_000,
        "{seen:?}"
    );
}

#[test]
fn rules_before_balance() {
    let seen = run(Kind::MatchedBalance);
    assert!(
        seen.by(STEER_BY_MATCH) > 300_000
            && seen.by(STEER_BY_HASH) > 200_000
            && seen.by(STEER_BY_SLOT) > 5_000
            && seen.by(STEER_BY_RFS) > 10_000
            && seen.bucket_moves > 30_000,
        "{seen:?}"
    );
}
