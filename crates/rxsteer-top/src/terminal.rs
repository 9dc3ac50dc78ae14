//! The live view: a terminal, and the threads that receive events from it and from the instance.
//!
//! ```text
//!  rxsteer-watch    asks the instance ─┐
//!  rxsteer-keys     reads the terminal ├─► news ─► this thread: App, then one frame
//!  rxsteer-signals  waits for signals ─┘
//! ```

use crate::app::App;
use crate::keys::Effect;
use crate::panels::draw;
use crate::replay::Replay;
use crate::style::Looks;
use crate::watch::{Command, News, Target, Watched, Watcher, watch};
use anyhow::Context;
use nix::sys::signal::SigSet;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event};
use ratatui::layout::Rect;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// Restores the terminal however the view ends. A panic does so immediately, before its message.
struct Restored(DefaultTerminal);

impl Drop for Restored {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

/// Shows an instance until a key or one of `signals` ends it; the signals must be blocked in all threads. A `replay`
/// ends with the view.
///
/// # Errors
/// If no instance answers at the start, or the terminal fails.
pub fn show(
    target: Target,
    mut replay: Option<Replay>,
    interval: Duration,
    looks: Looks,
    signals: SigSet,
) -> anyhow::Result<()> {
    let mut watcher = Watcher::new(target);
    let first = watcher.look()?;
    let (news, heard) = channel();
    let mut terminal = Restored(ratatui::try_init().context("can't draw on this terminal")?);
    thread("rxsteer-signals", &news, move |news| {
        if signals.wait().is_ok() {
            let _ = news.send(News::Stop);
        }
    })?;
    thread("rxsteer-keys", &news, |news| {
        while let Ok(event) = event::read()
            && news.send(News::Terminal(event)).is_ok()
        {}
    })?;
    let commands = watch(watcher, interval, news)?;
    let size = terminal.0.size().context("the terminal is gone")?;
    let mut app = App::new(looks, interval, Rect::new(0, 0, size.width, size.height));
    app.update(first);
    run(&mut terminal.0, &mut app, replay.as_mut(), &heard, &commands)
}

fn thread(
    name: &'static str,
    news: &Sender<News>,
    run: impl FnOnce(&Sender<News>) + Send + 'static,
) -> anyhow::Result<()> {
    let watched = Watched { name, news: news.clone() };
    let run = move || run(&watched.news);
    std::thread::Builder::new().name(name.to_owned()).spawn(run).context("can't start a thread")?;
    Ok(())
}

fn run(
    terminal: &mut DefaultTerminal,
    app: &mut App,
    mut replay: Option<&mut Replay>,
    heard: &Receiver<News>,
    commands: &Sender<Command>,
) -> anyhow::Result<()> {
    loop {
        let drawn = terminal.draw(|frame| {
            app.resize(frame.area());
            draw(app, frame.buffer_mut());
        });
        drawn.context("can't draw on this terminal")?;
        // News that arrived meanwhile are in the same frame.
        let first = heard.recv().context("all threads ended")?;
        for news in std::iter::once(first).chain(heard.try_iter()) {
            let effect = match news {
                News::Look(look) => {
                    app.update(*look);
                    Effect::None
                }
                News::Lost(why) => match replay.as_mut().and_then(|replay| replay.ended()) {
                    Some(how) => {
                        app.end(&how);
                        Effect::Ask(Command::Pause(true))
                    }
                    None => {
                        app.lose(&why);
                        Effect::None
                    }
                },
                News::Terminal(Event::Key(key)) => app.key(key),
                News::Terminal(_) => Effect::None,
                News::Stop => Effect::Quit,
                News::Failed(name) => anyhow::bail!("{name} ended; this is a bug in rxsteer"),
            };
            match effect {
                Effect::None => {}
                Effect::Quit => return Ok(()),
                Effect::Redraw => terminal.clear().context("can't draw on this terminal")?,
                // If the thread has ended, the news report that.
                Effect::Ask(command) => drop(commands.send(command)),
            }
        }
    }
}
