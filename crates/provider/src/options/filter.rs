//! The filter language: one line of text that selects instances, for command lines, for the
//! address of a page, and for bulk operations. [`ListOptions::from_filter`] parses it. The
//! parser is a pure function of the text and the time.
//!
//! ```text
//! status=failed name=order* created<2h parent=batch-7
//! ```
//!
//! A filter is a list of terms, and all of them must match. An empty filter matches every
//! instance.

mod scan;
#[cfg(test)]
mod tests;

use std::fmt;
use std::time::Duration;

use perihelion_model::timestamp;

use self::scan::{Comparison, Term, Value};
use crate::options::listing::{ListOptions, PENDING};

/// The statuses: how a filter writes each of them, and how it is stored.
const STATUSES: [(&str, &str); 5] = [
    ("running", "Running"),
    ("completed", "Completed"),
    ("failed", "Failed"),
    ("continued", "ContinuedAsNew"),
    ("pending", PENDING),
];

/// The fields, for error messages.
const FIELDS: &str = "status, name, version, id, parent, custom, created, updated";

/// Why a text is not a filter, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FilterError {
    /// What is wrong, and what may be written instead.
    pub message: String,
    /// Where the error is: the number of characters before it in the text.
    pub position: usize,
}

impl fmt::Display for FilterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "character {} of the filter: {}", self.position + 1, self.message)
    }
}

impl std::error::Error for FilterError {}

impl ListOptions {
    /// The options of a filter, which is a list of terms such as `status=failed created<2h`.
    /// `now_ms` is the time from which ages count, in milliseconds since 1970.
    ///
    /// | term | matches instances |
    /// |---|---|
    /// | `status=failed` | with this status: `running`, `completed`, `failed`, `continued`, `pending` |
    /// | `name=order`, `name=order*` | of this orchestration; of orchestrations whose name begins with `order` |
    /// | `version=1.2.0` | of this version of the orchestration |
    /// | `id=order-7`, `id=order-*` | with this id; whose id begins with `order-` |
    /// | `parent=batch-7` | that are children of this instance |
    /// | `custom~text` | whose custom status contains the text |
    /// | `created<2h`, `updated>7d` | created less than two hours ago; last updated more than seven days ago |
    /// | `created>=2026-11-17`, `updated<2026-11-17T04:05Z` | created at this time (UTC) or later; last updated before it |
    ///
    /// A value with spaces is written in double quotes, with `\"` and `\\` for the quote and the
    /// backslash. A `*` within quotes is an ordinary character.
    ///
    /// ```
    /// use duroxide_cdb::ListOptions;
    ///
    /// let failed = ListOptions::from_filter("status=failed name=order*", 0)?;
    /// assert_eq!(failed, ListOptions::new().with_status("Failed").with_name_prefix("order"));
    /// let error = ListOptions::from_filter("status=faild", 0).unwrap_err();
    /// assert_eq!(error.position, 7);
    /// # Ok::<(), duroxide_cdb::FilterError>(())
    /// ```
    pub fn from_filter(text: &str, now_ms: u64) -> Result<ListOptions, FilterError> {
        let mut options = ListOptions::new();
        for term in scan::terms(text)? {
            add_term(&mut options, &term, now_ms)?;
        }
        Ok(options)
    }

