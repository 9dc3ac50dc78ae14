//! The contents of a report: rows, targets, the model's limits, and the basis of the prediction.

use super::Experiment;
use super::machine::Constant;
use crate::fit::Fit;

/// A published experiment and its prediction.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// The experiment.
    pub experiment: Experiment,
    /// What was measured, in one line.
    pub title: &'static str,
    /// The source of the publication.
    pub source: &'static str,
    /// The number of seeds, from 1; each figure is a mean over them.
    pub seeds: u64,
    /// The figures.
    pub rows: Vec<Row>,
    /// The targets.
    pub targets: Vec<Target>,
    /// Where the prediction misses and what the model lacks, in a sentence or two each.
    pub lacks: Vec<&'static str>,
    /// The result of the fit.
    pub fit: Fit,
    /// The values that no fitted row determines.
    pub constants: Vec<Constant>,
    /// The null model of the rows with a target, in one sentence: arithmetic without a simulator.
    pub null: &'static str,
    /// The machines over which the figures have their ranges, in one sentence.
    pub ranges: String,
}

/// One published figure.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The name of the figure.
    pub what: String,
    /// The unit: `/s`, `us`, `%`.
    pub unit: &'static str,
    /// The published value.
    pub published: f64,
    /// The simulated value.
    pub predicted: f64,
    /// The role of the row.
    pub role: Role,
    /// The value by the report's null model; each row with a target has one.
    pub null: Option<f64>,
    /// The least and the highest simulated value over all machines that the fitted rows allow.
    pub range: Option<(f64, f64)>,
}

/// The role of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The machine was fitted to the row, so this is no prediction.
    Fitted,
    /// A prediction with a target.
    Predicted,
    /// A figure with a target that depends on a constant from predicted rows, of this table or of another one.
    Reproduced,
    /// A prediction without a target, shown because it was published.
    Beside,
}

impl Role {
    /// The word for the role in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Role::Fitted => "fitted",
            Role::Predicted => "predicted",
            Role::Reproduced => "reproduced",
            Role::Beside => "beside",
        }
    }

    /// The words for the role in tables.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Role::Beside => "no target",
            _ => self.name(),
        }
    }
}

impl Role {
    /// Whether rows of this role have a target, and count in the mean error.
    #[must_use]
    pub const fn has_target(self) -> bool {
        matches!(self, Role::Predicted | Role::Reproduced)
    }
}

impl Row {
    /// A row without a null model.
    #[must_use]
    pub fn new(
        what: impl Into<String>,
        unit: &'static str,
        published: f64,
        predicted: f64,
        role: Role,
    ) -> Row {
        Row { what: what.into(), unit, published, predicted, role, null: None, range: None }
    }

    /// The same row with the value of the null model.
    #[must_use]
    pub fn with_null(self, null: f64) -> Row {
        Row { null: Some(null), ..self }
    }

    /// The same rows with the ranges of their figures, over these rows and those of other machines.
    #[must_use]
    pub fn with_ranges(rows: Vec<Row>, others: &[Vec<Row>]) -> Vec<Row> {
        let with_range = |(index, row): (usize, Row)| {
            let figures = others.iter().map(|other| other[index].predicted);
            let range = figures.fold((row.predicted, row.predicted), |(least, most), figure| {
                (figure.min(least), figure.max(most))
            });
            Row { range: Some(range), ..row }
        };
        rows.into_iter().enumerate().map(with_range).collect()
    }

    /// The error of the prediction: in percentage points if the figure itself is a percentage, otherwise in per
    /// cent of the published value.
    #[must_use]
    pub fn error(&self) -> f64 {
        self.error_of(self.predicted)
    }

    fn error_of(&self, value: f64) -> f64 {
        let difference = value - self.published;
        if self.unit == "%" { difference } else { 100.0 * difference / self.published }
    }
}

/// A target of the prediction.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    /// The description.
    pub what: &'static str,
    /// The result.
    pub reached: String,
    /// Whether the target is met.
    pub is_met: bool,
}

