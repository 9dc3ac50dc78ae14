//! Common parts of the plots: size, colours, axes.

use plotters::coord::ranged1d::{Ranged, ValueFormatter};
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// Width of a plot, in pixels.
pub(crate) const WIDTH: u32 = 920;

/// Colours that people with any colour vision can distinguish (Okabe and Ito), on white.
const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(213, 94, 0),
    RGBColor(90, 90, 90),
];

/// The colour of text.
pub const INK: RGBColor = RGBColor(27, 31, 36);
/// The colour of axes and of less important text.
pub const GREY: RGBColor = RGBColor(87, 96, 106);
const LINES: RGBColor = RGBColor(225, 229, 233);

/// The colour with this index; after the last colour, they repeat.
pub(crate) fn colour(index: usize) -> RGBColor {
    COLOURS[index % COLOURS.len()]
}

/// The drawing area of a plot.
pub(crate) type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

/// A plot of categories (from 0, each of width 1) against a linear axis.
pub(crate) type Chart<'a, 'b> =
    ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

/// Draws an SVG of this height.
pub(crate) fn svg(
    height: u32,
    draw: impl FnOnce(&Area<'_>) -> anyhow::Result<()>,
) -> anyhow::Result<String> {
    let mut text = String::new();
    {
        let area = SVGBackend::with_string(&mut text, (WIDTH, height)).into_drawing_area();
        area.fill(&WHITE)?;
        draw(&area)?;
        area.present()?;
    }
    Ok(text)
}

/// Text of a size in pixels.
pub fn text(size: i32, colour: RGBColor) -> TextStyle<'static> {
    ("sans-serif", size).into_font().color(&colour)
}

/// Text that is centred at its position.
pub(crate) fn centred(size: i32, colour: RGBColor) -> TextStyle<'static> {
    text(size, colour).pos(Pos::new(HPos::Center, VPos::Top))
}

/// Axes for `categories` against `range`, the latter in `unit`.
pub(crate) fn axes<'a, 'b>(
    area: &'a Area<'b>,
    categories: usize,
    range: std::ops::Range<f64>,
    unit: &str,
    tick: &dyn Fn(f64) -> String,
) -> anyhow::Result<Chart<'a, 'b>> {
    let mut chart = ChartBuilder::on(area)
        .margin(12)
        .set_label_area_size(LabelAreaPosition::Left, 64)
        .set_label_area_size(LabelAreaPosition::Bottom, 28)
        .build_cartesian_2d(0.0..categories as f64, range)?;
    mesh(&mut chart, unit, &|value| tick(*value))?;
    Ok(chart)
}

/// Horizontal lines with their values; [`name_categories`] names the categories.
pub(crate) fn mesh<Y>(
    chart: &mut ChartContext<'_, SVGBackend<'_>, Cartesian2d<RangedCoordf64, Y>>,
    unit: &str,
    tick: &dyn Fn(&f64) -> String,
) -> anyhow::Result<()>
where
    Y: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    chart
        .configure_mesh()
        .disable_x_mesh()
        .x_labels(0)
        .y_labels(6)
        .y_label_formatter(tick)
        .y_desc(unit)
        .label_style(text(13, GREY))
        .axis_desc_style(text(13, GREY))
        .axis_style(LINES)
        .bold_line_style(LINES)
        .light_line_style(TRANSPARENT)
        .draw()?;
    Ok(())
}

/// Writes names under the categories; if there are many, only at regular distances.
pub(crate) fn name_categories<Y: Ranged<ValueType = f64>>(
    chart: &mut ChartContext<'_, SVGBackend<'_>, Cartesian2d<RangedCoordf64, Y>>,
    bottom: f64,
    names: &[String],
) -> anyhow::Result<()> {
    const MAX: usize = 32;
    let each = names.len().div_ceil(MAX).max(1);
    let width = chart.plotting_area().dim_in_pixel().0 as i32;
    let room = width * each as i32 / names.len().max(1) as i32;
    for (index, name) in names.iter().enumerate().step_by(each) {
        let at = EmptyElement::at((index as f64 + 0.5, bottom))
            + Text::new(fitting(name, room), (0, 8), centred(13, INK));
        chart.draw_series(std::iter::once(at))?;
    }
    Ok(())
}

/// A vertical bar from `low` to `high` with short ends: an interval.
pub(crate) fn interval<Y: Ranged<ValueType = f64>>(
    chart: &mut ChartContext<'_, SVGBackend<'_>, Cartesian2d<RangedCoordf64, Y>>,
    x: f64,
    (low, high): (f64, f64),
    colour: RGBColor,
) -> anyhow::Result<()> {
    const END: f64 = 0.03;
    let style = colour.stroke_width(2);
    chart.draw_series([
        PathElement::new(vec![(x, low), (x, high)], style),
        PathElement::new(vec![(x - END, low), (x + END, low)], style),
        PathElement::new(vec![(x - END, high), (x + END, high)], style),
    ])?;
    Ok(())
}

/// A legend: names beside squares of their colours, with the position of each, in rows as wide as a plot.
pub(crate) struct Legend {
    entries: Vec<(String, RGBColor, (i32, i32))>,
    rows: i32,
}

impl Legend {
    /// Height of a row, in pixels.
    const ROW: i32 = 24;

    pub(crate) fn new(names: impl Iterator<Item = (String, RGBColor)>) -> Legend {
        const LEFT: i32 = 76;
        let (mut x, mut rows) = (LEFT, 1);
        let mut entries = Vec::new();
        for (name, colour) in names {
            let name = fitting(&name, 700);
            let width = 40 + LETTER * name.chars().count() as i32;
            if x > LEFT && x + width > WIDTH as i32 {
                (x, rows) = (LEFT, rows + 1);
            }
            entries.push((name, colour, (x, (rows - 1) * Self::ROW)));
            x += width;
        }
        Legend { entries, rows }
    }

    /// The part of a plot's height that it takes, in pixels.
    pub(crate) fn height(&self) -> u32 {
        (self.rows * Self::ROW) as u32
    }

    pub(crate) fn draw(&self, area: &Area<'_>) -> anyhow::Result<()> {
        for (name, colour, (x, y)) in &self.entries {
            let (x, y) = (*x, *y);
            area.draw(&Rectangle::new([(x, y + 6), (x + 12, y + 18)], colour.filled()))?;
            area.draw(&Text::new(name.clone(), (x + 18, y + 5), text(13, INK)))?;
        }
        Ok(())
    }
}

/// The approximate width of a letter in pixels, since no font is measured.
const LETTER: i32 = 6;

/// As much of a name as fits into `width` pixels.
pub fn fitting(name: &str, width: i32) -> String {
    let room = (width / LETTER).max(2) as usize;
    if name.chars().count() <= room {
        return name.to_owned();
    }
    name.chars().take(room - 1).chain(['…']).collect()
}
