//! The measured cases: items of 8 bytes from one CPU to another, singly and in lists. The baseline is `rtrb`; this
//! ring must not be slower.
//!
//! A call moves [`ITEMS`] items between the calling thread and a thread that it starts. Each thread is pinned to a
//! CPU of its own if there are two CPUs.

use rtrb::RingBuffer;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use rxsteer_bench::Case;
use rxsteer_ring::ring;
use std::hint::spin_loop;
use std::thread::scope;

/// Items that a call moves. A call takes some milliseconds; starting a thread takes little beside that.
const ITEMS: u64 = 2_000_000;
/// Slots in each ring.
const SLOTS: u32 = 1024;

/// All cases of this crate.
pub fn all() -> Vec<Case> {
    let mut cases = Vec::new();
    for (group, list) in [
        ("ring of u64, singles", 1),
        ("ring of u64, lists of 32", 32),
        ("ring of u64, lists of 256", 256),
    ] {
        let mut add = |name, baseline, run: Box<dyn FnMut() -> u64>| {
            cases.push(Case { group, name, baseline, per_iter: ITEMS, run });
        };
        add(
            "rtrb",
            true,
            Box::new(move || if list == 1 { rtrb_singles() } else { rtrb_lists(list) }),
        );
        add("rxsteer", false, Box::new(move || ours(list)));
    }
    cases
}

/// Runs both ends, each pinned to one of the first two CPUs, and returns the receiving end's sum.
fn both_ends(send: impl FnOnce() + Send, receive: impl FnOnce() -> u64 + Send) -> u64 {
    let cpus = two_cpus();
    scope(|threads| {
        let sender = threads.spawn(|| {
            pin(cpus.map(|cpus| cpus.0));
            send();
        });
        let receiver = threads.spawn(|| {
            pin(cpus.map(|cpus| cpus.1));
            receive()
        });
        sender.join().expect("the sender ends");
        receiver.join().expect("the receiver ends")
    })
}

fn two_cpus() -> Option<(usize, usize)> {
    let allowed = sched_getaffinity(None).ok()?;
    let mut cpus = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu));
    Some((cpus.next()?, cpus.next()?))
}

fn pin(cpu: Option<usize>) {
    if let Some(cpu) = cpu {
        let mut set = CpuSet::new();
        set.set(cpu);
        // If pinning isn't allowed, the figure is worse, but not wrong.
        let _ = sched_setaffinity(None, &set);
    }
}

/// Waits for the other end. On one CPU the other end needs a chance to run.
fn wait(polls: &mut u32) {
    *polls += 1;
    if polls.is_multiple_of(1 << 14) {
        std::thread::yield_now();
    } else {
        spin_loop();
    }
}

fn ours(list: u64) -> u64 {
    let (mut producer, mut consumer) = ring::<u64>(SLOTS);
    both_ends(
        move || {
            let (mut next, mut polls) = (0, 0);
            while next < ITEMS {
                let end = (next + list).min(ITEMS);
                while next < end {
                    match producer.push(next) {
                        Ok(_) => next += 1,
                        Err(_) => {
                            producer.publish();
                            wait(&mut polls);
                        }
                    }
                }
                producer.publish();
            }
        },
        move || {
            let (mut sum, mut received, mut polls) = (0u64, 0, 0);
            while received < ITEMS {
                let items = consumer.list(list as u32);
                let count = items.len() as u32;
                for item in items {
                    sum = sum.wrapping_add(*item);
                }
                if count == 0 {
                    wait(&mut polls);
                    continue;
                }
                consumer.complete(count);
                received += u64::from(count);
            }
            sum
        },
    )
}

fn rtrb_singles() -> u64 {
    let (mut producer, mut consumer) = RingBuffer::<u64>::new(SLOTS as usize);
    both_ends(
        move || {
            let mut polls = 0;
            for next in 0..ITEMS {
                while producer.push(next).is_err() {
                    wait(&mut polls);
                }
            }
        },
        move || {
            let (mut sum, mut received, mut polls) = (0u64, 0, 0);
            while received < ITEMS {
                match consumer.pop() {
                    Ok(item) => {
                        sum = sum.wrapping_add(item);
                        received += 1;
                    }
                    Err(_) => wait(&mut polls),
                }
            }
            sum
        },
    )
}

fn rtrb_lists(list: u64) -> u64 {
    let (mut producer, mut consumer) = RingBuffer::<u64>::new(SLOTS as usize);
    both_ends(
        move || {
            let (mut next, mut polls) = (0, 0);
            while next < ITEMS {
                let count = list.min(ITEMS - next);
                match producer.write_chunk_uninit(count as usize) {
                    Ok(chunk) => {
                        chunk.fill_from_iter(next..next + count);
                        next += count;
                    }
                    Err(_) => wait(&mut polls),
                }
            }
        },
        move || {
            let (mut sum, mut received, mut polls) = (0u64, 0, 0);
            while received < ITEMS {
                let count = consumer.slots().min(list as usize);
                match consumer.read_chunk(count) {
                    Ok(chunk) if count > 0 => {
                        let (first, second) = chunk.as_slices();
                        for item in first.iter().chain(second) {
                            sum = sum.wrapping_add(*item);
                        }
                        chunk.commit_all();
                        received += count as u64;
                    }
                    _ => wait(&mut polls),
                }
            }
            sum
        },
    )
}
