//! Lists of operations, compared with a `VecDeque`: after any operations in any order, the ring holds the same
//! items and counters as the plain model, also across the wrap of the counters.
#![cfg(not(loom))]

use proptest::prelude::*;
use rxsteer_ring::ring_starting_at;
use std::collections::VecDeque;

#[derive(Clone, Debug)]
enum Op {
    Reserve,
    Write,
    Publish,
    Splice(u8),
    List(u8),
    Complete(u8),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => Just(Op::Reserve),
        4 => Just(Op::Write),
        2 => Just(Op::Publish),
        2 => (0..40u8).prop_map(Op::Splice),
        2 => (0..40u8).prop_map(Op::List),
        3 => (0..40u8).prop_map(Op::Complete),
    ]
}

proptest! {
    #[test]
    fn ring_equals_a_deque(
        limit in 1..40u32,
        start in prop_oneof![Just(0), Just(u32::MAX - 20), Just(i32::MAX as u32 - 20), any::<u32>()],
        ops in prop::collection::vec(op(), 1..300),
    ) {
        let (mut producer, mut consumer) = ring_starting_at::<u64>(limit, start);
        let monitor = producer.monitor();
        // Published items, items written, slots reserved but not written.
        let (mut queue, mut written, mut open) = (VecDeque::new(), VecDeque::new(), 0u32);
        let (mut next, mut head) = (1u64, start);
        for op in ops {
            let used = (queue.len() + written.len()) as u32 + open;
            prop_assert_eq!(producer.tail(), head.wrapping_add(used));
            match op {
                Op::Reserve => {
                    let expected = (used < limit).then(|| head.wrapping_add(used));
                    prop_assert_eq!(producer.reserve(), expected);
                    open += u32::from(expected.is_some());
                }
                Op::Write if open > 0 => {
                    producer.write(next);
                    written.push_back(next);
                    next += 1;
                    open -= 1;
                }
                Op::Publish if open == 0 => {
                    prop_assert_eq!(producer.publish() as usize, written.len());
                    queue.append(&mut written);
                }
                Op::Splice(count) if open == 0 && written.is_empty() => {
                    let items: Vec<u64> = (next..).take(count as usize).collect();
                    let fits = items.len().min((limit - used) as usize);
                    prop_assert_eq!(producer.splice(&items), fits);
                    queue.extend(&items[..fits]);
                    next += u64::from(count);
                }
                Op::List(most) => {
                    let list = consumer.list(u32::from(most));
                    prop_assert!(list.len() <= most as usize);
                    prop_assert_eq!(list, &queue.make_contiguous()[..list.len()]);
                    // Only the wrap, an earlier read of the counter, or the list's own bound may shorten the list.
                    prop_assert!(!list.is_empty() || queue.is_empty() || most == 0);
                }
                Op::Complete(most) => {
                    let count = consumer.ready(u32::from(most));
                    for (index, item) in queue.drain(..count as usize).enumerate() {
                        prop_assert_eq!(consumer.peek(index as u32), item);
                    }
                    consumer.complete(count);
                    head = head.wrapping_add(count);
                    prop_assert_eq!(consumer.head(), head);
                    prop_assert_eq!(producer.completed(), head);
                    prop_assert!(producer.has_completed(head.wrapping_sub(1)));
                    prop_assert!(!producer.has_completed(head));
                }
                Op::Write | Op::Publish | Op::Splice(_) => {}
            }
            prop_assert_eq!(monitor.waiting() as usize, queue.len());
            prop_assert_eq!(consumer.is_empty(), queue.is_empty());
        }
    }
}

/// Two real threads, lists of varying length, and counters that wrap during the test: every item arrives once and
/// in order. ThreadSanitizer runs this test.
#[test]
fn two_threads_keep_order_across_the_wrap() {
    const ITEMS: u64 = 200_000;
    let (mut producer, mut consumer) = ring_starting_at::<u64>(100, u32::MAX - 1000);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut next = 0;
            while next < ITEMS {
                let length = (next % 37 + 1).min(ITEMS - next);
                let list: Vec<u64> = (next..next + length).collect();
                let mut sent = 0;
                while sent < list.len() {
                    sent += producer.splice(&list[sent..]);
                    std::thread::yield_now();
                }
                next += length;
            }
        });
        let mut expected = 0;
        while expected < ITEMS {
            let list = consumer.list(64);
            for &item in list {
                assert_eq!(item, expected);
                expected += 1;
            }
            let count = list.len() as u32;
            consumer.complete(count);
            if count == 0 {
                std::thread::yield_now();
            }
        }
    });
}

#[test]
#[should_panic(expected = "only items that wait can be completed")]
fn completing_what_does_not_wait_is_a_bug() {
    let (_producer, mut consumer) = ring_starting_at::<u64>(4, 0);
    consumer.complete(1);
}

#[test]
#[should_panic(expected = "ring limit 0")]
fn ring_without_slots_is_refused() {
    let _ = rxsteer_ring::ring::<u64>(0);
}