impl Target {
    /// The target that all rows with a target in `unit` are within `most` of the published values.
    #[must_use]
    pub fn within(what: &'static str, rows: &[Row], unit: &str, most: f64) -> Target {
        let rows = rows.iter().filter(|row| row.role.has_target() && row.unit == unit);
        let farthest = rows.max_by(|a, b| a.error().abs().total_cmp(&b.error().abs()));
        let error = farthest.map_or(f64::INFINITY, Row::error);
        let of = farthest.map_or("no row", |row| &row.what);
        Target { what, reached: format!("at most {error:+.1} ({of})"), is_met: error.abs() <= most }
    }

    /// The target that the predicted figures have the same order as the published ones, which are all different.
    #[must_use]
    pub fn order(what: &'static str, figures: &[(f64, f64)]) -> Target {
        let mut sorted = figures.to_vec();
        sorted.sort_by(|a, b| b.0.total_cmp(&a.0));
        let is_met = sorted.windows(2).all(|pair| pair[0].1 > pair[1].1);
        let list = |values: Vec<String>| values.join(" > ");
        let published =
            list(sorted.iter().map(|(published, _)| format!("{published:.0}")).collect());
        let predicted: Vec<String> = sorted.iter().map(|(_, own)| format!("{own:.0}")).collect();
        let reached = format!("published {published}; simulated {}", predicted.join(", "));
        Target { what, reached, is_met }
    }
}

impl Report {
    /// The mean absolute error of the rows with a target; see [`Row::error`].
    #[must_use]
    pub fn mean_absolute_error(&self) -> f64 {
        self.mean_error_of(|row| row.predicted)
    }

    /// The same error of the null model.
    #[must_use]
    pub fn null_error(&self) -> f64 {
        self.mean_error_of(|row| row.null.unwrap_or(f64::NAN))
    }

    fn mean_error_of(&self, value: impl Fn(&Row) -> f64) -> f64 {
        let rows = self.rows.iter().filter(|row| row.role.has_target());
        let errors: Vec<f64> = rows.map(|row| row.error_of(value(row)).abs()).collect();
        errors.iter().sum::<f64>() / errors.len() as f64
    }

    /// Whether all targets are met.
    #[must_use]
    pub fn is_met(&self) -> bool {
        self.targets.iter().all(|target| target.is_met)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_points_of_percentages_and_shares_of_all_else() {
        let row =
            |unit, published, predicted| Row::new("x", unit, published, predicted, Role::Predicted);
        assert!((row("%", 43.0, 38.0).error() + 5.0).abs() < 1e-12);
        assert!((row("/s", 200.0, 210.0).error() - 5.0).abs() < 1e-12);
        let rows = [row("/s", 100.0, 90.0), row("/s", 100.0, 116.0), row("%", 10.0, 90.0)];
        let target = Target::within("rates", &rows, "/s", 15.0);
        assert!(!target.is_met && target.reached.contains("+16.0"), "{target:?}");
        assert!(Target::within("rates", &rows[..1], "/s", 15.0).is_met);
        assert!(!Target::within("nothing predicted", &[], "/s", 15.0).is_met);
    }

    #[test]
    fn ranges_are_over_all_machines() {
        let rows = |a, b| {
            let row = |figure| Row::new("x", "%", 50.0, figure, Role::Reproduced);
            vec![row(a), row(b)]
        };
        let ranges = |others: &[Vec<Row>]| -> Vec<_> {
            Row::with_ranges(rows(1.0, 5.0), others).iter().filter_map(|row| row.range).collect()
        };
        assert_eq!(ranges(&[rows(3.0, 4.0), rows(-2.0, 4.5)]), [(-2.0, 3.0), (4.0, 5.0)]);
        assert_eq!(ranges(&[]), [(1.0, 1.0), (5.0, 5.0)]);
    }

    #[test]
    fn order_is_that_of_what_was_published() {
        assert!(Target::order("p50", &[(757.0, 3.0), (415.0, 2.0), (379.0, 1.0)]).is_met);
        assert!(!Target::order("p90", &[(900.0, 3.0), (993.0, 2.0), (651.0, 1.0)]).is_met);
    }
}
