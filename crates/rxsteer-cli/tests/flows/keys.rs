//! `--key`: flows distinguished by fewer fields, compared with the sums of flows with all fields.

use super::reading::{Counted, HEADER, Key};
use super::traffic::Traffic;
use super::{errors, number, replay, rxsteer, status, text};
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;

/// The columns `src` to `dst_port`; a missing field is empty.
type Fields = [String; 5];

/// The counts for each key; each key has one record.
type Sums = BTreeMap<Fields, Counted>;

/// A key, and a function that reduces a flow to the fields of the key.
type Case = (&'static str, fn(&Key) -> Fields);

const CASES: [Case; 5] = [
    ("src", |key| [key.0.to_string(), String::new(), String::new(), String::new(), String::new()]),
    ("protocol,dst-port", |key| {
        [String::new(), String::new(), key.2.to_string(), String::new(), key.4.to_string()]
    }),
    ("src/24/100,dst,src-port", |key| {
        let src = network(key.0, 24, 100);
        [src, key.1.to_string(), String::new(), key.3.to_string(), String::new()]
    }),
    ("dst/0/32", |key| {
        let dst = if key.1.is_ipv4() { String::new() } else { network(key.1, 0, 32) };
        [String::new(), dst, String::new(), String::new(), String::new()]
    }),
    ("src,dst,protocol,src-port,dst-port", |key| {
        let [src, dst] = [key.0, key.1].map(|address| address.to_string());
        [src, dst, key.2.to_string(), key.3.to_string(), key.4.to_string()]
    }),
];

fn network(address: IpAddr, v4: u32, v6: u32) -> String {
    match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32 - v4).unwrap_or(0);
            std::net::Ipv4Addr::from(u32::from(address) & mask).to_string()
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128 - v6).unwrap_or(0);
            std::net::Ipv6Addr::from(u128::from(address) & mask).to_string()
        }
    }
}

fn grouped(traffic: &Traffic, by: fn(&Key) -> Fields) -> Sums {
    let mut sums = Sums::new();
    for (key, counted) in &traffic.flows {
        sums.entry(by(key)).or_default().add(*counted);
    }
    sums
}

/// Sums from columns in this order, each as text.
fn sums(lines: impl Iterator<Item = Vec<String>>) -> Sums {
    let mut sums = Sums::new();
    for line in lines {
        let number = |index: usize| line[index].parse::<u64>().expect("a number");
        let counted = Counted {
            packets: number(5),
            bytes: number(6),
            tcp_flags: u8::try_from(number(7)).expect("a byte"),
            first_ns: number(8),
            last_ns: number(9),
        };
        let fields = std::array::from_fn(|index| line[index].clone());
        assert_eq!(sums.insert(fields, counted), None, "two records of one key: {line:?}");
    }
    sums
}

fn csv(path: &Path) -> Sums {
    let whole = std::fs::read_to_string(path).expect("a file");
    sums(whole.lines().skip(1).map(|line| line.split(',').map(str::to_owned).collect()))
}

