//! The cost of viewers: packets per second through `rxsteer run --listen` without viewers, with one that asks every
//! second, with a scrape every second, and with a thousand that send a byte now and then; and the CPU time of the
//! process for each request.
//!
//! A turn of packets lasts half a second, and its noise is a few percent, so it cannot show a lower cost. The CPU time
//! can: the scheduler counts it to the nanosecond. A request that takes 1 ms, once a second, takes at most 0.1 % of one
//! CPU.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;
use rxsteer_lab::{LinkOptions, LiveFrames, Namespace, Steering, Testbed, Traffic};
use serde_json::{Map, Value, json};

use super::rounds::{Plan, Variant, measure};

/// Sends frames from CPU 0 through `rxsteer run --policy rps`, without viewers and with them, in turns.
///
/// Prints packets per second as quartiles, and their ratio to a turn without viewers in the same round. `again` is a
/// second turn without viewers, which shows the noise. `cpu_time` is the CPU time that the process takes beyond its
/// time without a viewer, as a share of one CPU and for each request.
#[derive(Args)]
#[command(after_help = "Example:\n  rxsteer-lab watch-cost --rounds 15 --frames 2000000")]
pub(crate) struct Options {
    #[command(flatten)]
    plan: Plan,
    /// Number of flows.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    flows: u32,
    /// Number of slow clients.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    slow: usize,
    /// Number of requests whose CPU time is measured.
    #[arg(long, value_name = "N", default_value_t = 40)]
    looks: u32,
}

/// The time between requests whose CPU time is measured: the server queries the instance at most four times a second.
const PAUSE: Duration = Duration::from_millis(300);

