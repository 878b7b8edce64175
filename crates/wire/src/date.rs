//! Dates in headers: RFC 1123, `Thu, 27 Apr 2017 00:51:12 GMT`.
//!
//! One form only, as the protocol has it: the weekday must fit the date, the
//! zone is GMT. Case is ignored, because some clients send the date already
//! lowered for signing. A date is whole seconds since 1970 and never earlier.

const WEEKDAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// 31 December 9999, 23:59:59: the last second that four digits can name.
const SECONDS_MAX: u64 = 253_402_300_799;
const SECONDS_PER_DAY: u64 = 86_400;

/// Seconds since 1970, or `None` when the text is not such a date.
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
    let weekday = place_of(&text[..3], &WEEKDAYS)?;
    let day = number(&text[5..7])?;
    let month = place_of(&text[8..11], &MONTHS)? as u64 + 1;
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
    Some(days * SECONDS_PER_DAY + hour * 3600 + minute * 60 + second)
}

/// The date of that many seconds since 1970, in the spelling of headers.
pub fn format(unix_seconds: u64) -> String {
    let seconds = unix_seconds.min(SECONDS_MAX);
    let (days, in_day) = (seconds / SECONDS_PER_DAY, seconds % SECONDS_PER_DAY);
    let (year, month, day) = date_of(days);
    format!(
        "{}, {day:02} {} {year:04} {:02}:{:02}:{:02} GMT",
        WEEKDAYS[weekday_of(days)],
        MONTHS[month as usize - 1],
        in_day / 3600,
        in_day / 60 % 60,
        in_day % 60,
    )
}

fn place_of(name: &str, names: &[&str]) -> Option<usize> {
    names.iter().position(|known| known.eq_ignore_ascii_case(name))
}

fn number(digits: &str) -> Option<u64> {
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
}

fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

fn days_in_month(year: u64, month: u64) -> u64 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// 1 January 1970 was a Thursday.
fn weekday_of(days: u64) -> usize {
    ((days + 3) % 7) as usize
}

/// Years are counted from March, so that a leap day is the last of its year
/// and the days before a month are a straight line.
fn days_since_1970(year: u64, month: u64, day: u64) -> u64 {
    let year = if month <= 2 { year - 1 } else { year };
    let month_from_march = (month + 9) % 12;
    let day_of_year = (153 * month_from_march + 2) / 5 + day - 1;
    year * 365 + year / 4 - year / 100 + year / 400 + day_of_year - DAYS_FROM_MARCH_0_TO_1970
}

/// Days from 1 March of year 0 to 1 January 1970.
const DAYS_FROM_MARCH_0_TO_1970: u64 = 719_468;
const DAYS_PER_400_YEARS: u64 = 146_097;

fn date_of(days_since_1970: u64) -> (u64, u64, u64) {
    let days = days_since_1970 + DAYS_FROM_MARCH_0_TO_1970;
    let (era, day_of_era) = (days / DAYS_PER_400_YEARS, days % DAYS_PER_400_YEARS);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / (DAYS_PER_400_YEARS - 1)) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, seconds: u64) {
        assert_eq!(parse(text), Some(seconds), "{text}");
        assert_eq!(format(seconds), text);
    }

    #[test]
    fn dates_are_read_and_written() {
        check("Thu, 01 Jan 1970 00:00:00 GMT", 0);
        check("Thu, 27 Apr 2017 00:51:12 GMT", 1_493_254_272);
        check("Tue, 29 Feb 2000 23:59:59 GMT", 951_868_799);
        check("Sat, 10 Oct 2026 12:00:00 GMT", 1_791_633_600);
        check("Fri, 31 Dec 9999 23:59:59 GMT", SECONDS_MAX);
        assert_eq!(parse("thu, 27 apr 2017 00:51:12 gmt"), Some(1_493_254_272));
    }

    #[test]
    fn every_day_of_two_centuries_reads_back() {
        for day in 0..73_000 {
            let seconds = day * SECONDS_PER_DAY + day % SECONDS_PER_DAY;
            assert_eq!(parse(&format(seconds)), Some(seconds));
        }
    }

    #[test]
    fn other_forms_are_refused() {
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
