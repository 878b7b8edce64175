//! The proleptic Gregorian calendar: conversions between dates and days since
//! 1970-01-01. Callers check that a date exists.

/// Days from 1 March of year 0 to 1 January 1970.
const DAYS_FROM_MARCH_0_TO_1970: i64 = 719_468;

/// The calendar repeats after 400 years, an era.
const DAYS_PER_ERA: i64 = 146_097;

/// Days since 1970-01-01 of an existing date. Years are counted from March, so
/// that the leap day is the last day of its year and the number of days before
/// a month is a linear function: five months from March have 153 days.
pub fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let year_from_march = if month <= 2 { year - 1 } else { year };
    let era = year_from_march.div_euclid(400);
    let year_of_era = year_from_march.rem_euclid(400);
    let month_from_march = (month + 9) % 12;
    let day_of_year = (153 * month_from_march + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * DAYS_PER_ERA + day_of_era - DAYS_FROM_MARCH_0_TO_1970
}

/// Year, month and day of a number of days since 1970-01-01.
pub fn date_of(days_since_1970: i64) -> (i64, i64, i64) {
    let days = days_since_1970 + DAYS_FROM_MARCH_0_TO_1970;
    let (era, day_of_era) = (days.div_euclid(DAYS_PER_ERA), days.rem_euclid(DAYS_PER_ERA));
    // The divisors are the days of 4, 100 and 400 years, each without a leap day at the end.
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / (DAYS_PER_ERA - 1)) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    (year, month, day)
}

/// The number of days in a month from 1 to 12.
pub fn days_in_month(year: i64, month: i64) -> i64 {
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    match month {
        2 if is_leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_day_of_the_years_1_to_9999_converts_back() {
        let mut days = days_since_1970(1, 1, 1);
        assert_eq!(days, -719_162);
        for year in 1..=9999 {
            for month in 1..=12 {
                for day in 1..=days_in_month(year, month) {
                    assert_eq!(days_since_1970(year, month, day), days, "{year}-{month}-{day}");
                    assert_eq!(date_of(days), (year, month, day));
                    days += 1;
                }
            }
        }
        assert_eq!(days_since_1970(1970, 1, 1), 0);
    }
}
