//! Figures and texts of the panels.

use ratatui::text::{Line, Span};
use rxsteer_status::figures::grouped;
use rxsteer_user::printable;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// A rate in whole units per second; a dash if it is unknown.
pub(crate) fn rate(per_second: Option<f64>) -> String {
    per_second.map_or_else(unknown, |rate| grouped(rate.round() as u64))
}

/// The text for an unknown figure.
pub(crate) fn unknown() -> String {
    "-".to_owned()
}

/// A share in percent without the sign, for columns whose heading has it.
pub(crate) fn share(share: f64) -> String {
    format!("{:.0}", share * 100.0)
}

/// A share of packets in percent.
pub(crate) fn percent(part: f64, whole: f64) -> String {
    if whole > 0.0 { format!("{:.1} %", part * 100.0 / whole) } else { unknown() }
}

/// A time in its largest unit: 12 s, 3 min, 2 h, 5 d.
pub(crate) fn coarse(ns: u64) -> String {
    let seconds = ns / 1_000_000_000;
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} d", seconds / 86_400),
    }
}

/// A running time to the second: 3h 12m 5s.
pub(crate) fn running(ns: u64) -> String {
    let seconds = ns / 1_000_000_000;
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    match (hours, minutes) {
        (0, 0) => format!("{seconds}s"),
        (0, _) => format!("{minutes}m {seconds}s"),
        (0..48, _) => format!("{hours}h {minutes}m {seconds}s"),
        _ => format!("{}d {}h {minutes}m", hours / 24, hours % 24),
    }
}

/// The time of day of a Unix time in nanoseconds, in UTC.
pub(crate) fn clock(unix_ns: u64) -> String {
    let seconds = unix_ns / 1_000_000_000 % 86_400;
    format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

/// A text from outside: escaped.
pub(crate) fn clean(text: &str) -> String {
    printable(text).into_owned()
}

/// The number of columns of a text.
pub(crate) fn width(text: &str) -> usize {
    text.width()
}

/// At most `room` columns of a text; a longer text loses its middle.
pub(crate) fn shortened(text: &str, room: usize) -> String {
    if text.width() <= room {
        return text.to_owned();
    }
    if room == 0 {
        return String::new();
    }
    let tail_room = (room - 1) / 2;
    let head = taken(text.chars(), room - 1 - tail_room);
    let tail: String = taken(text.chars().rev(), tail_room).chars().rev().collect();
    format!("{head}…{tail}")
}

/// At most `room` columns of a text; a longer text loses its end.
pub(crate) fn cut(text: &str, room: usize) -> String {
    match text.width() <= room {
        true => text.to_owned(),
        false => format!("{}…", taken(text.chars(), room.saturating_sub(1))),
    }
}

/// The first characters that fit.
fn taken(chars: impl Iterator<Item = char>, room: usize) -> String {
    let mut left = room;
    chars
        .take_while(|c| {
            let width = c.width().unwrap_or(0);
            let fits = width <= left;
            left = left.saturating_sub(width);
            fits
        })
        .collect()
}

/// A text in a column of this width, left- or right-aligned, after a space.
pub(crate) fn cell(text: &str, width: u16, left: bool) -> String {
    let room = usize::from(width).saturating_sub(1);
    let text = shortened(text, room);
    let gap = " ".repeat(room.saturating_sub(text.width()));
    if left { format!(" {text}{gap}") } else { format!(" {gap}{text}") }
}

/// Parts of a line with gaps between them; parts that do not fit into `room` columns are omitted.
pub(crate) fn joined<'a>(room: u16, parts: impl IntoIterator<Item = Span<'a>>) -> Line<'a> {
    let mut line = Line::default();
    let mut left = usize::from(room);
    for part in parts {
        let gap = if line.spans.is_empty() { " " } else { "  " };
        let taken = gap.len() + part.width();
        if taken <= left {
            left -= taken;
            line.push_span(Span::raw(gap));
            line.push_span(part);
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_fit_their_columns() {
        assert_eq!(shortened("abcdefgh", 8), "abcdefgh");
        assert_eq!(shortened("abcdefgh", 5), "ab…gh");
        assert_eq!(shortened("表表表表", 5), "表…表");
        assert_eq!((shortened("ab", 1), shortened("ab", 0)), ("…".to_owned(), String::new()));
        assert_eq!(
            (cell("7", 4, false), cell("7", 4, true)),
            ("   7".to_owned(), " 7  ".to_owned())
        );
        assert_eq!((cut("abc", 3), cut("abcd", 3)), ("abc".to_owned(), "ab…".to_owned()));
        for room in 0..12 {
            assert!(width(&shortened("a表b表c表", room)) <= room);
        }
    }

    #[test]
    fn parts_that_do_not_fit_are_left_out() {
        let line = joined(11, ["one", "too long", "two"].map(Span::raw));
        assert_eq!(line.to_string(), " one  two");
        assert_eq!(joined(0, [Span::raw("a")]).width(), 0);
    }

    #[test]
    fn times_are_readable() {
        let s = 1_000_000_000;
        assert_eq!((running(59 * s), running(3725 * s)), ("59s".to_owned(), "1h 2m 5s".to_owned()));
        assert_eq!(
            (running(200_000 * s), coarse(119 * s)),
            ("2d 7h 33m".to_owned(), "119 s".to_owned())
        );
        assert_eq!((coarse(120 * s), coarse(7200 * s)), ("2 min".to_owned(), "2 h".to_owned()));
        assert_eq!(clock(1_700_000_000 * s), "22:13:20");
    }

    #[test]
    fn rates_are_whole_and_grouped() {
        assert_eq!((rate(Some(1234.5)), rate(None)), ("1 235".to_owned(), "-".to_owned()));
        assert_eq!((percent(1.0, 8.0), percent(0.0, 0.0)), ("12.5 %".to_owned(), "-".to_owned()));
    }
}
