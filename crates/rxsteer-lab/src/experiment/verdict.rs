//! What may be concluded from the figures of a report.

use super::figures::NO_VERDICT;
use super::{Report, Row, Verdict};

/// Above this share of steal time (percent of all CPUs) a run has no verdict.
const MOST_STEAL: f64 = 5.0;
/// With fewer rounds there is no verdict: the interval of a median covers too little.
const FEWEST_ROUNDS: usize = 6;
/// If the interval of the ratio of two series without steering goes beyond this, the load is too noisy for a verdict.
const MOST_NOISE: f64 = 1.25;

/// Concludes, and takes back the findings of rows whose figures allow none.
pub(super) fn conclude(report: &mut Report) -> Verdict {
    let refused = if report.partial {
        Some("the run was interrupted".to_owned())
    } else if report.quick || report.rounds < FEWEST_ROUNDS {
        Some(format!("{} rounds are too few; a verdict takes {FEWEST_ROUNDS}", report.rounds))
    } else if report.steal_percent > MOST_STEAL {
        Some(format!(
            "the hypervisor took {} % of the CPUs' time, more than {MOST_STEAL} %",
            report.steal_percent
        ))
    } else {
        None
    };
    if let Some(why) = refused {
        report.rows.iter_mut().for_each(take_back);
        return Verdict { given: false, text: vec![format!("No verdict: {why}.")] };
    }
    let mut text = Vec::new();
    let mut loads: Vec<&'static str> = report.rows.iter().map(|row| row.load).collect();
    loads.dedup();
    let mut judged = 0;
    for load in loads {
        let of_load = |row: &&mut Row| row.load == load;
        if let Some(why) = unjudged(report, load) {
            report.rows.iter_mut().filter(of_load).for_each(take_back);
            text.push(format!("No verdict on {load}: {why}."));
            continue;
        }
        judged += 1;
        let before = text.len();
        for row in report.rows.iter().filter(|row| row.load == load && !row.method.is_again()) {
            let Some(against) = &row.against else { continue };
            if against.finding == "not significant" {
                continue;
            }
            text.push(format!(
                "{}: {} with {load} is {:.2} times that of {} ({:.2} to {:.2}): {}.",
                String::from(row.method),
                row.headline,
                against.ratio,
                String::from(report.baseline),
                against.low,
                against.high,
                against.finding
            ));
        }
        if text.len() == before {
            let baseline = String::from(report.baseline);
            text.push(format!("No method differs significantly from {baseline} with {load}."));
        }
    }
    Verdict { given: judged > 0, text }
}

/// Why a load has no verdict, if it has none.
fn unjudged(report: &Report, load: &str) -> Option<String> {
    let again = report.rows.iter().find(|row| row.load == load && row.method.is_again());
    let baseline = String::from(report.baseline);
    let Some(again) = again.and_then(|row| row.against.as_ref()) else {
        return Some(format!("there are no two series of {baseline}, so the noise is not known"));
    };
    let noise = again.farthest();
    (noise > MOST_NOISE).then(|| {
        format!(
            "two series of {baseline} differ by a factor of up to {noise:.2} (the 95 % interval of their ratio), more than {MOST_NOISE}"
        )
    })
}

fn take_back(row: &mut Row) {
    if let Some(against) = &mut row.against {
        against.finding = NO_VERDICT;
    }
}
