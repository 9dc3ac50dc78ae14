//! The report for people.

use super::lines::field;
use crate::finished::Run;
use crate::hash_key::HashSeed;
use crate::out;
use crate::work::at_home;
pub(crate) use rxsteer_report::table::{duration, new, steered_by};

use rxsteer_records::recording::Recorded;
use rxsteer_status::figures::{grouped, nanoseconds, percent};
use rxsteer_user::core::SteerCounts;
use rxsteer_user::core::counters::CpuCounter;
use rxsteer_user::packet::Malformed;
use rxsteer_user::printable;
use rxsteer_user::{CpuReport, MovesByLoad, Report};
use std::fmt::Write;
use std::time::Duration;

/// One run: a table per CPU, the meaning of its columns, then totals. If `room` is the number of columns of a line, the
/// table has a bar for each CPU.
pub(crate) fn run(run: &Run, room: Option<usize>) -> String {
    let mut text = per_cpu(&run.report, room);
    text.push('\n');
    for (column, meaning) in COLUMNS {
        field(&mut text, column, 11, meaning);
    }
    text.push('\n');
    totals(&mut text, run);
    text
}

/// What the columns of the table mean.
const COLUMNS: [(&str, &str); 7] = [
    ("packets", CpuCounter::Delivered.help()),
    ("share", "Their part of all packets that were processed."),
    ("bytes", CpuCounter::Bytes.help()),
    ("flows", "Flows that had packets on this CPU."),
    ("dropped", CpuCounter::Dropped.help()),
    ("wake-ups", CpuCounter::Kicks.help()),
    ("mean list", "Packets handed off at once, on average; longer lists cost less per packet."),
];

/// CPUs without packets are shown up to this many rows, and summarized beyond.
const MAX_ROWS: usize = 16;

fn per_cpu<H>(report: &Report<H>, room: Option<usize>) -> String {
    let names = COLUMNS.iter().map(|(name, _)| *name);
    let header: Vec<&str> = ["CPU"].into_iter().chain(names).collect();
    let mut table = new(&header, &[]);
    let fold = report.per_cpu.len() > MAX_ROWS;
    let (idle, shown): (Vec<&CpuReport>, Vec<&CpuReport>) =
        report.per_cpu.iter().partition(|cpu| fold && cpu.steered() == 0);
    for cpu in &shown {
        table.add_row(cpu_row(cpu, report.delivered));
    }
    let lines: Vec<String> = table.lines().collect();
    let taken = lines.iter().map(|line| line.chars().count()).max().unwrap_or(0) + BAR_GAP;
    let most = shown.iter().map(|cpu| cpu.steered()).max().unwrap_or(0);
    let bar_room = room.map_or(0, |room| room.saturating_sub(taken).min(LONGEST_BAR));
    // The first line has the names of the columns.
    let bars = shown.iter().map(|cpu| bar(cpu.steered(), most, bar_room));
    let bars = std::iter::once(String::new()).chain(bars);
    let mut text = String::new();
    for (line, bar) in lines.iter().zip(bars) {
        let _ = writeln!(text, "{}", format!("{line}{:BAR_GAP$}{bar}", "").trim_end());
    }
    if !idle.is_empty() {
        let _ = writeln!(text, " and {} CPUs that got nothing", idle.len());
    }
    text
}

/// Columns between the table and its bars.
const BAR_GAP: usize = 2;
/// The width of the longest bar. It uses no more than the terminal has, and there is no bar if it would be narrower
/// than [`SHORTEST_ROOM`].
const LONGEST_BAR: usize = 32;
const SHORTEST_ROOM: usize = 4;

/// A bar for `part` of `most`, in eighths of a column.
fn bar(part: u64, most: u64, room: usize) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    if room < SHORTEST_ROOM || most == 0 {
        return String::new();
    }
    let eighths = (part as f64 / most as f64 * (room * 8) as f64).round() as usize;
    format!("{}{}", "█".repeat(eighths / 8), EIGHTHS[eighths % 8])
}

