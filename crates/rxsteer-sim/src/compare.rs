//! Compares policies, and tests whether a difference is real or due to chance.
//!
//! Every policy ran with the same seeds, so it is compared with the first one, the *baseline*, seed by seed. The
//! effect of a seed (which flows have hashes that collide) is in both and cancels out. For each headline metric
//! ([`Metric::headline`]) a paired t-test gives the probability that chance alone makes such a difference. Many
//! tests give some false positives, so Holm's method corrects the probabilities of all tests of a comparison. A
//! difference whose corrected probability is below [`LEVEL`] is more than chance.
//!
//! That is chance within the model. A difference is called significant only if it is also larger than what is known to
//! be wrong about such figures ([`Allowed`]): by how much published ratios were missed, and by how much the baseline
//! changes if its CPUs are numbered otherwise.

use crate::metric::{Better, METRICS, Metric, Subject, subjects};
use crate::published::known_error;
use crate::summary::{summarize, two_sided_p};
use crate::{RunResult, Scenario};

/// Differences with a corrected probability below this are more than chance.
pub const LEVEL: f64 = 0.05;

/// A significant gain below this share of the baseline does not justify a change.
pub const WORTH: f64 = 0.01;

/// The differences of pairs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Paired {
    /// The number of pairs.
    pub count: usize,
    /// The mean of the first values.
    pub baseline: f64,
    /// The mean of (second − first).
    pub difference: f64,
    /// Half the width of the difference's 95 % confidence interval.
    pub interval: f64,
    /// The probability that chance alone makes a difference this large in either direction; uncorrected.
    pub p: f64,
}

/// The paired t-test of (first, second); `None` with fewer than two pairs, which allow no conclusion.
///
/// Pairs that all differ by the same amount leave nothing to chance: p is 0, or 1 if they do not differ.
#[must_use]
pub fn paired(pairs: &[(f64, f64)]) -> Option<Paired> {
    let differences: Vec<f64> = pairs.iter().map(|(first, second)| second - first).collect();
    let summary = summarize(&differences)?;
    let (spread, interval) = summary.std_dev.zip(summary.interval)?;
    let count = pairs.len();
    let p = if summary.mean == 0.0 {
        1.0
    } else {
        // Without spread the statistic is infinite and the probability 0.
        two_sided_p(summary.mean / (spread / (count as f64).sqrt()), count - 1)
    };
    let baseline = pairs.iter().map(|(first, _)| first).sum::<f64>() / count as f64;
    Some(Paired { count, baseline, difference: summary.mean, interval, p })
}

/// Holm's correction: the smallest probability is multiplied by the number of probabilities, the next by one less,
/// and so on. The results never decrease and are at most 1. They are in the order of the input.
#[must_use]
pub fn holm(probabilities: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..probabilities.len()).collect();
    order.sort_by(|a, b| probabilities[*a].total_cmp(&probabilities[*b]));
    let mut corrected = vec![1.0; probabilities.len()];
    let mut floor = 0.0f64;
    for (rank, index) in order.into_iter().enumerate() {
        floor = floor.max(probabilities[index] * (probabilities.len() - rank) as f64).min(1.0);
        corrected[index] = floor;
    }
    corrected
}

/// The conclusion of a comparison for one figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finding {
    /// Significantly better than the baseline.
    Better,
    /// Significantly worse.
    Worse,
    /// More than chance, and not more than is allowed ([`Allowed`]).
    WithinError,
    /// No significant difference with these seeds.
    NotSignificant,
}

impl Finding {
    /// The finding in words.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Finding::Better => "better",
            Finding::Worse => "worse",
            Finding::WithinError => "within the error",
            Finding::NotSignificant => "not significant",
        }
    }
}

/// By which factors two figures may differ although the machines that they stand for do not.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Allowed {
    /// The model's known error ([`known_error`]); 1 for a figure that was never compared with a published one.
    pub error: f64,
    /// How far the baseline's figure changes if its CPUs are numbered backwards, as a mean over the seeds; at least 1.
    pub numbering: f64,
}

impl Allowed {
    /// Both together.
    #[must_use]
    pub fn factor(&self) -> f64 {
        self.error * self.numbering
    }
}

/// One figure of one cell, compared with the baseline.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// The cell; 0 is the baseline, so it is never 0.
    pub cell: usize,
    /// The metric of the figure.
    pub metric: &'static Metric,
    /// The subject of the figure.
    pub subject: Subject,
    /// The result of the paired test.
    pub paired: Paired,
    /// The probability after Holm's correction.
    pub corrected: f64,
    /// What is allowed before the difference counts.
    pub allowed: Allowed,
}

impl Difference {
    /// The conclusion from this difference.
    #[must_use]
    pub fn finding(&self) -> Finding {
        let tested = self.within_model();
        let is_beyond = self.factor().is_none_or(|factor| factor > self.allowed.factor());
        if tested == Finding::NotSignificant || is_beyond { tested } else { Finding::WithinError }
    }

