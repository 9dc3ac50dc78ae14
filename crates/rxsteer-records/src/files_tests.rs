use super::*;
use crate::anonymize::Anonymize;
use crate::{Interface, PartitionBy, View};
use rxsteer_flows::{FlowRecord, FlowTotals};
use std::path::{Path, PathBuf};

fn view() -> View {
    let anonymize = Anonymize::new(None, None).unwrap();
    View { mask: FlowMask::ALL, anonymize, interfaces: vec![] }
}

fn record(packets: u64) -> FlowRecord {
    let mut record = FlowRecord::default();
    record.key.ip_version = 4;
    record.key.src_port = packets as u16;
    record.totals = FlowTotals { packets, bytes: 100 * packets, ..FlowTotals::default() };
    record
}

fn files(path: &Path, rotation: Rotation) -> Files {
    let by: Option<PartitionBy> = path.is_dir().then(|| "hash-prefix:1".parse().unwrap());
    let target = Target::new(path, by, Some(Path::new("eth0"))).unwrap();
    Files::begin(target, FlowMask::ALL, rotation, |_| {}).unwrap()
}

fn take(files: &mut Files, packets: u64) {
    files.take(&view().row_of(&record(packets), &Interface { name: "a,b".into(), index: 3 }));
}

/// The complete files of a folder, in order.
fn complete(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let is_hidden = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().starts_with('.');
    let mut paths: Vec<PathBuf> = entries.filter(|path| !is_hidden(path)).collect();
    paths.sort();
    paths
}

/// The packets in the records of CSV files.
fn packets(paths: &[PathBuf]) -> u64 {
    let of_file = |path: &PathBuf| -> u64 {
        let mut reader = csv::Reader::from_path(path).unwrap();
        let records = reader.records().map(|record| record.unwrap()[5].parse::<u64>().unwrap());
        records.sum()
    };
    paths.iter().map(of_file).sum()
}

#[test]
fn no_record_is_lost_between_files() {
    for name in ["f.csv", "f.jsonl"] {
        let folder = tempfile::tempdir().unwrap();
        let size = Rotation { every: None, size: Some(4096) };
        let mut files = files(&folder.path().join(name), size);
        (1..=1000).for_each(|packets| take(&mut files, packets));
        files.finish();
        let (counts, paths) = (files.counts(), complete(folder.path()));
        assert_eq!(counts.files(), paths.len() as u64);
        assert!(paths.len() > 10, "{paths:?}");
        assert_eq!(counts.written(), Written { records: 1000, packets: 500_500 });
        assert_eq!(counts.lost(), Written::default());
        if name == "f.csv" {
            assert_eq!(packets(&paths), 500_500);
        }
        let named = |path: &PathBuf| path.file_stem().unwrap().to_string_lossy().len();
        assert!(paths.iter().all(|path| named(path) == "f-20261123T151000Z-000001".len()));
        assert!(files.written().unwrap().contains("f-*."));
    }
}

#[test]
fn time_completes_a_file_also_without_records() {
    let folder = tempfile::tempdir().unwrap();
    let every = Rotation { every: Some(Duration::from_secs(1)), size: None };
    let mut files = files(&folder.path().join("f.csv"), every);
    take(&mut files, 7);
    let started = Instant::now();
    while complete(folder.path()).is_empty() && started.elapsed() < Duration::from_secs(20) {
        files.tick();
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(packets(&complete(folder.path())), 7);
    files.finish();
    assert_eq!(complete(folder.path()).len(), 1, "files without records are left out");
    assert_eq!(every.end(UNIX_EPOCH), Some(UNIX_EPOCH + Duration::from_secs(1)));
}

#[test]
fn files_without_records_take_no_number() {
    let folder = tempfile::tempdir().unwrap();
    let every = Rotation { every: Some(Duration::from_secs(3600)), size: None };
    let mut files = files(&folder.path().join("f.csv"), every);
    for packets in [1, 2, 3] {
        // As at the end of an interval without records.
        files.open_file().unwrap();
        files.complete();
        take(&mut files, packets);
        files.complete();
    }
    let paths = complete(folder.path());
    let number = |path: &PathBuf| {
        path.file_stem().unwrap().to_string_lossy().rsplit_once('-').unwrap().1.to_owned()
    };
    let mut numbers: Vec<String> = paths.iter().map(number).collect();
    numbers.sort();
    assert_eq!(numbers, ["000001", "000002", "000003"]);
    assert_eq!(packets(&paths), 6);
}

#[test]
fn without_rotation_there_is_one_file_of_the_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("f.csv");
    let mut files = files(&path, Rotation::default());
    take(&mut files, 5);
    assert!(complete(folder.path()).is_empty(), "it has no name yet");
    files.finish();
    assert_eq!(complete(folder.path()), std::slice::from_ref(&path));
    assert!(std::fs::read_to_string(path).unwrap().contains("\"a,b\""), "names are quoted");
}

#[test]
#[cfg(feature = "parquet")]
fn data_set_gets_files_of_each_part() {
    let folder = tempfile::tempdir().unwrap();
    let size = Rotation { every: None, size: Some(1) };
    let mut files = files(folder.path(), size);
    // Records that wait to be encoded have no size yet.
    take(&mut files, 1);
    files.complete();
    take(&mut files, 2);
    files.finish();
    let names = complete(folder.path()).iter().flat_map(|path| complete(path)).count();
    assert_eq!((names, files.counts().files()), (2, 2));
}

/// A failed write keeps the complete lines in the file, and counts the others. /dev/full is a disk without free space.
#[test]
fn text_keeps_whole_lines_when_there_is_no_room() {
    let folder = tempfile::tempdir().unwrap();
    let mut files = files(&folder.path().join("f.csv"), Rotation::default());
    take(&mut files, 1);
    files.open.as_mut().unwrap().sink.flush().unwrap();
    take(&mut files, 2);
    // As the sink reports it after its flush failed.
    let kept = files.drop_file();
    assert_eq!(kept, Written { records: 1, packets: 1 });
    assert_eq!(files.counts().lost(), Written { records: 1, packets: 2 });
    assert_eq!(packets(&complete(folder.path())), 1);
    assert!(files.failure_state.is_some());
    take(&mut files, 4);
    assert_eq!(files.counts().lost().packets, 6, "files are left alone for a while");
    files.failure_state.as_mut().unwrap().retry = Instant::now();
    take(&mut files, 8);
    assert!(files.failure_state.is_none(), "there is room");
    files.finish();
    assert_eq!(packets(&complete(folder.path())), 9);
    let counts = files.counts();
    assert_eq!((counts.files(), counts.written().packets), (2, 9));
}
