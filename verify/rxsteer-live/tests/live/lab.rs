//! `rxsteer lab` as a program: each experiment in its short form. After a lab was killed, the next start cleans up.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use rxsteer_lab::{Process, alone, missing, rxsteer, skipped, slice};
use serde_json::Value;

fn lab(arguments: &[&str]) -> Output {
    let mut command = Command::new(rxsteer().unwrap());
    command.arg("lab").args(arguments).stdin(Stdio::null()).output().unwrap()
}

/// The names of the experiments, and what this machine lacks for each.
fn listed() -> Vec<(String, Option<String>)> {
    let list: Value = serde_json::from_slice(&lab(&["list", "--json"]).stdout).unwrap();
    let experiments = list["experiments"].as_array().unwrap();
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let description = |of: &Value| (text(&of["name"]).unwrap(), text(&of["lacks"]));
    experiments.iter().map(description).collect()
}

#[test]
fn each_experiment_runs_and_its_load_is_what_it_says() {
    let test = "lab::each_experiment_runs_and_its_load_is_what_it_says";
    let Some(_alone) = super::ready(test, &[], 2) else { return };
    for (name, lacks) in listed() {
        if let Some(lacks) = lacks {
            skipped(&format!("{test} ({name})"), &lacks);
            continue;
        }
        let output = lab(&["run", &name, "--quick", "--repeat", "1", "--json"]);
        let stderr = String::from_utf8_lossy(&output.stderr);
        let report: Value = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|why| panic!("{name}: {why}; {stderr}"));
        assert_eq!(output.status.code(), Some(0), "{name}: {report:#} {stderr}");
        assert_eq!(
            (&report["experiment"], &report["partial"]),
            (&Value::from(&*name), &false.into())
        );
        let headline = report["metrics"][0]["name"].as_str().unwrap();
        let rows = report["rows"].as_array().unwrap();
        assert!(!rows.is_empty(), "{name}: {report:#}");
        for row in rows {
            let median = row["metrics"][headline]["median"].as_f64();
            assert!(median.is_some_and(f64::is_finite), "{name}: {row:#}");
            assert!(!row["checks"].as_array().unwrap().is_empty(), "{name}: {row:#}");
        }
        // One round is not conclusive.
        assert_eq!(report["verdict"]["given"], false, "{name}");
    }
    assert_eq!(left(), Vec::<String>::new());
}

/// Network namespaces of lab processes that no longer exist.
fn left() -> Vec<String> {
    let output = Command::new("ip").args(["netns", "list"]).output().unwrap();
    let names = String::from_utf8(output.stdout).unwrap();
    let is_left = |name: &&str| {
        let process = name.strip_prefix("rxs-").and_then(|rest| rest.split('-').next());
        process.is_some_and(|process| !std::path::Path::new("/proc").join(process).exists())
    };
    names
        .lines()
        .filter_map(|line| line.split(' ').next())
        .filter(is_left)
        .map(str::to_owned)
        .collect()
}