fn cpu_row(cpu: &CpuReport, delivered: u64) -> Vec<String> {
    vec![
        cpu.cpu.to_string(),
        grouped(cpu.packets),
        percent(cpu.packets, delivered),
        grouped(cpu.bytes),
        grouped(cpu.flows),
        grouped(cpu.drops.total()),
        grouped(cpu.kicks),
        if cpu.lists == 0 {
            "-".to_owned()
        } else {
            format!("{:.1}", cpu.queued as f64 / cpu.lists as f64)
        },
    ]
}

fn totals(text: &mut String, run: &Run) {
    let report = &run.report;
    let mut line = |name: &str, value: String| field(text, name, 13, &value);
    line("policy", format!("{}, CPUs {}", run.policy, run.cpus));
    line("hash", hash(run.hash, run.hash_seed, run.repeatable));
    if run.is_a_draw {
        let range = "--seeds 20 shows the range of what to expect";
        line("", format!("one draw of a random secret, as at each boot of a kernel; {range}"));
    }
    line(
        "packets",
        format!(
            "{} ({} bytes) in {}{}",
            grouped(report.packets),
            grouped(report.bytes),
            duration(run.elapsed),
            rate(report.packets, run.elapsed)
        ),
    );
    line("delivered", format!("{}, dropped {}", grouped(report.delivered), dropped(report)));
    if report.kernel_drops > 0 {
        let dropped = grouped(report.kernel_drops);
        line("kernel", format!("{dropped} dropped before they were received: the ring was full"));
    }
    line(
        "flows",
        format!(
            "{} steered; {} with ports ({} counting each direction)",
            grouped(report.steered_flows),
            grouped(report.distinct_flows.bidirectional()),
            grouped(report.distinct_flows.unidirectional())
        ),
    );
    line("largest flow", largest_flow(report));
    line("not steered", unsteered(report));
    if report.transport_truncated > 0 {
        let cut = grouped(report.transport_truncated);
        line(
            "cut short",
            format!("{cut} without their ports in the capture: steered by addresses alone"),
        );
    }
    if run.skipped > 0 {
        line("left out", left_out(run.skipped));
    }
    line("imbalance", imbalance(report));
    line("queueing", queueing(report));
    let mechanisms = mechanisms(&report.steering);
    if !mechanisms.is_empty() {
        line("steered by", mechanisms);
    }
    if report.moves_by_load.intervals > 0 {
        line("balance", balance(&report.moves_by_load));
    }
    if let Some((home, data)) = at_home(report) {
        line(
            "applications",
            format!("{} of their packets processed where they run", percent(home, data)),
        );
    }
    line("order", format!("{} reordered, {} moves", grouped(report.reordered), report.moves));
    if let Some(recorded) = &run.recorded {
        line("flow records", flow_records(recorded));
    }
    if let Some(written) = &run.out {
        line("written", out::text(written));
    }
    if run.changes > 0 {
        line("changes", format!("{} of {} made", report.changes_made, run.changes));
    }
    if run.interrupted {
        line("interrupted", "the report covers what was received until then".to_owned());
    }
}

/// Records of captures that were skipped.
pub(crate) fn left_out(skipped: u64) -> String {
    let records = if skipped == 1 { "record" } else { "records" };
    format!("{} {records} of unknown link types", grouped(skipped))
}

fn flow_records(recorded: &Recorded) -> String {
    let counts = &recorded.counts;
    let mut text = match &recorded.file {
        Some(file) => format!("{} in {}", grouped(recorded.records), printable(file)),
        None if recorded.failure.is_some() => "none: they could not be written".to_owned(),
        None => "none, and no file".to_owned(),
    };
    if let Some((collector, [records, _])) = &recorded.ipfix {
        let _ = write!(text, "; {} sent to {collector}", grouped(*records));
    }
    let refused = recorded.ipfix.as_ref().map_or(0, |(_, [_, refused])| *refused);
    for (count, what) in [
        (recorded.lost.records, "could not be written"),
        (refused, "could not be sent"),
        (counts.expired, "ended idle"),
        (counts.evicted, "made room for new flows (--max-flows)"),
        (counts.refused, "packets are in no record"),
    ] {
        if count > 0 {
            let _ = write!(text, "; {} {what}", grouped(count));
        }
    }
    text
}

