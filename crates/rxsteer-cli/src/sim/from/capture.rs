//! Captures as recordings: each frame's time, steering key, hash and length.

use super::Into;
use rxsteer_user::block::Block;
use rxsteer_user::packet::dissect;
use rxsteer_user::source::capture::{CaptureOptions, CaptureSource};
use rxsteer_user::source::{Fill, Source};
use std::path::PathBuf;

/// Reads captures one after the other, until their end or the maximum number of packets.
pub(super) fn read(captures: &[PathBuf], into: &mut Into) -> anyhow::Result<()> {
    // Only the error's own text is used, since it already names the cause.
    let mut source = CaptureSource::open(captures, CaptureOptions::default())
        .map_err(|error| anyhow::anyhow!("{error}"))?;
    let mut block = Block::new();
    loop {
        block.clear();
        let fill = source.fill(&mut block);
        let more = block.frames().iter().all(|frame| {
            let key = dissect(frame.link, block.bytes_of(frame), into.options).key;
            let hash = into.hasher.hash(&key);
            into.recording.push(frame.timestamp_ns, key, hash, frame.wire_len)
        });
        if fill == Fill::End || !more {
            break;
        }
    }
    into.issues.extend(source.take_issues().iter().map(ToString::to_string));
    into.skipped += source.skipped_records();
    Ok(())
}