#[test]
fn reports_are_written_and_compared() {
    let test = "lab::reports_are_written_and_compared";
    let Some(_alone) = super::ready(test, &[], 2) else { return };
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().to_str().unwrap();
    // Reported before anything is measured: the report must be writable.
    std::fs::create_dir(folder.path().join("flowstats.md")).unwrap();
    let output = lab(&["run", "rr", "flowstats", "--quick", "--report", dir]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("cannot write the report") && output.stdout.is_empty(), "{stderr}");
    std::fs::remove_dir(folder.path().join("flowstats.md")).unwrap();
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);

    // The lab finds its programs even if PATH lacks the folders of the system, as under cron.
    let mut command = Command::new(rxsteer().unwrap());
    command.args(["lab", "run", "rr", "flowstats", "--quick", "--report", dir]);
    let output = command.env("PATH", "/usr/bin:/bin").output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
    let page = read("report.html");
    let charts = page.matches("<svg").count();
    assert_eq!(charts, 2, "a chart for each experiment");
    // The page loads nothing: its only addresses are SVG namespaces.
    assert_eq!(page.matches("http").count(), page.matches("http://www.w3.org/2000/svg").count());
    assert!(!page.contains("<script") && !page.contains("src="));
    for words in ["Where rxsteer loses", "Where rxsteer gains", "Published and measured", "290 k"] {
        assert!(page.contains(words), "{words}");
    }
    assert!(read("rr.svg").contains("kernel RPS"));
    let markdown = read("rr.md");
    assert!(markdown.contains("## Where rxsteer loses") && markdown.contains("rxsteer lab run rr"));
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (rr, other, text) = (path("rr.json"), path("flowstats.json"), path("rr.md"));
    let same = lab(&["compare", &rr, &rr, "--json"]);
    let same: Value = serde_json::from_slice(&same.stdout).unwrap();
    let rows = same["rows"].as_array().unwrap();
    assert!(!rows.is_empty());
    assert!(rows.iter().all(|row| row["ratio"] == 1.0 && row["overlap"].is_null()), "{same:#}");
    assert!(same["no_verdict_a"].as_str().unwrap().contains("--quick"), "{same:#}");
    for (b, why) in [(&other, "one of flowstats"), (&text, "is not a report")] {
        let refused = lab(&["compare", &rr, b]);
        let stderr = String::from_utf8_lossy(&refused.stderr);
        assert_eq!(refused.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains(why), "{stderr}");
    }
    assert_eq!(left(), Vec::<String>::new());
}

