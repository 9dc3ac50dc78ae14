//! Figures as text: in a suitable unit, with the interval in the same unit.

use rxsteer_sim::Scenario;
use rxsteer_sim::metric::{Metric, Subject, Unit};
use rxsteer_sim::summary::Summary;
use rxsteer_status::figures::grouped;

/// A mean, and its 95 % confidence interval if there are several seeds.
pub(crate) fn summary(unit: Unit, results: Option<&Summary>) -> String {
    match results {
        None => "-".to_owned(),
        Some(results) => with_interval(unit, results.mean, results.interval),
    }
}

/// `12.3 ± 0.4 µs`; a value without variation has no interval.
pub(crate) fn with_interval(unit: Unit, mean: f64, interval: Option<f64>) -> String {
    let (factor, name) = scale(unit, mean);
    let mean = mean / factor;
    // Rounding errors of the sums, and intervals that no digit shows, are left out.
    let least = if unit == Unit::Share { 0.005 } else { 0.0005 };
    let shows = |interval: &f64| *interval > mean.abs() * 1e-9 && *interval >= least;
    let interval = interval.map(|interval| interval / factor).filter(shows);
    let decimals = decimals(unit, mean, interval);
    let space = if name.is_empty() { "" } else { " " };
    match interval {
        None => format!("{}{space}{name}", number(mean, decimals)),
        Some(by) => format!("{} ± {}{space}{name}", number(mean, decimals), number(by, decimals)),
    }
}

/// A difference, with its sign.
pub(crate) fn difference(unit: Unit, by: f64, interval: f64) -> String {
    let sign = if by > 0.0 { "+" } else { "" };
    format!("{sign}{}", with_interval(unit, by, Some(interval)))
}

/// The divisor, and the name of the resulting unit.
pub(crate) fn scale(unit: Unit, value: f64) -> (f64, &'static str) {
    let size = value.abs();
    let step = |names: [&'static str; 4]| match size {
        ..1e3 => (1.0, names[0]),
        ..1e6 => (1e3, names[1]),
        ..1e9 => (1e6, names[2]),
        _ => (1e9, names[3]),
    };
    match unit {
        Unit::BitsPerSecond => step(["bit/s", "kbit/s", "Mbit/s", "Gbit/s"]),
        Unit::PacketsPerSecond => step(["/s", "k/s", "M/s", "G/s"]),
        Unit::TransactionsPerSecond => step(["/s", "k/s", "M/s", "G/s"]),
        Unit::Nanoseconds => step(["ns", "µs", "ms", "s"]),
        Unit::Share => (0.01, "%"),
        Unit::Packets | Unit::Events | Unit::Cpus | Unit::Ratio => (1.0, ""),
    }
}

/// Enough decimals for two digits of the interval; without an interval, for three digits of the value.
fn decimals(unit: Unit, mean: f64, interval: Option<f64>) -> usize {
    let counts = matches!(unit, Unit::Packets | Unit::Events);
    let most = match unit {
        _ if counts => 1,
        Unit::Share => 2,
        _ => 3,
    };
    match interval {
        Some(by) => (1 - by.log10().floor() as i32).clamp(0, most) as usize,
        None if counts && mean.fract() == 0.0 => 0,
        None if mean == 0.0 => 0,
        // So that 100.0 and 99.9 have the same form.
        None if unit == Unit::Share && mean >= 1.0 => 1,
        None => (2 - mean.abs().log10().floor() as i32).clamp(0, 3) as usize,
    }
}

fn number(value: f64, decimals: usize) -> String {
    if decimals == 0 && value >= 0.0 {
        // Large counts are written in groups of three digits.
        grouped(value.round() as u64)
    } else {
        unsigned_zero(format!("{value:.decimals$}"))
    }
}

/// A number whose digits are all 0 without its sign.
fn unsigned_zero(number: String) -> String {
    if number.contains(|digit| matches!(digit, '1'..='9')) {
        number
    } else {
        number.trim_start_matches(['+', '-']).to_owned()
    }
}

/// A number of about three digits, without a unit.
pub(crate) fn plain(value: f64) -> String {
    with_interval(Unit::Ratio, value, None)
}

/// A number on an axis, with no more digits than it needs.
pub(crate) fn tick(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A probability.
pub(crate) fn probability(p: f64) -> String {
    if p < 0.001 { "< 0.001".to_owned() } else { format!("{p:.3}") }
}

/// A share with its sign, in percent.
pub(crate) fn relative(share: Option<f64>) -> String {
    let number = |share: f64| unsigned_zero(format!("{:+.1}", share * 100.0));
    share.map_or("-".to_owned(), |share| format!("{} %", number(share)))
}

/// How far two figures may differ before the difference counts, of the smaller one; see [`rxsteer_sim::compare::Allowed`].
pub(crate) fn allowed(factor: f64) -> String {
    format!("{:.1} %", 100.0 * (factor - 1.0))
}

/// The name of a figure: its metric, and its traffic or CPU if the run has several.
pub(crate) fn name(scenario: &Scenario, metric: &Metric, of: Subject) -> String {
    match of {
        Subject::Traffic(index) if scenario.traffic.len() > 1 => {
            format!("{}, {}", metric.title, scenario.traffic[index].name)
        }
        Subject::Cpu(id) => format!("{}, CPU {id}", metric.title),
        Subject::Run | Subject::Traffic(_) => metric.title.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_readable() {
        let shown = |unit, mean, by| with_interval(unit, mean, by);
        assert_eq!(shown(Unit::BitsPerSecond, 8.123_456e8, Some(1.234e6)), "812.3 ± 1.2 Mbit/s");
        assert_eq!(shown(Unit::Nanoseconds, 1500.0, None), "1.50 µs");
        assert_eq!(shown(Unit::Nanoseconds, 1500.0, Some(0.0)), "1.50 µs");
        assert_eq!(shown(Unit::Share, 0.5, None), "50.0 %");
        assert_eq!(shown(Unit::Share, 1.0, None), "100.0 %");
        assert_eq!(shown(Unit::Share, 0.99996, Some(0.00001)), "100.0 %");
        assert_eq!(shown(Unit::Share, 0.5, Some(0.0123)), "50.0 ± 1.2 %");
        assert_eq!(shown(Unit::Packets, 1_234_567.0, None), "1 234 567");
        assert_eq!(shown(Unit::Packets, 1_234_567.2, Some(1234.5)), "1 234 567 ± 1 235");
        assert_eq!(shown(Unit::Events, 0.0, None), "0");
        assert_eq!(shown(Unit::Cpus, 0.456, None), "0.456");
        assert_eq!(difference(Unit::BitsPerSecond, -2e6, 1e6), "-2.0 ± 1.0 Mbit/s");
        assert_eq!(difference(Unit::BitsPerSecond, 2e6, 1e5), "+2.00 ± 0.10 Mbit/s");
        assert_eq!(probability(0.000_01), "< 0.001");
        assert_eq!(relative(Some(-0.123)), "-12.3 %");
        assert_eq!(relative(Some(-0.0004)), "0.0 %");
        assert_eq!(difference(Unit::Ratio, -0.0004, 0.0001), "0.000");
        assert_eq!(summary(Unit::Share, None), "-");
    }
}