fn object(object: &Value) -> Vec<String> {
    let text = |name: &str| match &object[name] {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    HEADER.split(',').take(10).map(text).collect()
}

fn json_lines(path: &Path) -> Sums {
    let whole = std::fs::read_to_string(path).expect("a file");
    sums(whole.lines().map(|line| object(&serde_json::from_str(line).expect("an object"))))
}

/// The sums, and the key in the file's metadata.
#[cfg(feature = "parquet")]
fn parquet(path: &Path) -> (Sums, Option<String>) {
    use arrow_array::Array;
    use arrow_array::cast::AsArray;
    use arrow_array::types::{Int32Type, Int64Type};
    use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
    let file = std::fs::File::open(path).expect("a file");
    let reader = ParquetRecordBatchReaderBuilder::try_new(file).expect("a Parquet file");
    let metadata = reader.metadata().file_metadata().key_value_metadata().expect("metadata");
    let key = metadata.iter().find(|entry| entry.key == "rxsteer.key");
    let key = key.and_then(|entry| entry.value.clone());
    let mut lines = Vec::new();
    for batch in reader.build().expect("it can be read") {
        let batch = batch.expect("rows");
        let text = |index: usize, row: usize| match batch.column(index) {
            column if column.is_null(row) => String::new(),
            column if index < 2 => column.as_string::<i32>().value(row).to_owned(),
            column => match column.as_primitive_opt::<Int32Type>() {
                Some(small) => small.value(row).to_string(),
                None => column.as_primitive::<Int64Type>().value(row).to_string(),
            },
        };
        let line = |row| (0..10).map(|index| text(index, row)).collect::<Vec<_>>();
        lines.extend((0..batch.num_rows()).map(line));
    }
    (sums(lines.into_iter()), key)
}

#[test]
fn records_of_a_key_are_the_sums_of_its_flows() {
    let dir = tempfile::tempdir().expect("a directory");
    let traffic = Traffic::mixed(5000, 600);
    let capture = traffic.write(dir.path(), "mixed.pcap");
    for (key, by) in CASES {
        let expected = grouped(&traffic, by);
        assert!(expected.len() > 1, "{key}");
        let written = |name: &str| {
            let file = dir.path().join(name);
            let report = replay(&file, &["--key", key, "--cpus", "3", text(&capture)]);
            let records = number(&report["flow_statistics"]["records"]);
            assert_eq!(records, expected.len() as u64, "{key}");
            file
        };
        assert_eq!(csv(&written("a.csv")), expected, "{key}");
        assert_eq!(json_lines(&written("a.jsonl")), expected, "{key}");
        #[cfg(feature = "parquet")]
        assert_eq!(parquet(&written("a.parquet")), (expected.clone(), Some(key.to_owned())));

        let all = ["flows", "--json", "--top", "100000", "--cpus", "3", "--key", key];
        let output = rxsteer(&[&all[..], &[text(&capture)]].concat());
        let shown: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
        let top = shown["largest_flows"].as_array().expect("a list");
        assert_eq!(sums(top.iter().map(object)), expected, "{key}");
    }
}

/// Files of all keys have one schema, so that query engines can read them together.
#[cfg(feature = "parquet")]
#[test]
fn schema_is_the_same_for_all_keys() {
    use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
    let dir = tempfile::tempdir().expect("a directory");
    let schemas = CASES.map(|(key, _)| {
        let file = dir.path().join("flows.parquet");
        replay(&file, &["--synthetic", "packets=100,flows=10", "--key", key]);
        let file = std::fs::File::open(&file).expect("a file");
        ParquetRecordBatchReaderBuilder::try_new(file).expect("a file").schema().fields().clone()
    });
    assert!(schemas.iter().all(|schema| *schema == schemas[0]));
}

/// With pseudonyms, omitted addresses are still omitted, and networks are still networks.
#[test]
fn pseudonyms_are_of_what_counts() {
    let dir = tempfile::tempdir().expect("a directory");
    let traffic = Traffic::mixed(5000, 600);
    let capture = traffic.write(dir.path(), "mixed.pcap");
    let file = dir.path().join("flows.csv");
    replay(&file, &["--key", "src/24/48", "--anonymize=pseudonym", text(&capture)]);
    let pseudonyms = csv(&file);
    let plain = grouped(&traffic, |key| {
        [network(key.0, 24, 48), String::new(), String::new(), String::new(), String::new()]
    });
    assert_eq!(pseudonyms.len(), plain.len());
    for (fields, counted) in &pseudonyms {
        assert!(plain.values().any(|other| other == counted));
        assert_eq!(fields[1..], ["", "", "", ""]);
        assert!(!plain.contains_key(fields), "{fields:?}");
        assert_eq!(network(fields[0].parse().expect("an address"), 24, 48), fields[0]);
    }
}

fn table(arguments: &[&str]) -> Vec<String> {
    let output = rxsteer(&[&["flows", "--cpus", "1", "--hash-seed", "2a"], arguments].concat());
    assert_eq!(status(&output), 0, "{}", errors(&output));
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}

/// Compares the complete output with that from before `--key` existed.
#[test]
fn without_a_key_nothing_is_different() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut traffic = Traffic::new();
    traffic.udp(7, 0);
    traffic.udp(7, 1500);
    let capture = traffic.write(dir.path(), "two.pcap");
    assert_eq!(
        table(&[text(&capture)]),
        [
            " rank  source      destination    protocol  packets  bytes    share  duration  flags  CPUs",
            "    1  10.1.2.3:7  192.0.2.200:9  udp             2    144  100.0 %    1.5 ms  -      0",
            "",
            "flows        1 with 2 packets, 144 bytes; shown: 100.0 % of the packets, 100.0 % of the bytes",
            "in no flow   0 not IP, 0 malformed, 0 dropped",
            "policy       rps, CPUs 0",
            "hash         symmetric; the same spread again: --hash-seed 2a",
        ]
    );
    let file = dir.path().join("flows.csv");
    replay(&file, &["--cpus", "1", text(&capture)]);
    let line = "10.1.2.3,192.0.2.200,17,7,9,2,144,0,1700000000000000000,1700000000001500000,0,0:2:144,\
        0,0,finished,";
    let whole = std::fs::read_to_string(&file).expect("a file");
    assert!(whole.starts_with(&format!("{HEADER}\n{line}")), "{whole}");
    let file = dir.path().join("flows.jsonl");
    replay(&file, &["--cpus", "1", text(&capture)]);
    let line = "{\"src\":\"10.1.2.3\",\"dst\":\"192.0.2.200\",\"protocol\":17,\"src_port\":7,\
        \"dst_port\":9,\"packets\":2,\"bytes\":144,\"tcp_flags\":0,";
    assert!(std::fs::read_to_string(&file).expect("a file").starts_with(line));
}

