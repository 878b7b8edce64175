//! The continuation token of a merge. It can be taken after any row.
//!
//! The text is JSON with a version. It has intervals of effective keys and not range
//! ids, so that it stays valid after splits and merges of ranges. For each interval
//! that is not at its end, the token has the continuation of the page. The token of a sorted
//! query also has the position within the pages: the sort keys of the last row, once for all
//! intervals, and for each interval the documents with these keys whose rows were taken.
//!
//! The token may come from outside the program, so the form of all its parts is checked. It
//! is never longer than [`TOKEN_BYTES_MAX`]: neighbouring intervals of which no row was
//! returned are one interval, intervals at their end are left out, and a long value of
//! DISTINCT is replaced by its hash. Sort keys cannot be replaced by a hash, because rows are
//! compared with them. If the sort keys or the continuations are too long, there is no token.

use perihelion_model::json::{Object, Style, Value, object, parse_envelope, to_text};

use super::MergeError;
use super::position::RowPosition;
use super::range::Interval;
use super::range_reader::ResumePoint;
use super::result_filter::LastValue;
use crate::ast::Direction;
use crate::order::compare_order;

/// The version of the text. It is raised whenever the meaning of a member changes.
const VERSION: i64 = 1;

/// The longest token. A sorted query over 500 ranges with a continuation of 400 bytes each
/// still has a token, and a program can store a token of this length as one value.
pub(super) const TOKEN_BYTES_MAX: usize = 256 * 1024;

/// The most hexadecimal digits of an effective key in a token. The longest real key, of three
/// levels, has 96.
const EFFECTIVE_KEY_DIGITS_MAX: usize = 128;

/// The levels of JSON around a sort key: the token, the list of the keys, and an array for each key.
const LEVELS_AROUND_KEY: usize = 3;

/// The contents of a token.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct TokenContents {
    /// Identifies the query of the token, without its parameters.
    pub(super) fingerprint: u64,
    /// The effective keys that the query is about. `None` in tokens that earlier releases of this
    /// crate wrote.
    pub(super) scope: Option<Interval>,
    /// The `_rid` of the container. `None` if the caller did not name it, and in tokens that earlier
    /// releases of this crate wrote.
    pub(super) container: Option<String>,
    /// How many rows OFFSET still skips.
    pub(super) skip_left: u64,
    /// How many rows TOP or LIMIT still allows; `None` without either.
    pub(super) take_left: Option<u64>,
    /// The last value of an ordered DISTINCT.
    pub(super) last_value: Option<LastValue>,
    /// The intervals that are not at their end, in the order of their keys.
    pub(super) resume_points: Vec<(Interval, ResumePoint)>,
}

/// The hash (FNV-1a) of the query and of the statement that is sent for it.
pub(super) fn fingerprint(texts: [&str; 2]) -> u64 {
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0000_0100_0000_01b3;
    let bytes = texts.into_iter().flat_map(|text| text.bytes().chain([0]));
    bytes.fold(OFFSET, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME))
}

impl TokenContents {
    /// The text of the token. The error is the number of its bytes, if the text is too long. All
    /// positions must have the same sort keys.
    pub(super) fn print(&self) -> Result<String, usize> {
        let resume_points = join_unread(&self.resume_points);
        let mut token = object([
            ("perihelion", VERSION.into()),
            ("query", format!("{:016x}", self.fingerprint).into()),
            ("scope", self.scope.as_ref().map_or(Value::Null, print_interval)),
            ("skip", self.skip_left.into()),
            ("take", self.take_left.map_or(Value::Null, Value::from)),
        ]);
        if let Value::Object(members) = &mut token {
            if let Some(container) = &self.container {
                members.set("container", container.as_str().into());
            }
            let mut positions = resume_points.iter().filter_map(|(_, point)| point.position.as_ref());
            if let Some(position) = positions.next() {
                debug_assert!(positions.all(|other| other.keys == position.keys));
                members.set("keys", print_keys(&position.keys));
            }
            members.set("ranges", Value::Array(resume_points.iter().map(print_resume_point).collect()));
            match &self.last_value {
                Some(LastValue::Value(last)) => members.set("last", last.clone()),
                Some(LastValue::Hash(hash)) => members.set("lastHash", format!("{hash:032x}").into()),
                None => {}
            }
        }
        let text = to_text(&token, Style::Point);
        if text.len() > TOKEN_BYTES_MAX { Err(text.len()) } else { Ok(text) }
    }

