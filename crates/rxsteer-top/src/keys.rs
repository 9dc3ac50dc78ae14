//! The effects of keys.

use crate::app::{App, Panel};
use crate::flows::Sort;
use crate::panels;
use crate::watch::Command;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use std::time::Duration;

/// The effect of a key outside the view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Nothing.
    None,
    /// End.
    Quit,
    /// Draw the whole screen again.
    Redraw,
    /// A command for the thread that queries the instance.
    Ask(Command),
}

/// Intervals that `+` and `-` choose from.
const INTERVALS_MS: [u64; 9] = [100, 200, 500, 1000, 2000, 5000, 10_000, 30_000, 60_000];

/// The longest filter, in characters.
const LONGEST_FILTER: usize = 100;

impl App {
    /// Handles a key.
    pub fn key(&mut self, key: KeyEvent) -> Effect {
        if key.kind == KeyEventKind::Release {
            return Effect::None;
        }
        match key.code {
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => Effect::Quit,
            KeyCode::Char('l') if key.modifiers.contains(KeyModifiers::CONTROL) => Effect::Redraw,
            // Other keys with these modifiers mean nothing, neither as commands nor in the filter.
            _ if key.modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::ALT) => {
                Effect::None
            }
            _ if self.view.typing => self.typed(key.code),
            code => self.commanded(code),
        }
    }

    fn typed(&mut self, code: KeyCode) -> Effect {
        let view = &mut self.view;
        match code {
            KeyCode::Enter => view.typing = false,
            KeyCode::Esc => {
                view.typing = false;
                view.filter.clear();
            }
            KeyCode::Backspace => {
                view.filter.pop();
            }
            KeyCode::Char(c) if !c.is_control() && view.filter.chars().count() < LONGEST_FILTER => {
                view.filter.push(c);
            }
            _ => {}
        }
        Effect::None
    }

    fn commanded(&mut self, code: KeyCode) -> Effect {
        let view = &mut self.view;
        if view.help && code != KeyCode::Char('q') {
            view.help = false;
            return Effect::None;
        }
        match code {
            KeyCode::Char('q') => return Effect::Quit,
            KeyCode::Char('?' | 'h') => view.help = true,
            KeyCode::Char(' ') => {
                view.paused = !view.paused;
                return Effect::Ask(Command::Pause(view.paused));
            }
            KeyCode::Char('+' | '=') => return self.interval(true),
            KeyCode::Char('-') => return self.interval(false),
            KeyCode::Char('n') => {
                view.paused = false;
                return Effect::Ask(Command::Next);
            }
            KeyCode::Tab | KeyCode::BackTab => {
                let forwards = code == KeyCode::Tab;
                view.focus = match view.focus {
                    Panel::Cpus => {
                        if forwards {
                            Panel::Flows
                        } else {
                            Panel::Events
                        }
                    }
                    Panel::Flows => {
                        if forwards {
                            Panel::Events
                        } else {
                            Panel::Cpus
                        }
                    }
                    Panel::Events => {
                        if forwards {
                            Panel::Cpus
                        } else {
                            Panel::Flows
                        }
                    }
                };
            }
            KeyCode::Char('z') => view.zoomed = !view.zoomed,
            KeyCode::Char('c') => {
                let is_compact = panels::cpus::is_compact(self, panels::areas(self).cpus);
                self.view.compact = Some(!is_compact);
            }
            KeyCode::Char('s') => view.sort = view.sort.next(),
            KeyCode::Char('r') => view.sort = Sort::Rate,
            KeyCode::Char('p') => view.sort = Sort::Packets,
            KeyCode::Char('b') => view.sort = Sort::Bytes,
            KeyCode::Char('m') => view.sort = Sort::Moves,
            KeyCode::Char('/') => {
                view.typing = true;
                view.focus = Panel::Flows;
            }
            KeyCode::Esc => view.filter.clear(),
            _ => self.scroll(code),
        }
        Effect::None
    }

    /// Changes the interval to the next shorter or longer one.
    fn interval(&mut self, faster: bool) -> Effect {
        let now = self.view.interval;
        let mut choices = INTERVALS_MS.map(Duration::from_millis).into_iter();
        let next = if faster {
            choices.rfind(|choice| *choice < now)
        } else {
            choices.find(|choice| *choice > now)
        };
        self.view.interval = next.unwrap_or(now);
        Effect::Ask(Command::Interval(self.view.interval))
    }

    fn scroll(&mut self, code: KeyCode) {
        let panel = self.view.focus;
        let (room, rows) = panels::rows_of(self, panel);
        let first = panels::first_row(self, panel, room, rows);
        let last = rows.saturating_sub(room);
        self.view.first[panel as usize] = match code {
            KeyCode::Up | KeyCode::Char('k') => first.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => (first + 1).min(last),
            KeyCode::PageUp => first.saturating_sub(room),
            KeyCode::PageDown => (first + room).min(last),
            KeyCode::Home => 0,
            KeyCode::End => last,
            _ => return,
        };
    }
}
