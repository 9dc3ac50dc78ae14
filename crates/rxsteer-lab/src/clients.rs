//! Real clients: runs installed programs, and reads their reports.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use serde_json::Value;

use crate::error::{LabError, Result, Tried};
use crate::namespace::Namespace;
use crate::process::{Process, output, shown};

/// A server that listens; it is stopped when this is dropped.
#[derive(Debug)]
pub struct Server {
    _process: Process,
    /// Its files, kept while it runs.
    _folder: Option<tempfile::TempDir>,
}

/// Starts `iperf3 -s`, on one CPU if one is given.
pub fn iperf3_server(namespace: &Namespace, cpu: Option<usize>) -> Result<Server> {
    let mut command = namespace.command("iperf3");
    command.args(["-s", "-p", "5201"]).stdout(std::process::Stdio::null());
    if let Some(cpu) = cpu {
        command.args(["-A", &cpu.to_string()]);
    }
    let server = Server { _process: Process::start(&mut command)?, _folder: None };
    listening(namespace, 5201)?;
    Ok(server)
}

/// The report of an `iperf3` run.
#[derive(Debug, Clone, Copy)]
pub struct Iperf {
    /// Bytes that arrived.
    pub received: u64,
    /// For UDP: datagrams that arrived after a later one.
    pub out_of_order: u64,
    /// For UDP: datagrams sent.
    pub packets: u64,
    /// With `--bidir`: bytes that arrived in the other direction.
    pub reverse: u64,
    /// Streams; with `--bidir`, those of both directions.
    pub streams: u64,
    /// How long it sent, in seconds.
    pub seconds: f64,
}

/// Runs `iperf3 -c SERVER` with more options until it ends.
pub fn iperf3(namespace: &Namespace, server: IpAddr, options: &[&str]) -> Result<Iperf> {
    let mut command = namespace.command("iperf3");
    command.args(["-c", &server.to_string(), "-p", "5201", "--json"]).args(options);
    let mut text = output(&mut command)?;
    // Between two runs the server closes and reopens its socket, and refuses connections meanwhile.
    for _ in 0..10 {
        if !["unable to connect", "the server is busy"].iter().any(|stderr| text.contains(stderr)) {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(300));
        text = output(&mut command)?;
    }
    let unreadable = |why: String| LabError::Unreadable { who: shown(&command), why };
    let report: Value = serde_json::from_str(&text).map_err(|why| unreadable(why.to_string()))?;
    if let Some(error) = report["error"].as_str() {
        return Err(unreadable(format!("it says: {error}")));
    }
    let number = |path: &str| report.pointer(path).and_then(Value::as_f64).map(|n| n as u64);
    let received = number("/end/sum_received/bytes").or_else(|| number("/end/sum/bytes"));
    let streams = report["end"]["streams"].as_array().map_or(&[][..], Vec::as_slice);
    let late = streams.iter().filter_map(|stream| stream["udp"]["out_of_order"].as_u64()).sum();
    Ok(Iperf {
        received: received.ok_or_else(|| unreadable("no sum of what was received".to_owned()))?,
        out_of_order: late,
        packets: number("/end/sum/packets").unwrap_or(0),
        reverse: number("/end/sum_received_bidir_reverse/bytes").unwrap_or(0),
        streams: streams.len() as u64,
        seconds: report
            .pointer("/end/sum_received/seconds")
            .and_then(Value::as_f64)
            .filter(|seconds| *seconds > 0.0)
            .unwrap_or(1.0),
    })
}

/// Pings `count` times at short intervals; returns the number of replies.
pub fn ping(namespace: &Namespace, address: IpAddr, count: u32) -> Result<u32> {
    let text = namespace.run(&format!("ping -n -q -i 0.005 -W 2 -c {count} {address}"))?;
    let received = text.split(", ").find_map(|part| part.strip_suffix(" received"));
    received.and_then(|number| number.trim().parse().ok()).ok_or_else(|| LabError::Unreadable {
        who: "ping".to_owned(),
        why: format!("no count of replies in {text:?}"),
    })
}

/// Starts nginx with one small page, on port 8080 of all addresses.
pub fn nginx(namespace: &Namespace) -> Result<Server> {
    let folder = tempfile::tempdir().tried(|| "make a folder for nginx".to_owned())?;
    let here = folder.path().display().to_string();
    let settings = format!(
        "daemon off; master_process off; pid {here}/pid; error_log {here}/errors; user root;\n\
         events {{ worker_connections 1024; }}\n\
         http {{ access_log off; client_body_temp_path {here}; proxy_temp_path {here};\n\
         fastcgi_temp_path {here}; uwsgi_temp_path {here}; scgi_temp_path {here};\n\
         server {{ listen 8080; listen [::]:8080; location / {{ return 200 \"rxsteer\\n\"; }} }} }}\n"
    );
    let file = folder.path().join("nginx.conf");
    std::fs::File::create(&file)
        .and_then(|mut file| file.write_all(settings.as_bytes()))
        .tried(|| format!("write {}", file.display()))?;
    let mut command = namespace.command("nginx");
    command.args(["-e", "stderr", "-p", &here, "-c"]).arg(&file);
    let server = Server { _process: Process::start(&mut command)?, _folder: Some(folder) };
    listening(namespace, 8080)?;
    Ok(server)
}