    pub(super) fn parse(text: &str) -> Result<Self, MergeError> {
        if text.len() > TOKEN_BYTES_MAX {
            return Err(MergeError::InvalidToken("it is longer than any token"));
        }
        let token = parse_envelope(text.as_bytes(), LEVELS_AROUND_KEY)
            .map_err(|_| MergeError::InvalidToken("it is not valid JSON"))?;
        if token.get("perihelion").and_then(Value::as_i64) != Some(VERSION) {
            return Err(MergeError::InvalidToken("another program or version wrote it"));
        }
        read_contents(&token).ok_or(MergeError::InvalidToken("a part is missing or has the wrong form"))
    }
}

/// Gives all positions the sort keys of the last row of the result. All rows with smaller
/// keys have been taken from every interval. So an interval whose own last row has smaller keys
/// continues at its first row with the shared keys or larger ones.
pub(super) fn share_keys(resume_points: &mut [(Interval, ResumePoint)], directions: &[Direction]) {
    let positions = resume_points.iter().filter_map(|(_, point)| point.position.as_ref());
    let last = positions.map(|position| &position.keys).max_by(|a, b| compare_order(a, b, directions));
    let Some(last) = last.cloned() else { return };
    for position in resume_points.iter_mut().filter_map(|(_, point)| point.position.as_mut()) {
        if compare_order(&position.keys, &last, directions).is_lt() {
            position.ties.clear();
        }
        position.keys.clone_from(&last);
    }
}

/// Joins neighbouring intervals of which no row was returned. If only the first of a
/// thousand ranges was begun, the token has two intervals.
fn join_unread(resume_points: &[(Interval, ResumePoint)]) -> Vec<(Interval, ResumePoint)> {
    let mut joined: Vec<(Interval, ResumePoint)> = Vec::new();
    for (interval, resume_point) in resume_points {
        match joined.last_mut() {
            Some((last, last_point))
                if is_unread(last_point) && is_unread(resume_point) && last.max == interval.min =>
            {
                last.max = interval.max.clone();
            }
            _ => joined.push((interval.clone(), resume_point.clone())),
        }
    }
    joined
}

fn is_unread(resume_point: &ResumePoint) -> bool {
    *resume_point == ResumePoint::default()
}

fn print_interval(interval: &Interval) -> Value {
    object([("min", interval.min.as_str().into()), ("max", interval.max.as_str().into())])
}

fn print_resume_point((interval, resume_point): &(Interval, ResumePoint)) -> Value {
    let mut members = Object::new();
    members.set("min", interval.min.as_str().into());
    members.set("max", interval.max.as_str().into());
    if let Some(continuation) = &resume_point.continuation {
        members.set("next", continuation.as_str().into());
    }
    if let Some(position) = &resume_point.position {
        let tie = |(rid, rows): &(String, u64)| Value::Array(vec![rid.as_str().into(), (*rows).into()]);
        members.set("taken", Value::Array(position.ties.iter().map(tie).collect()));
    }
    Value::Object(members)
}

/// The sort keys: `[value]`, or `[]` for undefined.
fn print_keys(keys: &[Option<Value>]) -> Value {
    Value::Array(keys.iter().map(|key| Value::Array(key.iter().cloned().collect())).collect())
}

