//! Packets on CPUs with busy processes: which methods lose or delay packets.
//!
//! ```text
//!   CPU 0: sender (SCHED_FIFO), reader, busy processes      CPU 1: reader, busy processes
//!     └─► veth ─► [no steering | kernel RPS | rxsteer] ─► CPUs 0 and 1 ─► sockets ─► readers
//! ```
//!
//! - Busy processes are ordinary processes that never sleep. Each has its own session, so that autogroup gives each its
//!   share.
//! - The sender represents a NIC, which processes cannot delay: it has priority over everything else on CPU 0, sends
//!   bursts every 100 µs, and sleeps between them.
//! - The delay of a packet is the time from its sending to the network stack of the CPU that processes it. How long a
//!   reader then waits for its CPU does not depend on the steering; it is shown separately.
//! - Without steering, and with the kernel's RPS, the interface has no XDP program.
//! - Methods take turns, in a different order each round. While one has its turn, no other is loaded.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Args;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use rxsteer_lab::{
    BusyProcesses, DelayCheck, Delays, LinkOptions, SENDER_PRIORITY, SocketLoad, Steering, Testbed,
    missing,
};
use serde_json::{Value, json};

use super::others::Others;
use super::starving;

const FLOWS: u16 = 200;
const CPUS: [usize; 2] = [0, 1];
const SENDER: usize = 0;
/// How often a turn is repeated if other processes used more of a CPU than allowed.
const RETRIES: u32 = 2;

/// Measures loss and delay while processes keep the CPUs busy: without steering, with the kernel's RPS, and with
/// `rxsteer run` and each scheduling class of its threads, in turns.
///
/// Prints a table to standard error and JSON to standard output.
#[derive(Args)]
#[command(after_help = "Examples:\n  rxsteer-lab busy --quick\n  \
    rxsteer-lab busy --rounds 7 --write docs/results/busy.md")]
pub(crate) struct Options {
    /// How often each method is measured with each number of busy processes.
    #[arg(long, value_name = "N", default_value_t = 5)]
    rounds: u32,
    /// Packets per second.
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "30000,60000,200000")]
    rates: Vec<u32>,
    /// Busy processes on each CPU.
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "1,2,8")]
    busy: Vec<usize>,
    /// How long each rate is sent in a turn, in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 1500)]
    time: u64,
    /// Two rounds of half a second, with one busy process; takes about two minutes.
    #[arg(long)]
    quick: bool,
    /// Repeat a turn in which other processes took more than this share of a CPU.
    #[arg(long, value_name = "SHARE", default_value_t = 0.1)]
    others: f64,
    /// Also write the tables to this file, as Markdown.
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
}

/// The method that decides where packets are processed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Method {
    None,
    KernelRps,
    Steered { policy: &'static str, threads: &'static str },
}

const METHODS: [Method; 9] = [
    Method::None,
    Method::KernelRps,
    Method::Steered { policy: "rps", threads: "other" },
    Method::Steered { policy: "rps", threads: "nice:-20" },
    Method::Steered { policy: "rps", threads: "fifo:1" },
    // A higher priority than the sender's: a burst does not keep the thread of CPU 0 waiting.
    Method::Steered { policy: "rps", threads: "fifo:3" },
    Method::Steered { policy: "rfs+sparse", threads: "other" },
    Method::Steered { policy: "rfs+sparse", threads: "nice:-20" },
    Method::Steered { policy: "rfs+sparse", threads: "fifo:1" },
];

impl Method {
    fn name(self) -> String {
        match self {
            Method::None => "no steering".to_owned(),
            Method::KernelRps => "kernel RPS".to_owned(),
            Method::Steered { policy, threads } => format!("rxsteer {policy}, {threads}"),
        }
    }
}

/// The result of one rate in a turn.
#[derive(Clone)]
struct Figure {
    round: u32,
    method: Method,
    busy: usize,
    rate: u32,
    sent: u64,
    sent_per_second: f64,
    /// Packets that were sent, and never reached the stack.
    lost: u64,
    /// Packets that reached the stack, and were never read.
    unread: u64,
    p50_us: f64,
    p99_us: f64,
    read_p99_us: f64,
    others: f64,
}

impl Figure {
    fn loss(&self) -> f64 {
        100.0 * (self.lost + self.unread) as f64 / self.sent.max(1) as f64
    }