/// The behaviour of the viewers in a turn.
#[derive(Clone, Copy)]
enum Viewers {
    None,
    /// Requests this path every second, starting before the turn.
    EachSecond(&'static str),
    Slow(usize),
}

pub(crate) fn run(options: &Options) -> Result<Value> {
    let testbed = Testbed::hosts(LinkOptions::default())?;
    let (sender, receiver) = (testbed.sender(), testbed.receiver());
    receiver.ip("link set lo up")?;
    let listen = ["in0", "--policy", "rps", "--cpus", "0-1", "--listen", "127.0.0.1:0"];
    let steering = Steering::start(receiver, &listen)?;
    let prefix = "rxsteer: metrics and page at http://";
    steering.wait_for_stderr(prefix, Duration::from_secs(10))?;
    let stderr = steering.stderr();
    let address = stderr.lines().find_map(|line| line.strip_prefix(prefix)?.strip_suffix('/'));
    let address: SocketAddr =
        address.context("rxsteer does not report where it listens")?.parse()?;
    let traffic = Traffic { flows: options.flows, length: 64, ..Traffic::default() };
    let source = LiveFrames::new(testbed.link(), &traffic)?;
    let answers = AtomicU64::new(0);
    let turn = |viewers| {
        watched(receiver, address, viewers, &answers, || {
            let took = source.send(sender, 0, options.plan.frames)?;
            Ok(options.plan.frames as f64 / took.as_secs_f64())
        })
    };
    let variant = |name, viewers| Variant { name, turn: Box::new(move || turn(viewers)) };
    let mut variants = [
        variant("no_viewer", Viewers::None),
        variant("again", Viewers::None),
        variant("status_each_second", Viewers::EachSecond("/api/status")),
        variant("metrics_each_second", Viewers::EachSecond("/metrics")),
        variant("slow_clients", Viewers::Slow(options.slow)),
    ];
    let mut report = measure(&mut variants, &options.plan)?.report("no_viewer");
    report["answers"] = answers.load(Ordering::Relaxed).into();
    report["cpu_time"] = receiver.inside(|| Ok(cpu_time(options, &steering, address)))??;
    drop(steering);
    Ok(report)
}

/// The CPU time of the process with and without viewers, in a separate period without packets.
fn cpu_time(options: &Options, steering: &Steering, address: SocketAddr) -> Result<Value> {
    let process = steering.id();
    let span = PAUSE * options.looks;
    let without = of_one_cpu(process, || {
        sleep(span);
        Ok(())
    })?;
    let mut report = Map::new();
    report.insert("without_viewers_of_one_cpu".to_owned(), rounded(without).into());
    for (name, path) in [("status", "/api/status"), ("metrics", "/metrics")] {
        let with = of_one_cpu(process, || {
            for _ in 0..options.looks {
                let began = Instant::now();
                ask(address, path).with_context(|| format!("no answer to {path}"))?;
                sleep(PAUSE.saturating_sub(began.elapsed()));
            }
            Ok(())
        })?;
        let per_reading = (with - without) * PAUSE.as_secs_f64();
        let figures = json!({
            "ms_for_a_look": rounded(per_reading * 1e3),
            "of_one_cpu_at_one_a_second": rounded(per_reading),
        });
        report.insert(name.to_owned(), figures);
    }
    let (answers, stop, ready) =
        (AtomicU64::new(0), AtomicBool::new(false), AtomicBool::new(false));
    let slow = std::thread::scope(|scope| {
        scope.spawn(|| view(address, Viewers::Slow(options.slow), &answers, &stop, &ready));
        while !ready.load(Ordering::Relaxed) {
            sleep(Duration::from_millis(1));
        }
        let slow = of_one_cpu(process, || {
            sleep(span);
            Ok(())
        });
        stop.store(true, Ordering::Relaxed);
        slow
    })?;
    report.insert("slow_clients_of_one_cpu".to_owned(), rounded(slow - without).into());
    Ok(report.into())
}

fn rounded(figure: f64) -> f64 {
    (figure * 1e6).round() / 1e6
}

/// The share of one CPU that all threads of a process use during `work`.
fn of_one_cpu(process: u32, work: impl FnOnce() -> Result<()>) -> Result<f64> {
    let (before, began) = (ran_ns(process)?, Instant::now());
    work()?;
    let ran = ran_ns(process)?.saturating_sub(before);
    Ok(ran as f64 / began.elapsed().as_nanos() as f64)
}

/// How long the threads of a process have run, according to the scheduler. None of the serving threads ends meanwhile.
fn ran_ns(process: u32) -> Result<u64> {
    let mut sum = 0;
    for task in std::fs::read_dir(format!("/proc/{process}/task"))? {
        let text = std::fs::read_to_string(task?.path().join("schedstat"))?;
        let ran = text.split_whitespace().next().and_then(|ran| ran.parse::<u64>().ok());
        sum += ran.with_context(|| format!("no time in schedstat: {text:?}"))?;
    }
    Ok(sum)
}

/// Does `work` while there are viewers, in the namespace of the server.
fn watched(
    namespace: &Namespace,
    address: SocketAddr,
    viewers: Viewers,
    answers: &AtomicU64,
    work: impl FnOnce() -> Result<f64>,
) -> Result<f64> {
    let (stop, ready) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let viewing = scope.spawn(|| {
            namespace.inside(|| {
                view(address, viewers, answers, &stop, &ready);
                Ok(())
            })
        });
        while !ready.load(Ordering::Relaxed) && !viewing.is_finished() {
            sleep(Duration::from_millis(1));
        }
        let done = work();
        stop.store(true, Ordering::Relaxed);
        viewing.join().map_err(|_| anyhow::anyhow!("a viewer panicked"))??;
        done
    })
}

/// Views until `stop`; sets `ready` once all viewers are connected.
fn view(
    address: SocketAddr,
    viewers: Viewers,
    answers: &AtomicU64,
    stop: &AtomicBool,
    ready: &AtomicBool,
) {
    let mut slow = Vec::new();
    if let Viewers::Slow(count) = viewers {
        // Connections that find no room in the queue time out soon.
        let connect = || TcpStream::connect_timeout(&address, Duration::from_millis(20)).ok();
        slow.extend((0..count).filter_map(|_| connect()));
    }
    let mut next = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        if Instant::now() >= next {
            next += Duration::from_secs(1);
            match viewers {
                Viewers::EachSecond(path) => {
                    answers.fetch_add(u64::from(ask(address, path).is_some()), Ordering::Relaxed);
                }
                Viewers::Slow(_) => {
                    for stream in &mut slow {
                        // The server may have closed the connection.
                        let _ = stream.write(b"G");
                    }
                }
                Viewers::None => {}
            }
            ready.store(true, Ordering::Relaxed);
        }
        sleep(Duration::from_millis(5));
    }
}

fn ask(address: SocketAddr, path: &str) -> Option<usize> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).ok()?;
    answer.starts_with(b"HTTP/1.1 200").then_some(answer.len())
}
