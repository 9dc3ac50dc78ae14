//! Third-party captures, compared with the counts of other tools.
//!
//! The folder of captures is not part of this repository. The tests search for it in `RXSTEER_CAPTURES`, then
//! beside the repository. Without it these tests print SKIPPED.

use crate::reference::{Row, folder, number, rows};
use rxsteer_packet::{DissectOptions, dissect};
use rxsteer_user::block::Block;
use rxsteer_user::source::capture::{CaptureOptions, CaptureSource};
use rxsteer_user::source::{Fill, Source, SourceIssue};
use std::collections::HashSet;
use std::path::Path;

/// The contents of a capture.
#[derive(Debug, Default)]
struct Counts {
    packets: u64,
    wire_bytes: u64,
    captured_bytes: u64,
    bidirectional: u64,
    unidirectional: u64,
    skipped: u64,
    issues: Vec<SourceIssue>,
}

fn count(path: &Path) -> Counts {
    let mut source = CaptureSource::open(&[path.to_owned()], CaptureOptions::default())
        .unwrap_or_else(|error| panic!("{error}"));
    let mut counts = Counts::default();
    let mut directed = HashSet::new();
    let mut block = Block::new();
    loop {
        let fill = source.fill(&mut block);
        for frame in block.frames() {
            let bytes = block.bytes_of(frame);
            counts.packets += 1;
            counts.wire_bytes += u64::from(frame.wire_len);
            counts.captured_bytes += bytes.len() as u64;
            directed.extend(dissect(frame.link, bytes, DissectOptions::default()).outer_flow());
        }
        block.clear();
        if fill == Fill::End {
            break;
        }
    }
    let undirected: HashSet<_> = directed.iter().map(|key| key.canonical()).collect();
    counts.unidirectional = directed.len() as u64;
    counts.bidirectional = undirected.len() as u64;
    counts.skipped = source.skipped_records();
    counts.issues = source.take_issues();
    counts
}

/// Compares one figure of one file; returns a message if it differs.
fn compare(row: &Row, what: &str, got: u64, columns: &[&str]) -> Option<String> {
    let right = columns.iter().any(|column| number(row, column) == got);
    (!right).then(|| format!("{}: {got} {what}, reference {}", row["file"], row[columns[0]]))
}

/// The tools differ on frames with MPLS labels or PPPoE: each of them may be right.
fn flow_columns<'a>(row: &Row, tshark: &'a str, walker: &'a str) -> Vec<&'a str> {
    let file = &row["file"];
    if file.contains("mpls") || file.contains("pppoe") {
        vec![tshark, walker]
    } else {
        vec![tshark]
    }
}

#[test]
fn comparable_captures_give_what_other_tools_count() {
    let Some(folder) = folder("comparable_captures_give_what_other_tools_count") else { return };
    let mut wrong = Vec::new();
    let mut compared = 0;
    for row in rows(&folder).iter().filter(|row| row["comparable"] == "yes") {
        compared += 1;
        let got = count(&folder.join(&row["file"]));
        let bidir = flow_columns(row, "outer_bidir_all_tshark", "outer_bidir_all_walker");
        let unidir = flow_columns(row, "outer_unidir_all_tshark", "outer_unidir_all_walker");
        wrong.extend(compare(row, "packets", got.packets, &["packets_tshark"]));
        wrong.extend(compare(row, "bytes", got.wire_bytes, &["bytes_on_wire_tshark"]));
        wrong.extend(compare(row, "bidirectional flows", got.bidirectional, &bidir));
        wrong.extend(compare(row, "unidirectional flows", got.unidirectional, &unidir));
        wrong.extend(got.issues.iter().map(|issue| format!("unexpected issue: {issue}")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(compared > 0, "the reference has no comparable file");
    println!("{compared} captures compared");
}

#[test]
fn damaged_captures_give_what_precedes_the_damage() {
    let Some(folder) = folder("damaged_captures_give_what_precedes_the_damage") else { return };
    for row in rows(&folder).iter().filter(|row| row["comparable"] == "container-error") {
        let path = folder.join(&row["file"]);
        let got = count(&path);
        println!("{}: {got:?}", row["file"]);
        assert_eq!(got.issues.len(), 1, "{}: {:?}", row["file"], got.issues);
        let length = std::fs::metadata(&path).unwrap().len();
        assert!(got.issues[0].offset.is_some_and(|offset| offset < length), "{}", got.issues[0]);
        // TShark reads one of these files with another header type than the file declares. The walker and this
        // crate use the declared type.
        let seen = got.packets + got.skipped;
        assert_eq!(seen, number(row, "packets_walker"), "{}", row["file"]);
        assert_eq!(got.bidirectional, number(row, "outer_bidir_all_walker"), "{}", row["file"]);
    }
}

#[test]
fn captures_of_other_link_types_are_refused_by_number_and_nothing_else_is() {
    let Some(folder) =
        folder("captures_of_other_link_types_are_refused_by_number_and_nothing_else_is")
    else {
        return;
    };
    for row in rows(&folder).iter().filter(|row| row["comparable"] == "other-linktype") {
        let got = count(&folder.join(&row["file"]));
        println!("{}: {got:?}", row["file"]);
        let seen = got.packets + got.skipped;
        assert_eq!(seen, number(row, "packets_tshark"), "{}", row["file"]);
        assert_eq!(got.issues.is_empty(), got.skipped == 0, "{}", row["file"]);
        assert!(got.issues.iter().all(|issue| issue.message.starts_with("link type ")));
    }
}
