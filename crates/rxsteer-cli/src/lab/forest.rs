//! The chart of an experiment: each method's ratio to the baseline with its interval, on a logarithmic axis.
//!
//! It is narrow, so that it is readable on a phone without scaling.

use super::tables;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use rxsteer_lab::experiment::{Against, Report, Row};
use rxsteer_report::chart::{GREY, INK, fitting, text};

/// Sizes of text below are in the points of plotters, which writes 15 as 12 pixels.
/// Width in pixels, and the room on both sides of the axis.
const WIDTH: i32 = 360;
const MARGIN: i32 = 18;
/// Heights in pixels: of a load's heading, of a method, of the axis.
const HEADING: i32 = 34;
const ROW: i32 = 36;
const AXIS: i32 = 40;
/// The least and greatest ratio that is drawn; an interval beyond them ends at the edge.
const LIMITS: (f64, f64) = (1e-3, 1e3);

/// Colours of findings that are readable on white and on black: better, worse, others.
const BETTER: RGBColor = RGBColor(0, 130, 200);
const WORSE: RGBColor = RGBColor(213, 94, 0);
const OTHER: RGBColor = RGBColor(128, 128, 128);

/// The chart as SVG; `None` if there is no comparison.
pub(super) fn of(report: &Report) -> anyhow::Result<Option<String>> {
    let compared = |row: &&Row| row.against.is_some();
    let ends = || {
        let all = report.rows.iter().filter_map(|row| row.against.as_ref());
        all.flat_map(|against| [against.low, against.high, against.ratio])
            .filter(|ratio| ratio.is_finite() && *ratio > 0.0)
            .map(|ratio| ratio.clamp(LIMITS.0, LIMITS.1))
    };
    if ends().next().is_none() {
        return Ok(None);
    }
    let (low, high) = (ends().fold(0.9, f64::min) / 1.05, ends().fold(1.1, f64::max) * 1.05);
    let x = |ratio: f64| {
        let part = (ratio.clamp(low, high) / low).ln() / (high / low).ln();
        MARGIN + (part * f64::from(WIDTH - 2 * MARGIN)).round() as i32
    };
    let loads = tables::loads(report);
    let rows = report.rows.iter().filter(compared).count() as i32;
    let height = HEADING * loads.len() as i32 + ROW * rows + AXIS;
    let mut svg = String::new();
    {
        let area =
            SVGBackend::with_string(&mut svg, (WIDTH as u32, height as u32)).into_drawing_area();
        area.fill(&WHITE)?;
        for tick in ticks(low, high) {
            let at = x(tick);
            let width = if tick == 1.0 { 2 } else { 1 };
            let line = vec![(at, HEADING - 8), (at, height - AXIS)];
            area.draw(&PathElement::new(line, OTHER.mix(0.5).stroke_width(width)))?;
            let centred = text(15, GREY).pos(Pos::new(HPos::Center, VPos::Top));
            area.draw(&Text::new(label(tick), (at, height - AXIS + 4), centred))?;
        }
        let caption = format!("ratio to {} with its 95 % interval", String::from(report.baseline));
        let caption = fitting(&caption, WIDTH - 2 * MARGIN);
        area.draw(&Text::new(caption, (MARGIN, height - 20), text(15, GREY)))?;
        let mut y = 0;
        for load in loads {
            let all = tables::rows_of(report, load);
            let heading = all.first().map_or("", |row| row.headline);
            let heading = fitting(&format!("{load}: {heading}"), WIDTH - MARGIN);
            area.draw(&Text::new(heading, (MARGIN / 2, y + 12), text(17, INK)))?;
            y += HEADING;
            for row in all.into_iter().filter(compared) {
                let Some(against) = &row.against else { continue };
                let colour = colour(against);
                let name = fitting(&String::from(row.method), 175);
                area.draw(&Text::new(name, (MARGIN / 2, y + 2), text(15, INK)))?;
                let right = text(15, INK).pos(Pos::new(HPos::Right, VPos::Top));
                let figure = format!("{} {}", tables::ratio(against.ratio), against.finding);
                area.draw(&Text::new(figure, (WIDTH - MARGIN / 2, y + 2), right))?;
                let middle = y + 24;
                let line = vec![(x(against.low), middle), (x(against.high), middle)];
                area.draw(&PathElement::new(line, colour.stroke_width(3)))?;
                area.draw(&Circle::new((x(against.ratio), middle), 5, colour.filled()))?;
                y += ROW;
            }
        }
        area.present()?;
    }
    Ok(Some(svg))
}

fn colour(against: &Against) -> RGBColor {
    match against.finding {
        "better" => BETTER,
        "worse" => WORSE,
        _ => OTHER,
    }
}

/// Ratios for the labels of the axis: 1 and a few others, as powers of one step.
fn ticks(low: f64, high: f64) -> Vec<f64> {
    let steps = [1.1, 1.25, 1.5, 2.0, 4.0, 10.0, 100.0, 1000.0];
    // At most five, so that the texts have room.
    let step = steps.into_iter().find(|step| (high / low).ln() / f64::ln(*step) <= 5.0);
    let step = step.unwrap_or(1000.0);
    let power = |end: f64| end.ln() / step.ln();
    (power(low).ceil() as i32..=power(high).floor() as i32).map(|by| step.powi(by)).collect()
}

fn label(tick: f64) -> String {
    if tick >= 10.0 || (tick >= 1.0 && tick.fract() == 0.0) {
        format!("{tick:.0}")
    } else if tick < 0.1 {
        format!("{tick}")
    } else {
        format!("{tick:.2}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axis_has_the_ratio_one_and_few_others() {
        for (low, high) in [(0.85, 1.15), (0.5, 3.0), (1e-3, 1.1), (0.9, 1e3), (1e-3, 1e3)] {
            let ticks = ticks(low, high);
            assert!(ticks.contains(&1.0), "{ticks:?}");
            assert!((1..=6).contains(&ticks.len()), "{ticks:?}");
            assert!(ticks.iter().all(|tick| (low..=high).contains(tick)), "{ticks:?}");
        }
    }
}
