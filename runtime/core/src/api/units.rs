//! Amounts that a spec states as text: byte quantities (`64Mi`) and Go durations (`1m30s`).

use std::time::Duration;

/// Reads a whole number of bytes as Kubernetes writes quantities: `1048576`, `64Mi`, `4Ki`, `1G`.
pub fn bytes(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at_checked(digits)?;
    let factor: u64 = match unit {
        "" => 1,
        "k" => 1_000,
        "M" => 1_000_000,
        "G" => 1_000_000_000,
        "Ki" => 1 << 10,
        "Mi" => 1 << 20,
        "Gi" => 1 << 30,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(factor)
}

/// Prints bytes in the largest binary unit that leaves a whole number.
pub fn print_bytes(bytes: u64) -> String {
    for (unit, size) in [("Gi", 1_u64 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10)] {
        if bytes >= size && bytes.is_multiple_of(size) {
            return format!("{}{unit}", bytes / size);
        }
    }
    bytes.to_string()
}

/// Reads a duration as Go writes it: `10s`, `1m30s`, `1.5h`, `300ms`. Negative ones are not durations here.
pub fn duration(text: &str) -> Option<Duration> {
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let (mut rest, mut total) = (text, 0_f64);
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, tail) = rest.split_at_checked(digits)?;
        let letters = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
        let (unit, tail) = tail.split_at_checked(letters)?;
        let seconds = match unit {
            "ns" => 1e-9,
            "us" | "µs" | "μs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return None,
        };
        total += number.parse::<f64>().ok()? * seconds;
        rest = tail;
    }
    if text.is_empty() { None } else { Duration::try_from_secs_f64(total).ok() }
}

/// Reads a duration as Go does, in nanoseconds: with a sign, if there is one, and within 64 bits.
pub fn signed_duration(text: &str) -> Option<i64> {
    let (sign, rest) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let nanos = i64::try_from(duration(rest)?.as_nanos()).ok()?;
    Some(sign * nanos)
}

/// Prints nanoseconds as Go prints a duration: `1m0s`, `1.5s`, `300ms`.
pub fn print_duration(nanos: i64) -> String {
    let (sign, size) = (if nanos < 0 { "-" } else { "" }, nanos.unsigned_abs());
    let (unit, name) = match size {
        0 => return "0s".to_owned(),
        1..1_000 => (1, "ns"),
        1_000..1_000_000 => (1_000, "µs"),
        1_000_000..1_000_000_000 => (1_000_000, "ms"),
        _ => (1_000_000_000, "s"),
    };
    let (whole, part) = (size / unit, size % unit);
    let digits = unit.ilog10() as usize;
    let part = if part == 0 {
        String::new()
    } else {
        let digits = format!("{part:0digits$}");
        format!(".{}", digits.trim_end_matches('0'))
    };
    match (name, whole / 3600, whole / 60 % 60, whole % 60) {
        ("s", 0, 0, seconds) => format!("{sign}{seconds}{part}s"),
        ("s", 0, minutes, seconds) => format!("{sign}{minutes}m{seconds}{part}s"),
        ("s", hours, minutes, seconds) => format!("{sign}{hours}h{minutes}m{seconds}{part}s"),
        _ => format!("{sign}{whole}{part}{name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_read_and_printed() {
        for (text, expected) in
            [("0", Some(0)), ("64Mi", Some(64 << 20)), ("1G", Some(1_000_000_000)), ("4Ki", Some(4096))]
        {
            assert_eq!(bytes(text), expected, "{text}");
        }
        for text in ["", "Mi", "-1", "1.5Mi", "1 Mi", "64MB", "99999999999999999999", "99999999999999999Gi"] {
            assert_eq!(bytes(text), None, "{text}");
        }
        assert_eq!(print_bytes(64 << 20), "64Mi");
        assert_eq!(print_bytes(1000), "1000");
        assert_eq!(print_bytes(0), "0");
    }

    #[test]
    fn durations_are_read_as_go_reads_them() {
        for (text, millis) in
            [("10s", 10_000), ("1m30s", 90_000), ("300ms", 300), ("1.5h", 5_400_000), ("0", 0), ("0s", 0)]
        {
            assert_eq!(duration(text), Some(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "10", "s", "-1s", "3 days", "1d", "1e9s", "1..5s"] {
            assert_eq!(duration(text), None, "{text}");
        }
    }

    #[test]
    fn durations_are_printed_as_go_prints_them() {
        for (text, printed) in [
            ("60s", "1m0s"),
            ("0", "0s"),
            ("-5s", "-5s"),
            ("+1.5h", "1h30m0s"),
            ("90s", "1m30s"),
            ("1.25s", "1.25s"),
            ("100ms", "100ms"),
            ("1500us", "1.5ms"),
            ("1.5us", "1.5µs"),
            ("7ns", "7ns"),
            ("100h1ms", "100h0m0.001s"),
        ] {
            assert_eq!(signed_duration(text).map(print_duration).as_deref(), Some(printed), "{text}");
        }
        for text in ["--1s", "-", "3 days", "9999999999h"] {
            assert_eq!(signed_duration(text), None, "{text}");
        }
    }
}
