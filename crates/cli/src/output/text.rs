//! Values as the texts that tables show: shortened texts, counts, ages and times.

pub(crate) use perihelion_dashboard::cut;
use perihelion_model::timestamp;

pub(crate) use crate::escape::escaped;

/// A number with its noun in the right form: `1 row`, `2 rows`.
pub(crate) fn counted(count: u64, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// How long ago a time was, or how far ahead it is: `3s`, `12m`, `5h`, `3d`, `in 20s`.
pub(crate) fn age(ms: u64, now_ms: u64) -> String {
    match now_ms.checked_sub(ms) {
        Some(passed) => duration(passed),
        None => format!("in {}", duration(ms - now_ms)),
    }
}

/// A duration in its largest unit, rounded down.
pub(crate) fn duration(ms: u64) -> String {
    let seconds = ms / 1000;
    match seconds {
        0 if ms > 0 => format!("{ms}ms"),
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..86_400 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// A time in milliseconds since 1970 as RFC 3339 in UTC, for JSON and for details.
pub(crate) fn time(ms: u64) -> String {
    timestamp::format_ms(ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_have_one_unit() {
        for (ms, text) in
            [(0, "0s"), (7, "7ms"), (59_999, "59s"), (60_000, "1m"), (7_200_000, "2h"), (172_800_000, "2d")]
        {
            assert_eq!(duration(ms), text);
        }
        assert_eq!(age(1000, 4000), "3s");
        assert_eq!(age(4000, 1000), "in 3s");
    }
}
