//! Sends recorded frames unchanged and in order; the other end receives them natively.

use libbpf_rs::{MapCore, MapFlags};
use std::time::Duration;

use crate::cpus::pin;
use crate::error::{Bpf, Result};
use crate::live::{OBJECT, SPARE, Traffic, run};
use crate::namespace::Namespace;
use crate::numbers::LAB_LONGEST_FRAME;
use crate::objects::{ObjectSpec, map, program};
use crate::testbed::Link;

/// The longest frame, including its Ethernet header.
const LONGEST: usize = LAB_LONGEST_FRAME as usize;
/// The shortest frame.
const SHORTEST: usize = 14;
/// The number of frames that the program holds at a time.
const BATCH: usize = 4096;
/// The number of frames in one call to the kernel. The ring of a veth takes 256 (`VETH_RING_SIZE`, drivers/net/veth.c),
/// and drops more without a count that the receiver sees.
const BURST: usize = 64;
/// Lets the receiving side run, which is a thread of the same CPU (ksoftirqd) on slow machines.
const PAUSE: Duration = Duration::from_millis(1);

/// Sends those of `frames` on `cpu` that have 14 to 1514 bytes; returns their number.
pub fn send_recorded(
    from: &Namespace,
    link: &Link,
    cpu: usize,
    frames: &[Vec<u8>],
) -> Result<usize> {
    let fitting: Vec<&Vec<u8>> =
        frames.iter().filter(|frame| (SHORTEST..=LONGEST).contains(&frame.len())).collect();
    for some in fitting.chunks(BATCH) {
        let settings = Traffic::default().settings(link);
        let spec = ObjectSpec {
            bytes: OBJECT,
            programs: &["live_recorded"],
            settings: &settings,
            map: ("live_recorded_frames", BATCH as u32),
        };
        let object = spec.load()?;
        let table = map(&object, "live_recorded_frames")?;
        for (index, frame) in (0_u32..).zip(some) {
            let mut value = (frame.len() as u32).to_ne_bytes().to_vec();
            value.extend_from_slice(frame);
            value.resize(4 + LONGEST + 2, 0);
            table
                .update(&index.to_ne_bytes(), &value, MapFlags::ANY)
                .bpf(|| "store a recorded frame".to_owned())?;
        }
        from.inside(|| {
            pin(cpu)?;
            let program = program(&object, "live_recorded")?;
            for burst in some.chunks(BURST) {
                run(&program, &[0; LONGEST + SPARE], burst.len() as u64)?;
                std::thread::sleep(PAUSE);
            }
            Ok(())
        })?;
    }
    Ok(fitting.len())
}