/// The report of a `wrk` run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wrk {
    /// Requests answered.
    pub requests: u64,
    /// Socket errors, and responses other than 2xx or 3xx.
    pub errors: u64,
}

/// Loads a server for some seconds with `connections` connections.
pub fn wrk(namespace: &Namespace, server: IpAddr, seconds: u32, connections: u32) -> Result<Wrk> {
    let host = match server {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => format!("[{address}]"),
    };
    let line = format!("wrk -t 1 -c {connections} -d {seconds}s http://{host}:8080/");
    let text = namespace.run(&line)?;
    let before = |words: &str| {
        let line = text.lines().find(|line| line.contains(words))?;
        line.trim().split_once(' ')?.0.parse::<u64>().ok()
    };
    let requests = before(" requests in ").ok_or_else(|| LabError::Unreadable {
        who: line.clone(),
        why: format!("no count of requests in {text:?}"),
    })?;
    // "Socket errors: connect 0, read 0, write 0, timeout 0" and "Non-2xx or 3xx responses: 3".
    let lines =
        text.lines().filter(|line| line.contains("Socket errors:") || line.contains("Non-2xx"));
    let numbers = lines.flat_map(|line| {
        let counts = line.split_once(": ").map_or("", |(_, counts)| counts);
        counts.split([' ', ',']).filter_map(|word| word.parse::<u64>().ok())
    });
    Ok(Wrk { requests, errors: numbers.sum() })
}

/// The report of a `sockperf` run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sockperf {
    /// Replies that it counted, without those of its warm-up.
    pub replies: u64,
    /// How long it counted, in seconds.
    pub seconds: f64,
}

/// The bytes of each message of [`sockperf`], the minimum that it accepts.
pub const SOCKPERF_BYTES: u32 = 14;

/// Runs `sockperf` for some seconds: requests and replies over one TCP connection; the next request follows the reply.
/// Client and server run on `cpu`, or where the scheduler puts them.
pub fn sockperf(
    client: &Namespace,
    server: (&Namespace, Ipv4Addr),
    seconds: u32,
    cpu: Option<usize>,
) -> Result<Sockperf> {
    let (namespace, address) = server;
    let placed = cpu.map_or(String::new(), |cpu| format!("taskset -c {cpu} "));
    let how = format!("--tcp -i {address} -p 11111");
    let line = format!("{placed}sockperf server {how}");
    let mut words = line.split(' ');
    let mut command = namespace.command(words.next().unwrap_or_default());
    command.args(words).stdout(std::process::Stdio::null());
    let _server = Process::start(&mut command)?;
    listening(namespace, 11111)?;
    let line = format!("{placed}sockperf ping-pong {how} -t {seconds} -m {SOCKPERF_BYTES}");
    let text = client.run(&line)?;
    sockperf_report(&text).ok_or_else(|| LabError::Unreadable {
        who: line,
        why: format!("no time and replies of a \"Valid Duration\" in {text:?}"),
    })
}

/// Parses "[Valid Duration] RunTime=0.550 sec; SentMessages=38459; ReceivedMessages=38459".
fn sockperf_report(text: &str) -> Option<Sockperf> {
    let line = text.lines().find(|line| line.contains("[Valid Duration]"))?;
    let after = |name: &str| line.split_once(name)?.1.split([' ', ';']).next();
    Some(Sockperf {
        replies: after("ReceivedMessages=")?.trim().parse().ok()?,
        seconds: after("RunTime=")?.parse().ok().filter(|seconds| *seconds > 0.0)?,
    })
}

/// Waits until a process listens on a TCP port.
fn listening(namespace: &Namespace, port: u16) -> Result<()> {
    let timeout = Duration::from_secs(5);
    let started = std::time::Instant::now();
    while started.elapsed() < timeout {
        if !namespace.run(&format!("ss -Hltn sport = :{port}"))?.trim().is_empty() {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Err(LabError::Late {
        what: format!("no process listened on port {port}"),
        seconds: timeout.as_secs(),
        stderr: "the server may have printed why".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockperf_is_read_without_its_warm_up() {
        let text = "sockperf: [Total Run] RunTime=1.000 sec; Warm up time=400 msec; SentMessages=69181; ReceivedMessages=69180\n\
                    sockperf: [Valid Duration] RunTime=0.550 sec; SentMessages=38460; ReceivedMessages=38459\n";
        assert_eq!(sockperf_report(text), Some(Sockperf { replies: 38459, seconds: 0.55 }));
        assert_eq!(
            sockperf_report("sockperf: [Valid Duration] RunTime=0.000 sec; ReceivedMessages=0"),
            None
        );
        assert_eq!(sockperf_report("sockperf: ERROR"), None);
    }
}
