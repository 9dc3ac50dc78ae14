//! Formats figures for people, the same in every view.

/// `1 CPU`, `2 CPUs`.
#[must_use]
pub fn plural(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// 1234567 as 1 234 567.
#[must_use]
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

/// A part of a whole, in percent.
#[must_use]
pub fn percent(part: u64, whole: u64) -> String {
    if whole == 0 { "-".to_owned() } else { format!("{:.1} %", part as f64 * 100.0 / whole as f64) }
}

/// Nanoseconds in a suitable unit.
#[must_use]
pub fn nanoseconds(ns: u64) -> String {
    match ns {
        0..1000 => format!("{ns} ns"),
        1000..1_000_000 => format!("{:.1} µs", ns as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} ms", ns as f64 / 1e6),
        _ => format!("{:.2} s", ns as f64 / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_readable() {
        assert_eq!((grouped(0), grouped(1_234_567)), ("0".to_owned(), "1 234 567".to_owned()));
        assert_eq!((percent(1, 8), percent(1, 0)), ("12.5 %".to_owned(), "-".to_owned()));
        assert_eq!(nanoseconds(999), "999 ns");
        assert_eq!(nanoseconds(1500), "1.5 µs");
        assert_eq!(nanoseconds(2_500_000_000), "2.50 s");
    }
}
