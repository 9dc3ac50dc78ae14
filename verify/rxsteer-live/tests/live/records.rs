//! Flow records of live traffic: every packet counted for a flow is in one record in a complete file, or is counted as
//! lost, whatever rotates, fills up or is killed.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rxsteer_lab::{
    LinkOptions, LiveFrames, Namespace, Steering, Testbed, Traffic, clients, skipped, slice,
};
use serde_json::Value;

use super::ask;

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no number"))
}

/// The complete files of a folder: the names of incomplete ones begin with a dot.
fn complete(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let is_named = |path: &PathBuf| !path.file_name().unwrap().to_string_lossy().starts_with('.');
    entries.filter(is_named).collect()
}

/// The records and packets in CSV files, each of which must be complete.
fn records(paths: &[PathBuf]) -> (u64, u64) {
    let (mut records, mut packets) = (0, 0);
    for path in paths {
        let text = std::fs::read_to_string(path).unwrap();
        assert!(text.starts_with("src,dst,") && text.ends_with('\n'), "{path:?} is not whole");
        for line in text.lines().skip(1) {
            let fields: Vec<&str> = line.split(',').collect();
            assert_eq!(fields.len(), 19, "{line}");
            assert_eq!(fields[17], "in0", "{line}");
            let share = |cpu: &str| cpu.split(':').nth(1).unwrap().parse::<u64>().unwrap();
            let count = fields[5].parse::<u64>().unwrap();
            let shared = fields[12].parse::<u64>().unwrap();
            assert_eq!(fields[11].split(';').map(share).sum::<u64>() + shared, count, "{line}");
            records += 1;
            packets += count;
        }
    }
    (records, packets)
}

/// The packets that flows counted, according to the final report.
fn counted(report: &Value) -> u64 {
    let sum = |names: &[&str]| names.iter().map(|name| number(&report[*name])).sum::<u64>();
    number(&report["received"])
        - sum(&["frames_not_ip", "malformed", "flow_packets_refused"])
        - number(&report["drops"]["flow_limit"])
}

/// Asserts that the report, the files and the counters agree.
fn adds_up(report: &Value, paths: &[PathBuf]) {
    let at = &report["flow_records"];
    assert_eq!(number(&at["packets"]) + number(&at["packets_lost"]), counted(report), "{report}");
    let files = &at["files"];
    let of_files = |name: &str| number(&files[name]);
    assert_eq!(of_files("packets") + of_files("packets_lost"), number(&at["packets"]), "{at}");
    assert_eq!((of_files("records"), of_files("packets")), records(paths), "{at}");
    assert_eq!(of_files("complete"), paths.len() as u64, "{at}");
}

/// Sends from flows of changing ports until `stop` is set; returns how many frames there were.
fn churn(testbed: &Testbed, stop: &AtomicBool) -> u64 {
    let mut sent = 0;
    for round in 0_u16.. {
        let traffic = Traffic {
            flows: 500,
            source_port: 10_000 + 500 * (round % 100),
            pace: Duration::from_micros(20),
            ..Traffic::default()
        };
        let source = LiveFrames::new(testbed.link(), &traffic).unwrap();
        source.send(testbed.sender(), 0, 5000).unwrap();
        sent += source.sent().unwrap().iter().sum::<u64>();
        if stop.load(Ordering::Relaxed) {
            break;
        }
    }
    sent
}

