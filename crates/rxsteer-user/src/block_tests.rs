//! Blocks and their pool, with the block's own memory and with lent memory.

use super::*;

fn info() -> FrameInfo {
    FrameInfo::new(LinkType::Ethernet, 0, 3)
}

#[test]
fn frames_come_back_as_they_went_in() {
    let mut block = Block::new();
    assert!(block.push(b"abc", info()) && block.push(b"", info()) && block.push(b"de", info()));
    let bytes: Vec<&[u8]> = block.frames().iter().map(|f| block.bytes_of(f)).collect();
    assert_eq!(bytes, [&b"abc"[..], b"", b"de"]);
}

#[test]
fn block_ends_at_its_limits() {
    let mut block = Block::new();
    assert!(block.push(&vec![0; MAX_CAPTURED], info()));
    assert!(!block.push(b"x", info()), "full by bytes");
    block.clear();
    for _ in 0..BLOCK_FRAMES {
        assert!(block.push(b"", info()));
    }
    assert!(!block.push(b"", info()), "full by frames");
}

/// Takes a block, fills it, shares it with a worker, and gives it back.
fn share(pool: &mut BlockPool) -> Option<Arc<Block>> {
    let mut block = pool.take()?;
    assert!(Arc::get_mut(&mut block).unwrap().push(&[0; 1000], info()));
    let held = block.clone();
    pool.give_back(block);
    Some(held)
}

#[test]
fn pool_is_bounded_and_uses_blocks_again() {
    let mut pool = BlockPool { most_memory: 10_000, ..BlockPool::new(1) };
    let mut held = Vec::new();
    while let Some(block) = share(&mut pool) {
        held.push(block);
    }
    let most = held.len();
    assert!((7..=9).contains(&most), "{most} blocks of a good 1000 bytes");
    held.pop();
    held.extend(share(&mut pool));
    assert_eq!(held.len(), most, "the one that was let go of is used again");
    assert!(share(&mut pool).is_none());
    held.clear();
    assert!((0..100).all(|_| share(&mut pool).is_some()));
    assert!(pool.memory <= 10_000 + 2000);
}

#[test]
fn blocks_that_are_held_do_not_hide_those_that_are_not() {
    let mut pool = BlockPool { most_memory: 100_000, ..BlockPool::new(1) };
    let held: Vec<_> = (0..60).map_while(|_| share(&mut pool)).collect();
    let let_go: Vec<_> = std::iter::from_fn(|| share(&mut pool)).collect();
    assert!(held.len() == 60 && let_go.len() > 10);
    let expected = let_go.len();
    drop(let_go);
    let found = std::iter::from_fn(|| pool.take()).take(expected).count();
    assert_eq!(found, expected);
}

#[test]
fn lent_frames_are_read_in_place_and_go_back_with_the_block() {
    let memory: Arc<[u8]> = (*b"..abc.de").into();
    let mut block = Block::new();
    block.lend(memory.clone().into());
    assert!(block.push_lent(2, 3, info()) && block.push_lent(6, 2, info()));
    let bytes: Vec<&[u8]> = block.frames().iter().map(|f| block.bytes_of(f)).collect();
    assert_eq!(bytes, [&b"abc"[..], b"de"]);
    assert_eq!(bytes[0].as_ptr(), memory[2..].as_ptr(), "they are not copied");
    assert_eq!(Arc::strong_count(&memory), 2);
    block.clear();
    assert_eq!(Arc::strong_count(&memory), 1);
    assert!(block.push(b"abc", info()) && !block.is_lent(), "it has memory of its own again");
}

#[test]
fn lent_block_ends_by_frames_and_takes_nothing_beyond_its_memory() {
    let mut block = Block::new();
    block.lend(Arc::<[u8]>::from(vec![0; 2 * BLOCK_BYTES]).into());
    for offset in 0..BLOCK_FRAMES as u32 {
        assert!(block.push_lent(offset, MAX_CAPTURED as u32, info()));
    }
    assert!(!block.push_lent(0, 1, info()), "full by frames");
    let beyond = |offset: u32, len: u32| {
        std::panic::catch_unwind(|| {
            let mut block = Block::new();
            block.lend(Arc::<[u8]>::from(&b"abc"[..]).into());
            block.push_lent(offset, len, info())
        })
    };
    assert!(beyond(1, 2).is_ok() && beyond(1, 3).is_err() && beyond(u32::MAX, 2).is_err());
}

#[test]
fn the_pool_does_not_keep_lent_memory() {
    let memory: Arc<[u8]> = (*b"abc").into();
    let mut pool = BlockPool::new(1);
    let mut block = pool.take().unwrap();
    Arc::get_mut(&mut block).unwrap().lend(memory.clone().into());
    let worker = block.clone();
    pool.give_back(block);
    assert_eq!((Arc::strong_count(&memory), pool.memory), (2, 0));
    drop(worker);
    assert_eq!(Arc::strong_count(&memory), 1);
}

#[test]
fn headers_to_send_frames_by_stay_beside_them() {
    let info = info().with_flags(FrameFlags::NONE.and(FrameFlags::SEND_HEADER, true));
    let bytes = *b"0123456789abc";
    let mut own = Block::new();
    assert!(own.push(b"z", super::FrameInfo::new(LinkType::Ethernet, 0, 1)));
    assert!(own.push_with_header(&bytes, info));
    let mut lent = Block::new();
    lent.lend(Arc::<[u8]>::from(bytes).into());
    assert!(lent.push_lent(SEND_HEADER as u32, 3, info));
    for from in [&own, &lent] {
        let mut again = Block::new();
        assert!(again.push_again(from, from.frames().last().unwrap()));
        for block in [from, &again] {
            let frame = block.frames().last().unwrap();
            let header = block.send_header(frame);
            assert_eq!((block.bytes_of(frame), header), (&b"abc"[..], Some(&bytes[..10])));
        }
    }
    assert_eq!(own.send_header(&own.frames()[0]), None);
}
