//! Lines that fit the terminal: text wraps with an indent, and tables omit their least useful columns. If standard
//! output is not a terminal, nothing is changed.

use comfy_table::{ColumnConstraint, Table};
use std::fmt::Write;
use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, Ordering};
use textwrap::{Options, WordSeparator, WordSplitter};

/// The number of columns of the terminal; `None` if standard output is not a terminal.
pub fn room_on_terminal() -> Option<usize> {
    let out = std::io::stdout();
    let size = if out.is_terminal() { terminal_size::terminal_size_of(out) } else { None };
    size.map(|(width, _)| usize::from(width.0))
}

static FITS_TERMINAL: AtomicBool = AtomicBool::new(false);

/// From now on, lines are at most as long as those of the terminal. Before, as in tests, they are as long as their
/// text.
pub fn fit_to_terminal() {
    // ORDER: Relaxed; a setting without other data.
    FITS_TERMINAL.store(true, Ordering::Relaxed);
}

/// The number of columns in a line.
fn width() -> usize {
    // ORDER: Relaxed, as above.
    let room = if FITS_TERMINAL.load(Ordering::Relaxed) { room_on_terminal() } else { None };
    room.unwrap_or(usize::MAX)
}

/// A name and its text, which wraps at column `indent`.
pub fn field(text: &mut String, name: &str, indent: usize, what: &str) {
    entry(text, name, indent, what, usize::MAX);
}

/// The same in lines of at most `most` columns, even without a terminal.
pub fn entry(text: &mut String, name: &str, indent: usize, what: &str, most: usize) {
    folded(text, name, indent, what, most.min(width()));
}

/// Paragraphs, one per line.
pub fn paragraphs(text: &str) -> String {
    let mut lines = String::with_capacity(text.len());
    for line in text.lines() {
        folded(&mut lines, "", 0, line, width());
    }
    lines
}

fn folded(text: &mut String, name: &str, indent: usize, what: &str, width: usize) {
    let indent = if name.is_empty() { indent } else { indent.max(name.chars().count() + 1) };
    let (first, next) = (format!("{name:<indent$}"), " ".repeat(indent));
    let options = Options::new(width)
        .initial_indent(&first)
        .subsequent_indent(&next)
        .break_words(false)
        .word_separator(WordSeparator::AsciiSpace)
        .word_splitter(WordSplitter::NoHyphenation);
    // Without any word there would be no line to hold the name.
    let lines = if what.is_empty() { first.clone() } else { textwrap::fill(what, options) };
    // Writing to a String does not fail.
    let _ = writeln!(text, "{}", lines.trim_end());
}

/// The table, without columns if its lines are wider than the terminal: this omits the columns of the first group of
/// `least`, then those of the next, and so on. Reports which columns it omits.
pub fn fitted(table: Table, least: &[Vec<usize>]) -> String {
    fitted_to(width(), table, least)
}

fn fitted_to(width: usize, mut table: Table, least: &[Vec<usize>]) -> String {
    let mut left_out = Vec::new();
    for group in least {
        if widest(&table) <= width {
            break;
        }
        for column in group {
            let name = table.header().and_then(|row| row.cell_iter().nth(*column));
            left_out.extend(name.map(comfy_table::Cell::content));
            if let Some(column) = table.column_mut(*column) {
                column.set_constraint(ColumnConstraint::Hidden);
            }
        }
    }
    let mut text = lines(&table);
    left_out.retain(|name| !name.is_empty());
    if !left_out.is_empty() {
        let what = format!(" (a wider terminal also shows: {})", left_out.join(", "));
        folded(&mut text, "", 0, &what, width);
    }
    text
}

fn widest(table: &Table) -> usize {
    table.lines().map(|line| line.trim_end().chars().count()).max().unwrap_or(0)
}

/// The lines of a table.
pub fn lines(table: &Table) -> String {
    table.lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::new;

    #[test]
    fn text_goes_on_under_itself() {
        let mut text = String::new();
        folded(&mut text, "name", 8, &"word ".repeat(40), 60);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines.len() > 1 && lines.iter().all(|line| line.len() <= 60), "{text}");
        assert!(lines[0].starts_with("name    word") && lines[1].starts_with("        word"));
        assert_eq!(text.matches("word").count(), 40);
        let mut text = String::new();
        folded(&mut text, "a longer name", 8, "is kept", 60);
        folded(&mut text, "", 0, "a-word-that-does-not-fit at all", 10);
        assert_eq!(text, "a longer name is kept\na-word-that-does-not-fit\nat all\n");
    }

    #[test]
    fn tables_leave_out_what_does_not_fit() {
        let table = || {
            let mut table = new(&["policy", "CPU 0", "CPU 1", "moves"], &[0]);
            table.add_row(["rps", "50.0 %", "50.0 %", "1 / 2 / 3"]);
            table
        };
        let least = [vec![1, 2], vec![3]];
        assert_eq!(fitted_to(usize::MAX, table(), &least), lines(&table()));
        let text = fitted_to(30, table(), &least);
        assert!(text.starts_with(" policy      moves\n rps     1 / 2 / 3\n"), "{text}");
        assert!(
            text.contains("CPU 0, CPU 1") && text.lines().all(|line| line.len() <= 30),
            "{text}"
        );
    }
}
