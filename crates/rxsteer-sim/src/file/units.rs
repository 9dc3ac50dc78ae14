//! Numbers with units: `50us`, `1.5Gbit`, `200kpps`.

/// Units of time, in nanoseconds.
const TIME: [(&str, f64); 8] = [
    ("ns", 1.0),
    ("us", 1e3),
    ("µs", 1e3),
    ("ms", 1e6),
    ("s", 1e9),
    ("min", 60e9),
    ("m", 60e9),
    ("h", 3600e9),
];

/// Units of a NIC's rate, in bits per second.
const BIT_RATE: [(&str, f64); 4] = [("bit", 1.0), ("kbit", 1e3), ("Mbit", 1e6), ("Gbit", 1e9)];

/// Units of a packet rate, in packets per second.
const PACKET_RATE: [(&str, f64); 3] = [("pps", 1.0), ("kpps", 1e3), ("Mpps", 1e6)];

/// A time in nanoseconds; it may have a sign.
pub(super) fn time_ns(text: &str) -> Option<f64> {
    with_unit(text, &TIME)
}

/// A rate in bits per second.
pub(super) fn bit_rate(text: &str) -> Option<f64> {
    with_unit(text.trim().trim_end_matches("/s"), &BIT_RATE)
}

/// A rate in packets per second.
pub(super) fn packet_rate(text: &str) -> Option<f64> {
    with_unit(text, &PACKET_RATE)
}

/// A decimal number with one of `units`; a single 0 needs no unit.
fn with_unit(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    let text = text.trim();
    let digits = |c: char| c.is_ascii_digit() || matches!(c, '.' | '+' | '-' | '_');
    let end = text.find(|c| !digits(c)).unwrap_or(text.len());
    let number: f64 = text[..end].replace('_', "").parse().ok()?;
    let unit = text[end..].trim();
    if unit.is_empty() && number == 0.0 {
        return Some(0.0);
    }
    let (_, factor) = units.iter().find(|(name, _)| *name == unit)?;
    Some(number * factor).filter(|value| value.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_units() {
        assert_eq!(time_ns("1s"), Some(1e9));
        assert_eq!(time_ns("1.5us"), Some(1500.0));
        assert_eq!(time_ns(" 200 ns "), Some(200.0));
        assert_eq!(time_ns("-2s"), Some(-2e9));
        assert_eq!(time_ns("2min"), time_ns("120s"));
        assert_eq!(time_ns("0"), Some(0.0));
        assert_eq!(bit_rate("2.5Gbit"), Some(2.5e9));
        assert_eq!(bit_rate("100Mbit/s"), Some(1e8));
        assert_eq!(packet_rate("1.2Mpps"), Some(1.2e6));
        for bad in ["", "5", "s", "1 hour", "1s2", "--1s", "1.2.3s", "1e3s", "nan s", "1S"] {
            assert_eq!(time_ns(bad), None, "{bad}");
        }
        assert_eq!(bit_rate("1Gb"), None, "bits or bytes?");
        assert_eq!(time_ns(&"9".repeat(400)), None);
        assert_eq!(time_ns(&format!("{}h", "9".repeat(400))), None);
    }
}
