//! Dates and times.
//!
//! Texts are ISO 8601 in UTC, `YYYY-MM-DDThh:mm:ss.fffffffZ`; inside, a moment
//! is a number of 100 ns ticks since 1970. The calendar is the proleptic
//! Gregorian one, years 1 to 9999.

use perihelion_model::json::Value;

use super::{Outcome, Signature, entry, integer, text};
use crate::eval::{Arg, Context};

pub(super) const FUNCTIONS: &[Signature] = &[
    entry("GetCurrentDateTime", 0, 0, |_, c| moment(c.now.ticks())),
    entry("GetCurrentDateTimeStatic", 0, 0, |_, c| moment(c.now.ticks())),
    entry("GetCurrentTicks", 0, 0, |_, c| Ok(Some(c.now.ticks().into()))),
    entry("GetCurrentTicksStatic", 0, 0, |_, c| Ok(Some(c.now.ticks().into()))),
    entry("GetCurrentTimestamp", 0, 0, |_, c| Ok(Some(milliseconds(c.now.ticks())))),
    entry("GetCurrentTimestampStatic", 0, 0, |_, c| Ok(Some(milliseconds(c.now.ticks())))),
    entry("DateTimeAdd", 3, 3, add),
    entry("DateTimeBin", 2, 4, bin),
    entry("DateTimeDiff", 3, 3, difference),
    entry("DateTimeFromParts", 3, 7, from_parts),
    entry("DateTimePart", 2, 2, part),
    entry("DateTimeToTicks", 1, 1, |a, _| Ok(time(a, 0).map(Value::from))),
    entry("DateTimeToTimestamp", 1, 1, |a, _| Ok(time(a, 0).map(milliseconds))),
    entry("TicksToDateTime", 1, 1, |a, _| integer(a, 0).map_or(Ok(None), moment)),
    entry("TimestampToDateTime", 1, 1, timestamp_to_date_time),
];

const MICROSECOND: i64 = 10;
const MILLISECOND: i64 = 1_000 * MICROSECOND;
const SECOND: i64 = 1_000 * MILLISECOND;
const MINUTE: i64 = 60 * SECOND;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;

/// Digits of a second's fraction: ticks.
const FRACTION_DIGITS: usize = 7;

/// First and last day, counted from 1970-01-01: years 1 to 9999.
const DAYS: std::ops::RangeInclusive<i64> = -719_162..=2_932_896;

#[derive(Clone, Copy)]
enum Unit {
    Year,
    Month,
    /// A fixed number of ticks.
    Ticks(i64),
    Nanosecond,
}

/// A moment by the calendar.
struct Calendar {
    year: i64,
    month: i64,
    day: i64,
    /// Ticks since midnight.
    ticks: i64,
}

fn unit(name: &str) -> Option<Unit> {
    Some(match name.to_ascii_lowercase().as_str() {
        "year" | "yyyy" | "yy" => Unit::Year,
        "month" | "mm" | "m" => Unit::Month,
        "day" | "dd" | "d" => Unit::Ticks(DAY),
        "hour" | "hh" => Unit::Ticks(HOUR),
        "minute" | "mi" | "n" => Unit::Ticks(MINUTE),
        "second" | "ss" | "s" => Unit::Ticks(SECOND),
        "millisecond" | "ms" => Unit::Ticks(MILLISECOND),
        "microsecond" | "mcs" => Unit::Ticks(MICROSECOND),
        "nanosecond" | "ns" => Unit::Nanosecond,
        _ => return None,
    })
}

fn milliseconds(ticks: i64) -> Value {
    ticks.div_euclid(MILLISECOND).into()
}

/// The moment as text; undefined outside the calendar.
fn moment(ticks: i64) -> Outcome {
    let Some(c) = calendar(ticks) else { return Ok(None) };
    let (clock, fraction) = (c.ticks / SECOND, c.ticks % SECOND);
    let (hours, minutes, seconds) = (clock / 3600, clock / 60 % 60, clock % 60);
    let (year, month, day) = (c.year, c.month, c.day);
    Ok(Some(Value::String(format!(
        "{year:04}-{month:02}-{day:02}T{hours:02}:{minutes:02}:{seconds:02}.{fraction:07}Z"
    ))))
}

