//! The main metric of the scenario: a bar per policy, and a point per seed.

use crate::chart::{INK, axes, centred, colour, interval, name_categories, svg};
use crate::sim::figure;
use crate::sim::results::Results;
use plotters::prelude::*;
use rxsteer_sim::metric::{Metric, Subject};

fn labels(results: &Results) -> Vec<String> {
    results.cells.iter().map(|cell| cell.label.clone()).collect()
}

/// The mean of each policy, with its interval.
pub(crate) fn bars(results: &Results, metric: &Metric) -> anyhow::Result<String> {
    let summaries: Vec<_> =
        results.cells.iter().map(|cell| cell.summary(metric, Subject::Run)).collect();
    let tops = summaries.iter().flatten().map(|it| it.mean + it.interval.unwrap_or(0.0));
    let top = tops.fold(0.0, f64::max);
    let (factor, unit) = figure::scale(metric.unit, top);
    let top = if top > 0.0 { top / factor * 1.15 } else { 1.0 };
    svg(320, |area| {
        let mut chart = axes(area, results.cells.len(), 0.0..top, unit, &figure::tick)?;
        name_categories(&mut chart, 0.0, &labels(results))?;
        for (index, it) in summaries.iter().enumerate() {
            let Some(it) = it else { continue };
            let (x, mean) = (index as f64 + 0.5, it.mean / factor);
            let bar = [(x - 0.3, 0.0), (x + 0.3, mean)];
            chart.draw_series(std::iter::once(Rectangle::new(bar, colour(index).filled())))?;
            let by = it.interval.unwrap_or(0.0) / factor;
            if by > 0.0 {
                interval(&mut chart, x, (mean - by, mean + by), INK)?;
            }
            // With many policies there is room only for the mean; the interval is drawn.
            let many = summaries.len() > 6;
            let text = figure::with_interval(metric.unit, it.mean, it.interval.filter(|_| !many));
            let label =
                EmptyElement::at((x, mean + by)) + Text::new(text, (0, -20), centred(13, INK));
            chart.draw_series(std::iter::once(label))?;
        }
        Ok(())
    })
}

/// Every seed of each policy, with the mean as a line.
pub(crate) fn spread(results: &Results, metric: &Metric) -> anyhow::Result<String> {
    let cells: Vec<Vec<f64>> =
        results.cells.iter().map(|cell| cell.values(metric, Subject::Run)).collect();
    let all = || cells.iter().flatten().copied();
    let (least, most) = (all().fold(f64::INFINITY, f64::min), all().fold(0.0, f64::max));
    let (factor, unit) = figure::scale(metric.unit, most);
    // Without variation an axis is still needed.
    let margin = ((most - least) / factor * 0.1).max(most / factor * 0.005).max(1e-9);
    let range = least / factor - margin..most / factor + margin;
    svg(320, |area| {
        let mut chart = axes(area, cells.len(), range.clone(), unit, &figure::tick)?;
        name_categories(&mut chart, range.start, &labels(results))?;
        for (index, values) in cells.iter().enumerate() {
            let mean = values.iter().sum::<f64>() / values.len().max(1) as f64 / factor;
            let left = index as f64 + 0.2;
            let each = 0.6 / values.len().max(1) as f64;
            let points = values.iter().enumerate().map(|(seed, value)| {
                let at = (left + (seed as f64 + 0.5) * each, value / factor);
                Circle::new(at, 4, colour(index).mix(0.75).filled())
            });
            chart.draw_series(points)?;
            if !values.is_empty() {
                let line = vec![(left, mean), (left + 0.6, mean)];
                chart.draw_series(std::iter::once(PathElement::new(line, INK.stroke_width(2))))?;
            }
        }
        Ok(())
    })
}