#[test]
fn killed_at_any_moment_it_is_cleared_up_by_the_next_start() {
    let test = "lab::killed_at_any_moment_it_is_cleared_up_by_the_next_start";
    let Some(_alone) = super::ready(test, &["nft"], 2) else { return };
    let setting = "/proc/sys/net/core/rps_sock_flow_entries";
    let before = std::fs::read_to_string(setting).unwrap();
    for kill in 0..slice(2, 50) {
        let name = ["forward", "order"][kill % 2];
        let mut command = Command::new(rxsteer().unwrap());
        command.args(["lab", "run", name, "--quick", "--json"]);
        let mut process =
            Process::start(command.stdout(Stdio::null()).stderr(Stdio::null())).unwrap();
        std::thread::sleep(Duration::from_millis(200 + 397 * kill as u64 % 5000));
        process.signal(Signal::KILL).unwrap();
        process.wait(Duration::from_secs(5)).unwrap();
    }
    // The next start of any lab cleans up first.
    let output = lab(&["run", "order", "--quick", "--repeat", "1", "--json"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(left(), Vec::<String>::new());
    assert_eq!(std::fs::read_to_string(setting).unwrap(), before);
}

#[test]
fn interrupted_it_shows_what_it_has() {
    let test = "lab::interrupted_it_shows_what_it_has";
    let Some(_alone) = super::ready(test, &["nft"], 2) else { return };
    let mut command = Command::new(rxsteer().unwrap());
    command.args(["lab", "run", "forward", "order", "--quick", "--repeat", "50", "--json"]);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("out");
    let out = std::fs::File::create(&file).unwrap();
    let errors = folder.path().join("errors");
    let stderr = std::fs::File::create(&errors).unwrap();
    let mut process = Process::start(command.stdout(out).stderr(stderr)).unwrap();
    std::thread::sleep(Duration::from_secs(6));
    process.signal(Signal::INT).unwrap();
    let status = process.wait(Duration::from_secs(30)).unwrap();
    assert_eq!(status.code(), Some(130));
    let report: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    assert_eq!(report["partial"], true, "{report:#}");
    assert_eq!(report["verdict"]["given"], false);
    // Each of these rounds has a figure for each method and load.
    let rounds = report["rounds"].as_u64().unwrap();
    let rows = report["rows"].as_array().unwrap();
    let has = |row: &Value| row["metrics"]["forwarded"]["rounds"].as_u64().unwrap_or(0);
    assert_eq!(rows.iter().map(has).min(), Some(rounds), "{report:#}");
    let skipped = report["skipped"].as_array().unwrap();
    assert!(skipped.iter().any(|skipped| skipped["what"] == "order"), "{report:#}");
    let stderr = std::fs::read_to_string(&errors).unwrap();
    assert!(stderr.contains("rxsteer: interrupted; not run: order\n"), "{stderr}");
    assert_eq!(left(), Vec::<String>::new());
}

#[test]
fn calibrated_costs_predict_before_anything_is_measured() {
    let test = "lab::calibrated_costs_predict_before_anything_is_measured";
    let Some(_alone) = super::ready(test, &["nft"], 2) else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("machine.toml");
    let file = path.to_str().unwrap();
    let output = lab(&["calibrate", "-o", file, "--quick", "--json"]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    let calibration: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(calibration["partial"], false, "{calibration:#}");
    for time in calibration["times"].as_array().unwrap() {
        assert!(time["median_ns"].as_f64().unwrap() > 0.0, "{time:#}");
    }
    // Each method of the calibration can be simulated.
    for (policy, set) in [("none", None), ("rps", Some("kernel-rps")), ("sparse", Some("sparse"))] {
        let mut command = Command::new(rxsteer().unwrap());
        command.args(["sim", file, "--json", "--seconds", "0.02"]);
        command.args(["--set", &format!("steering.policy={policy}")]);
        if let Some(set) = set {
            command.args(["--set", &format!("costs.set={set}")]);
        }
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    let output = lab(&["validate", file, "--quick", "--json"]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    let validation: Value = serde_json::from_slice(&output.stdout).unwrap();
    let written = std::fs::read_to_string(folder.path().join("machine.predictions.json")).unwrap();
    let written: Value = serde_json::from_str(&written).unwrap();
    let rows = validation["rows"].as_array().unwrap();
    assert_eq!(rows.len(), written["predictions"].as_array().unwrap().len());
    for (row, prediction) in rows.iter().zip(written["predictions"].as_array().unwrap()) {
        assert_eq!(row["predicted"], prediction["predicted"]);
        assert!(row["measured"]["rate"]["median"].as_f64().unwrap() > 0.0, "{row:#}");
        for of in ["predicted", "null", "adjusted", "adjusted_null"] {
            assert!(row[of]["rate"].as_f64().unwrap() > 0.0, "{row:#}");
        }
    }
    // There are latencies of requests, but two rounds are too few for a verdict.
    assert!(
        rows.iter().any(|row| row["measured"]["p99"]["median"].as_f64() > Some(0.0)),
        "{validation:#}"
    );
    assert!(validation["no_verdict"].as_str().unwrap().contains("--quick"), "{validation:#}");
    assert!(validation["speeds"]["forwarding"].as_f64().unwrap() > 0.0, "{validation:#}");

    // The same predictions without a measurement.
    let output = lab(&[
        "validate",
        file,
        "--quick",
        "--predict-only",
        "--json",
        "--predictions",
        &format!("{file}.json"),
    ]);
    assert_eq!(output.status.code(), Some(0));
    let printed: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(printed["file"], format!("{file}.json"));
    assert_eq!(printed["predictions"], written["predictions"]);
    let again = std::fs::read_to_string(format!("{file}.json")).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&again).unwrap(), written);
    assert!(std::fs::read_to_string(folder.path().join("machine.svg")).unwrap().contains("<svg"));

    // Existing predictions stay, and so does the calibration. A file that cannot be written is reported before anything
    // is measured.
    let calibrated = std::fs::read(&path).unwrap();
    let absent = folder.path().join("absent/plot.svg");
    for (options, why) in [
        (&["--predict-only"][..], "rxsteer does not replace predictions"),
        (&["--predict-only", "--predictions", file], "are the same file"),
        (&["--quick", "--plot", file], "are the same file"),
        (&["--quick", "--plot", absent.to_str().unwrap()], "cannot write the plot"),
    ] {
        let refused = lab(&[&["validate", file], options].concat());
        let stderr = String::from_utf8_lossy(&refused.stderr);
        assert_eq!(refused.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains(why), "{stderr}");
    }
    assert_eq!(std::fs::read(&path).unwrap(), calibrated);

    // The message names a damaged file and the line, and the predictions of the file are not written.
    let text = std::fs::read_to_string(&path).unwrap();
    let damaged = folder.path().join("damaged.toml");
    std::fs::write(&damaged, text.replace("[cost_set.sparse]", "[cost_set.spars]")).unwrap();
    let output = lab(&["validate", damaged.to_str().unwrap(), "--quick"]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        stderr.contains("there is no [cost_set.sparse]; there are: ") && stderr.contains(", spars"),
        "{stderr}"
    );
    assert!(!folder.path().join("damaged.predictions.json").exists());
    assert_eq!(left(), Vec::<String>::new());
}

/// Two ends of a veth pair that represent interfaces of this machine; deleted when this is dropped.
struct Ends([String; 2]);

impl Ends {
    fn new() -> Ends {
        let ends = ["a", "b"].map(|end| format!("rxl{}{end}", std::process::id() % 100_000));
        let [steered, peer] = &ends;
        ip(&format!("link add {steered} type veth peer name {peer}"));
        for end in &ends {
            ip(&format!("link set {end} up"));
            // A frame that is redirected must have its complete checksum.
            let mut command = Command::new("ethtool");
            assert!(command.args(["-K", end, "tx", "off"]).output().unwrap().status.success());
        }
        Ends(ends)
    }
}

impl Drop for Ends {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["link", "del", &self.0[0]]).output();
    }
}

fn ip(line: &str) -> String {
    let output = Command::new("ip").args(line.split(' ')).output().unwrap();
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn interfaces_of_this_machine_are_lent_and_given_back() {
    let test = "lab::interfaces_of_this_machine_are_lent_and_given_back";
    let Some(_alone) = super::ready(test, &["unshare"], 2) else { return };
    let ends = Ends::new();
    let [steered, peer] = &ends.0;
    let run =
        ["run", "rr", "--quick", "--repeat", "1", "--json", "--iface", steered, "--peer", peer];
    let queue = format!("/sys/class/net/{steered}/queues/rx-0/rps_cpus");
    std::fs::write(&queue, "1").unwrap();
    let state = || {
        let (name, of_queue) = (steered, std::fs::read_to_string(&queue).unwrap());
        let features = Command::new("ethtool").args(["-k", name]).output().unwrap().stdout;
        let features = String::from_utf8(features).unwrap();
        let gro = features.lines().find(|line| line.starts_with("generic-receive-offload"));
        // Leaves out the remaining lifetime of addresses, and the state of the link, which takes a moment to change.
        let flags = ip(&format!("-o link show {name}")).contains(",UP");
        let addresses = ip(&format!("-o -4 addr show {name}"));
        let routes = ip(&format!("-4 route show dev {name}")).replace(" linkdown", "");
        (
            of_queue,
            gro.unwrap().to_owned(),
            flags,
            addresses.split_whitespace().nth(3).map(str::to_owned),
            routes,
        )
    };

    let idle = state();
    let output = lab(&run);
    let stderr = String::from_utf8_lossy(&output.stderr);
    let shown = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{stderr} {shown}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["interfaces"], serde_json::json!([steered, peer]), "{report:#}");
    assert!(
        report["command"].as_str().unwrap().contains(&format!("--iface {steered} --peer {peer}"))
    );
    assert_eq!(state(), idle);

    // The interface is in use: it has an address, and a route.
    ip(&format!("addr add 192.0.2.1/24 dev {steered}"));
    ip(&format!("route add 198.51.100.0/24 via 192.0.2.9 dev {steered}"));
    let used = state();
    assert!(used.4.contains("198.51.100.0/24 via 192.0.2.9"), "{used:?}");
    let refused = lab(&run);
    let stderr = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{stderr}");
    assert!(
        stderr.contains("is in use: it has the address 192.0.2.1/24; it has a route"),
        "{stderr}"
    );
    assert!(stderr.contains("--force"), "{stderr}");
    assert_eq!(state(), used);
    let output = lab(&[&run[..], &["--force"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(state(), used);

    // Killed while it has borrowed them: the next start restores them.
    let here = std::fs::metadata("/proc/self/ns/net").unwrap().ino();
    let records = std::path::Path::new("/run/rxsteer-lab.interfaces");
    let record = records.join(format!("{here}.{steered}"));
    let mut command = Command::new(rxsteer().unwrap());
    command.args(["lab", "run", "rr", "--json", "--force", "--iface", steered, "--peer", peer]);
    let mut process = Process::start(command.stdout(Stdio::null()).stderr(Stdio::null())).unwrap();
    let lent = || {
        record.exists()
            && Command::new("ip")
                .args(["link", "show", steered])
                .output()
                .is_ok_and(|output| !output.status.success())
    };
    let started = std::time::Instant::now();
    while !lent() {
        assert!(started.elapsed() < Duration::from_secs(60), "the interface was never lent");
        std::thread::sleep(Duration::from_millis(1));
    }
    // A second lab at the same time would give meaningless measurements.
    let mut second = Command::new(rxsteer().unwrap());
    second.args(["lab", "run", "workers", "--quick"]).stderr(Stdio::piped()).stdout(Stdio::null());
    let mut second = second.spawn().unwrap();
    let mut stderr = String::new();
    BufReader::new(second.stderr.take().unwrap()).read_line(&mut stderr).unwrap();
    second.kill().unwrap();
    second.wait().unwrap();
    let holder = std::fs::read_to_string("/run/rxsteer-lab.lock").unwrap();
    assert!(stderr.contains("waits until it ends"), "{stderr}");
    assert!(stderr.contains(&format!("(process {holder})")), "{stderr}");
    process.signal(Signal::KILL).unwrap();
    process.wait(Duration::from_secs(5)).unwrap();
    // From another network namespace, the lab leaves the interface where it is: moving it there would lose it.
    let mut command = Command::new("unshare");
    command.arg("-n").arg(rxsteer().unwrap()).args(["lab", "list"]);
    let stderr = String::from_utf8(command.output().unwrap().stderr).unwrap();
    for words in [&format!("left the interface {steered} in"), &format!("number {here}.")] {
        assert!(stderr.contains(words), "{stderr}");
    }
    assert!(lent() && record.exists());
    let output = lab(&[&run[..], &["--force"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(state(), used);
    assert!(!record.exists());
    assert_eq!(left(), Vec::<String>::new());

    for (iface, why) in
        [("no-such-iface", "there is no interface no-such-iface"), (&**peer, "are both")]
    {
        let refused = lab(&["run", "rr", "--quick", "--iface", iface, "--peer", peer]);
        let stderr = String::from_utf8_lossy(&refused.stderr);
        assert_eq!(refused.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains(why), "{stderr}");
    }
}

#[test]
fn requests_over_the_cards_of_a_machine() {
    let test = "lab::requests_over_the_cards_of_a_machine";
    let Some(_alone) = super::ready(test, &[], 2) else { return };
    let Ok(cards) = std::env::var("RXSTEER_CARDS") else {
        return skipped(test, "RXSTEER_CARDS names no interfaces; cargo xtask vm sets it");
    };
    let (peer, steered) = cards.split_once(' ').unwrap();
    let run =
        ["run", "rr", "--quick", "--repeat", "1", "--json", "--iface", steered, "--peer", peer];
    let output = lab(&run);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    for row in report["rows"].as_array().unwrap() {
        assert!(row["metrics"]["transactions"]["median"].as_f64() > Some(0.0), "{row:#}");
    }
    for card in [steered, peer] {
        ip(&format!("link show {card}"));
    }
}

#[test]
fn unknown_name_and_missing_rights_are_refused() {
    // While another lab runs, this one would be refused for that reason.
    let _alone = alone();
    let output = lab(&["run", "foward", "--quick"]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr.contains("did you mean 'forward'"), "{stderr}");
    if missing(&["setpriv"]).is_some() {
        return skipped(
            "lab::unknown_name_and_missing_rights_are_refused",
            "it requires root and setpriv",
        );
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "65534", "--clear-groups"]).arg(rxsteer().unwrap());
    let output = command.args(["lab", "run", "order", "--quick"]).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("requires root"), "{stderr}");
}
