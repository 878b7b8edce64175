//! Times as people and programs write them: `2026-11-17T04:05:06.789Z` (RFC 3339, in UTC) for
//! milliseconds since 1970.

use crate::calendar::{date_of, days_in_month, days_since_1970};

const MS_PER_DAY: u64 = 24 * 3600 * 1000;

/// The last millisecond of the year 9999. Later times have no four-digit year.
const LAST_MS: u64 = 253_402_300_799_999;

/// The time with milliseconds. Times after the year 9999 become its end.
pub fn format_ms(ms: u64) -> String {
    let ms = ms.min(LAST_MS);
    let (year, month, day) = date_of((ms / MS_PER_DAY) as i64);
    let (clock, millis) = (ms % MS_PER_DAY / 1000, ms % 1000);
    let (hour, minute, second) = (clock / 3600, clock / 60 % 60, clock % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}

/// Milliseconds since 1970 of a date (`2026-11-17`, its first moment in UTC) or a time
/// (`2026-11-17T04:05Z`, with seconds and up to three digits of a fraction if wanted; the `Z`
/// may be left out). `None` for anything else, and for times before 1970.
pub fn parse_ms(text: &str) -> Option<u64> {
    let (date, clock) = match text.split_once('T') {
        Some((date, clock)) => (date, Some(clock.strip_suffix('Z').unwrap_or(clock))),
        None => (text, None),
    };
    let [year, month, day] = numbers(date, '-', [4, 2, 2])?;
    if !(1..=12).contains(&month) || !(1..=days_in_month(year, month)).contains(&day) {
        return None;
    }
    let days = u64::try_from(days_since_1970(year, month, day)).ok()?;
    Some(days * MS_PER_DAY + clock.map_or(Some(0), parse_clock)?)
}

/// Milliseconds of `04:05`, `04:05:06` or `04:05:06.7`.
fn parse_clock(text: &str) -> Option<u64> {
    let (text, fraction) = match text.split_once('.') {
        Some((text, fraction)) => (text, Some(fraction)),
        None => (text, None),
    };
    let has_seconds = text.matches(':').count() == 2;
    let [hour, minute, second] = match has_seconds {
        true => numbers(text, ':', [2, 2, 2])?,
        false => numbers(&format!("{text}:00"), ':', [2, 2, 2])?,
    };
    let is_fraction = |text: &str| {
        has_seconds && (1..=3).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit())
    };
    if hour > 23 || minute > 59 || second > 59 || !fraction.is_none_or(is_fraction) {
        return None;
    }
    let fraction = fraction.unwrap_or("0");
    let millis: u64 = format!("{fraction:0<3}").parse().ok()?;
    Some(((hour * 60 + minute) * 60 + second) as u64 * 1000 + millis)
}

/// Three numbers of fixed widths.
fn numbers(text: &str, separator: char, widths: [usize; 3]) -> Option<[i64; 3]> {
    let mut parts = text.split(separator);
    let mut found = [0; 3];
    for (number, width) in found.iter_mut().zip(widths) {
        let part = parts.next()?;
        let is_number = part.len() == width && part.bytes().all(|byte| byte.is_ascii_digit());
        *number = is_number.then(|| part.parse().ok()).flatten()?;
    }
    parts.next().is_none().then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printed_times_parse_to_the_same_times() {
        for ms in [0, 1, 999, 1_700_000_000_123, 1_709_164_800_000, LAST_MS] {
            assert_eq!(parse_ms(&format_ms(ms)), Some(ms), "{}", format_ms(ms));
        }
        assert_eq!(format_ms(1_763_352_306_007), "2025-11-17T04:05:06.007Z");
        assert_eq!(format_ms(u64::MAX), "9999-12-31T23:59:59.999Z");
    }

    #[test]
    fn parts_of_a_time_may_be_left_out_and_malformed_times_are_refused() {
        for (text, same) in [
            ("2025-11-17", "2025-11-17T00:00:00.000Z"),
            ("2025-11-17T04:05Z", "2025-11-17T04:05:00.000Z"),
            ("2025-11-17T04:05", "2025-11-17T04:05:00.000Z"),
            ("2025-11-17T04:05:06Z", "2025-11-17T04:05:06.000Z"),
            ("2025-11-17T04:05:06.7", "2025-11-17T04:05:06.700Z"),
        ] {
            assert_eq!(parse_ms(text).map(format_ms).as_deref(), Some(same));
        }
        for bad in [
            "",
            "T",
            "2025",
            "2025-11",
            "2025-13-01",
            "2025-02-29",
            "2025-00-01",
            "25-11-17",
            "2025-11-17T",
            "2025-11-17T24:00",
            "2025-11-17T04",
            "2025-11-17T04:60",
            "2025-11-17T04:05.5",
            "2025-11-17T04:05.0",
            "+025-11-17",
            "2025-11-17T04:05:06.",
            "2025-11-17T04:05:06.1234",
            "1969-12-31",
            "2025-11-17 04:05",
            "2025-11-1é",
        ] {
            assert_eq!(parse_ms(bad), None, "{bad}");
        }
    }
}