    /// The filters of these options in words, to be shown before a bulk operation. Ages are
    /// shown as times.
    pub fn meaning(&self) -> String {
        let time = |ms: &u64| timestamp::format_ms(*ms);
        let quoted = |text: &String| format!("{text:?}");
        let parts = [
            self.status.as_ref().map(|status| format!("status {status}")),
            self.name.as_ref().map(|name| format!("name {}", quoted(name))),
            self.name_prefix.as_ref().map(|prefix| format!("name begins with {}", quoted(prefix))),
            self.version.as_ref().map(|version| format!("version {}", quoted(version))),
            self.id.as_ref().map(|id| format!("id {}", quoted(id))),
            self.id_prefix.as_ref().map(|prefix| format!("id begins with {}", quoted(prefix))),
            self.parent.as_ref().map(|parent| format!("child of {}", quoted(parent))),
            self.custom_status.as_ref().map(|text| format!("custom status contains {}", quoted(text))),
            self.created_from.as_ref().map(|from| format!("created at or after {}", time(from))),
            self.created_before.as_ref().map(|before| format!("created before {}", time(before))),
            self.updated_from.as_ref().map(|from| format!("updated at or after {}", time(from))),
            self.updated_before.as_ref().map(|before| format!("updated before {}", time(before))),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        if parts.is_empty() { "every instance".to_owned() } else { parts.join(", ") }
    }
}

fn add_term(options: &mut ListOptions, term: &Term, now_ms: u64) -> Result<(), FilterError> {
    match term.field.as_str() {
        "status" => set(&mut options.status, term, status(term)?),
        "version" => set(&mut options.version, term, exact(term)?),
        "parent" => set(&mut options.parent, term, exact(term)?),
        "name" => match text_or_prefix(term)? {
            Value::Exact(name) => set(&mut options.name, term, name),
            Value::Prefix(prefix) => set(&mut options.name_prefix, term, prefix),
        },
        "id" => match text_or_prefix(term)? {
            Value::Exact(id) => set(&mut options.id, term, id),
            Value::Prefix(prefix) => set(&mut options.id_prefix, term, prefix),
        },
        "custom" => set(&mut options.custom_status, term, contained(term)?),
        "created" => {
            add_limit(&mut options.created_from, &mut options.created_before, limit(term, now_ms)?);
            Ok(())
        }
        "updated" => {
            add_limit(&mut options.updated_from, &mut options.updated_before, limit(term, now_ms)?);
            Ok(())
        }
        other => Err(term.error_at_field(format!("`{other}` is not a field. Fields: {FIELDS}"))),
    }
}

/// Sets a field that a filter may have once.
fn set(field: &mut Option<String>, term: &Term, value: String) -> Result<(), FilterError> {
    if field.is_some() {
        return Err(term.error_at_field(format!("`{}` is given twice", term.field)));
    }
    *field = Some(value);
    Ok(())
}

/// The stored form of a status.
fn status(term: &Term) -> Result<String, FilterError> {
    let typed = exact(term)?;
    let is_typed_status = |(written, stored): &&(&str, &str)| {
        typed.eq_ignore_ascii_case(written) || typed.eq_ignore_ascii_case(stored)
    };
    STATUSES.iter().find(is_typed_status).map(|(_, stored)| (*stored).to_owned()).ok_or_else(|| {
        let all = STATUSES.map(|(written, _)| written).join(", ");
        term.error_at_value(format!("`{typed}` is not a status. Statuses: {all}"))
    })
}

/// The value of a term with `=`. Refuses a prefix: a value that ends with `*`.
fn exact(term: &Term) -> Result<String, FilterError> {
    match text_or_prefix(term)? {
        Value::Exact(text) => Ok(text),
        Value::Prefix(_) => {
            Err(term.error_at_value(format!("`{}` takes no `*`: write the whole value", term.field)))
        }
    }
}

fn text_or_prefix(term: &Term) -> Result<Value, FilterError> {
    match term.comparison {
        Comparison::Equal => Ok(term.value.clone()),
        Comparison::Contains | Comparison::Time(_) => {
            Err(term.error_at_comparison(format!("`{}` is compared with `=`", term.field)))
        }
    }
}

/// The value of `custom~text`.
fn contained(term: &Term) -> Result<String, FilterError> {
    match (term.comparison, &term.value) {
        (Comparison::Contains, Value::Exact(text)) => Ok(text.clone()),
        (Comparison::Contains, Value::Prefix(_)) => {
            Err(term.error_at_value("`custom~` looks for a part of the text and takes no `*`".to_owned()))
        }
        (Comparison::Equal | Comparison::Time(_), _) => Err(term
            .error_at_comparison("`custom` is compared with `~`, which finds a part of the text".to_owned())),
    }
}

/// A limit of a time, in milliseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Limit {
    From(u64),
    Before(u64),
}

/// The limit that a term sets for a time. With an age the comparison is reversed: an instance whose
/// age is greater than two hours was created before the time two hours ago.
fn limit(term: &Term, now_ms: u64) -> Result<Limit, FilterError> {
    let Comparison::Time(order) = term.comparison else {
        let hint = format!("`{}` is compared with <, <=, > or >=", term.field);
        return Err(term.error_at_comparison(hint));
    };
    let unreadable = || {
        term.error_at_value(
            "write an age like 30s, 5m, 2h or 7d, or a time like 2026-11-17 or 2026-11-17T04:05Z".to_owned(),
        )
    };
    let Value::Exact(text) = &term.value else { return Err(unreadable()) };
    if let Some(age) = parse_age(text) {
        let time_ms = now_ms.saturating_sub(u64::try_from(age.as_millis()).unwrap_or(u64::MAX));
        return Ok(match (order.is_greater, order.or_equal) {
            (true, false) => Limit::Before(time_ms),
            (true, true) => Limit::Before(time_ms.saturating_add(1)),
            (false, false) => Limit::From(time_ms.saturating_add(1)),
            (false, true) => Limit::From(time_ms),
        });
    }
    let time = timestamp::parse_ms(text).ok_or_else(unreadable)?;
    Ok(match (order.is_greater, order.or_equal) {
        (true, false) => Limit::From(time + 1),
        (true, true) => Limit::From(time),
        (false, false) => Limit::Before(time),
        (false, true) => Limit::Before(time + 1),
    })
}

/// Adds a limit. Of several limits the narrowest counts.
fn add_limit(from: &mut Option<u64>, before: &mut Option<u64>, limit: Limit) {
    match limit {
        Limit::From(ms) => *from = Some(from.map_or(ms, |known| known.max(ms))),
        Limit::Before(ms) => *before = Some(before.map_or(ms, |known| known.min(ms))),
    }
}

/// An age: `500ms`, `30s`, `5m`, `2h`, `7d`.
fn parse_age(text: &str) -> Option<Duration> {
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().ok()?;
    let seconds = |factor: u64| number.checked_mul(factor).map(Duration::from_secs);
    match unit {
        "ms" => Some(Duration::from_millis(number)),
        "s" => seconds(1),
        "m" => seconds(60),
        "h" => seconds(3600),
        "d" => seconds(24 * 3600),
        _ => None,
    }
}
