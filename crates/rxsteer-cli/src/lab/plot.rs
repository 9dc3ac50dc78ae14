//! The plot of a validation: predicted against measured.

use plotters::prelude::*;
use rxsteer_lab::validate::Validation;

/// Colours that people with any colour vision can distinguish (Okabe and Ito), on white.
const COLOURS: [RGBColor; 4] =
    [RGBColor(0, 114, 178), RGBColor(230, 159, 0), RGBColor(0, 158, 115), RGBColor(204, 121, 167)];

/// An SVG with one point per row, a line where both are equal, and lines 10 % above and below.
pub(super) fn predicted_and_measured(validation: &Validation) -> anyhow::Result<String> {
    let rows = || validation.rows.iter().filter_map(|row| Some((row, row.measured.rate?.median)));
    let all = || rows().flat_map(|(row, measured)| [row.prediction.predicted.rate, measured]);
    let most = all().fold(1.0, f64::max) * 1.1 / 1e3;
    let mut methods: Vec<String> = rows().map(|(row, _)| row.prediction.method.into()).collect();
    methods.sort();
    methods.dedup();
    let mut text = String::new();
    {
        let area = SVGBackend::with_string(&mut text, (640, 640)).into_drawing_area();
        area.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(&area)
            .margin(16)
            .x_label_area_size(44)
            .y_label_area_size(64)
            .build_cartesian_2d(0.0..most, 0.0..most)?;
        chart
            .configure_mesh()
            .x_desc("measured, 1000 packets or transactions a second")
            .y_desc("predicted")
            .light_line_style(WHITE)
            .draw()?;
        for (factor, width) in [(1.0, 2), (0.9, 1), (1.1, 1)] {
            let line = [(0.0, 0.0), (most / f64::max(factor, 1.0), most * f64::min(factor, 1.0))];
            chart.draw_series(LineSeries::new(line, BLACK.mix(0.5).stroke_width(width)))?;
        }
        for (index, method) in methods.iter().enumerate() {
            let colour = COLOURS[index % COLOURS.len()];
            let points = rows().filter(|(row, _)| String::from(row.prediction.method) == *method);
            let points = points.map(|(row, measured)| {
                Circle::new(
                    (measured / 1e3, row.prediction.predicted.rate / 1e3),
                    4,
                    colour.filled(),
                )
            });
            chart
                .draw_series(points)?
                .label(method)
                .legend(move |at| Circle::new((at.0 + 8, at.1), 4, colour.filled()));
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperLeft)
            .background_style(WHITE.mix(0.8))
            .draw()?;
        area.present()?;
    }
    Ok(text)
}