    /// Whether more packets were lost than with `baseline`, and whether packets waited longer.
    fn is_worse_than(&self, baseline: &Figure) -> (bool, bool) {
        let more_lost = self.loss() > baseline.loss() + LOSS_TOLERANCE;
        let later = self.p99_us > baseline.p99_us * DELAY_FACTOR + DELAY_TOLERANCE_US;
        (more_lost, later)
    }

    fn json(&self) -> Value {
        json!({
            "round": self.round,
            "method": self.method.name(),
            "busy_processes": self.busy,
            "rate": self.rate,
            "sent": self.sent,
            "sent_per_second": self.sent_per_second.round(),
            "lost": self.lost,
            "unread": self.unread,
            "p50_us": self.p50_us,
            "p99_us": self.p99_us,
            "read_p99_us": self.read_p99_us,
            "others": (self.others * 1000.0).round() / 1000.0,
        })
    }
}

/// The allowed difference of losses, in percent of the packets sent: packets that are under way when the readers are
/// queried.
const LOSS_TOLERANCE: f64 = 0.01;
/// A delay counts as longer if it exceeds the other one by this factor and by this many microseconds.
const DELAY_FACTOR: f64 = 1.25;
const DELAY_TOLERANCE_US: f64 = 50.0;

pub(crate) fn run(options: &Options) -> Result<Value> {
    if let Some(reason) = missing(&["chrt", "setsid", "taskset"]) {
        anyhow::bail!("cannot run: {reason} (Debian: util-linux)");
    }
    ensure!(rxsteer_lab::online_cpus() >= 2, "it requires two CPUs");
    let (rounds, time) = if options.quick { (2, 500) } else { (options.rounds, options.time) };
    let busy: &[usize] = if options.quick { &[1] } else { &options.busy };
    let time = Duration::from_millis(time);
    let testbed = Testbed::hosts(LinkOptions::default())?;
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let mut figures = Vec::new();
    let mut taken_again = 0;
    for &count in busy {
        let mut processes = BusyProcesses::start(&CPUS, count)?;
        processes.pause()?;
        for round in 1..=rounds {
            let mut order = METHODS;
            order.shuffle(&mut rng);
            for method in order {
                let turn = || Turn { testbed: &testbed, method, busy: count, round, time };
                let mut found = turn().take(&mut processes, &options.rates)?;
                for _ in 0..RETRIES {
                    if found.iter().all(|figure| figure.others <= options.others) {
                        break;
                    }
                    taken_again += 1;
                    found = turn().take(&mut processes, &options.rates)?;
                }
                figures.extend(found);
            }
            eprintln!("{count} busy processes a CPU: round {round} of {rounds} is over");
        }
    }
    let starving = starving::measure(if options.quick { 1 } else { 3 })?;
    let report = Report { figures, starving, rounds, others: options.others };
    let tables = report.tables()?;
    eprintln!("{tables}");
    if let Some(path) = &options.write {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        std::fs::write(path, &tables).with_context(|| format!("can't write {}", path.display()))?;
    }
    let mut report = report.json();
    report["turns_taken_again"] = taken_again.into();
    Ok(report)
}

/// One turn of a method.
struct Turn<'a> {
    testbed: &'a Testbed,
    method: Method,
    busy: usize,
    round: u32,
    time: Duration,
}

