//! Every figure of every seed, one per row, for other programs to group, join and plot.

use super::choose;
use super::results::Results;
use rxsteer_sim::metric::{METRICS, Subject, subjects};

/// The columns.
const COLUMNS: [&str; 8] =
    ["scenario", "policy", "seed", "subject", "name", "metric", "unit", "value"];

/// The contents of the file.
pub(crate) fn all(results: &Results) -> anyhow::Result<Vec<u8>> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(COLUMNS)?;
    // The counts of unfinished runs are not figures of a seed, and a row has no field to say so.
    let cells = if results.is_unfinished() { &[][..] } else { &results.cells };
    for cell in cells {
        for run in &cell.runs {
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
                    let (seed, value) = (run.seed.to_string(), value.to_string());
                    let scenario = choose::short(&results.name);
                    let unit = metric.unit.name();
                    writer.write_record([
                        scenario,
                        &cell.label,
                        &seed,
                        subject,
                        &name,
                        metric.name,
                        unit,
                        &value,
                    ])?;
                }
            }
        }
    }
    Ok(writer.into_inner()?)
}