#[test]
fn records_are_packets_across_rotations_under_load() {
    let test = "records::records_are_packets_across_rotations_under_load";
    let Some(_alone) = super::ready(test, &["kill"], 2) else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let flows = path("flows");
    std::fs::create_dir(&flows).unwrap();
    let (socket, config) = (path("socket"), path("rxsteer.toml"));
    std::fs::write(&config, "policy = 'sparse'\ncpus = '0-1'\n").unwrap();
    let file = format!("{flows}/f.csv");
    let testbed = Testbed::hosts(LinkOptions::default()).unwrap();
    // There are lines for fewer flows than there are flows, so that flows also end because others need their lines.
    let arguments: Vec<&str> = format!(
        "in0 --config {config} --socket {socket} --flow-cnt 1024 --flows {file} --flows-rotate 1s --flows-rotate-size \
         4KiB --flow-idle-timeout 1s --flow-active-timeout 2s"
    )
    .leak()
    .split(' ')
    .collect();
    let steering = Steering::start(testbed.receiver(), &arguments).unwrap();
    // Some flows last long.
    let traffic = Traffic {
        flows: 8,
        pace: Duration::from_micros(50),
        source_port: 5000,
        ..Traffic::default()
    };
    let long = LiveFrames::new(testbed.link(), &traffic).unwrap();
    let rotations = slice(100, 1000);
    let stop = AtomicBool::new(false);
    let sent = std::thread::scope(|scope| {
        let churning = scope.spawn(|| churn(&testbed, &stop));
        let stopping = super::Stop(&stop);
        let sending = scope.spawn(|| long.send_until(testbed.sender(), 1, 10_000, &stop));
        let (started, mut hung_up) = (Instant::now(), false);
        while complete(Path::new(&flows)).len() < rotations
            && started.elapsed() < Duration::from_secs(slice(60, 600))
        {
            std::thread::sleep(Duration::from_millis(100));
            if !hung_up && complete(Path::new(&flows)).len() > rotations / 2 {
                // A reload does not change the records.
                let id = steering.id().to_string();
                assert!(Command::new("kill").args(["-HUP", &id]).status().unwrap().success());
                hung_up = true;
            }
        }
        drop(stopping);
        sending.join().unwrap().unwrap();
        assert!(hung_up);
        churning.join().unwrap() + long.sent().unwrap().iter().sum::<u64>()
    });
    let status: Value =
        serde_json::from_str(&ask(&["status", "--json", "--socket", &socket])).unwrap();
    assert!(number(&status["flow_records"]["records"]) > 0, "{status}");
    let refused = Command::new(rxsteer_lab::rxsteer().unwrap())
        .args(["status", "--reset", "--socket", &socket])
        .output()
        .unwrap();
    assert!(!refused.status.success(), "a reset would take packets out of records");
    let (report, _) = steering.stop().unwrap();
    let paths = complete(Path::new(&flows));
    assert!(paths.len() >= rotations, "{} files: {report}", paths.len());
    adds_up(&report, &paths);
    assert!(number(&report["received"]) >= sent, "{sent} {report}");
    let text: String = paths.iter().map(|path| std::fs::read_to_string(path).unwrap()).collect();
    // Whether a flow is evicted before it is idle for long enough depends on timing.
    for end in ["idle", "active", "finished"] {
        assert!(text.contains(&format!(",{end},")), "no flow ended {end}: {report}");
    }
    assert_eq!(std::fs::read_dir(&flows).unwrap().count(), paths.len(), "nothing else is left");
}

#[test]
fn files_of_one_that_was_killed_are_complete() {
    let test = "records::files_of_one_that_was_killed_are_complete";
    let Some(_alone) = super::ready(test, &[], 1) else { return };
    let folder = tempfile::tempdir().unwrap();
    let testbed = Testbed::hosts(LinkOptions::default()).unwrap();
    let mut written = 0;
    for round in 0..slice(3, 50) {
        let file = folder.path().join("f.csv").display().to_string();
        let arguments: Vec<&str> = format!(
            "in0 --policy rps --cpus 0-0 --flows {file} --flows-rotate-size 4KiB --flow-idle-timeout 1s"
        )
        .leak()
        .split(' ')
        .collect();
        let steering = Steering::start(testbed.receiver(), &arguments).unwrap();
        let traffic = Traffic { flows: 1000, ..Traffic::default() };
        let source = LiveFrames::new(testbed.link(), &traffic).unwrap();
        source.send(testbed.sender(), 0, 2000).unwrap();
        // The records are written within about two seconds; the instance is killed before, during or after that.
        let started = Instant::now();
        while complete(folder.path()).len() <= written + round
            && started.elapsed() < Duration::from_secs(20)
        {
            std::thread::sleep(Duration::from_millis(1));
        }
        steering.kill().unwrap();
        let paths = complete(folder.path());
        let (records, _) = records(&paths);
        assert!(paths.len() > written && records >= paths.len() as u64, "round {round}");
        written = paths.len();
    }
}

