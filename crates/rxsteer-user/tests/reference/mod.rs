//! The folder of third-party captures, and the counts of other tools.

use std::collections::HashMap;
use std::io::Write;
use std::path::{Path, PathBuf};

/// The folder of captures; `None` after printing why `test` is skipped.
pub(crate) fn folder(test: &str) -> Option<PathBuf> {
    let default = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/captures");
    let folder = std::env::var_os("RXSTEER_CAPTURES").map_or_else(default, PathBuf::from);
    if folder.join("reference.tsv").is_file() {
        return Some(folder);
    }
    // Not eprintln!: the test runner hides its output.
    let _ = writeln!(
        std::io::stderr(),
        "SKIPPED captures::{test}: no reference.tsv in {}; set RXSTEER_CAPTURES to the folder of \
         captures",
        folder.display()
    );
    None
}

/// One row of the reference: column name to value.
pub(crate) type Row = HashMap<String, String>;

pub(crate) fn rows(folder: &Path) -> Vec<Row> {
    let table = std::fs::read_to_string(folder.join("reference.tsv")).unwrap();
    let mut lines = table.lines();
    let names: Vec<&str> = lines.next().unwrap().split('\t').collect();
    let row = |line: &str| {
        names.iter().zip(line.split('\t')).map(|(n, v)| ((*n).to_owned(), v.to_owned())).collect()
    };
    lines.map(row).collect()
}

pub(crate) fn number(row: &Row, column: &str) -> u64 {
    row[column].parse().unwrap_or_else(|_| panic!("{}: {column}", row["file"]))
}