impl Turn<'_> {
    /// Sets up the method, sends each rate while the processes are busy, and removes the method.
    fn take(&self, processes: &mut BusyProcesses, rates: &[u32]) -> Result<Vec<Figure>> {
        let receiver = self.testbed.receiver();
        let mask = if self.method == Method::KernelRps { "3" } else { "0" };
        receiver.write_sys("/sys/class/net/in0/queues/rx-0/rps_cpus", mask)?;
        let steering = match self.method {
            Method::Steered { policy, threads } => {
                let arguments = ["in0", "--policy", policy, "--cpus", "0-1", "--threads", threads];
                Some(Steering::start(receiver, &arguments)?)
            }
            _ => None,
        };
        let load = SocketLoad::start(self.testbed, FLOWS, &CPUS)?;
        let check = DelayCheck::new(receiver, &self.testbed.link().far)?;
        // Flows get their slots, and neighbours and routes are resolved. Half a second later, `rps` works without the
        // guard.
        load.send(SENDER, 5000, Duration::from_millis(200))?;
        sleep(Duration::from_millis(500));
        processes.resume()?;
        let figures = rates.iter().map(|rate| self.rate(&load, &check, *rate)).collect();
        processes.pause()?;
        load.finish()?;
        if let Some(steering) = steering {
            let totals = steering.totals()?;
            ensure!(totals.unaccounted() == 0, "frames are unaccounted for: {totals:?}");
        }
        figures
    }

    fn rate(&self, load: &SocketLoad, check: &DelayCheck, rate: u32) -> Result<Figure> {
        let (before, read_before) = (check.delays()?, load.received());
        load.take_delays();
        let others = Others::now();
        let (sent, took) = load.send(SENDER, rate, self.time)?;
        let others = Others::now().share_since(&others);
        // Waits until everything under way has arrived and was read.
        let mut read = load.received();
        for _ in 0..60 {
            if read - read_before >= sent {
                break;
            }
            sleep(Duration::from_millis(50));
            read = load.received();
        }
        let seen = check.delays()?.since(&before);
        let us = |delays: &Delays, share| delays.quantile(share).unwrap_or(0) as f64 / 1000.0;
        Ok(Figure {
            round: self.round,
            method: self.method,
            busy: self.busy,
            rate,
            sent,
            sent_per_second: sent as f64 / took.as_secs_f64(),
            lost: sent.saturating_sub(seen.count()),
            unread: seen.count().saturating_sub(read - read_before),
            p50_us: us(&seen, 0.5),
            p99_us: us(&seen, 0.99),
            read_p99_us: us(&load.take_delays(), 0.99),
            others,
        })
    }
}

/// All measurements.
struct Report {
    figures: Vec<Figure>,
    starving: Vec<starving::Row>,
    rounds: u32,
    others: f64,
}

impl Report {
    fn of(&self, method: Method, busy: usize, rate: u32) -> Vec<&Figure> {
        let is_meant = |figure: &&Figure| {
            figure.method == method && figure.busy == busy && figure.rate == rate
        };
        self.figures.iter().filter(is_meant).collect()
    }

    /// In how many rounds a method lost more than the kernel's RPS, and in how many its packets waited longer.
    fn verdict(&self, method: Method, busy: usize, rate: u32) -> (usize, usize) {
        let baseline = self.of(Method::KernelRps, busy, rate);
        let compared = self.of(method, busy, rate).into_iter().filter_map(|figure| {
            let same = baseline.iter().find(|other| other.round == figure.round)?;
            Some(figure.is_worse_than(same))
        });
        compared.fold((0, 0), |(lost, late), (more_lost, later)| {
            (lost + usize::from(more_lost), late + usize::from(later))
        })
    }

    /// The measured combinations of busy processes and rates.
    fn cells(&self) -> Vec<(usize, u32)> {
        let mut cells: Vec<(usize, u32)> =
            self.figures.iter().map(|figure| (figure.busy, figure.rate)).collect();
        cells.sort_unstable();
        cells.dedup();
        cells
    }

    fn json(&self) -> Value {
        let mut verdicts = Vec::new();
        for (busy, rate) in self.cells() {
            for method in METHODS {
                let (lost, late) = self.verdict(method, busy, rate);
                verdicts.push(json!({
                    "method": method.name(),
                    "busy_processes": busy,
                    "rate": rate,
                    "rounds": self.rounds,
                    "rounds_with_more_loss_than_kernel_rps": lost,
                    "rounds_with_longer_p99_than_kernel_rps": late,
                }));
            }
        }
        json!({
            "figures": self.figures.iter().map(Figure::json).collect::<Vec<_>>(),
            "verdicts": verdicts,
            "ordinary_process_beside_a_ring_that_never_empties":
                self.starving.iter().map(starving::Row::json).collect::<Vec<_>>(),
        })
    }