/// A small file system in memory, until it is dropped.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn new() -> Result<SmallDisk, String> {
        let folder = tempfile::tempdir().unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=64k", "rxsteer-test"]).arg(folder.path());
        let output = mount.output().map_err(|why| why.to_string())?;
        match output.status.success() {
            true => Ok(SmallDisk(folder)),
            false => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        }
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

#[test]
fn full_disk_is_reported_and_survived() {
    let test = "records::full_disk_is_reported_and_survived";
    let Some(_alone) = super::ready(test, &["mount", "umount"], 1) else { return };
    let disk = match SmallDisk::new() {
        Ok(disk) => disk,
        Err(why) => return skipped(&format!("live::{test}"), &format!("no file system: {why}")),
    };
    let testbed = Testbed::hosts(LinkOptions::default()).unwrap();
    let file = disk.0.path().join("f.csv").display().to_string();
    let arguments: Vec<&str> = format!(
        "in0 --policy rps --cpus 0-0 --flows {file} --flows-rotate-size 16KiB --flow-idle-timeout 1s"
    )
    .leak()
    .split(' ')
    .collect();
    let steering = Steering::start(testbed.receiver(), &arguments).unwrap();
    let send = |round: u16| {
        let traffic =
            Traffic { flows: 1000, source_port: 10_000 + 1000 * round, ..Traffic::default() };
        let source = LiveFrames::new(testbed.link(), &traffic).unwrap();
        source.send(testbed.sender(), 0, 3000).unwrap();
    };
    send(0);
    let timeout = Duration::from_secs(30);
    steering.wait_for_stderr("can't write flow records to", timeout).unwrap();
    steering.wait_for_stderr("Make room there", timeout).unwrap();
    // From here on the disk has room again.
    let (mut deleted, mut packets) = (0, 0);
    for path in complete(disk.0.path()) {
        let (_, count) = records(std::slice::from_ref(&path));
        std::fs::remove_file(path).unwrap();
        (deleted, packets) = (deleted + 1, packets + count);
    }
    let started = Instant::now();
    for round in 1.. {
        send(round % 50);
        if steering.stderr().contains("are written again") || started.elapsed() > timeout {
            break;
        }
        std::thread::sleep(Duration::from_millis(500));
        for path in complete(disk.0.path()) {
            let (_, count) = records(std::slice::from_ref(&path));
            std::fs::remove_file(path).unwrap();
            (deleted, packets) = (deleted + 1, packets + count);
        }
    }
    steering.wait_for_stderr("flow records are written again", timeout).unwrap();
    let stderr = steering.stderr();
    assert_eq!(stderr.matches("can't write flow records").count(), 1, "once a minute: {stderr}");
    let (report, _) = steering.stop().unwrap();
    let files = &report["flow_records"]["files"];
    let of_files = |name: &str| number(&files[name]);
    assert!(of_files("packets_lost") > 0 && files["problem"].is_string(), "{report}");
    let at = &report["flow_records"];
    assert_eq!(of_files("packets") + of_files("packets_lost"), number(&at["packets"]), "{at}");
    assert_eq!(number(&at["packets"]) + number(&at["packets_lost"]), counted(&report), "{report}");
    let paths = complete(disk.0.path());
    assert_eq!(of_files("packets"), packets + records(&paths).1, "{at}");
    assert_eq!(of_files("complete"), deleted + paths.len() as u64, "{at}");
}

/// `nfcapd` in a namespace; dropping this ends it.
struct Collector {
    process: Child,
    folder: PathBuf,
}

impl Drop for Collector {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Sums over the flows that `nfdump` reads.
#[derive(Debug, Default, PartialEq, Eq)]
struct Collected {
    flows: u64,
    packets: u64,
    /// Flows that have packets in both directions.
    two_way: u64,
}

impl Collector {
    fn start(namespace: &Namespace, folder: PathBuf) -> Collector {
        namespace.ip("link set lo up").unwrap();
        std::fs::create_dir(&folder).unwrap();
        let mut nfcapd = namespace.command("nfcapd");
        nfcapd.args(["-p", "4739", "-b", "127.0.0.1", "-w"]).arg(&folder);
        nfcapd.stdout(Stdio::null()).stderr(Stdio::null());
        let mut collector = Collector { process: nfcapd.spawn().unwrap(), folder };
        std::thread::sleep(Duration::from_secs(1));
        assert!(collector.process.try_wait().unwrap().is_none(), "nfcapd ended");
        collector
    }

