//! How long `status`, `status --flows` and `explain --live` take, and how long they delay the event thread's ticks,
//! with as many slots and flows as on a large host.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use clap::Args;
use rxsteer_bench::Quartiles;
use rxsteer_lab::{LinkOptions, LiveFrames, Steering, Testbed, Traffic};
use serde_json::{Map, Value, json};

/// Measures the answer times of a running `rxsteer run`, and the longest round of its event thread meanwhile.
///
/// The figures are milliseconds. The longest round is null if the program does not report it. `RXSTEER_BIN` sets the
/// path of another program.
#[derive(Args)]
#[command(after_help = "Example:\n  rxsteer-lab status-cost --slots 1048576 --flows 200000")]
pub(crate) struct Options {
    /// Slots of the flow table
    #[arg(long, value_name = "N", default_value_t = 1 << 20)]
    slots: u32,
    /// Flows that were counted, each on two CPUs
    #[arg(long, value_name = "N", default_value_t = 200_000)]
    flows: u32,
    /// How often each request is sent
    #[arg(long, value_name = "N", default_value_t = 9)]
    rounds: usize,
}

/// The longest time for which the status shows a long round of the event thread
/// (`crates/rxsteer-cli/src/run/rounds.rs`).
const ROUNDS_SHOWN: Duration = Duration::from_secs(20);

/// The requests. The first one is empty, to measure the event thread's own work.
const QUESTIONS: [(&str, Option<&str>); 4] = [
    ("nothing", None),
    ("status", Some(r#"{"do":"status"}"#)),
    ("status --flows 10", Some(r#"{"do":"status","flows":10}"#)),
    ("explain --live", Some(r#"{"do":"explain","flow":"10.77.1.1:10007-198.18.0.1:20000/udp"}"#)),
];

pub(crate) fn run(options: &Options) -> Result<Value> {
    let folder = tempfile::tempdir()?;
    let socket = folder.path().join("socket");
    let testbed = Testbed::hosts(LinkOptions::default())?;
    let (at, slots) = (socket.display().to_string(), options.slots.to_string());
    let arguments =
        ["in0", "--policy", "rfs", "--cpus", "0-0", "--flow-cnt", &*slots, "--socket", &*at];
    let steering = Steering::start(testbed.receiver(), &arguments)?;
    let traffic = Traffic { flows: options.flows, length: 64, ..Traffic::default() };
    let source = LiveFrames::new(testbed.link(), &traffic)?;
    // Each flow moves to a second CPU.
    for cpus in ["cpus=0-0", "cpus=1-1"] {
        ask(&socket, &format!(r#"{{"do":"set","settings":["{cpus}"]}}"#))?;
        for _ in 0..2 {
            source.send(testbed.sender(), 0, u64::from(options.flows))?;
        }
    }
    let mut report = Map::new();
    for (name, question) in QUESTIONS {
        let (mut took, mut longest) = (Vec::new(), 0.0_f64);
        // After this time the status no longer shows rounds of the previous request.
        sleep(ROUNDS_SHOWN);
        for _ in 0..options.rounds {
            match question {
                None => sleep(Duration::from_millis(300)),
                Some(question) => {
                    let asked = Instant::now();
                    ask(&socket, question)?;
                    took.push(asked.elapsed().as_secs_f64() * 1e3);
                    sleep(Duration::from_millis(100));
                }
            }
            let status = ask(&socket, r#"{"do":"status"}"#)?;
            longest = status["status"]["longest_round_ns"]
                .as_f64()
                .map_or(longest, |ns| longest.max(ns / 1e6));
        }
        let figures = json!({
            "answer_ms": shown(&took),
            "longest_round_of_event_thread_ms": (1000.0 * longest).round() / 1000.0,
        });
        report.insert(name.to_owned(), figures);
    }
    let last = ask(&socket, r#"{"do":"status","flows":1}"#)?;
    report.insert("slots".to_owned(), json!(options.slots));
    report.insert("flows".to_owned(), last["status"]["flow_statistics"]["flows"].clone());
    drop(steering);
    Ok(Value::Object(report))
}

/// The answer to a request.
fn ask(socket: &Path, request: &str) -> Result<Value> {
    let mut stream = UnixStream::connect(socket).context("can't reach rxsteer")?;
    writeln!(stream, "{request}")?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    let answer: Value = serde_json::from_str(&line)?;
    match answer.get("error") {
        Some(why) => Err(anyhow!("{request} is refused: {why}")),
        None => Ok(answer),
    }
}

/// Median, quartiles and maximum.
fn shown(figures: &[f64]) -> Value {
    let round = |figure: f64| (figure * 1000.0).round() / 1000.0;
    let most = figures.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    match Quartiles::of(figures) {
        Some(q) => json!([round(q.q1), round(q.median), round(q.q3), round(most)]),
        None => Value::Null,
    }
}
