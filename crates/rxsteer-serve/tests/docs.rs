//! Checks that docs/metrics.md has every metric, with the help of the list of counters.
//!
//! ```text
//! INSTA_UPDATE=always cargo test -p rxsteer-serve docs
//! ```

use std::io::Write;

const BEGIN: &str = "<!-- metrics: made by cargo test -p rxsteer-serve docs -->\n";
const END: &str = "<!-- end -->\n";

#[test]
fn documentation_has_every_metric() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md");
    let Ok(text) = std::fs::read_to_string(path) else {
        let why =
            "SKIPPED docs::documentation_has_every_metric: packages are without docs/metrics.md";
        return writeln!(std::io::stderr(), "{why}").expect("standard error is open");
    };
    let (before, rest) = text.split_once(BEGIN).expect("it has a place for the metrics");
    let (table, after) = rest.split_once(END).expect("and an end of it");
    let expected = format!("\n{}\n", rxsteer_serve::documentation());
    if table == expected {
        return;
    }
    if std::env::var_os("INSTA_UPDATE").is_some_and(|how| how == "always") {
        std::fs::write(path, [before, BEGIN, &expected, END, after].concat()).unwrap();
        return;
    }
    panic!(
        "docs/metrics.md is not as the metrics are; INSTA_UPDATE=always cargo test -p rxsteer-serve docs"
    );
}