fn read_contents(token: &Value) -> Option<TokenContents> {
    let keys = token.get("keys");
    let resume_points = token.get("ranges")?.as_array()?.iter().map(|item| read_resume_point(item, keys));
    let resume_points = resume_points.collect::<Option<Vec<_>>>()?;
    let mut neighbours = resume_points.iter().zip(resume_points.iter().skip(1));
    if !neighbours.all(|((before, _), (after, _))| before.max <= after.min) {
        return None;
    }
    Some(TokenContents {
        scope: match token.get("scope") {
            None | Some(Value::Null) => None,
            Some(scope) => Some(read_interval(scope)?),
        },
        container: match token.get("container") {
            None => None,
            Some(container) => Some(container.as_str()?.to_owned()),
        },
        fingerprint: u64::from_str_radix(token.get("query")?.as_str()?, 16).ok()?,
        skip_left: count(token.get("skip")?)?,
        take_left: match token.get("take")? {
            Value::Null => None,
            take => Some(count(take)?),
        },
        last_value: match (token.get("last"), token.get("lastHash")) {
            (Some(last), None) => Some(LastValue::Value(last.clone())),
            (None, Some(hash)) => Some(LastValue::Hash(u128::from_str_radix(hash.as_str()?, 16).ok()?)),
            (None, None) => None,
            (Some(_), Some(_)) => return None,
        },
        resume_points,
    })
}

/// Reads one interval. In tokens of earlier releases of this crate, each interval has its own
/// sort keys. In newer tokens all intervals have the `shared_keys`.
fn read_resume_point(item: &Value, shared_keys: Option<&Value>) -> Option<(Interval, ResumePoint)> {
    const MEMBERS: [&str; 5] = ["min", "max", "next", "keys", "taken"];
    // An unknown member may be a member under a new name. If it were ignored, rows could be
    // returned twice.
    if !item.as_object()?.iter().all(|(name, _)| MEMBERS.contains(&name)) {
        return None;
    }
    let interval = read_interval(item)?;
    let continuation = match item.get("next") {
        None => None,
        Some(next) => Some(next.as_str()?.to_owned()),
    };
    let position = match (item.get("keys"), item.get("taken")) {
        (None, None) => None,
        (keys, ties) => Some(RowPosition {
            keys: keys.or(shared_keys)?.as_array()?.iter().map(read_key).collect::<Option<_>>()?,
            ties: ties?.as_array()?.iter().map(read_tie).collect::<Option<_>>()?,
        }),
    };
    Some((interval, ResumePoint { continuation, position }))
}

/// Reads an interval; `None` if it is empty.
fn read_interval(item: &Value) -> Option<Interval> {
    let interval =
        Interval { min: read_effective_key(item.get("min")?)?, max: read_effective_key(item.get("max")?)? };
    (interval.min < interval.max).then_some(interval)
}

/// Reads an end of an interval: capital hexadecimal digits, whose texts sort like the keys.
fn read_effective_key(key: &Value) -> Option<String> {
    let text = key.as_str()?;
    let is_hex = text.bytes().all(|byte| byte.is_ascii_digit() || (b'A'..=b'F').contains(&byte));
    let fits = is_hex && text.len() <= EFFECTIVE_KEY_DIGITS_MAX && text.len().is_multiple_of(2);
    fits.then(|| text.to_owned())
}

/// Reads a sort key: `[value]`, or `[]` for undefined.
fn read_key(key: &Value) -> Option<Option<Value>> {
    match key.as_array()? {
        [] => Some(None),
        [value] => Some(Some(value.clone())),
        _ => None,
    }
}

fn read_tie(tie: &Value) -> Option<(String, u64)> {
    match tie.as_array()? {
        [rid, rows] => Some((rid.as_str()?.to_owned(), count(rows)?)).filter(|(_, rows)| *rows > 0),
        _ => None,
    }
}

fn count(value: &Value) -> Option<u64> {
    u64::try_from(value.as_i64()?).ok()
}
