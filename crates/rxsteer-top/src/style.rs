//! The style of panels. Everything that a colour shows, a glyph or a word shows as well. ASCII can replace Unicode.

use ratatui::buffer::Buffer;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Span;

/// What the terminal can display.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Display {
    /// Only ASCII.
    pub ascii: bool,
    /// Colours.
    pub color: bool,
}

impl Display {
    /// From the environment: `NO_COLOR` (no-color.org) disables colours; ASCII is used if the locale is not UTF-8.
    #[must_use]
    pub fn of_environment(variable: impl Fn(&str) -> Option<String>) -> Display {
        let set = |name: &&str| variable(name).is_some_and(|value| !value.is_empty());
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find(set).and_then(&variable);
        let locale = locale.unwrap_or_default().to_ascii_lowercase();
        let ascii = !locale.ends_with("utf-8") && !locale.ends_with("utf8");
        Display { ascii, color: !set(&"NO_COLOR") }
    }

    /// Removes what the terminal cannot display.
    pub(crate) fn apply(self, buffer: &mut Buffer) {
        if !self.ascii && self.color {
            return;
        }
        for cell in &mut buffer.content {
            if self.ascii && !cell.symbol().is_ascii() {
                let replaced = ascii_of(cell.symbol());
                cell.set_symbol(replaced);
            }
            if !self.color {
                (cell.fg, cell.bg) = (Color::Reset, Color::Reset);
            }
        }
    }
}

/// The ASCII replacement for a character of the panels; a question mark for any other.
fn ascii_of(symbol: &str) -> &'static str {
    match symbol {
        SOFTIRQ => "#",
        RING => "=",
        APPLICATION => "+",
        IDLE => ".",
        "─" => "-",
        "▸" => ">",
        "→" => ">",
        "▾" => "v",
        "…" => "~",
        "µ" => "u",
        "×" => "x",
        _ => "?",
    }
}

/// Time in softirqs; the filled part of other bars.
pub(crate) const SOFTIRQ: &str = "█";
/// Time of the thread of a CPU's ring.
pub(crate) const RING: &str = "▓";
/// Time of applications.
pub(crate) const APPLICATION: &str = "▒";
/// Idle time; the empty part of bars.
pub(crate) const IDLE: &str = "·";

/// Headings of columns.
pub(crate) fn heading() -> Style {
    Style::new().add_modifier(Modifier::DIM)
}

/// Important text.
pub(crate) fn strong() -> Style {
    Style::new().add_modifier(Modifier::BOLD)
}

/// Text that needs attention. It always has a word or a mark next to it.
pub(crate) fn alarm() -> Style {
    Style::new().fg(Color::Red).add_modifier(Modifier::BOLD)
}

/// A bar of `width` columns: parts, each a share of the whole with its glyph, then blanks.
pub(crate) fn bar(width: usize, parts: &[(f64, &str)]) -> Vec<Span<'static>> {
    let (mut sum, mut drawn) = (0.0, 0);
    let mut spans = Vec::new();
    let rest = [(1.0, IDLE)];
    for (share, glyph) in parts.iter().chain(&rest) {
        sum += share.clamp(0.0, 1.0);
        let end = ((sum * width as f64).round() as usize).clamp(drawn, width);
        if end > drawn {
            spans.push(Span::styled(glyph.repeat(end - drawn), Style::new().fg(color_of(glyph))));
        }
        drawn = end;
    }
    spans
}

fn color_of(glyph: &str) -> Color {
    match glyph {
        SOFTIRQ => Color::Yellow,
        RING => Color::Magenta,
        APPLICATION => Color::Cyan,
        _ => Color::DarkGray,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn display_follows_the_environment() {
        let display = |set: &[(&str, &str)]| {
            let find = |name: &str| {
                set.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
            };
            let display = Display::of_environment(find);
            (display.ascii, display.color)
        };
        assert_eq!(display(&[]), (true, true));
        assert_eq!(display(&[("LANG", "de_DE.UTF-8"), ("NO_COLOR", "")]), (false, true));
        assert_eq!(display(&[("LANG", "C.utf8"), ("LC_ALL", "C")]), (true, true));
        assert_eq!(
            display(&[("LC_CTYPE", "C.UTF-8"), ("LC_ALL", ""), ("NO_COLOR", "1")]),
            (false, false)
        );
    }

    #[test]
    fn bars_have_their_width() {
        for width in 0..30 {
            for parts in [&[(0.33, SOFTIRQ), (0.5, RING)][..], &[(2.0, RING)], &[]] {
                let length: usize =
                    bar(width, parts).iter().map(|span| span.content.chars().count()).sum();
                assert_eq!(length, width, "{parts:?}");
            }
        }
        let text: String = bar(4, &[(0.25, SOFTIRQ), (0.5, RING)])
            .iter()
            .map(|span| span.content.as_ref())
            .collect();
        assert_eq!(text, "█▓▓·");
    }
}
