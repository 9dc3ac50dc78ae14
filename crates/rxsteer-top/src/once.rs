//! One frame as text, for scripts and documents.

use crate::app::App;
use crate::panels::draw;
use crate::replay::Replay;
use crate::style::Display;
use crate::watch::{Target, Watcher};
use nix::sys::signal::SigSet;
use ratatui::buffer::Buffer;
use ratatui::layout::{Rect, Size};
use std::sync::mpsc::channel;
use std::time::Duration;

/// The frame of an app as lines of text, without trailing blanks.
#[must_use]
pub fn frame_text(app: &App) -> String {
    let mut buffer = Buffer::empty(app.area);
    draw(app, &mut buffer);
    let mut text = String::new();
    for y in 0..buffer.area.height {
        let mut line = String::new();
        let mut covered = 0;
        for x in 0..buffer.area.width {
            let symbol = buffer[(x, y)].symbol();
            // The cell after a wide character belongs to that character.
            if covered == 0 {
                line.push_str(symbol);
                covered = crate::text::width(symbol).max(1);
            }
            covered -= 1;
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// Reads an instance twice, `interval` apart, and draws the result. `None`: one of `signals` arrived before; they
/// must be blocked in all threads. A `replay` ends with it.
///
/// # Errors
/// If no instance answers.
pub fn once(
    target: Target,
    mut replay: Option<Replay>,
    interval: Duration,
    size: Size,
    display: Display,
    signals: SigSet,
) -> anyhow::Result<Option<String>> {
    let (stop, stopped) = channel();
    let wait = move || signals.wait().is_ok_and(|_| stop.send(()).is_ok());
    std::thread::Builder::new().name("rxsteer-signals".to_owned()).spawn(wait)?;
    let mut app =
        App::new(display, interval, Rect::from((ratatui::layout::Position::ORIGIN, size)));
    let mut watcher = Watcher::new(target);
    app.update(watcher.read()?);
    if stopped.recv_timeout(interval).is_ok() {
        return Ok(None);
    }
    let last = watcher.read();
    if let Some(ended) = replay.as_mut().filter(|_| last.is_err()).and_then(Replay::ended) {
        anyhow::bail!("no second reading: {ended}; use a shorter --interval");
    }
    app.update(last?);
    Ok(Some(frame_text(&app)))
}
