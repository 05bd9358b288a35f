//! Figures as reports print them, as numbers.

/// Units of time, with the seconds that one has. Longer names come before those that end them.
const UNITS: [(&str, f64); 8] = [
    ("ns", 1e-9),
    ("µs", 1e-6),
    ("us", 1e-6),
    ("ms", 1e-3),
    ("min", 60.0),
    ("s", 1.0),
    ("h", 3600.0),
    ("%", 0.01),
];

/// Reads a figure: `48128`, `1,234`, `5%` (0.05), or a time such as `278.711µs`, in seconds.
pub fn figure(text: &str) -> Option<f64> {
    let number = |text: &str| {
        let plain: String = text.trim().chars().filter(|c| *c != ',').collect();
        let is_number = plain.starts_with(|c: char| c.is_ascii_digit() || c == '-' || c == '.');
        plain.parse().ok().filter(|value: &f64| is_number && value.is_finite())
    };
    let with_unit = |(unit, scale): &(&str, f64)| {
        let value = number(text.strip_suffix(unit)?)?;
        // The quotient is exact where the product with a negative power of ten is not.
        Some(if *scale < 1.0 { value / (1.0 / scale).round() } else { value * scale })
    };
    number(text).or_else(|| UNITS.iter().find_map(with_unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_reports_are_read() {
        for (text, value) in [
            ("48128", 48128.0),
            ("1,234,567", 1_234_567.0),
            ("278.711µs", 278.711e-6),
            ("1.5ms", 0.0015),
            ("3s", 3.0),
            ("2min", 120.0),
            ("5%", 0.05),
            ("-1", -1.0),
        ] {
            assert_eq!(figure(text), Some(value), "{text}");
        }
        for text in ["", "ok", "ms", "1 of 2", "nan", "inf", "02:00:00:00:00:01", "10.0.0.1"] {
            assert_eq!(figure(text), None, "{text}");
        }
    }
}
