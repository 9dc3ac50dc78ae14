//! The checked-in header matches the library.
#![allow(clippy::expect_used, reason = "a test may panic")]

use std::fs;
use std::path::Path;

/// The parts that cbindgen can't generate: the version, and access to a packet of a list, whose size the library
/// determines.
fn after_includes() -> String {
    format!("\n#define RXSTEER_VERSION \"{}\"", env!("CARGO_PKG_VERSION"))
}

const TRAILER: &str = "\
/**
 * Returns packet `number` of the list, from 0 to `list->count` - 1.
 */
static inline const rxsteer_packet *rxsteer_packet_at(const rxsteer_list *list, size_t number)
{
    const uint8_t *packets = (const uint8_t *)list->packets;
    return (const rxsteer_packet *)(const void *)(packets + number * list->packet_size);
}";

fn generated() -> String {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut config =
        cbindgen::Config::from_file(here.join("cbindgen.toml")).expect("cbindgen.toml");
    config.header = Some("/* Made by cbindgen from the sources of rxsteer-c; do not edit. SPDX-License-Identifier: MIT OR Apache-2.0 */".to_owned());
    config.after_includes = Some(after_includes());
    let source = |name: &str| here.join("src").join(name);
    let bindings = cbindgen::Builder::new()
        .with_config(config)
        .with_src(source("types.rs"))
        .with_src(source("instance.rs"))
        .with_src(source("lib.rs"))
        .generate()
        .expect("a header");
    let mut header = Vec::new();
    bindings.write(&mut header);
    let header = String::from_utf8(header).expect("UTF-8");
    // Replaces the headings of Rust documentation.
    let header = header.replace(" * # Safety\n", " * What the caller promises:\n");
    header.replace(
        "#ifdef __cplusplus\n}  // extern \"C\"",
        &format!("{TRAILER}\n\n#ifdef __cplusplus\n}}  // extern \"C\""),
    )
}

#[test]
fn checked_in_header_is_that_of_the_sources() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("include/rxsteer.h");
    let header = generated();
    if std::env::var_os("RXSTEER_HEADER").is_some_and(|mode| mode == "write") {
        fs::write(&path, &header).expect("it can be written");
    }
    let kept = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        kept == header,
        "include/rxsteer.h is stale; make it again: RXSTEER_HEADER=write cargo test -p rxsteer-c --test header"
    );
}
