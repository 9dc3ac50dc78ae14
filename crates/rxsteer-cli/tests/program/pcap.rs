//! Generates captures.

use std::fs;
use std::path::{Path, PathBuf};

/// A pcap file (little endian, microseconds) with these frames.
pub(crate) fn pcap(link: u32, frames: &[&[u8]]) -> Vec<u8> {
    let mut file = Vec::new();
    for word in [0xa1b2_c3d4, 0x0004_0002, 0, 0, 65535, link] {
        file.extend_from_slice(&u32::to_le_bytes(word));
    }
    for frame in frames {
        for word in [1, 0, frame.len() as u32, frame.len() as u32] {
            file.extend_from_slice(&u32::to_le_bytes(word));
        }
        file.extend_from_slice(frame);
    }
    file
}

/// A file in a folder.
pub(crate) fn written(dir: &Path, name: &str, bytes: &[u8]) -> PathBuf {
    let path = dir.join(name);
    fs::write(&path, bytes).expect("a file can be written");
    path
}
