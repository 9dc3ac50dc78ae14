//! The seeds of the fuzz target `capture`: small captures, one of each kind.

use super::super::order::Order;
use super::super::testing::*;
use super::formats::{small_pcap, small_pcapng};
use std::io::Write;
use std::path::Path;

/// Name and content of each seed.
fn seeds() -> Vec<(String, Vec<u8>)> {
    let mut seeds = vec![
        ("pcap.gz".to_owned(), gzip(&small_pcap())),
        ("pcapng.zst".to_owned(), zstd(&small_pcapng())),
        ("pcapng-sections".to_owned(), small_pcapng()),
    ];
    for order in BOTH {
        for (magic, name) in [(MICRO, "micro"), (NANO, "nano"), (MODIFIED, "modified")] {
            let file =
                PcapFile::new(order, magic).record((1, 2), 60, b"abc").record((3, 4), 0, b"");
            seeds.push((format!("pcap-{name}-{order:?}").to_lowercase(), file.bytes()));
        }
        let file = PcapngFile::new(order)
            .interface_with(1, 5, |out| {
                option(out, 9, &[0x80 | 10]);
                option(out, 14, &[1; 8]);
                option(out, 0, b"");
            })
            .interface(147, 0)
            .enhanced(0, 1 << 33, 60, b"abc")
            .enhanced(1, 0, 1, b"x")
            .obsolete(0, 7, 60, b"defg")
            .simple(60, b"hijkl")
            .block(0x0bad, |content| {
                content.u32(1).raw(b"custom");
            })
            .section(Order::Big, (2, 0))
            .enhanced(9, 9, 9, b"unknown");
        seeds.push((format!("pcapng-{order:?}").to_lowercase(), file.bytes()));
    }
    seeds
}

#[test]
fn seeds_are_small_and_read() {
    for (name, seed) in seeds() {
        assert!(seed.len() < 1024, "{name}");
        assert!(!read(&seed).0.is_empty(), "{name}");
    }
}

/// The corpus in the repository is the one that is generated here. `RXSTEER_WRITE_SEEDS=1 cargo test -p rxsteer-user
/// seeds` writes it again.
#[test]
fn corpus_is_made_of_the_seeds() {
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz");
    if !fuzz.is_dir() {
        let test = "seeds::corpus_is_made_of_the_seeds";
        let _ = writeln!(std::io::stderr(), "SKIPPED {test}: the package has no fuzz folder");
        return;
    }
    let folder = fuzz.join("corpus/capture");
    for (name, seed) in seeds() {
        let file = folder.join(name);
        if std::env::var_os("RXSTEER_WRITE_SEEDS").is_some() {
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(&file, &seed).unwrap();
        }
        assert_eq!(std::fs::read(&file).unwrap(), seed, "{}", file.display());
    }
}