fn timestamp_to_date_time(arguments: &[Arg<'_>], _: &Context) -> Outcome {
    match integer(arguments, 0).and_then(|milliseconds| milliseconds.checked_mul(MILLISECOND)) {
        Some(ticks) => moment(ticks),
        None => Ok(None),
    }
}

fn calendar(ticks: i64) -> Option<Calendar> {
    let days = ticks.div_euclid(DAY);
    if !DAYS.contains(&days) {
        return None;
    }
    // Years from March, so that the leap day comes last: 400 years are one
    // era of 146,097 days.
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    Some(Calendar { year, month, day, ticks: ticks.rem_euclid(DAY) })
}

/// Days since 1970-01-01; the day must exist.
fn days(year: i64, month: i64, day: i64) -> Option<i64> {
    if !(1..=9999).contains(&year)
        || !(1..=12).contains(&month)
        || !(1..=month_days(year, month)).contains(&day)
    {
        return None;
    }
    let shifted_year = if month <= 2 { year - 1 } else { year };
    let era = shifted_year.div_euclid(400);
    let year_of_era = shifted_year.rem_euclid(400);
    let shifted_month = if month > 2 { month - 3 } else { month + 9 };
    let day_of_year = (153 * shifted_month + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    Some(era * 146_097 + day_of_era - 719_468)
}

fn month_days(year: i64, month: i64) -> i64 {
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    match month {
        2 if leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

fn time(arguments: &[Arg<'_>], place: usize) -> Option<i64> {
    parse(text(arguments, place)?)
}

/// `YYYY-MM-DD`, then optionally `Thh:mm[:ss[.fffffff]]`, `Z` at the end.
fn parse(text: &str) -> Option<i64> {
    let text = text.strip_suffix(['Z', 'z']).unwrap_or(text);
    let (date, clock) = match text.split_once(['T', 't']) {
        Some((date, clock)) => (date, Some(clock)),
        None => (text, None),
    };
    let mut fields = date.split('-');
    let year = digits(fields.next()?, 4)?;
    let month = digits(fields.next()?, 2)?;
    let day = digits(fields.next()?, 2)?;
    if fields.next().is_some() {
        return None;
    }
    let ticks = clock.map_or(Some(0), parse_clock)?;
    Some(days(year, month, day)? * DAY + ticks)
}

fn parse_clock(clock: &str) -> Option<i64> {
    let (clock, fraction) = clock.split_once('.').unwrap_or((clock, ""));
    let mut fields = clock.split(':');
    let hours = digits(fields.next()?, 2)?;
    let minutes = digits(fields.next()?, 2)?;
    let seconds = fields.next().map_or(Some(0), |field| digits(field, 2))?;
    if fields.next().is_some()
        || hours > 23
        || minutes > 59
        || seconds > 59
        || fraction.len() > FRACTION_DIGITS
    {
        return None;
    }
    let padded = format!("{fraction:0<FRACTION_DIGITS$}");
    Some(hours * HOUR + minutes * MINUTE + seconds * SECOND + digits(&padded, FRACTION_DIGITS)?)
}

fn digits(field: &str, count: usize) -> Option<i64> {
    (field.len() == count && field.bytes().all(|byte| byte.is_ascii_digit())).then(|| field.parse().ok())?
}

fn add(arguments: &[Arg<'_>], _: &Context) -> Outcome {
    let (Some(unit), Some(count), Some(start)) =
        (text(arguments, 0).and_then(unit), integer(arguments, 1), time(arguments, 2))
    else {
        return Ok(None);
    };
    let sum = match unit {
        Unit::Ticks(size) => size.checked_mul(count).and_then(|ticks| start.checked_add(ticks)),
        Unit::Nanosecond => start.checked_add(count / 100),
        Unit::Month => add_months(start, count),
        Unit::Year => count.checked_mul(12).and_then(|months| add_months(start, months)),
    };
    sum.map_or(Ok(None), moment)
}

/// The day of the month is kept, or becomes the last one.
fn add_months(start: i64, count: i64) -> Option<i64> {
    let c = calendar(start)?;
    let months = (c.year * 12 + c.month - 1).checked_add(count)?;
    let (year, month) = (months.div_euclid(12), months.rem_euclid(12) + 1);
    let day = c.day.min(month_days(year, month));
    Some(days(year, month, day)? * DAY + c.ticks)
}

/// How many boundaries of the unit lie between the two.
fn difference(arguments: &[Arg<'_>], _: &Context) -> Outcome {
    let (Some(unit), Some(start), Some(end)) =
        (text(arguments, 0).and_then(unit), time(arguments, 1), time(arguments, 2))
    else {
        return Ok(None);
    };
    let months = |ticks: i64| calendar(ticks).map(|c| c.year * 12 + c.month - 1);
    let answer = match unit {
        Unit::Ticks(size) => Some(end.div_euclid(size) - start.div_euclid(size)),
        Unit::Nanosecond => end.checked_sub(start).and_then(|ticks| ticks.checked_mul(100)),
        Unit::Month => months(end).zip(months(start)).map(|(end, start)| end - start),
        Unit::Year => calendar(end).zip(calendar(start)).map(|(end, start)| end.year - start.year),
    };
    Ok(answer.map(Value::from))
}

fn from_parts(arguments: &[Arg<'_>], _: &Context) -> Outcome {
    let field = |place: usize| if place < arguments.len() { integer(arguments, place) } else { Some(0) };
    let fields: Option<Vec<i64>> = (0..7).map(field).collect();
    let Some([year, month, day, hours, minutes, seconds, ticks]) = fields.as_deref() else { return Ok(None) };
    let in_range = (0..24).contains(hours)
        && (0..60).contains(minutes)
        && (0..60).contains(seconds)
        && (0..SECOND).contains(ticks);
    match days(*year, *month, *day) {
        Some(days) if in_range => {
            moment(days * DAY + hours * HOUR + minutes * MINUTE + seconds * SECOND + ticks)
        }
        _ => Ok(None),
    }
}

fn part(arguments: &[Arg<'_>], _: &Context) -> Outcome {
    let (Some(unit), Some(ticks)) = (text(arguments, 0).and_then(unit), time(arguments, 1)) else {
        return Ok(None);
    };
    let Some(c) = calendar(ticks) else { return Ok(None) };
    let part = match unit {
        Unit::Year => c.year,
        Unit::Month => c.month,
        Unit::Ticks(DAY) => c.day,
        Unit::Ticks(HOUR) => c.ticks / HOUR,
        Unit::Ticks(MINUTE) => c.ticks / MINUTE % 60,
        Unit::Ticks(SECOND) => c.ticks / SECOND % 60,
        // Fractions are counted from the last full second.
        Unit::Ticks(size) => c.ticks % SECOND / size,
        Unit::Nanosecond => c.ticks % SECOND * 100,
    };
    Ok(Some(part.into()))
}

/// The start of the bin that the moment falls into; bins count from 1970, or
/// from the moment in the fourth argument.
fn bin(arguments: &[Arg<'_>], _: &Context) -> Outcome {
    let size = if arguments.len() > 2 { integer(arguments, 2) } else { Some(1) };
    let origin = if arguments.len() > 3 { time(arguments, 3) } else { Some(0) };
    let (Some(ticks), Some(unit), Some(size), Some(origin)) =
        (time(arguments, 0), text(arguments, 1).and_then(unit), size, origin)
    else {
        return Ok(None);
    };
    if size <= 0 {
        return Ok(None);
    }
    let months_bin = |months_per_unit: i64| {
        let of = |ticks: i64| calendar(ticks).map(|c| c.year * 12 + c.month - 1);
        let width = size.checked_mul(months_per_unit)?;
        let count = (of(ticks)? - of(origin)?).div_euclid(width);
        add_months(origin, count.checked_mul(width)?)
    };
    let start = match unit {
        Unit::Ticks(tick) => size
            .checked_mul(tick)
            .and_then(|width| (ticks - origin).div_euclid(width).checked_mul(width)?.checked_add(origin)),
        Unit::Nanosecond => Some(ticks),
        Unit::Month => months_bin(1),
        Unit::Year => months_bin(12),
    };
    start.map_or(Ok(None), moment)
}