    /// The factor between the figure and the baseline's, at least 1; `None` if one of them is 0 or below.
    fn factor(&self) -> Option<f64> {
        factor(self.paired.baseline, self.paired.baseline + self.paired.difference)
    }

    /// The conclusion if the model had no error: what is more than chance.
    #[must_use]
    pub fn within_model(&self) -> Finding {
        let gain = match self.metric.better {
            Better::More => self.paired.difference,
            Better::Less => -self.paired.difference,
            Better::Neither => 0.0,
        };
        if self.corrected >= LEVEL || gain == 0.0 {
            Finding::NotSignificant
        } else if gain > 0.0 {
            Finding::Better
        } else {
            Finding::Worse
        }
    }

    /// The difference as a share of the baseline; `None` if the baseline is 0.
    #[must_use]
    pub fn relative(&self) -> Option<f64> {
        let share = self.paired.difference / self.paired.baseline.abs();
        share.is_finite().then_some(share)
    }

    /// Whether the difference is a significant improvement, and large enough to act on.
    #[must_use]
    pub fn is_worth_it(&self) -> bool {
        self.finding() == Finding::Better && self.relative().is_none_or(|by| by.abs() >= WORTH)
    }
}

/// The factor between two figures, at least 1; `None` if one of them is 0 or below.
fn factor(a: f64, b: f64) -> Option<f64> {
    (a > 0.0 && b > 0.0).then(|| (a / b).max(b / a))
}

/// Compares every cell with the first one, seed by seed, on the headline metrics that both have. For a metric that
/// adds up, the whole run's figure is compared; for any other metric, the figure of each traffic.
///
/// `renumbered` are runs of the first cell with its CPUs numbered backwards ([`crate::renumber`]). Without any, the
/// numbers of CPUs count as without effect.
#[must_use]
pub fn compare(
    scenario: &Scenario,
    cells: &[Vec<RunResult>],
    renumbered: &[RunResult],
) -> Vec<Difference> {
    let Some((baseline, others)) = cells.split_first() else { return Vec::new() };
    let mut differences = Vec::new();
    for (number, cell) in others.iter().enumerate() {
        let of_cell = headlines(scenario, baseline, cell, 2);
        differences.extend(of_cell.into_iter().filter_map(|(metric, subject)| {
            let paired = paired(&figures(scenario, baseline, cell, metric, subject))?;
            let allowed = Allowed {
                error: known_error(metric.name).map_or(1.0, |known| known.factor),
                numbering: change(&figures(scenario, baseline, renumbered, metric, subject)),
            };
            let cell = number + 1;
            Some(Difference { cell, metric, subject, paired, corrected: 1.0, allowed })
        }));
    }
    let probabilities: Vec<f64> = differences.iter().map(|it| it.paired.p).collect();
    for (difference, corrected) in differences.iter_mut().zip(holm(&probabilities)) {
        difference.corrected = corrected;
    }
    differences
}

/// The headline figures that both cells have for at least `least` common seeds. Of a metric that adds up it is the whole
/// run's figure; of any other metric, the figure of each traffic.
pub(crate) fn headlines(
    scenario: &Scenario,
    first: &[RunResult],
    second: &[RunResult],
    least: usize,
) -> Vec<(&'static Metric, Subject)> {
    let of = |metric: &'static Metric| {
        let has = |of: &Subject| figures(scenario, first, second, metric, *of).len() >= least;
        let traffics = subjects(scenario).filter(|of| matches!(of, Subject::Traffic(_)));
        let of: Vec<Subject> = match Some(Subject::Run).filter(has) {
            Some(whole) => vec![whole],
            None => traffics.filter(has).collect(),
        };
        of.into_iter().map(move |subject| (metric, subject))
    };
    METRICS.iter().filter(|metric| metric.headline).flat_map(of).collect()
}

/// The factor between the means of pairs; 1 without pairs, or if a mean is 0.
fn change(pairs: &[(f64, f64)]) -> f64 {
    let (first, second) =
        pairs.iter().fold((0.0, 0.0), |sum, pair| (sum.0 + pair.0, sum.1 + pair.1));
    factor(first, second).unwrap_or(1.0)
}

/// The figures of two cells, for each seed for which both have one.
pub(crate) fn figures(
    scenario: &Scenario,
    first: &[RunResult],
    second: &[RunResult],
    metric: &Metric,
    of: Subject,
) -> Vec<(f64, f64)> {
    let value = |run: &RunResult| metric.value(scenario, run, of);
    let pair = |run: &RunResult| {
        let other = second.iter().find(|other| other.seed == run.seed)?;
        Some((value(run)?, value(other)?))
    };
    first.iter().filter_map(pair).collect()
}

#[cfg(test)]
#[path = "compare_tests.rs"]
mod tests;
