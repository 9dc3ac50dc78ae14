//! If `rxsteer run` is killed at any moment, it leaves nothing, and the next start works.

use std::time::{Duration, Instant};

use rxsteer_lab::{LinkOptions, Namespace, Steering, Testbed, slice};

/// Waits until a namespace has neither an XDP program on `in0` nor a process.
fn is_clean(namespace: &Namespace) -> bool {
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(2) {
        let processes = Steering::processes(namespace).unwrap();
        if super::program_on(namespace, "in0").is_none() && processes.is_empty() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    false
}

#[test]
fn nothing_is_left_of_one_that_was_killed() {
    let Some(_alone) = super::ready("killed::nothing_is_left_of_one_that_was_killed", &[], 1)
    else {
        return;
    };
    let testbed = Testbed::hosts(LinkOptions::default()).unwrap();
    let receiver = testbed.receiver();
    let policy = if super::has_rfs() { "rfs" } else { "sparse" };
    let arguments = ["in0", "--policy", policy, "--cpus", "0-0"];
    let started = Instant::now();
    let steering = Steering::start(receiver, &arguments).unwrap();
    let to_attach = started.elapsed();
    assert!(super::program_on(receiver, "in0").is_some(), "it steers without a program");
    steering.kill().unwrap();
    assert!(is_clean(receiver));

    let rounds = slice(10, 200);
    for round in 0..rounds {
        let mut steering = Steering::begin(receiver, &arguments).unwrap();
        // The delays cover 1.5 times the time to attach, in an irregular order.
        let share = f64::from(round * 7919 % rounds) / f64::from(rounds) * 1.5;
        std::thread::sleep(to_attach.mul_f64(share));
        let ended = steering.ended().unwrap();
        assert!(ended.is_none(), "round {round}: {ended:?}, it said: {}", steering.stderr());
        steering.kill().unwrap();
        assert!(is_clean(receiver), "round {round}, killed after {share:.2} of the time to attach");
    }
    let (_, took) = Steering::start(receiver, &arguments).unwrap().stop().unwrap();
    println!("the next one ended within {took:?}");
    assert!(is_clean(receiver));
}
