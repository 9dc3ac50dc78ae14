//! The comparison as a table and sentences, and as JSON.

use super::advice::times;
use super::{Compared, Row, Sampled, shares};
use crate::output::json::issues;
use crate::output::lines::{field, fitted, paragraphs};
use crate::output::table::{duration, largest_flow, left_out, new, unsteered};
use crate::replay::seeds::Figure;
use rxsteer_status::figures::{grouped, percent};
use rxsteer_user::printable;
use serde_json::{Value, json};
use std::fmt::Write;

/// With more CPUs than this, shares are only in the JSON.
const MAX_COLUMNS: usize = 8;

/// A table, the meaning of its columns, its source, the advice and its commands; for `advise` the answer comes first.
pub(super) fn text(compared: &Compared) -> String {
    let is_advice = compared.sampled.as_ref().is_some_and(|sampled| sampled.answer_first);
    let answer = answer(compared);
    if compared.rows.iter().all(|row| row.draws.last.packets == 0) {
        return answer;
    }
    let table = spread(compared);
    if is_advice { format!("{answer}\n{table}") } else { format!("{table}\n{answer}") }
}

/// The advice and its commands.
fn answer(compared: &Compared) -> String {
    let mut text = paragraphs(&compared.advice.text);
    for (command, what) in &compared.commands.lines {
        // Writing to a String does not fail.
        let _ = writeln!(text, "\n  # {what}\n  {command}");
    }
    text
}

/// A table, the meaning of its columns, and its source.
fn spread(compared: &Compared) -> String {
    let columns = compared.cpus.len() <= MAX_COLUMNS;
    let mut header = vec!["policy".to_owned()];
    if columns {
        header.extend(compared.cpus.iter().map(|cpu| format!("CPU {cpu}")));
    }
    header.extend(["imbalance", "fits", "moves", "reordered"].map(str::to_owned));
    let header: Vec<&str> = header.iter().map(String::as_str).collect();
    let mut table = new(&header, &[0]);
    for row in &compared.rows {
        let mut cells = vec![row.policy.to_string()];
        if columns {
            let (shares, packets) = (shares(row), row.draws.last.packets);
            let of = |cpu| shares.iter().find(|(other, _)| *other == cpu).map_or(0, |it| it.1);
            cells.extend(compared.cpus.iter().map(|cpu| percent(of(cpu), packets)));
        }
        cells.push(range(row, Figure::Imbalance));
        cells.push(
            row.fits().map_or("-".to_owned(), |fits| joined(fits.map(times)).replace(" x /", " /")),
        );
        cells.push(range(row, Figure::Moves));
        cells.push(grouped(row.draws.reordered));
        table.add_row(cells);
    }
    let cpus = (1..header.len() - 4).collect();
    let mut text = fitted(table, &[cpus, vec![header.len() - 1]]) + "\n";
    let mut line = |name: &str, value: &str| field(&mut text, name, 13, value);
    let count = compared.secrets.count();
    if columns {
        line("CPU N", "Share of the packets, under the secret of the median.");
    }
    line(
        "imbalance",
        &format!(
            "Busiest CPU over the average; 1 is even. Minimum / median / maximum over {count} hash secrets."
        ),
    );
    line(
        "fits",
        "How much of this traffic fits before a CPU is full, in multiples of what fills one, if the cost is the processing of packets.",
    );
    line("moves", "Times that a flow went to another CPU than before.");
    line(
        "rfs",
        &if compared.apps_named {
            format!("With applications on CPUs {}.", compared.app_cpus)
        } else {
            format!(
                "As though applications on CPUs {} consumed the data; a capture does not have them (--app-cpus).",
                compared.app_cpus
            )
        },
    );
    text.push('\n');
    totals(&mut text, compared);
    text
}

/// For which part of the time frames were copied.
fn paused(sampled: &Sampled) -> String {
    let share = 100.0 * sampled.watched.as_secs_f64() / sampled.elapsed.as_secs_f64();
    format!(
        "{share:.1} % of {}: the beginning of each second, to keep the cost and the memory within their limits",
        duration(sampled.elapsed)
    )
}

fn totals(text: &mut String, compared: &Compared) {
    let mut line = |name: &str, value: String| field(text, name, 13, &value);
    let Some(report) = compared.rows.first().map(|row| &row.draws.last) else { return };
    if let Some(sampled) = &compared.sampled {
        let received =
            sampled.received.map_or(String::new(), |all| format!(" of {}", grouped(all)));
        line(
            "captured",
            format!(
                "{}{received} frames that {} received in {}",
                grouped(sampled.frames),
                printable(&sampled.interface.link.name),
                duration(sampled.watched)
            ),
        );
        if sampled.watched < sampled.elapsed {
            line("watched", paused(sampled));
        }
    }
    line("packets", format!("{} ({} bytes)", grouped(report.packets), grouped(report.bytes)));
    line("flows", format!("{} steered", grouped(report.steered_flows)));
    line("largest flow", largest_flow(report));
    line("not steered", unsteered(report));
    if compared.skipped > 0 {
        line("left out", left_out(compared.skipped));
    }
    let queues = match compared.rx_queues {
        1 => "1 RX queue".to_owned(),
        queues => format!("{queues} RX queues, by the Toeplitz hash"),
    };
    line("received on", format!("{queues}; CPUs {}", compared.cpus));
    line(
        "hash",
        format!(
            "symmetric; the same again: --seeds {} --hash-seed {:x}",
            compared.secrets.count(),
            compared.secrets.seed().0
        ),
    );
}

