//! The continuation token of a merge, between two rows.
//!
//! The text is JSON with a version. It has intervals of effective keys and not range
//! ids, so that it stays valid after splits and merges of ranges. For each interval
//! that is not at its end, the token has the continuation of the page, and for a sorted
//! query the position within the page. The token may come from outside the program, so
//! the form of all its parts is checked.

use perihelion_model::json::{Object, Style, Value, object, parse_str, to_text};

use super::MergeError;
use super::position::RowPosition;
use super::range::Interval;
use super::range_reader::ResumePoint;

/// The version of the text. It is raised whenever the meaning of a member changes.
const VERSION: i64 = 1;

/// The contents of a token.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct TokenContents {
    /// Identifies the query of the token, without its parameters.
    pub(super) fingerprint: u64,
    /// How many rows OFFSET still skips.
    pub(super) skip_left: u64,
    /// How many rows TOP or LIMIT still allows; `None` without either.
    pub(super) take_left: Option<u64>,
    /// The last value of an ordered DISTINCT.
    pub(super) last_value: Option<Value>,
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
    pub(super) fn print(&self) -> String {
        let resume_points = join_unread(&self.resume_points);
        let mut token = object([
            ("perihelion", VERSION.into()),
            ("query", format!("{:016x}", self.fingerprint).into()),
            ("skip", self.skip_left.into()),
            ("take", self.take_left.map_or(Value::Null, Value::from)),
            ("ranges", Value::Array(resume_points.iter().map(print_resume_point).collect())),
        ]);
        if let (Value::Object(members), Some(last)) = (&mut token, &self.last_value) {
            members.set("last", last.clone());
        }
        to_text(&token, Style::Point)
    }

    pub(super) fn parse(text: &str) -> Result<Self, MergeError> {
        let token = parse_str(text).map_err(|_| MergeError::InvalidToken("it is not valid JSON"))?;
        if token.get("perihelion").and_then(Value::as_i64) != Some(VERSION) {
            return Err(MergeError::InvalidToken("another program or version wrote it"));
        }
        read_contents(&token).ok_or(MergeError::InvalidToken("a part is missing or has the wrong form"))
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

fn print_resume_point((interval, resume_point): &(Interval, ResumePoint)) -> Value {
    let mut members = Object::new();
    members.set("min", interval.min.as_str().into());
    members.set("max", interval.max.as_str().into());
    if let Some(continuation) = &resume_point.continuation {
        members.set("next", continuation.as_str().into());
    }
    if let Some(position) = &resume_point.position {
        let key = |key: &Option<Value>| Value::Array(key.iter().cloned().collect());
        members.set("keys", Value::Array(position.keys.iter().map(key).collect()));
        let tie = |(rid, rows): &(String, u64)| Value::Array(vec![rid.as_str().into(), (*rows).into()]);
        members.set("taken", Value::Array(position.ties.iter().map(tie).collect()));
    }
    Value::Object(members)
}

fn read_contents(token: &Value) -> Option<TokenContents> {
    let resume_points = token.get("ranges")?.as_array()?.iter().map(read_resume_point);
    let resume_points = resume_points.collect::<Option<Vec<_>>>()?;
    let mut neighbours = resume_points.iter().zip(resume_points.iter().skip(1));
    if !neighbours.all(|((before, _), (after, _))| before.max <= after.min) {
        return None;
    }
    Some(TokenContents {
        fingerprint: u64::from_str_radix(token.get("query")?.as_str()?, 16).ok()?,
        skip_left: count(token.get("skip")?)?,
        take_left: match token.get("take")? {
            Value::Null => None,
            take => Some(count(take)?),
        },
        last_value: token.get("last").cloned(),
        resume_points,
    })
}

fn read_resume_point(item: &Value) -> Option<(Interval, ResumePoint)> {
    let interval =
        Interval { min: item.get("min")?.as_str()?.to_owned(), max: item.get("max")?.as_str()?.to_owned() };
    let continuation = match item.get("next") {
        None => None,
        Some(next) => Some(next.as_str()?.to_owned()),
    };
    let position = match (item.get("keys"), item.get("taken")) {
        (None, None) => None,
        (keys, ties) => Some(RowPosition {
            keys: keys?.as_array()?.iter().map(read_key).collect::<Option<_>>()?,
            ties: ties?.as_array()?.iter().map(read_tie).collect::<Option<_>>()?,
        }),
    };
    (interval.min < interval.max).then_some((interval, ResumePoint { continuation, position }))
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
