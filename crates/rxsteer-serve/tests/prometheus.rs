//! Prometheus itself reads the metrics: its checker, and a server that scrapes them.

use crate::common::dashboard;
use crate::common::{Instance, ask, get, skipped};
use rxsteer_core::counters::LiveCounter;
use rxsteer_status::Delay;
use serde_json::Value;
use std::fmt::Write as _;
use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// An instance with counts, whose interface has a name that must be escaped.
fn counting() -> Instance {
    let instance = Instance::start(Some(Instant::now()));
    let mut status = instance.status.lock().unwrap();
    status.totals.rx.add(|_| 3);
    status.cpus[1]
        .counts
        .rx
        .add(|counter| if counter == LiveCounter::Received { 12_345 } else { 1 });
    status.cpus[1].delay = Some(Delay { buckets: vec![2; 100] });
    status.interfaces[0].name = "a\"b\\c\nd".to_owned();
    drop(status);
    instance
}

#[test]
fn promtool_finds_nothing_wrong() {
    let test = "prometheus::promtool_finds_nothing_wrong";
    let mut command = Command::new("promtool");
    command
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let Ok(mut promtool) = command.spawn() else {
        return skipped(test, "there is no promtool (Debian: prometheus)");
    };
    let instance = counting();
    let (_running, address) = instance.serve("127.0.0.1:0", None);
    let metrics = get(address, "/metrics").body;
    promtool.stdin.take().unwrap().write_all(metrics.as_bytes()).unwrap();
    let output = promtool.wait_with_output().unwrap();
    let output_text = [output.stdout, output.stderr].concat();
    assert!(
        output.status.success() && output_text.is_empty(),
        "{}",
        String::from_utf8_lossy(&output_text)
    );
}

/// A separate Prometheus, ended when this is dropped.
struct Prometheus {
    process: Child,
    address: SocketAddr,
    _folder: tempfile::TempDir,
}

impl Prometheus {
    /// Starts one that scrapes `target`; `None` if Prometheus is not installed.
    fn start(target: SocketAddr) -> Option<Prometheus> {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("prometheus.yml");
        let text = format!(
            "global: {{ scrape_interval: 300ms, scrape_timeout: 300ms }}\n\
             scrape_configs: [{{ job_name: rxsteer, static_configs: [{{ targets: ['{target}'] }}] }}]\n"
        );
        std::fs::write(&config, text).unwrap();
        // A port that was free a moment ago.
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let mut command = Command::new("prometheus");
        command.arg(format!("--config.file={}", config.display()));
        command.arg(format!("--storage.tsdb.path={}", folder.path().join("data").display()));
        command.arg(format!("--web.listen-address={address}")).arg("--log.level=error");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Some(Prometheus { process: command.spawn().ok()?, address, _folder: folder })
    }

    /// The answer to a query; `None` while Prometheus cannot be reached, or is not ready.
    fn query(&self, query: &str) -> Option<Value> {
        let mut encoded = String::new();
        for byte in query.bytes() {
            let _ = write!(encoded, "%{byte:02X}");
        }
        std::net::TcpStream::connect(self.address).ok()?;
        let reply = ask(self.address, "GET", &format!("/api/v1/query?query={encoded}"), &[]);
        // The answer may consist of chunks, with lengths between them.
        let json: String = reply
            .body
            .lines()
            .filter(|line| line.len() > 8 || line.starts_with(['{', '}']))
            .collect();
        serde_json::from_str(&json).ok()
    }

    /// Waits until a query has a result.
    fn until(&self, query: &str) -> Value {
        let began = Instant::now();
        loop {
            let answer = self.query(query);
            if let Some(result) = answer.as_ref().and_then(|answer| answer["data"]["result"].get(0))
            {
                return result.clone();
            }
            assert!(began.elapsed() < Duration::from_secs(60), "{query}: {answer:?}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn prometheus_scrapes_the_metrics() {
    let test = "prometheus::prometheus_scrapes_the_metrics";
    let instance = counting();
    let (running, address) = instance.serve("127.0.0.1:0", None);
    let Some(prometheus) = Prometheus::start(address) else {
        return skipped(test, "there is no prometheus (Debian: prometheus)");
    };
    prometheus.until("up{job='rxsteer'} == 1");
    let value = |query: &str| prometheus.until(query)["value"][1].as_str().unwrap().to_owned();
    assert_eq!(value("rxsteer_cpu_received_packets_total{cpu='1'}"), "12345");
    assert_eq!(value("rxsteer_flows_total"), "3");
    assert_eq!(value("count(rxsteer_interface_steered{interface='a\"b\\\\c\\nd'})"), "1");
    assert_eq!(value("rxsteer_delay_seconds_count"), "200");
    assert_eq!(value("histogram_quantile(1, rxsteer_delay_seconds_bucket) > 0"), "0.067108864");
    // Prometheus has read all lines.
    let lines = get(address, "/metrics").body;
    let series = lines.lines().filter(|line| !line.starts_with('#')).count();
    assert_eq!(value("scrape_samples_scraped{job='rxsteer'}"), series.to_string());
    // Prometheus understands the queries of the dashboard.
    for expression in dashboard::read().iter().flat_map(dashboard::expressions) {
        let query = expression
            .replace("$__rate_interval", "1m")
            .replace("$job", ".*")
            .replace("$instance", ".*");
        let answer = prometheus.query(&query).unwrap_or_else(|| panic!("no answer to {query}"));
        assert_eq!(answer["status"], "success", "{query}: {answer}");
    }
    drop(prometheus);
    running.stop().unwrap();
}