#[test]
fn table_has_the_columns_of_its_key() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut traffic = Traffic::new();
    traffic.udp(7, 0);
    traffic.udp(8, 1500);
    let capture = traffic.write(dir.path(), "two.pcap");
    for (key, header, row) in [
        ("src", "source", "10.1.2.3"),
        ("src/24", "source", "10.1.2.0/24"),
        ("dst/16,dst-port", "destination", "192.0.0.0/16:9"),
        ("dst-port,protocol", "destination protocol", "*:9 udp"),
        ("src/0/48,protocol", "source protocol", "* udp"),
        ("dst,protocol", "destination protocol", "192.0.2.200 udp"),
    ] {
        let lines = table(&["--key", key, text(&capture)]);
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        let expected =
            |first: &str, of_key: &str, then: &str| words(&[first, of_key, then].join(" "));
        assert_eq!(
            words(&lines[0]),
            expected("rank", header, "packets bytes share duration flags CPUs")
        );
        assert_eq!(words(&lines[1]), expected("1", row, "2 144 100.0 % 1.5 ms - 0"), "{key}");
        assert!(lines[3].starts_with("keys         1 with 2 packets, 144 bytes;"), "{lines:?}");
    }
}

#[test]
fn keys_that_are_none_are_refused() {
    for (key, part) in [
        ("sorce", "there is no field 'sorce'; did you mean 'src'?"),
        ("src,dst_port", "there is no field 'dst_port'; did you mean 'dst-port'?"),
        ("port-number", "choose one of 'src', 'dst', 'protocol', 'src-port', 'dst-port'"),
        ("", "there is no field ''"),
        ("src/0/0", "leaves nothing to distinguish flows by"),
        ("src/33", "'src/33' is not a network"),
        ("protocol/8", "'protocol/8' is not a network"),
        ("src,src/24", "the field 'src' is named twice"),
    ] {
        for command in [&["flows"][..], &["replay", "--flows", "a.csv"]] {
            let arguments = [command, &["--synthetic", "packets=10", "--key", key]].concat();
            let output = rxsteer(&arguments);
            assert_eq!(status(&output), 2, "{arguments:?}");
            assert!(errors(&output).contains(part), "{arguments:?}: {}", errors(&output));
        }
    }
    let output = rxsteer(&["replay", "--synthetic", "packets=10", "--key", "src"]);
    assert_eq!(status(&output), 2);
    assert!(errors(&output).contains("--key is an option of flow records"), "{}", errors(&output));
}