/// The mechanisms that steered the packets of a report.
fn mechanisms(counts: &SteerCounts) -> String {
    steered_by(|counter| Some(counts.get(counter)).filter(|count| *count > 0).map(grouped))
}

/// Buckets that moved by load, and the first of them with its reason.
fn balance(moves: &MovesByLoad) -> String {
    let mut text = format!(
        "{} buckets moved by load in {} intervals",
        grouped(moves.moved),
        grouped(moves.intervals)
    );
    if let Some(first) = moves.first.first() {
        let after = duration(Duration::from_nanos(first.after_ns));
        let _ = write!(
            text,
            "; first bucket {} from CPU {} to CPU {} after {after}: {}",
            first.bucket.bucket, first.bucket.from, first.bucket.to, first.bucket
        );
    }
    text
}

/// The hash, and how to get the same spread again.
pub(crate) fn hash(name: &str, seed: Option<HashSeed>, is_repeatable: bool) -> String {
    let what = if is_repeatable { "spread" } else { "hashes" };
    match seed {
        Some(seed) => format!("{name}; the same {what} again: --hash-seed {:x}", seed.0),
        None => name.to_owned(),
    }
}

fn imbalance<H>(report: &Report<H>) -> String {
    let Some(imbalance) = report.imbalance() else { return "-".to_owned() };
    let dropped = report.drops.total();
    if dropped > 0 {
        return format!(
            "{imbalance:.2} (busiest CPU over the average, by packets decided for it); {} of the packets \
             are dropped already",
            percent(dropped, report.packets)
        );
    }
    format!(
        "{imbalance:.2} (busiest CPU over the average); {:.1} x this traffic fits before that CPU is full",
        report.cpus_in_use() as f64 / imbalance
    )
}

fn queueing<H>(report: &Report<H>) -> String {
    let delay = report.delay_ns();
    if delay.is_empty() {
        return "-".to_owned();
    }
    let at = |quantile| nanoseconds(delay.value_at_quantile(quantile));
    format!("p50 {}, p99 {} from queueing to processing", at(0.5), at(0.99))
}

/// The shortest run with a rate. Threads start and end within 3 to 5 ms, as a replay of one packet shows. So the rate
/// of a shorter run would be off by more than a tenth, and with few packets it would describe only this.
const SHORTEST_WITH_RATE: Duration = Duration::from_millis(50);

/// ": 1.65 M packets/s"; empty for a run that is too short for a rate.
fn rate(packets: u64, elapsed: Duration) -> String {
    if elapsed < SHORTEST_WITH_RATE {
        return String::new();
    }
    let rate = packets as f64 / elapsed.as_secs_f64().max(1e-9);
    match rate {
        0.0..1e3 => format!(": {rate:.0} packets/s"),
        1e3..1e6 => format!(": {:.1} k packets/s", rate / 1e3),
        _ => format!(": {:.2} M packets/s", rate / 1e6),
    }
}

/// The one figure that shows when steering cannot help.
pub(crate) fn largest_flow<H>(report: &Report<H>) -> String {
    let share = percent(report.largest_flow, report.packets);
    let even = report.packets / report.cpus_in_use().max(1) as u64;
    if report.cpus_in_use() > 1 && report.largest_flow > even {
        format!(
            "{share} of the packets, more than an even share: a flow in order stays on one CPU, so no \
             steering can spread it"
        )
    } else {
        format!("{share} of the packets")
    }
}

