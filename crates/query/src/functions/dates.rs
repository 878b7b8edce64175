//! Functions on dates and times.
//!
//! Texts are ISO 8601 in UTC, `YYYY-MM-DDThh:mm:ss.fffffffZ`. The code computes
//! with ticks, units of 100 ns since 1970. The calendar is the proleptic
//! Gregorian calendar, years 1 to 9999.

use perihelion_model::calendar::{date_of, days_in_month, days_since_1970};
use perihelion_model::json::Value;

use super::{Arg, Outcome, Signature, function, integer, text, whole_number};
use crate::context::Context;

pub(super) const FUNCTIONS: &[Signature] = &[
    function("GetCurrentDateTime", 0, 0, |_, c| date_time_text(c.now.ticks())),
    function("GetCurrentDateTimeStatic", 0, 0, |_, c| date_time_text(c.now.ticks())),
    function("GetCurrentTicks", 0, 0, |_, c| Ok(Some(c.now.ticks().into()))),
    function("GetCurrentTicksStatic", 0, 0, |_, c| Ok(Some(c.now.ticks().into()))),
    function("GetCurrentTimestamp", 0, 0, |_, c| Ok(Some(milliseconds(c.now.ticks())))),
    function("GetCurrentTimestampStatic", 0, 0, |_, c| Ok(Some(milliseconds(c.now.ticks())))),
    function("DateTimeAdd", 3, 3, add),
    function("DateTimeBin", 2, 4, bin),
    function("DateTimeDiff", 3, 3, difference),
    function("DateTimeFromParts", 3, 7, from_parts),
    function("DateTimePart", 2, 2, part),
    function("DateTimeToTicks", 1, 1, |a, _| Ok(time(a, 0).map(Value::from))),
    function("DateTimeToTimestamp", 1, 1, |a, _| Ok(time(a, 0).map(milliseconds))),
    function("TicksToDateTime", 1, 1, |a, _| integer(a, 0).map_or(Ok(None), date_time_text)),
    function("TimestampToDateTime", 1, 1, timestamp_to_date_time),
];

// The units of time in ticks.
const MICROSECOND: i64 = 10;
const MILLISECOND: i64 = 1_000 * MICROSECOND;
const SECOND: i64 = 1_000 * MILLISECOND;
const MINUTE: i64 = 60 * SECOND;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;

/// The digits of a fraction of a second, down to a tick.
const FRACTION_DIGITS: usize = 7;

/// The length of the longest text that is a date or a time. A longer text is not read.
const DATE_TIME_LENGTH_MAX: usize = "YYYY-MM-DDThh:mm:ss.fffffffZ".len();

/// The length of the longest name of a unit. A longer text is not read.
const UNIT_LENGTH_MAX: usize = "millisecond".len();

/// The first and the last day of the years 1 to 9999, counted from 1970-01-01.
const DAYS: std::ops::RangeInclusive<i64> = -719_162..=2_932_896;

/// The earliest time from which DateTimeBin counts, by the service's documentation: 1601-01-01,
/// where the clock of Windows begins.
const BIN_ORIGIN_MIN: i64 = -134_774 * DAY;

/// A unit of time that the date functions take as an argument.
#[derive(Clone, Copy)]
enum Unit {
    Year,
    Month,
    /// A fixed number of ticks.
    Ticks(i64),
    Nanosecond,
}

/// A point in time by the calendar.
struct DateTime {
    year: i64,
    month: i64,
    day: i64,
    /// Ticks since midnight.
    ticks: i64,
}

