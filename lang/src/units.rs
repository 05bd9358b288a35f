//! Numbers with units, exact: no floating point on the way.

use std::time::Duration;

/// Splits `1.5ms` into 1.5 (as a numerator and a denominator that is a power of ten) and `ms`. At
/// most 20 digits.
fn number_and_unit(text: &str) -> Option<(u128, u128, &str)> {
    let end =
        text.find(|c: char| !c.is_ascii_digit() && c != '.' && c != '_').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let (integer, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let digits = |text: &str| text.starts_with(|c: char| c.is_ascii_digit()) && !text.contains('.');
    if !digits(integer) || !digits(fraction) {
        return None;
    }
    let joined: String = [integer, fraction].concat().chars().filter(|c| *c != '_').collect();
    let places = fraction.bytes().filter(|b| *b != b'_').count();
    if joined.len() > 20 {
        return None;
    }
    let denominator = 10_u128.checked_pow(u32::try_from(places).ok()?)?;
    Some((joined.parse().ok()?, denominator, unit.trim_start()))
}

/// The number times `scale`, if that is whole.
fn whole(numerator: u128, denominator: u128, scale: u128) -> Option<u64> {
    let product = numerator.checked_mul(scale)?;
    (product % denominator == 0).then(|| u64::try_from(product / denominator).ok()).flatten()
}

/// Reads a time with a unit (`ns`, `us`, `µs`, `ms`, `s`, `min`, `h`); it must be a whole number of
/// nanoseconds, at most 2^64.
pub fn parse_duration(text: &str) -> Option<Duration> {
    let (numerator, denominator, unit) = number_and_unit(text)?;
    let scale = match unit {
        "ns" => 1,
        "us" | "µs" | "μs" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "min" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => return None,
    };
    whole(numerator, denominator, scale).map(Duration::from_nanos)
}

/// Reads a rate with a unit (`bit`, `kbit`, `Mbit`, `Gbit`, `Tbit`, each a thousand of the one
/// before; `/s` may follow). Bits per second, at least 1.
pub fn parse_rate(text: &str) -> Option<u64> {
    let (numerator, denominator, unit) = number_and_unit(text)?;
    let scale = match unit.strip_suffix("/s").unwrap_or(unit) {
        "bit" => 1,
        "kbit" => 1_000,
        "Mbit" => 1_000_000,
        "Gbit" => 1_000_000_000,
        "Tbit" => 1_000_000_000_000,
        _ => return None,
    };
    whole(numerator, denominator, scale).filter(|rate| *rate > 0)
}

/// Reads a size: a plain number of octets, or with `B`, `kB`, `MB`, `GB` (thousands) or `KiB`,
/// `MiB`, `GiB` (1024).
pub fn parse_octets(text: &str) -> Option<u64> {
    let (numerator, denominator, unit) = number_and_unit(text)?;
    let scale = match unit {
        "" | "B" => 1,
        "kB" => 1_000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => return None,
    };
    whole(numerator, denominator, scale)
}

/// Reads a part of the whole, `5%` or `0.05`, as 0 to 1.
pub fn parse_fraction(text: &str) -> Option<f64> {
    let (numerator, denominator, unit) = number_and_unit(text)?;
    let denominator = match unit {
        "%" => denominator * 100,
        "" => denominator,
        _ => return None,
    };
    // Both are below 2^76: the quotient is right to the last bit or one beside it.
    (numerator <= denominator).then(|| numerator as f64 / denominator as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        for (text, nanos) in
            [("100ns", 100), ("2us", 2_000), ("1.5ms", 1_500_000), ("30 s", 30_000_000_000)]
        {
            assert_eq!(parse_duration(text), Some(Duration::from_nanos(nanos)), "{text}");
        }
        assert_eq!(parse_duration("1h"), Some(Duration::from_secs(3600)));
        for wrong in [
            "",
            "5",
            "ms",
            "1.5ns",
            "-1s",
            ".5s",
            "1.s",
            "1s2",
            "1e3s",
            "99999999999999999999h",
            "1.2.3s",
        ] {
            assert_eq!(parse_duration(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn rates_sizes_and_parts() {
        assert_eq!(parse_rate("100Mbit"), Some(100_000_000));
        assert_eq!(parse_rate("9600bit"), Some(9600));
        assert_eq!(parse_rate("2.5Gbit/s"), Some(2_500_000_000));
        assert_eq!(parse_rate("0bit"), None);
        assert_eq!(parse_rate("100MB"), None);
        assert_eq!(parse_octets("64KiB"), Some(65536));
        assert_eq!(parse_octets("1500"), Some(1500));
        assert_eq!(parse_octets("0.5B"), None);
        assert_eq!(parse_fraction("5%"), Some(0.05));
        assert_eq!(parse_fraction("0.1%"), Some(0.001));
        assert_eq!(parse_fraction("0.25"), Some(0.25));
        assert_eq!(parse_fraction("101%"), None);
    }
}
