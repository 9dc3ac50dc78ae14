use super::*;

fn free_of(frames: &Frames, home: u32) -> Vec<u32> {
    let mut free = Vec::new();
    frames.take_returned(home, &mut free);
    free.sort_unstable();
    free
}

#[test]
fn frames_come_home_when_their_batch_is_dropped() {
    let frames = Arc::new(Frames::new(2048, &[4, 4]).unwrap());
    assert_eq!((frames.bytes(), frames.share_of(1)), (8 * 2048, 4..8));
    drop(Batch::new(frames.clone(), 1, vec![5, 7]));
    assert_eq!((free_of(&frames, 0), free_of(&frames, 1)), (vec![], vec![5, 7]));
    assert!(frames.list().capacity() >= 2, "its list is used again");
}

#[test]
fn homes_can_have_shares_of_several_sizes() {
    let frames = Arc::new(Frames::new(2048, &[3, 5]).unwrap());
    assert_eq!((frames.bytes(), frames.share_of(0), frames.share_of(1)), (8 * 2048, 0..3, 3..8));
    let batch = Batch::new(frames.clone(), 1, vec![3, 7]);
    assert!([3, 7].iter().all(|frame| batch.begins_sending(frames.address(*frame))));
    drop(batch);
    let mut sent = Sent::new(&frames);
    [3, 7].iter().for_each(|frame| sent.add(&frames, frames.address(*frame)));
    sent.give_back(&frames);
    assert_eq!((free_of(&frames, 0), free_of(&frames, 1)), (vec![], vec![3, 7]));
}

#[test]
fn frame_being_sent_comes_home_after_batch_and_send() {
    let frames = Arc::new(Frames::new(2048, &[4, 4]).unwrap());
    for batch_first in [true, false] {
        let batch = Batch::new(frames.clone(), 1, vec![4, 5, 6]);
        // Anywhere within the frame.
        assert!(batch.begins_sending(frames.address(5) + 300));
        let mut sent = Sent::new(&frames);
        if batch_first {
            drop(batch);
            assert_eq!(free_of(&frames, 1), [4, 6]);
            sent.add(&frames, frames.address(5) + 300);
            sent.give_back(&frames);
            assert_eq!(free_of(&frames, 1), [5]);
        } else {
            sent.add(&frames, frames.address(5));
            sent.give_back(&frames);
            assert_eq!(free_of(&frames, 1), [0; 0]);
            drop(batch);
            assert_eq!(free_of(&frames, 1), [4, 5, 6]);
        }
        assert!(frames.state.iter().all(|state| state.load(Ordering::Relaxed) == 0));
    }
}

/// Frames that one thread receives, another sends and a third completes: none is lost or given back twice.
#[test]
fn frames_are_conserved_across_threads() {
    let share = 64;
    let frames = Arc::new(Frames::new(2048, &[share]).unwrap());
    let (to_worker, batches) = std::sync::mpsc::channel::<Arc<Batch>>();
    let (to_kernel, sends) = std::sync::mpsc::channel::<u64>();
    let worker = std::thread::spawn({
        let frames = frames.clone();
        move || {
            for (number, batch) in batches.iter().enumerate() {
                for (index, frame) in batch.held.iter().enumerate() {
                    if (number + index) % 3 == 0 && batch.begins_sending(frames.address(*frame)) {
                        to_kernel.send(frames.address(*frame)).unwrap();
                    }
                }
            }
        }
    });
    let completer = std::thread::spawn({
        let frames = frames.clone();
        move || {
            let mut sent = Sent::new(&frames);
            for address in sends {
                sent.add(&frames, address);
                sent.give_back(&frames);
            }
        }
    });
    let mut free: Vec<u32> = frames.share_of(0).collect();
    for round in 0..20_000 {
        frames.take_returned(0, &mut free);
        assert!(free.len() <= share as usize, "round {round}: a frame came back twice");
        let mut held = frames.list();
        held.extend(free.drain(free.len().saturating_sub(8)..));
        to_worker.send(Arc::new(Batch::new(frames.clone(), 0, held))).unwrap();
    }
    drop(to_worker);
    worker.join().unwrap();
    completer.join().unwrap();
    frames.take_returned(0, &mut free);
    free.sort_unstable();
    assert_eq!(free, frames.share_of(0).collect::<Vec<_>>());
}