    /// Ends nfcapd, which then writes its file, and reads what it collected.
    fn collected(mut self) -> Collected {
        std::thread::sleep(Duration::from_millis(500));
        let id = self.process.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
        let ended = (0..200).any(|_| {
            std::thread::sleep(Duration::from_millis(50));
            self.process.try_wait().unwrap().is_some()
        });
        assert!(ended, "nfcapd did not end");
        let folder = self.folder.display().to_string();
        let output = Command::new("nfdump")
            .args(["-R", &folder, "-q", "-N", "-o", "fmt:%pkt|%opkt|%fl"])
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let mut all = Collected::default();
        for line in text.lines().filter(|line| line.contains('|')) {
            let mut columns = line.split('|').map(|column| column.trim().parse::<u64>().unwrap());
            let [there, back] = [(); 2].map(|()| columns.next().unwrap());
            all.flows += 1;
            all.packets += there + back;
            all.two_way += u64::from(there > 0 && back > 0);
        }
        all
    }
}

/// Asserts that the collector got what was sent to it according to the report.
fn is_in_the_report(collected: &Collected, report: &Value) {
    let at = &report["flow_records"];
    assert_eq!(at["ipfix"]["records"], at["records"], "{at}");
    assert_eq!(number(&at["ipfix"]["records_lost"]), 0, "{at}");
    // Each direction of a flow has a record; both are one flow to a collector.
    let records = collected.flows + collected.two_way;
    assert_eq!(
        (records, collected.packets),
        (number(&at["records"]), number(&at["packets"])),
        "{at}"
    );
}

#[test]
fn collector_has_the_same_numbers() {
    let test = "records::collector_has_the_same_numbers";
    let Some(_alone) = super::ready(test, &["nfcapd", "nfdump"], 1) else { return };
    let folder = tempfile::tempdir().unwrap();
    let testbed = Testbed::hosts(LinkOptions::default()).unwrap();
    let collector = Collector::start(testbed.receiver(), folder.path().join("nfcapd"));
    let file = folder.path().join("f.csv").display().to_string();
    let arguments = format!(
        "in0 --policy rps --cpus 0-0 --flows {file} --ipfix 127.0.0.1:4739 --flow-idle-timeout 1s"
    );
    let arguments: Vec<&str> = arguments.split(' ').collect();
    let steering = Steering::start(testbed.receiver(), &arguments).unwrap();
    let traffic = Traffic { flows: 300, pace: Duration::from_micros(50), ..Traffic::default() };
    LiveFrames::new(testbed.link(), &traffic).unwrap().send(testbed.sender(), 0, 9000).unwrap();
    let (report, _) = steering.stop().unwrap();
    adds_up(&report, &[PathBuf::from(file)]);
    is_in_the_report(&collector.collected(), &report);
}

/// A router receives both directions of a connection, each on its own interface: they are one flow to a collector.
#[test]
fn collector_has_both_directions_of_connections() {
    let test = "records::collector_has_both_directions_of_connections";
    let programs = ["nfcapd", "nfdump", "iperf3", "ss"];
    let Some(_alone) = super::ready(test, &programs, 2) else { return };
    let folder = tempfile::tempdir().unwrap();
    let testbed = Testbed::router(LinkOptions::default()).unwrap();
    let router = testbed.receiver();
    let collector = Collector::start(router, folder.path().join("nfcapd"));
    let arguments = ["in0", "out1", "--policy", "rps", "--cpus", "0-1"];
    let records = ["--ipfix", "127.0.0.1:4739", "--flow-idle-timeout", "1m"];
    let steering = Steering::start(router, &[&arguments[..], &records].concat()).unwrap();
    let _server = clients::iperf3_server(&testbed.namespaces[2], None).unwrap();
    let address = testbed.links[1].far.ipv4.into();
    clients::iperf3(testbed.sender(), address, &["-t", "1", "-P", "3"]).unwrap();
    let (report, _) = steering.stop().unwrap();
    let collected = collector.collected();
    is_in_the_report(&collected, &report);
    // The flows are three streams, and the connection that controls them.
    assert!(collected.two_way >= 4, "{collected:?} {report}");
}

/// Runs each statement of the documentation over `all-flows` and `fleet.jsonl` of a folder; prints its rows, as JSON.
const QUERIES: &str = r"
import duckdb, json, os, re, sys
os.chdir(sys.argv[2])
text = open(sys.argv[1]).read()
blocks = re.findall(r'```sql\n(.*?)```', text, re.S)
wanted = [block for block in blocks if ('*/*/*' in block) == (sys.argv[3] == 'boxes')]
statements = [one for block in wanted for one in block.split(';') if one.strip()]
print(json.dumps([[one, duckdb.sql(one).fetchall()] for one in statements], default=str))
";

/// The statements about single data sets, or about one of several `boxes`, with their rows.
fn queried(python: &str, folder: &Path, which: &str) -> Vec<(String, Vec<Value>)> {
    let documentation = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/fleet.md");
    let mut command = Command::new(python);
    command.args(["-c", QUERIES]).arg(documentation.canonicalize().unwrap());
    let output = command.arg(folder).arg(which).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn queries_of_the_documentation_run_over_live_records_unchanged() {
    let test = "records::queries_of_the_documentation_run_over_live_records_unchanged";
    let Some(_alone) = super::ready(test, &["cp"], 2) else { return };
    let python = std::env::var("RXSTEER_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let has_duckdb = Command::new(&python).args(["-c", "import duckdb"]).output();
    if !has_duckdb.is_ok_and(|output| output.status.success()) {
        let why =
            format!("{python} has no duckdb (pip install duckdb; RXSTEER_PYTHON names a python)");
        return skipped(&format!("live::{test}"), &why);
    }
    let folder = tempfile::tempdir().unwrap();
    let (one, boxes) = (folder.path().join("one"), folder.path().join("boxes"));
    std::fs::create_dir_all(boxes.join("all-flows")).unwrap();
    std::fs::create_dir(&one).unwrap();
    let testbed = Testbed::hosts(LinkOptions::default()).unwrap();
    let all = format!("{}/", one.join("all-flows").display());
    let arguments = ["in0", "--policy", "rps", "--cpus", "0-1", "--flows", &all];
    let steering = Steering::start(testbed.receiver(), &arguments).unwrap();
    let traffic = Traffic { flows: 300, pace: Duration::from_micros(20), ..Traffic::default() };
    LiveFrames::new(testbed.link(), &traffic).unwrap().send(testbed.sender(), 0, 9000).unwrap();
    let (report, _) = steering.stop().unwrap();
    let at = &report["flow_records"];
    let copied =
        Command::new("cp").args(["-r", &all]).arg(boxes.join("all-flows/box=paris")).status();
    assert!(copied.unwrap().success());
    let mut check = testbed.receiver().command(rxsteer_lab::rxsteer().unwrap());
    let check = check.args(["check", "--json"]).output().unwrap();
    std::fs::write(one.join("fleet.jsonl"), check.stdout).unwrap();
    let rows = queried(&python, &one, "one");
    assert!(rows.len() >= 8, "{rows:?}");
    let of = |part: &str| &rows.iter().find(|(statement, _)| statement.contains(part)).unwrap().1;
    let sum = |rows: &[Value], column: usize| -> u64 {
        rows.iter()
            .map(|row| row[column].to_string().trim_matches('"').parse::<u64>().unwrap())
            .sum()
    };
    assert_eq!(sum(of("AS on_cpu FROM"), 1), number(&at["packets"]), "{at}");
    let by_run = of("AS run, count(*)");
    assert_eq!((sum(by_run, 1), sum(by_run, 2)), (number(&at["records"]), number(&at["packets"])));
    assert_eq!(of("ORDER BY bytes DESC LIMIT 5").len(), 5);
    assert!(!of("i.help.answer, count(DISTINCT hostname)").is_empty());
    let rows = queried(&python, &boxes, "boxes");
    let [(_, boxes)] = &rows[..] else { panic!("one query about boxes: {rows:?}") };
    assert_eq!(boxes[0][0], "paris");
    assert_eq!(sum(boxes, 3), number(&at["packets"]), "{boxes:?}");
}
