//! What the repository's README shows of the library is part of the crate's README, which is compiled.

use std::io::Write;

/// The lines of Rust blocks, without their indentation.
fn rust_blocks(text: &str) -> Vec<String> {
    let blocks = text.split("```rust").skip(1).filter_map(|rest| rest.split("```").next());
    blocks
        .map(|block| block.lines().skip(1).map(str::trim).collect::<Vec<_>>().join("\n"))
        .collect()
}

#[test]
fn readme_of_the_repository_shows_what_compiles() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../README.md");
    let Ok(readme) = std::fs::read_to_string(path) else {
        let test = "readme::readme_of_the_repository_shows_what_compiles";
        let _ = writeln!(std::io::stderr(), "SKIPPED {test}: the package has no {path}");
        return;
    };
    let compiled = rust_blocks(include_str!("../README.md")).concat();
    let shown = rust_blocks(&readme);
    assert!(!shown.is_empty(), "the README shows the library");
    for block in shown {
        assert!(compiled.contains(block.trim()), "not in crates/rxsteer/README.md:\n{block}");
    }
}
