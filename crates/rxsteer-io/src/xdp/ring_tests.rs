use super::*;

const SIZE: u32 = 8;
const OFFSETS: libc::xdp_ring_offset =
    libc::xdp_ring_offset { producer: 0, consumer: 64, desc: 192, flags: 128 };

/// A ring whose indices begin at `start`, and the kernel's end of it.
fn ring(start: u32) -> (Producer<u64>, *const AtomicU32, *mut u64) {
    let memory = Mapping::anonymous(4096).unwrap();
    let mut producer = Producer::<u64>::new(memory, &OFFSETS, SIZE);
    producer.shared.consumer().store(start, Ordering::Relaxed);
    producer.next = start;
    let (consumer, entries) = (producer.shared.consumer, producer.shared.entries);
    (producer, consumer, entries)
}

#[test]
fn producer_fills_the_ring_and_goes_on_across_the_wrap() {
    let start = u32::MAX - 3;
    let (mut producer, consumer, entries) = ring(start);
    assert_eq!(producer.room(), SIZE);
    for number in 0..SIZE {
        producer.push(u64::from(number));
    }
    producer.publish();
    assert_eq!(producer.room(), 0);
    // SAFETY: the mapping lives as long as the producer.
    let consumer = unsafe { &*consumer };
    consumer.store(start.wrapping_add(5), Ordering::Relaxed);
    assert_eq!((producer.room(), producer.is_taken()), (5, false));
    for (index, number) in (start..).zip(0..SIZE).take(3) {
        // SAFETY: within the entries, by the mask.
        let entry = unsafe { entries.add((index & (SIZE - 1)) as usize).read() };
        assert_eq!(entry, u64::from(number));
    }
    consumer.store(start.wrapping_add(SIZE), Ordering::Relaxed);
    assert!(producer.is_taken());
    assert_eq!(producer.taken(), start.wrapping_add(SIZE));
}

#[test]
fn consumer_reads_what_is_published_and_gives_it_back() {
    let memory = Mapping::anonymous(4096).unwrap();
    let mut consumer = Consumer::<u64>::new(memory, &OFFSETS, SIZE);
    assert_eq!(consumer.ready(), 0);
    for number in 0..3 {
        // SAFETY: within the entries; no one else writes them.
        unsafe { consumer.shared.entry(number).write(u64::from(number) + 10) };
    }
    consumer.shared.producer().store(3, Ordering::Release);
    assert_eq!(consumer.ready(), 3);
    assert_eq!([consumer.pop(), consumer.pop()], [10, 11]);
    assert_eq!(consumer.ready(), 1);
    consumer.release();
    assert_eq!(consumer.shared.consumer().load(Ordering::Relaxed), 2);
}

#[test]
#[should_panic(expected = "memory.len()")]
fn ring_beyond_its_memory_is_refused() {
    let offsets = libc::xdp_ring_offset { desc: 4090, ..OFFSETS };
    let _ = Consumer::<u64>::new(Mapping::anonymous(4096).unwrap(), &offsets, SIZE);
}
