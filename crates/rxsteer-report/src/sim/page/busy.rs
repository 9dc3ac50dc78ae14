//! The work of each CPU: interrupts and polling, protocol, applications, stacked.

use crate::chart::{INK, Legend, WIDTH, axes, colour, fitting, name_categories, svg, text};
use crate::sim::figure;
use crate::sim::results::{Cell, Results};
use plotters::prelude::*;
use rxsteer_sim::metric::Subject;

/// The parts of a bar from bottom to top, and their names.
const PARTS: [(&str, &str); 3] = [
    ("receiving", "interrupts and polling"),
    ("protocol", "protocol"),
    ("application", "applications"),
];

/// Height of one policy's panel, in pixels.
const PANEL: u32 = 210;

/// The width of the area beside a panel, in pixels.
const ASIDE: u32 = 150;

/// One panel per policy.
pub(crate) fn stacked(results: &Results) -> anyhow::Result<String> {
    let names = PARTS.iter().enumerate();
    let legend = Legend::new(names.map(|(index, (_, name))| ((*name).to_owned(), colour(index))));
    svg(legend.height() + PANEL * results.cells.len() as u32, |area| {
        let (top, rest) = area.split_vertically(legend.height());
        legend.draw(&top)?;
        for (panel, cell) in rest.split_evenly((results.cells.len(), 1)).iter().zip(&results.cells)
        {
            self::panel(panel, cell)?;
        }
        Ok(())
    })
}

fn panel(area: &crate::chart::Area<'_>, cell: &Cell) -> anyhow::Result<()> {
    let cpus = cell.scenario.cpus.len();
    let percent = |share: f64| format!("{:.0}", share * 100.0);
    let (left, right) = area.split_horizontally(WIDTH - ASIDE);
    let mut chart = axes(&left, cpus, 0.0..1.0, "% of the time", &percent)?;
    let names: Vec<String> = (0..cpus).map(|id| id.to_string()).collect();
    name_categories(&mut chart, 0.0, &names)?;
    for id in 0..cpus {
        let mut below = 0.0;
        for (index, (metric, _)) in PARTS.iter().enumerate() {
            let above = below + cell.mean(metric, Subject::Cpu(id));
            let bar = [(id as f64 + 0.12, below), (id as f64 + 0.88, above)];
            chart.draw_series(std::iter::once(Rectangle::new(bar, colour(index).filled())))?;
            below = above;
        }
    }
    right.draw(&Text::new(fitting(&cell.label, ASIDE as i32 - 8), (4, 16), text(14, INK)))?;
    let busy = cell.mean("busy", Subject::Run);
    let busy = format!("{} CPUs busy", figure::plain(busy));
    right.draw(&Text::new(busy, (4, 38), text(13, crate::chart::GREY)))?;
    Ok(())
}
