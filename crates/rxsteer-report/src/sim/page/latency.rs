//! Latencies: percentiles of one traffic under each policy, on a logarithmic axis.

use crate::chart::{Legend, colour, interval, mesh, name_categories, svg};
use crate::sim::figure;
use crate::sim::results::Results;
use plotters::prelude::*;
use rxsteer_sim::metric::{Metric, Subject, Unit};
use rxsteer_sim::summary::Summary;

const PERCENTILES: [(&str, &str); 4] = [
    ("latency_p50_ns", "p50"),
    ("latency_p90_ns", "p90"),
    ("latency_p99_ns", "p99"),
    ("latency_p999_ns", "p99.9"),
];

/// `None` if no latency was measured under any policy.
pub(crate) fn percentiles(results: &Results, traffic: usize) -> anyhow::Result<Option<String>> {
    let of = Subject::Traffic(traffic);
    let line = |cell: &crate::sim::results::Cell| {
        let metrics = PERCENTILES.iter().filter_map(|(name, _)| Metric::named(name));
        metrics.filter_map(|metric| cell.summary(metric, of)).collect::<Vec<Summary>>()
    };
    let lines: Vec<Vec<Summary>> = results.cells.iter().map(line).collect();
    let means = || lines.iter().flatten().map(|it| it.mean.max(1.0));
    let (least, most) = (means().fold(f64::INFINITY, f64::min), means().fold(1.0, f64::max));
    if !least.is_finite() {
        return Ok(None);
    }
    // Whole decades, so that both ends of the axis have a label.
    let decade = |exponent: f64| 10f64.powf(exponent);
    let (low, high) = (decade((least / 1.1).log10().floor()), decade((most * 1.1).log10().ceil()));
    let labels = results.cells.iter().enumerate();
    let legend = Legend::new(labels.map(|(index, cell)| (cell.label.clone(), colour(index))));
    let plot = svg(314 + legend.height(), |area| {
        let (top, rest) = area.split_vertically(legend.height());
        legend.draw(&top)?;
        let mut chart = ChartBuilder::on(&rest)
            .margin(12)
            .set_label_area_size(LabelAreaPosition::Left, 64)
            .set_label_area_size(LabelAreaPosition::Bottom, 28)
            .build_cartesian_2d(0.0..PERCENTILES.len() as f64, (low..high).log_scale())?;
        mesh(&mut chart, "", &|ns| figure::with_interval(Unit::Nanoseconds, *ns, None))?;
        let names: Vec<String> = PERCENTILES.iter().map(|(_, name)| (*name).to_owned()).collect();
        name_categories(&mut chart, low, &names)?;
        for (index, line) in lines.iter().enumerate() {
            // Side by side, so that the intervals of similar policies can be distinguished.
            let aside = (index as f64 - (lines.len() - 1) as f64 / 2.0) * 0.06;
            let at = |rank: usize| rank as f64 + 0.5 + aside;
            let points: Vec<(f64, f64)> =
                line.iter().enumerate().map(|(rank, it)| (at(rank), it.mean.max(low))).collect();
            for (it, (x, mean)) in line.iter().zip(&points) {
                if let Some(by) = it.interval.filter(|by| *by > 0.0) {
                    let ends = ((mean - by).max(low), (mean + by).min(high));
                    interval(&mut chart, *x, ends, colour(index))?;
                }
            }
            chart
                .draw_series(points.iter().map(|at| Circle::new(*at, 4, colour(index).filled())))?;
            chart.draw_series(LineSeries::new(points, colour(index).stroke_width(2)))?;
        }
        Ok(())
    })?;
    Ok(Some(plot))
}
