//! What the figures of a report allow to conclude.

use super::figures::{Against, NO_VERDICT};
use super::{Report, Row, Verdict};
use rxsteer_sim::compare::Finding;

/// Above this share of steal time (percent of all CPUs) a run has no verdict.
const MAX_STEAL: f64 = 5.0;
/// With fewer rounds there is no verdict: the interval of a median covers too little.
pub const MIN_ROUNDS: usize = 6;
/// If the interval of the ratio of two series without steering goes beyond this, the load is noisy: then only a ratio
/// whose whole interval is farther from 1 has a verdict.
const MAX_NOISE: f64 = 1.25;

/// Why a run has no verdict at all; `None` if its figures may have one.
#[must_use]
pub fn no_verdict(quick: bool, partial: bool, rounds: usize, steal_percent: f64) -> Option<String> {
    if partial {
        Some("the run was interrupted".to_owned())
    } else if quick {
        Some("the figures of a short run (--quick) prove nothing".to_owned())
    } else if rounds < MIN_ROUNDS {
        Some(format!(
            "{rounds} round{} too few; a verdict requires {MIN_ROUNDS}",
            if rounds == 1 { " is" } else { "s are" }
        ))
    } else if steal_percent > MAX_STEAL {
        Some(format!(
            "the hypervisor took {steal_percent:.1} % of the CPUs' time, more than {MAX_STEAL} %"
        ))
    } else {
        None
    }
}

/// Draws the conclusion, and removes the findings of rows whose figures allow none.
pub(super) fn conclude(report: &mut Report) -> Verdict {
    let Report { quick, partial, rounds, steal_percent, .. } = *report;
    if let Some(why) = no_verdict(quick, partial, rounds, steal_percent) {
        report.rows.iter_mut().for_each(take_back);
        return Verdict { given: false, text: vec![format!("No verdict: {why}.")] };
    }
    let mut loads: Vec<&'static str> = report.rows.iter().map(|row| row.load).collect();
    loads.dedup();
    let mut verdict = Verdict { given: false, text: vec![] };
    for load in loads {
        let (judged, text) = conclude_load(report, load);
        verdict.given |= judged;
        verdict.text.extend(text);
    }
    verdict
}

/// Draws the conclusion for one load: whether it has a verdict, and the sentences.
fn conclude_load(report: &mut Report, load: &str) -> (bool, Vec<String>) {
    let baseline = String::from(report.baseline);
    let noise = noise(report, load);
    let doubt = match noise {
        None => Some(format!("there are no two series of {baseline}, so the noise is not known")),
        Some(noise) if noise > MAX_NOISE => Some(format!(
            "two series of {baseline} differ by a factor of up to {noise:.2} (the 95 % interval of their ratio), more than {MAX_NOISE}"
        )),
        Some(_) => None,
    };
    if doubt.is_some() {
        let beyond = |row: &Row| {
            row.against.as_ref().zip(noise).is_some_and(|(against, noise)| against.is_beyond(noise))
        };
        let doubtful = report.rows.iter_mut().filter(|row| row.load == load && !beyond(row));
        doubtful.for_each(take_back);
    }
    let of_load = report.rows.iter().filter(|row| row.load == load && !row.method.is_again());
    let found = of_load.filter_map(|row| Some((row, row.against.as_ref().filter(is_found)?)));
    let found: Vec<String> = found
        .map(|(row, against)| {
            format!(
                "{}: {} with {load} is {:.2} times that of {baseline} ({:.2} to {:.2}): {}.",
                String::from(row.method),
                row.headline,
                against.ratio,
                against.low,
                against.high,
                against.finding
            )
        })
        .collect();
    let first = match (doubt, found.is_empty()) {
        (Some(why), true) => return (false, vec![format!("No verdict on {load}: {why}.")]),
        (Some(why), false) => {
            format!("No verdict on {load} for other methods than those named next: {why}.")
        }
        (None, true) => format!("No method differs significantly from {baseline} with {load}."),
        (None, false) => return (true, found),
    };
    (true, [vec![first], found].concat())
}

/// The noise of a load: how far apart two series without steering may be, as a ratio. `None` if there are no two.
fn noise(report: &Report, load: &str) -> Option<f64> {
    let again = report.rows.iter().find(|row| row.load == load && row.method.is_again())?;
    again.against.as_ref().map(Against::farthest)
}

/// Whether it shows a difference.
fn is_found(against: &&Against) -> bool {
    [Finding::Better, Finding::Worse].iter().any(|finding| against.finding == finding.words())
}

fn take_back(row: &mut Row) {
    if let Some(against) = &mut row.against {
        against.finding = NO_VERDICT;
    }
}

#[cfg(test)]
mod tests {
    use super::super::figures::against;
    use super::super::{Machine, Method};
    use super::*;

    fn row(method: Method, pairs: &[(f64, f64)], finding: Finding) -> Row {
        let against = against(pairs).map(|against| Against { finding: finding.words(), ..against });
        Row {
            method,
            load: "load",
            headline: "rate",
            metrics: std::collections::BTreeMap::new(),
            against,
            checks: vec![],
            failures: vec![],
            cpus: vec![],
        }
    }

    fn report(again: &[(f64, f64)]) -> Report {
        let twice = [(1.0, 2.0), (1.0, 2.1), (1.0, 1.9), (1.0, 2.0), (1.0, 2.05), (1.0, 1.95)];
        let slightly = twice.map(|(none, with)| (none, with * 0.6));
        Report {
            experiment: "test",
            about: "",
            source: "",
            baseline: Method::None,
            metrics: &[],
            command: String::new(),
            quick: false,
            partial: false,
            machine: Machine::here(),
            interfaces: None,
            rounds: 6,
            steal_percent: 0.0,
            rows: vec![
                row(Method::None, &[], Finding::NotSignificant),
                row(Method::KernelRps, &twice, Finding::Better),
                row(Method::KernelRfs, &slightly, Finding::Better),
                row(Method::Again, again, Finding::NotSignificant),
            ],
            published: vec![],
            verdict: Verdict { given: false, text: vec![] },
            skipped: vec![],
        }
    }

    fn findings(report: &Report) -> Vec<&'static str> {
        report.rows.iter().flat_map(|row| &row.against).map(|against| against.finding).collect()
    }

    #[test]
    fn noisy_load_has_a_verdict_on_what_is_beyond_its_noise() {
        let mut quiet = report(&[(1.0, 1.01), (1.0, 0.99), (1.0, 1.0)]);
        let verdict = conclude(&mut quiet);
        assert_eq!(findings(&quiet), ["better", "better", "not significant"]);
        assert!(verdict.given && verdict.text.len() == 2, "{verdict:?}");

        // Up to 1.3.
        let mut noisy = report(&[(1.0, 1.2), (1.0, 1.1), (1.0, 1.15), (1.0, 1.25)]);
        let verdict = conclude(&mut noisy);
        assert_eq!(findings(&noisy), ["better", NO_VERDICT, NO_VERDICT]);
        assert!(verdict.given && verdict.text.len() == 2, "{verdict:?}");
        assert!(verdict.text[0].contains("for other methods than those named next"), "{verdict:?}");

        // Beyond all ratios.
        let mut useless = report(&[(1.0, 3.0), (1.0, 0.4), (1.0, 2.0)]);
        let verdict = conclude(&mut useless);
        assert_eq!(findings(&useless), [NO_VERDICT; 3]);
        assert!(!verdict.given && verdict.text.len() == 1, "{verdict:?}");
    }
}