    fn tables(&self) -> Result<String> {
        let autogroup = std::fs::read_to_string("/proc/sys/kernel/sched_autogroup_enabled");
        let uname = std::fs::read_to_string("/proc/sys/kernel/osrelease")?;
        let mut text = String::new();
        writeln!(text, "# Packets beside busy processes\n")?;
        writeln!(
            text,
            "Made by `cargo xtask busy -- --rounds {} --write docs/results/busy.md`. Linux {}, autogroup scheduling {}; \
             methods in turns, in random order.\n",
            self.rounds,
            uname.trim(),
            match autogroup.as_deref().map(str::trim) {
                Ok("1") => "on",
                Ok(_) => "off",
                Err(_) => "not built in",
            },
        )?;
        writeln!(
            text,
            "{FLOWS} UDP flows of 64-byte frames over a veth pair. CPU 0: the sender (SCHED_FIFO {SENDER_PRIORITY}, as no \
             process keeps a NIC waiting), a reader, N busy processes; CPU 1: a reader, N busy processes. Readers and busy \
             processes are ordinary; each busy process has a session of its own. The delay is that from sending to the \
             network stack of the CPU that processes the packet. Without steering and with kernel RPS no XDP program is \
             attached.\n\nA round counts as worse than kernel RPS in the same round when more packets were lost (by more \
             than {LOSS_TOLERANCE} % of those sent), or when the 99th percentile of the delay is more than {DELAY_FACTOR} \
             times as long and {DELAY_TOLERANCE_US} µs.\n"
        )?;
        for (busy, rate) in self.cells() {
            writeln!(text, "## {busy} busy a CPU, {rate} packets a second\n")?;
            writeln!(
                text,
                "| method | sent/s | lost, median | lost, worst | p50 | p99, median | p99, worst | p99 to the reader | \
                 rounds worse: loss, delay |\n|---|---|---|---|---|---|---|---|---|"
            )?;
            for method in METHODS {
                let rows = self.of(method, busy, rate);
                let middle =
                    |of: fn(&Figure) -> f64| sorted(&rows, of).get(rows.len() / 2).copied();
                let worst = |of: fn(&Figure) -> f64| sorted(&rows, of).last().copied();
                let percent = |value: Option<f64>| format!("{:.2} %", value.unwrap_or(0.0));
                let us = |value: Option<f64>| format!("{:.0} µs", value.unwrap_or(0.0));
                let (lost, late) = self.verdict(method, busy, rate);
                let verdict = match method {
                    Method::KernelRps => String::new(),
                    _ => format!("{lost}, {late} of {}", rows.len()),
                };
                writeln!(
                    text,
                    "| {} | {:.0} | {} | {} | {} | {} | {} | {} | {verdict} |",
                    method.name(),
                    middle(|figure| figure.sent_per_second).unwrap_or(0.0),
                    percent(middle(Figure::loss)),
                    percent(worst(Figure::loss)),
                    us(middle(|figure| figure.p50_us)),
                    us(middle(|figure| figure.p99_us)),
                    us(worst(|figure| figure.p99_us)),
                    us(middle(|figure| figure.read_p99_us)),
                )?;
            }
            writeln!(text)?;
        }
        let disturbed = self.figures.iter().filter(|figure| figure.others > self.others).count();
        if disturbed > 0 {
            writeln!(
                text,
                "Other processes took more than {} of a CPU in {disturbed} of {} figures.\n",
                self.others,
                self.figures.len()
            )?;
        }
        text.push_str(&starving::table(&self.starving));
        Ok(text)
    }
}

fn sorted(rows: &[&Figure], of: fn(&Figure) -> f64) -> Vec<f64> {
    let mut values: Vec<f64> = rows.iter().map(|figure| of(figure)).collect();
    values.sort_by(f64::total_cmp);
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(method: Method, lost: u64, p99_us: f64) -> Figure {
        Figure {
            round: 1,
            method,
            busy: 1,
            rate: 30_000,
            sent: 100_000,
            sent_per_second: 30_000.0,
            lost,
            unread: 0,
            p50_us: 10.0,
            p99_us,
            read_p99_us: 0.0,
            others: 0.0,
        }
    }

    #[test]
    fn round_is_worse_by_loss_or_by_delay() {
        let rps = figure(Method::KernelRps, 5, 100.0);
        assert_eq!(figure(METHODS[2], 5, 100.0).is_worse_than(&rps), (false, false));
        assert_eq!(figure(METHODS[2], 20, 170.0).is_worse_than(&rps), (true, false));
        assert_eq!(figure(METHODS[2], 0, 180.0).is_worse_than(&rps), (false, true));
    }

    #[test]
    fn tables_and_json_show_all_that_was_measured() {
        let figures = METHODS.map(|method| figure(method, 100, 3000.0)).to_vec();
        let mut report = Report { figures, starving: Vec::new(), rounds: 1, others: 0.1 };
        report.figures[1] = figure(Method::KernelRps, 0, 20.0);
        let tables = report.tables().unwrap();
        for method in METHODS {
            assert!(tables.contains(&format!("| {} |", method.name())), "{tables}");
        }
        assert!(tables.contains("| rxsteer rps, fifo:1 | 30000 | 0.10 % |"), "{tables}");
        assert!(tables.contains("1, 1 of 1"), "{tables}");
        assert_eq!(report.json()["verdicts"].as_array().unwrap().len(), METHODS.len());
    }
}