fn range(row: &Row, figure: Figure) -> String {
    let range = row.draws.range(figure);
    range.map_or("-".to_owned(), |range| joined(range.map(|(value, _)| figure.text(value))))
}

/// Minimum, median and maximum, or one of them if they are equal.
fn joined([least, median, most]: [String; 3]) -> String {
    if least == most { most } else { format!("{least} / {median} / {most}") }
}

/// The same for programs.
pub(super) fn json(compared: &Compared) -> Value {
    let report = compared.rows.first().map(|row| &row.draws.last);
    let packets = report.map_or(0, |report| report.packets);
    let sampled = compared.sampled.as_ref().map(|sampled| {
        json!({
            "interface": sampled.interface.link.name,
            "frames": sampled.frames,
            "frames_received": sampled.received,
            "cut": sampled.is_cut,
            "elapsed_ns": sampled.elapsed.as_nanos() as u64,
            "watched_ns": sampled.watched.as_nanos() as u64,
            "help": sampled.relief,
        })
    });
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "settings": {
            "cpus": compared.cpus.to_string(),
            "app_cpus": compared.app_cpus.to_string(),
            "app_cpus_given": compared.apps_named,
            "rx_queues": compared.rx_queues,
            "inner": compared.dissect.inner,
            "key_tunnels": compared.dissect.key_tunnels.to_string(),
        },
        "seeds": compared.secrets.count(),
        "hash_seed": format!("{:032x}", compared.secrets.seed().0),
        "packets": packets,
        "bytes": report.map_or(0, |report| report.bytes),
        "flows_steered": report.map_or(0, |report| report.steered_flows),
        "largest_flow_packets": report.map_or(0, |report| report.largest_flow),
        "largest_flow_share": report.filter(|_| packets > 0)
            .map(|report| report.largest_flow as f64 / packets as f64),
        "frames_not_ip": report.map_or(0, |report| report.not_ip),
        "malformed": report.map_or(0, |report| report.malformed.iter().sum::<u64>()),
        "records_skipped": compared.skipped,
        "sample": sampled,
        "policies": compared.rows.iter().map(policy).collect::<Vec<_>>(),
        "rule": compared.advice.rule,
        "advice": compared.advice.text,
        "policy": compared.advice.policy.as_ref().map(ToString::to_string),
        "commands": compared.commands.lines.iter().map(|(command, _)| command).collect::<Vec<_>>(),
        "notes": compared.commands.notes,
        "errors": issues(&compared.issues),
        "elapsed_ns": compared.elapsed.as_nanos() as u64,
    })
}

fn policy(row: &Row) -> Value {
    let packets = row.draws.last.packets.max(1) as f64;
    let shares = shares(row)
        .into_iter()
        .map(|(cpu, packets_of_cpu)| {
            json!({ "cpu": cpu.get(), "packets": packets_of_cpu, "share": packets_of_cpu as f64 / packets })
        });
    let mut value = json!({ "policy": row.policy.to_string(), "seeds_done": row.draws.count() });
    for figure in Figure::ALL {
        value[figure.name()] = row.draws.range(figure).map_or(Value::Null, |range| {
            let [min, median, max] = range.map(|(value, _)| figure.json(Some(value)));
            json!({ "minimum": min, "median": median, "maximum": max })
        });
    }
    value["fits"] = row.fits().map_or(
        Value::Null,
        |[min, median, max]| json!({ "minimum": min, "median": median, "maximum": max }),
    );
    value["cpus"] = shares.collect();
    value["packets"] = json!(row.draws.last.packets);
    value["reordered"] = json!(row.draws.reordered);
    value
}

/// Further notes.
pub(super) fn notes(compared: &Compared) -> Vec<String> {
    let mut notes: Vec<String> = compared.issues.iter().map(ToString::to_string).collect();
    notes.extend(compared.commands.notes.iter().cloned());
    if let Some(sampled) = &compared.sampled {
        if sampled.is_cut {
            notes.push(format!(
                "the sample ended after {} frames; a longer one requires a capture (tcpdump -w)",
                grouped(sampled.frames)
            ));
        }
        let missed = sampled.received.unwrap_or(0).saturating_sub(sampled.frames);
        // During a pause, the socket keeps frames that were not read yet, so they were not missed.
        let is_whole = !sampled.is_cut && sampled.watched == sampled.elapsed;
        if is_whole && missed > sampled.frames / 10 {
            notes.push(format!(
                "{} frames were received and not captured, because they came faster than they could be copied; \
                 their flows are unknown",
                grouped(missed)
            ));
        }
    }
    for row in &compared.rows {
        let of = |failure: &String| format!("{}: {failure}", row.policy);
        notes.extend(row.draws.failures.iter().map(of));
        if row.draws.reordered > 0 {
            notes.push(format!(
                "{}: {} packets were processed out of order. That is a bug in rxsteer: please report it with this \
                 command line.",
                row.policy, row.draws.reordered
            ));
        }
    }
    notes
}
