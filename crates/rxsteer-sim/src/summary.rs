//! Statistics of a figure over many seeds: mean, spread, and confidence interval.

use statrs::distribution::{ContinuousCDF, StudentsT};

/// The confidence level of intervals.
pub const CONFIDENCE: f64 = 0.95;

/// One figure over seeds, in the unit of the figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// The number of seeds that had the figure.
    pub count: usize,
    /// The mean.
    pub mean: f64,
    /// The standard deviation (of a sample: divided by count − 1); `None` for one seed.
    pub std_dev: Option<f64>,
    /// Half the width of the 95 % confidence interval of the mean, by Student's t; `None` for one seed.
    pub interval: Option<f64>,
    /// The least value.
    pub least: f64,
    /// The largest value.
    pub most: f64,
}

/// Summarises `values`; `None` when there are none.
#[must_use]
pub fn summarize(values: &[f64]) -> Option<Summary> {
    let least = values.iter().copied().reduce(f64::min)?;
    let most = values.iter().copied().reduce(f64::max)?;
    let count = values.len();
    // Rounding must not move the mean of equal values away from them.
    let mean = (values.iter().sum::<f64>() / count as f64).clamp(least, most);
    let std_dev = (count > 1).then(|| {
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        (squares / (count - 1) as f64).sqrt()
    });
    let interval = std_dev.map(|spread| t_quantile(count - 1) * spread / (count as f64).sqrt());
    Some(Summary { count, mean, std_dev, interval, least, most })
}

/// The half width of the 95 % interval in standard errors.
fn t_quantile(degrees_of_freedom: usize) -> f64 {
    student(degrees_of_freedom)
        .map_or(f64::INFINITY, |t| t.inverse_cdf(f64::midpoint(1.0, CONFIDENCE)))
}

/// The probability that chance alone makes Student's t this large in either direction.
pub(crate) fn two_sided_p(t: f64, degrees_of_freedom: usize) -> f64 {
    student(degrees_of_freedom).map_or(1.0, |student| 2.0 * student.sf(t.abs())).min(1.0)
}

/// Student's t distribution; `None` without a degree of freedom.
fn student(degrees_of_freedom: usize) -> Option<StudentsT> {
    StudentsT::new(0.0, 1.0, degrees_of_freedom as f64).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(left: f64, right: f64) -> bool {
        (left - right).abs() <= 5e-4 * right.abs()
    }

    /// The two-sided 95 % column of printed tables of Student's t.
    #[test]
    fn quantiles_are_those_of_the_tables() {
        for (degrees, quantile) in
            [(1, 12.706), (2, 4.303), (4, 2.776), (9, 2.262), (30, 2.042), (120, 1.980)]
        {
            assert!(near(t_quantile(degrees), quantile), "{degrees}: {}", t_quantile(degrees));
            // Printed quantiles are rounded, which changes the probability slightly.
            assert!((two_sided_p(quantile, degrees) - 0.05).abs() < 1e-4, "{degrees}");
        }
    }

    #[test]
    fn summary_by_hand() {
        // Mean 5, squares 9+1+1+1+0+0+4+16 = 32, over 7: 4.5714; t(7) = 2.3646.
        let summary = summarize(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]).unwrap();
        assert_eq!((summary.count, summary.mean, summary.least, summary.most), (8, 5.0, 2.0, 9.0));
        assert!(near(summary.std_dev.unwrap(), 2.138_09));
        assert!(near(summary.interval.unwrap(), 2.3646 * 2.138_09 / 8f64.sqrt()));
    }

    #[test]
    fn one_seed_has_no_interval_and_none_no_summary() {
        let summary = summarize(&[3.0]).unwrap();
        assert_eq!((summary.mean, summary.std_dev, summary.interval), (3.0, None, None));
        assert_eq!(summarize(&[]), None);
        let same = summarize(&[0.1; 10]).unwrap();
        assert_eq!((same.mean, same.std_dev, same.interval), (0.1, Some(0.0), Some(0.0)));
    }
}
