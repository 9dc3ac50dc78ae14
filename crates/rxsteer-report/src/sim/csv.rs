//! Every figure of every seed, one per row, for other programs to group, join and plot.

use super::results::Results;
use rxsteer_sim::metric::{METRICS, Subject, Unit, subjects};

/// The columns.
const COLUMNS: [&str; 8] =
    ["scenario", "policy", "seed", "subject", "name", "metric", "unit", "value"];

/// The contents of the file.
/// # Errors
///
/// If a row can't be written.
pub fn all(results: &Results) -> anyhow::Result<Vec<u8>> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(COLUMNS)?;
    // The counts of unfinished runs are not figures of a seed, and a row has no field to say so.
    let cells = if results.is_unfinished() { &[][..] } else { &results.cells };
    for cell in cells {
        for run in &cell.runs {
            let scenario = results.short_name();
            let seed = run.seed.to_string();
            let mut row = |subject, name: &str, metric, unit: Unit, value: &str| {
                let of_run = [scenario, &cell.label, &seed];
                writer.write_record(of_run.iter().chain(&[
                    subject,
                    name,
                    metric,
                    unit.name(),
                    value,
                ]))
            };
            for of in subjects(&cell.scenario) {
                let (subject, name) = match of {
                    Subject::Run => ("run", String::new()),
                    Subject::Traffic(index) => {
                        ("traffic", cell.scenario.traffic[index].name.clone())
                    }
                    Subject::Cpu(id) => ("cpu", id.to_string()),
                };
                for metric in METRICS {
                    let Some(value) = metric.value(&cell.scenario, run, of) else { continue };
                    row(subject, &name, metric.name, metric.unit, &value.to_string())?;
                }
            }
            for (rule, packets) in &run.rules {
                row("rule", &rule.to_string(), "packets", Unit::Packets, &packets.to_string())?;
            }
        }
    }
    Ok(writer.into_inner()?)
}
