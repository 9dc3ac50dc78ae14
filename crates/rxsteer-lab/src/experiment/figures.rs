//! Statistics over rounds: a median with its confidence interval, and the ratio to no steering within rounds.

use rxsteer_sim::compare::{Finding, LEVEL, paired};
use serde::Serialize;

/// A figure over rounds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Figure {
    /// The median of the rounds.
    pub median: f64,
    /// The lower end of the interval.
    pub low: f64,
    /// The upper end of the interval.
    pub high: f64,
    /// The probability with which the interval covers the median of all possible rounds: at least 0.95 from six rounds on;
    /// with fewer, the interval is the whole range and covers less.
    pub coverage: f64,
    /// The number of rounds.
    pub rounds: usize,
    /// The unit.
    pub unit: &'static str,
}

impl Figure {
    /// The figure of these rounds; `None` without any.
    ///
    /// The interval is that of the sign test: between the k-th smallest and the k-th largest figure, with the largest k that
    /// covers 95 %. It assumes no distribution.
    pub fn of(values: &[f64], unit: &'static str) -> Option<Figure> {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let count = sorted.len();
        let middle = *sorted.get(count / 2)?;
        let median =
            if count % 2 == 1 { middle } else { f64::midpoint(sorted[count / 2 - 1], middle) };
        // The probability that fewer than k of count figures are below the median of all.
        let outside = |k: usize| -> f64 {
            let mut ways = 1.0;
            let mut sum = 0.0;
            for below in 0..k {
                sum += ways;
                ways = ways * (count - below) as f64 / (below + 1) as f64;
            }
            2.0 * sum * 0.5_f64.powi(count as i32)
        };
        let k = (1..=count.div_ceil(2)).rev().find(|k| outside(*k) <= LEVEL).unwrap_or(1);
        let (low, high) = (sorted[k - 1], sorted[count - k]);
        let coverage = (1.0 - outside(k)).max(0.0);
        Some(Figure { median, low, high, coverage, rounds: count, unit })
    }
}

/// The finding if the figures allow none.
pub(super) const NO_VERDICT: &str = "no verdict";

/// Comparison of a method with no steering under the same load, by rounds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Against {
    /// The geometric mean of the ratios.
    pub ratio: f64,
    /// The lower end of its 95 % confidence interval.
    pub low: f64,
    /// The upper end.
    pub high: f64,
    /// The probability that chance alone makes such a difference, corrected for the number of comparisons (Holm).
    pub p: f64,
    /// better, worse, not significant, or no verdict.
    pub finding: &'static str,
}

/// Ratios of pairs (without, with), before the correction.
///
/// The test is the paired t-test of logarithms, so a machine that is slower in some rounds is slower in both. `None` with fewer
/// than two pairs, or with a figure of 0, which has no ratio.
pub(super) fn against(pairs: &[(f64, f64)]) -> Option<Against> {
    if pairs.iter().any(|(a, b)| *a <= 0.0 || *b <= 0.0) {
        return None;
    }
    let logs: Vec<(f64, f64)> = pairs.iter().map(|(a, b)| (a.ln(), b.ln())).collect();
    let paired = paired(&logs)?;
    Some(Against {
        ratio: paired.difference.exp(),
        low: (paired.difference - paired.interval).exp(),
        high: (paired.difference + paired.interval).exp(),
        p: paired.p,
        finding: Finding::NotSignificant.words(),
    })
}

impl Against {
    /// The ratio in its interval that is farthest from 1, as a ratio above 1.
    pub(super) fn farthest(&self) -> f64 {
        self.low.ln().abs().max(self.high.ln().abs()).exp()
    }

    /// Whether the whole interval is farther from 1 than `noise`, a ratio above 1.
    pub(super) fn is_beyond(&self, noise: f64) -> bool {
        self.low > noise || self.high < 1.0 / noise
    }

    /// Sets the finding from the corrected probability. `noise` is the ratio that two series without steering may have;
    /// a ratio within `noise` of 1 is not significant. Without such series there is no verdict.
    pub(super) fn conclude(&mut self, corrected: f64, noise: Option<f64>, more_is_better: bool) {
        self.p = corrected;
        let Some(noise) = noise else {
            self.finding = NO_VERDICT;
            return;
        };
        let beyond_noise = self.ratio.ln().abs() > noise.ln().abs();
        let is_significant = corrected < LEVEL && beyond_noise;
        self.finding = match (is_significant, (self.ratio > 1.0) == more_is_better) {
            (false, _) => Finding::NotSignificant,
            (true, true) => Finding::Better,
            (true, false) => Finding::Worse,
        }
        .words();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interval_of_the_median_is_that_of_the_sign_test() {
        // Nine figures: the second smallest to the second largest cover 1 − 2 · (1 + 9) / 512 = 0.961.
        let values: Vec<f64> = (1..=9).map(f64::from).collect();
        let figure = Figure::of(&values, "1").unwrap();
        assert_eq!((figure.low, figure.median, figure.high), (2.0, 5.0, 8.0));
        assert!((figure.coverage - 0.9609).abs() < 1e-3, "{figure:?}");
        // Two figures cover the median in half of all cases.
        let two = Figure::of(&[3.0, 1.0], "1").unwrap();
        assert_eq!((two.low, two.median, two.high, two.coverage), (1.0, 2.0, 3.0, 0.5));
        assert_eq!(Figure::of(&[], "1"), None);
    }

    #[test]
    fn ratio_is_within_rounds_and_small_ones_are_noise() {
        // The machine is three times slower in some rounds; the method gains about a tenth in each.
        let pairs = [(10.0, 11.0), (30.0, 33.3), (10.0, 11.1), (30.0, 32.9), (20.0, 22.0)];
        let mut gain = against(&pairs).unwrap();
        assert!((gain.ratio - 1.1).abs() < 0.01, "{gain:?}");
        gain.conclude(gain.p, Some(1.02), true);
        assert_eq!(gain.finding, "better");
        gain.conclude(gain.p, Some(1.02), false);
        assert_eq!(gain.finding, "worse");
        gain.conclude(gain.p, Some(0.85), true);
        assert_eq!(gain.finding, "not significant");
        gain.conclude(gain.p, None, true);
        assert_eq!(gain.finding, "no verdict");
        assert!(gain.is_beyond(1.05) && !gain.is_beyond(1.1), "{gain:?}");
        let loss = against(&pairs.map(|(a, b)| (b, a))).unwrap();
        assert!(loss.is_beyond(1.05) && !loss.is_beyond(1.1), "{loss:?}");
        assert_eq!(against(&[(0.0, 1.0), (1.0, 1.0)]), None);
    }
}
