//! loom checks every interleaving (up to the preemption bound LOOM_MAX_PREEMPTIONS) of the ring's two ends. `cargo
//! xtask loom` runs these tests.

use loom::thread;
use rxsteer_ring::ring_starting_at;

/// The consumer sees a whole list or nothing beyond its publication, in order, over a wrap of both the slots and
/// the counters.
#[test]
fn items_arrive_once_and_in_order() {
    loom::model(|| {
        let (mut producer, mut consumer) = ring_starting_at::<u32>(2, u32::MAX - 1);
        let sender = thread::spawn(move || {
            let mut next = 1;
            while next <= 4 {
                if producer.push(next).is_ok() {
                    next += 1;
                    if next % 2 == 1 {
                        producer.publish();
                    }
                } else {
                    producer.publish();
                    thread::yield_now();
                }
            }
            producer.publish();
        });
        let mut expected = 1;
        while expected <= 4 {
            let count = consumer.ready(8);
            for index in 0..count {
                assert_eq!(consumer.peek(index), expected);
                expected += 1;
            }
            consumer.complete(count);
            if count == 0 {
                thread::yield_now();
            }
        }
        sender.join().unwrap();
    });
}

/// A thread that sees an item completed also sees the effects of its processing. The order rule depends on this
/// guarantee.
#[test]
fn completed_means_processed() {
    use loom::sync::Arc;
    use loom::sync::atomic::{AtomicU32, Ordering};
    loom::model(|| {
        let (mut producer, mut consumer) = ring_starting_at::<u32>(2, u32::MAX);
        let effect = Arc::new(AtomicU32::new(0));
        let position = producer.push(7).unwrap();
        producer.publish();
        let seen = effect.clone();
        let worker = thread::spawn(move || {
            let count = consumer.ready(1);
            assert_eq!(count, 1);
            // Relaxed on purpose: only the ring's own ordering may make the effect visible.
            effect.store(consumer.peek(0), Ordering::Relaxed);
            consumer.complete(1);
        });
        if producer.has_completed(position) {
            assert_eq!(seen.load(Ordering::Relaxed), 7);
        }
        worker.join().unwrap();
    });
}

/// A monitor on a third thread never sees a head ahead of the tail.
#[test]
fn monitor_never_sees_a_negative_backlog() {
    loom::model(|| {
        let (mut producer, mut consumer) = ring_starting_at::<u32>(2, u32::MAX);
        let monitor = producer.monitor();
        let sender = thread::spawn(move || {
            producer.push(1).unwrap();
            producer.publish();
        });
        let watcher = thread::spawn(move || assert!(monitor.waiting() <= 1));
        let count = consumer.ready(1);
        consumer.complete(count);
        sender.join().unwrap();
        watcher.join().unwrap();
    });
}

/// The next list wakes a worker that goes to sleep on an empty ring. No interleaving leaves the worker asleep with
/// work waiting (loom would report a deadlock), and a kick is sent at most once.
#[test]
fn no_wake_up_is_lost() {
    use loom::sync::Arc;
    use rxsteer_ring::{Sleeper, published};
    loom::model(|| {
        let (mut producer, mut consumer) = ring_starting_at::<u32>(2, 0);
        let sleeper = Arc::new(Sleeper::new());
        let worker_side = sleeper.clone();
        let worker = thread::spawn(move || {
            worker_side.serve();
            let mut done = 0;
            while done < 2 {
                let count = consumer.ready(8);
                consumer.complete(count);
                done += count;
                if count == 0 {
                    Sleeper::sleep(std::iter::once(&*worker_side), None, || !consumer.is_empty());
                }
            }
        });
        for item in 0..2 {
            producer.push(item).unwrap();
            producer.publish();
            published();
            sleeper.kick();
        }
        worker.join().unwrap();
    });
}

/// The order rule over two queues: a flow's second packet goes to another worker only once the first is completed;
/// otherwise it queues behind the first. In both cases the first packet is processed first.
#[test]
fn flow_that_moves_is_not_overtaken() {
    use loom::sync::Arc;
    use loom::sync::atomic::{AtomicU32, Ordering};
    loom::model(|| {
        let (mut first, mut first_end) = ring_starting_at::<u32>(2, u32::MAX);
        let (mut second, mut second_end) = ring_starting_at::<u32>(2, 0);
        let processed = Arc::new(AtomicU32::new(0));
        let position = first.push(1).unwrap();
        first.publish();
        let worker = {
            let processed = processed.clone();
            thread::spawn(move || {
                let mut done = 0;
                // This thread never waits; the items that it leaves are processed below.
                for _ in 0..2 {
                    let count = first_end.ready(1);
                    if count == 1 {
                        let packet = first_end.peek(0);
                        // Relaxed on purpose: only the rings may order these accesses.
                        assert_eq!(processed.load(Ordering::Relaxed) + 1, packet);
                        processed.store(packet, Ordering::Relaxed);
                        first_end.complete(1);
                        done += 1;
                    }
                }
                done
            })
        };
        let moved = first.has_completed(position);
        if moved {
            second.push(2).unwrap();
            second.publish();
            assert_eq!(second_end.ready(1), 1);
            assert_eq!(processed.load(Ordering::Relaxed) + 1, second_end.peek(0));
        } else {
            first.push(2).unwrap();
            first.publish();
        }
        let done = worker.join().unwrap();
        assert!(!moved || done == 1, "the worker had but the first");
    });
}

/// A value is replaced during reading. The reader sees one value or another, whole, and never an older value after
/// a newer one. It sees a replacement that was made before its read. The last reader of an old value frees it.
#[test]
fn published_value_is_replaced_under_its_reader() {
    use loom::sync::Arc;
    use rxsteer_ring::Published;
    loom::model(|| {
        let published = Arc::new(Published::new((0u32, 0u32)));
        let writer = {
            let published = published.clone();
            thread::spawn(move || {
                for _ in 0..2 {
                    let next = |old: &(u32, u32)| Ok::<_, ()>((old.0 + 1, old.1 + 1));
                    published.replace(next).unwrap();
                }
            })
        };
        let mut seen = published.see();
        let mut last = seen.value().0;
        for _ in 0..2 {
            let value = **seen.refresh(&published);
            assert_eq!(value.0, value.1, "one value, whole");
            assert!(value.0 >= last, "never an older one");
            last = value.0;
        }
        writer.join().unwrap();
        assert_eq!(seen.refresh(&published).0, 2, "what was replaced before is seen");
        assert_eq!(Arc::strong_count(seen.value()), 2, "this reader's and the publisher's");
    });
}

/// Two threads replace the value at the same time: neither change is lost.
#[test]
fn no_replacement_is_lost() {
    use loom::sync::Arc;
    use rxsteer_ring::Published;
    loom::model(|| {
        let published = Arc::new(Published::new(0u32));
        let other = {
            let published = published.clone();
            thread::spawn(move || published.replace(|old| Ok::<_, ()>(old + 1)).unwrap())
        };
        let mut seen = published.see();
        published.replace(|old| Ok::<_, ()>(old + 1)).unwrap();
        assert!(**seen.refresh(&published) >= 1);
        other.join().unwrap();
        assert_eq!(**seen.refresh(&published), 2);
    });
}