/// The unit of that name or abbreviation, in any letter case.
fn unit(name: &str) -> Option<Unit> {
    if name.len() > UNIT_LENGTH_MAX {
        return None;
    }
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

/// Milliseconds since 1970, rounded down.
fn milliseconds(ticks: i64) -> Value {
    ticks.div_euclid(MILLISECOND).into()
}

/// The time as text; undefined outside the years 1 to 9999.
fn date_time_text(ticks: i64) -> Outcome {
    let Some(DateTime { year, month, day, ticks }) = date_time(ticks) else { return Ok(None) };
    let (clock, fraction) = (ticks / SECOND, ticks % SECOND);
    let (hours, minutes, seconds) = (clock / 3600, clock / 60 % 60, clock % 60);
    Ok(Some(Value::String(format!(
        "{year:04}-{month:02}-{day:02}T{hours:02}:{minutes:02}:{seconds:02}.{fraction:07}Z"
    ))))
}

fn timestamp_to_date_time(arguments: &[Arg<'_>], _: &Context) -> Outcome {
    match integer(arguments, 0).and_then(|milliseconds| milliseconds.checked_mul(MILLISECOND)) {
        Some(ticks) => date_time_text(ticks),
        None => Ok(None),
    }
}

/// The date and time of these ticks; `None` outside the years 1 to 9999.
fn date_time(ticks: i64) -> Option<DateTime> {
    let days = ticks.div_euclid(DAY);
    if !DAYS.contains(&days) {
        return None;
    }
    let (year, month, day) = date_of(days);
    Some(DateTime { year, month, day, ticks: ticks.rem_euclid(DAY) })
}

/// Months since the year 0; `None` outside the years 1 to 9999.
fn month_number(ticks: i64) -> Option<i64> {
    date_time(ticks).map(|date| date.year * 12 + date.month - 1)
}

/// Days since 1970-01-01; `None` when the day does not exist.
fn days(year: i64, month: i64, day: i64) -> Option<i64> {
    let exists = (1..=9999).contains(&year)
        && (1..=12).contains(&month)
        && (1..=days_in_month(year, month)).contains(&day);
    exists.then(|| days_since_1970(year, month, day))
}

/// The argument at the index as ticks; `None` when it is not a date.
fn time(arguments: &[Arg<'_>], index: usize) -> Option<i64> {
    parse(text(arguments, index)?)
}

/// Parses `YYYY-MM-DD`, then optionally `Thh:mm[:ss][.f]` with at most seven digits
/// `f`, then optionally `Z`. `T` and `Z` may be in lower case.
fn parse(text: &str) -> Option<i64> {
    if text.len() > DATE_TIME_LENGTH_MAX {
        return None;
    }
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

/// The number in a field of exactly `count` digits.
fn digits(field: &str, count: usize) -> Option<i64> {
    (field.len() == count && field.bytes().all(|byte| byte.is_ascii_digit())).then(|| field.parse().ok())?
}

fn add(arguments: &[Arg<'_>], _: &Context) -> Outcome {
    let (Some(unit), Some(count), Some(start)) =
        (text(arguments, 0).and_then(unit), whole_number(arguments, 1), time(arguments, 2))
    else {
        return Ok(None);
    };
    let sum = match unit {
        Unit::Ticks(size) => size.checked_mul(count).and_then(|ticks| start.checked_add(ticks)),
        Unit::Nanosecond => start.checked_add(count / 100),
        Unit::Month => add_months(start, count),
        Unit::Year => count.checked_mul(12).and_then(|months| add_months(start, months)),
    };
    sum.map_or(Ok(None), date_time_text)
}

/// Adds months. The day of the month stays the same, or becomes the last day of a
/// shorter month. `None` outside the years 1 to 9999.
fn add_months(start: i64, count: i64) -> Option<i64> {
    let date = date_time(start)?;
    let months = month_number(start)?.checked_add(count)?;
    let (year, month) = (months.div_euclid(12), months.rem_euclid(12) + 1);
    let day = date.day.min(days_in_month(year, month));
    Some(days(year, month, day)? * DAY + date.ticks)
}

/// DateTimeDiff: how many boundaries of the unit are between the two times; negative
/// when the second time is earlier.
fn difference(arguments: &[Arg<'_>], _: &Context) -> Outcome {
    let (Some(unit), Some(start), Some(end)) =
        (text(arguments, 0).and_then(unit), time(arguments, 1), time(arguments, 2))
    else {
        return Ok(None);
    };
    let difference = match unit {
        Unit::Ticks(size) => Some(end.div_euclid(size) - start.div_euclid(size)),
        Unit::Nanosecond => end.checked_sub(start).and_then(|ticks| ticks.checked_mul(100)),
        Unit::Month => month_number(end).zip(month_number(start)).map(|(end, start)| end - start),
        Unit::Year => date_time(end).zip(date_time(start)).map(|(end, start)| end.year - start.year),
    };
    Ok(difference.map(Value::from))
}

/// DateTimeFromParts: year, month, day, then optionally hours, minutes, seconds and
/// ticks of the second.
fn from_parts(arguments: &[Arg<'_>], _: &Context) -> Outcome {
    let field = |index: usize| if index < arguments.len() { integer(arguments, index) } else { Some(0) };
    let fields: Option<Vec<i64>> = (0..7).map(field).collect();
    let Some([year, month, day, hours, minutes, seconds, ticks]) = fields.as_deref() else { return Ok(None) };
    let in_range = (0..24).contains(hours)
        && (0..60).contains(minutes)
        && (0..60).contains(seconds)
        && (0..SECOND).contains(ticks);
    match days(*year, *month, *day) {
        Some(days) if in_range => {
            date_time_text(days * DAY + hours * HOUR + minutes * MINUTE + seconds * SECOND + ticks)
        }
        _ => Ok(None),
    }
}

fn part(arguments: &[Arg<'_>], _: &Context) -> Outcome {
    let (Some(unit), Some(ticks)) = (text(arguments, 0).and_then(unit), time(arguments, 1)) else {
        return Ok(None);
    };
    let Some(date) = date_time(ticks) else { return Ok(None) };
    let part = match unit {
        Unit::Year => date.year,
        Unit::Month => date.month,
        Unit::Ticks(DAY) => date.day,
        Unit::Ticks(HOUR) => date.ticks / HOUR,
        Unit::Ticks(MINUTE) => date.ticks / MINUTE % 60,
        Unit::Ticks(SECOND) => date.ticks / SECOND % 60,
        // Milliseconds and microseconds are counted from the last full second.
        Unit::Ticks(size) => date.ticks % SECOND / size,
        Unit::Nanosecond => date.ticks % SECOND * 100,
    };
    Ok(Some(part.into()))
}

/// DateTimeBin: the start of the bin that the time falls into. The third argument is the
/// number of units of a bin, by default one. Bins count from 1970, or from the time in the
/// fourth argument, which must not be before 1601.
fn bin(arguments: &[Arg<'_>], _: &Context) -> Outcome {
    let size = if arguments.len() > 2 { whole_number(arguments, 2) } else { Some(1) };
    let origin = if arguments.len() > 3 { time(arguments, 3) } else { Some(0) };
    let (Some(ticks), Some(unit), Some(size), Some(origin)) =
        (time(arguments, 0), text(arguments, 1).and_then(unit), size, origin)
    else {
        return Ok(None);
    };
    if size <= 0 || origin < BIN_ORIGIN_MIN {
        return Ok(None);
    }
    let months_bin = |months_per_unit: i64| {
        let width = size.checked_mul(months_per_unit)?;
        let months = (month_number(ticks)? - month_number(origin)?).div_euclid(width).checked_mul(width)?;
        let start = add_months(origin, months)?;
        // A bin can start after the first day of its month. If the time is earlier in that
        // month, it falls into the previous bin.
        if start <= ticks { Some(start) } else { add_months(origin, months.checked_sub(width)?) }
    };
    let start = match unit {
        Unit::Ticks(ticks_per_unit) => size
            .checked_mul(ticks_per_unit)
            .and_then(|width| (ticks - origin).div_euclid(width).checked_mul(width)?.checked_add(origin)),
        Unit::Nanosecond => nanoseconds_bin(ticks, origin, size),
        Unit::Month => months_bin(1),
        Unit::Year => months_bin(12),
    };
    start.map_or(Ok(None), date_time_text)
}

/// The start of a bin of `size` nanoseconds, rounded down to a tick (100 ns).
fn nanoseconds_bin(ticks: i64, origin: i64, size: i64) -> Option<i64> {
    let (elapsed, size) = (i128::from(ticks - origin) * 100, i128::from(size));
    let start = (elapsed.div_euclid(size) * size).div_euclid(100);
    i64::try_from(start).ok()?.checked_add(origin)
}
