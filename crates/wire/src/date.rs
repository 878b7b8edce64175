//! Dates in headers, by RFC 1123: `Thu, 27 Apr 2017 00:51:12 GMT`.
//!
//! Only this form is accepted, from 1970 on, with the right weekday and the zone GMT.
//! Spaces around the date are ignored. Letter case is ignored, because some clients send the
//! lower-case date that they signed. A date is a number of whole seconds since 1970.

use perihelion_model::calendar::{date_of, days_in_month, days_since_1970};

const WEEKDAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// 31 December 9999, 23:59:59: the last second of a year with four digits.
const SECONDS_MAX: u64 = 253_402_300_799;
const SECONDS_PER_DAY: i64 = 86_400;

/// Parses a date as seconds since 1970; `None` when the text does not have the accepted
/// form.
pub fn parse(text: &str) -> Option<u64> {
    let text = text.trim();
    if text.len() != "Thu, 27 Apr 2017 00:51:12 GMT".len() || !text.is_ascii() {
        return None;
    }
    let separators_fit = [(3, ", "), (7, " "), (11, " "), (16, " "), (19, ":"), (22, ":"), (25, " ")]
        .iter()
        .all(|&(at, separator)| text[at..].starts_with(separator));
    if !separators_fit || !text[26..].eq_ignore_ascii_case("gmt") {
        return None;
    }
    let weekday = index_of(&text[..3], &WEEKDAYS)?;
    let day = number(&text[5..7])?;
    let month = index_of(&text[8..11], &MONTHS)? as i64 + 1;
    let year = number(&text[12..16])?;
    let (hour, minute, second) = (number(&text[17..19])?, number(&text[20..22])?, number(&text[23..25])?);
    if year < 1970 || day == 0 || day > days_in_month(year, month) || hour > 23 || minute > 59 || second > 59
    {
        return None;
    }
    let days = days_since_1970(year, month, day);
    if weekday != weekday_of(days) {
        return None;
    }
    // The year is at least 1970, so the sum is not negative.
    Some((days * SECONDS_PER_DAY + hour * 3600 + minute * 60 + second).unsigned_abs())
}

/// The header text of a number of seconds since 1970. A time after the year 9999 is
/// printed as the last second of that year.
pub fn format(unix_seconds: u64) -> String {
    let seconds = unix_seconds.min(SECONDS_MAX).cast_signed();
    let (days, second_of_day) = (seconds / SECONDS_PER_DAY, seconds % SECONDS_PER_DAY);
    let (year, month, day) = date_of(days);
    format!(
        "{}, {day:02} {} {year:04} {:02}:{:02}:{:02} GMT",
        WEEKDAYS[weekday_of(days)],
        MONTHS[month as usize - 1],
        second_of_day / 3600,
        second_of_day / 60 % 60,
        second_of_day % 60,
    )
}

fn index_of(name: &str, names: &[&str]) -> Option<usize> {
    names.iter().position(|known| known.eq_ignore_ascii_case(name))
}

fn number(digits: &str) -> Option<i64> {
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
}

/// The index in `WEEKDAYS` of a day, given as the number of days since 1 January 1970, which was
/// a Thursday.
fn weekday_of(days: i64) -> usize {
    ((days + 3) % 7) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, seconds: u64) {
        assert_eq!(parse(text), Some(seconds), "{text}");
        assert_eq!(format(seconds), text);
    }

    #[test]
    fn dates_are_parsed_and_formatted() {
        check("Thu, 01 Jan 1970 00:00:00 GMT", 0);
        check("Thu, 27 Apr 2017 00:51:12 GMT", 1_493_254_272);
        check("Tue, 29 Feb 2000 23:59:59 GMT", 951_868_799);
        check("Sat, 10 Oct 2026 12:00:00 GMT", 1_791_633_600);
        check("Fri, 31 Dec 9999 23:59:59 GMT", SECONDS_MAX);
        assert_eq!(parse("thu, 27 apr 2017 00:51:12 gmt"), Some(1_493_254_272));
    }

    #[test]
    fn every_day_of_two_centuries_is_formatted_and_parsed_back() {
        for day in 0..73_000 {
            // Each day has another time of day.
            let seconds = (day * SECONDS_PER_DAY + day % SECONDS_PER_DAY).unsigned_abs();
            assert_eq!(parse(&format(seconds)), Some(seconds));
        }
    }

    #[test]
    fn dates_in_other_forms_are_refused() {
        for text in [
            "",
            "2017-04-27T00:51:12Z",
            "Fri, 27 Apr 2017 00:51:12 GMT",
            "Thu, 27 Apr 2017 00:51:12 UTC",
            "Thu, 27 Apr 2017 24:51:12 GMT",
            "Thu, 27 Apr 2017 00:60:12 GMT",
            "Thu, 27 Apr 2017 00:51:60 GMT",
            "Wed, 29 Feb 2017 00:51:12 GMT",
            "Thu, 00 Apr 2017 00:51:12 GMT",
            "Thu, 27 Foo 2017 00:51:12 GMT",
            "Thu, 27 Apr 1917 00:51:12 GMT",
            "Thu, 27 Apr +017 00:51:12 GMT",
            "Thu  27 Apr 2017 00:51:12 GMT",
            "Thursday, 27-Apr-17 00:51:12 GMT",
            "Thu, 27 Apr 2017 00:51:12 GMTx",
            "Thü, 27 Apr 2017 00:51:12 GMT",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