fn dropped<H>(report: &Report<H>) -> String {
    let reasons: Vec<String> = report
        .drops
        .iter()
        .filter(|(_, count)| *count > 0)
        .map(|(reason, count)| format!("{} {}", grouped(count), reason.name().replace('_', " ")))
        .collect();
    if reasons.is_empty() { "0".to_owned() } else { reasons.join(", ") }
}

pub(crate) fn unsteered<H>(report: &Report<H>) -> String {
    let malformed: u64 = report.malformed.iter().sum();
    let mut text = format!(
        "{} not IP, {} malformed: on the CPU that received them",
        grouped(report.not_ip),
        grouped(malformed)
    );
    let reasons = Malformed::ALL.iter().zip(report.malformed).filter(|(_, count)| *count > 0);
    let reasons: Vec<String> =
        reasons.map(|(reason, count)| format!("{count} {}", reason.name())).collect();
    if !reasons.is_empty() {
        let _ = write!(text, " ({})", reasons.join(", "));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The result of a small replay under `bound`: CPU 1 got everything.
    fn report() -> Report<impl rxsteer_user::Handler> {
        use rxsteer_user::source::{Source, synthetic::SyntheticSource};
        let policy = "bound:0=1".parse().unwrap();
        let mut config = rxsteer_user::PipelineConfig::new(policy, "0-1".parse().unwrap());
        (config.pin, config.on_full) = (false, rxsteer_user::OnFull::Wait);
        let spec = "packets=100,flows=3".parse().unwrap();
        let source: Box<dyn Source> = Box::new(SyntheticSource::new(spec, 1, (0, 1)));
        let stop = std::sync::atomic::AtomicBool::new(false);
        let handler = |_| |_: &rxsteer_user::PacketList<'_>| {};
        let speed = rxsteer_user::Speed::Max;
        rxsteer_user::run(&config, &mut [source], speed, &stop, handler, |_, _| {}).unwrap()
    }

    #[test]
    fn bars_take_what_room_there_is() {
        let report = report();
        let lengths = |room| {
            let table = per_cpu(&report, room);
            let lines: Vec<&str> = table.lines().collect();
            assert!(lines.iter().all(|line| line.chars().count() <= room.unwrap_or(80)), "{table}");
            assert_eq!((lines.len(), lines[1].matches('█').count()), (3, 0), "{table}");
            lines[2].matches('█').count()
        };
        let table = per_cpu(&report, None).lines().map(|line| line.chars().count()).max();
        let width = table.expect("lines");
        assert_eq!(lengths(Some(width + 100)), LONGEST_BAR);
        assert!((SHORTEST_ROOM..LONGEST_BAR).contains(&lengths(Some(width + 20))));
        // Without a terminal, and on a terminal without room next to the table.
        assert_eq!((lengths(None), lengths(Some(width + BAR_GAP))), (0, 0));
    }

    #[test]
    fn all_mechanisms_are_named_and_add_up() {
        let mut counts = SteerCounts { hashed: 7, local: 1, ..SteerCounts::default() };
        assert_eq!(mechanisms(&counts), "", "the policy says it");
        (counts.rfs, counts.in_slots, counts.matched, counts.bound) = (2000, 3, 4, 5);
        counts.deferred = 6;
        assert_eq!(
            mechanisms(&counts),
            "2 000 to where their application runs, 3 by sparse slot, 4 by a rule before the policy, 5 by the binding of \
             their RX queue, 7 by hash, 1 left on the CPU that received them; 6 of them deferred behind earlier packets \
             of their flow"
        );
    }

    #[test]
    fn figures_are_readable() {
        assert_eq!(bar(3, 4, 10), "███████▌");
        assert_eq!((bar(4, 4, 10), bar(0, 4, 10)), ("█".repeat(10), String::new()));
        assert_eq!((bar(4, 4, 3), bar(0, 0, 10)), (String::new(), String::new()));
        assert_eq!(rate(2000, Duration::from_secs(2)), ": 1.0 k packets/s");
        assert_eq!(rate(10, Duration::from_millis(3)), "", "that would be of starting threads");
    }
}
