//! The C parser reads in every frame what `rxsteer-packet` reads.

use rxsteer_bpf_native::{Frames, Oracle};

#[test]
fn random_frames() {
    for seed in 0..8_u8 {
        let oracle = Oracle::new([seed; 16]);
        let mut frames = Frames::new(u64::from(seed), seed % 2 == 1);
        for _ in 0..100_000 {
            oracle.check_native(&frames.next_frame());
        }
    }
}
