//! A merge written down between two rows.
//!
//! The text is JSON with a version. It holds intervals of effective keys, not
//! range ids, so that it outlives splits and merges of ranges; for each
//! interval that is not yet read to its end the continuation of its page, and
//! for a sorted query the place within. It comes back from outside: all of it
//! is checked.

use perihelion_model::json::{Object, Style, Value, object, parse_str, to_text};

use super::MergeError;
use super::progress::Mark;
use super::range::Interval;
use super::source::Standing;

/// Raised whenever the meaning of a member changes.
const VERSION: i64 = 1;

/// Everything between two rows.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Saved {
    /// Which query it belongs to.
    pub(super) fingerprint: u64,
    pub(super) skip_left: u64,
    pub(super) take_left: Option<u64>,
    /// The last value of an ordered DISTINCT.
    pub(super) last: Option<Value>,
    /// What is still to be read, in order.
    pub(super) standings: Vec<(Interval, Standing)>,
}

/// Tells queries apart: FNV-1a over their texts.
pub(super) fn fingerprint(texts: [&str; 2]) -> u64 {
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0000_0100_0000_01b3;
    let bytes = texts.into_iter().flat_map(|text| text.bytes().chain([0]));
    bytes.fold(OFFSET, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME))
}

impl Saved {
    pub(super) fn print(&self) -> String {
        let standings = joined(&self.standings);
        let mut token = object([
            ("perihelion", VERSION.into()),
            ("query", format!("{:016x}", self.fingerprint).into()),
            ("skip", self.skip_left.into()),
            ("take", self.take_left.map_or(Value::Null, Value::from)),
            ("ranges", Value::Array(standings.iter().map(print_standing).collect())),
        ]);
        if let (Value::Object(members), Some(last)) = (&mut token, &self.last) {
            members.set("last", last.clone());
        }
        to_text(&token, Style::Point)
    }

    pub(super) fn parse(text: &str) -> Result<Self, MergeError> {
        let token = parse_str(text).map_err(|_| MergeError::InvalidToken("it is no JSON"))?;
        if token.get("perihelion").and_then(Value::as_i64) != Some(VERSION) {
            return Err(MergeError::InvalidToken("it is of another make or version"));
        }
        read(&token).ok_or(MergeError::InvalidToken("a part is missing or has the wrong form"))
    }
}

/// Neighbours that were not begun are one: a token for a thousand ranges, of
/// which one was begun, has two entries.
fn joined(standings: &[(Interval, Standing)]) -> Vec<(Interval, Standing)> {
    let mut joined: Vec<(Interval, Standing)> = Vec::new();
    for (interval, standing) in standings {
        match joined.last_mut() {
            Some((last, begun)) if is_fresh(begun) && is_fresh(standing) && last.max == interval.min => {
                last.max = interval.max.clone();
            }
            _ => joined.push((interval.clone(), standing.clone())),
        }
    }
    joined
}

fn is_fresh(standing: &Standing) -> bool {
    *standing == Standing::default()
}

fn print_standing((interval, standing): &(Interval, Standing)) -> Value {
    let mut members = Object::new();
    members.set("min", interval.min.as_str().into());
    members.set("max", interval.max.as_str().into());
    if let Some(continuation) = &standing.continuation {
        members.set("next", continuation.as_str().into());
    }
    if let Some(mark) = &standing.mark {
        let key = |key: &Option<Value>| Value::Array(key.iter().cloned().collect());
        members.set("keys", Value::Array(mark.keys.iter().map(key).collect()));
        let tie = |(rid, rows): &(String, u64)| Value::Array(vec![rid.as_str().into(), (*rows).into()]);
        members.set("taken", Value::Array(mark.ties.iter().map(tie).collect()));
    }
    Value::Object(members)
}

fn read(token: &Value) -> Option<Saved> {
    let standings = token.get("ranges")?.as_array()?.iter().map(read_standing);
    let standings = standings.collect::<Option<Vec<_>>>()?;
    let mut neighbours = standings.iter().zip(standings.iter().skip(1));
    if !neighbours.all(|((before, _), (after, _))| before.max <= after.min) {
        return None;
    }
    Some(Saved {
        fingerprint: u64::from_str_radix(token.get("query")?.as_str()?, 16).ok()?,
        skip_left: count(token.get("skip")?)?,
        take_left: match token.get("take")? {
            Value::Null => None,
            take => Some(count(take)?),
        },
        last: token.get("last").cloned(),
        standings,
    })
}

fn read_standing(entry: &Value) -> Option<(Interval, Standing)> {
    let interval =
        Interval { min: entry.get("min")?.as_str()?.to_owned(), max: entry.get("max")?.as_str()?.to_owned() };
    let continuation = match entry.get("next") {
        None => None,
        Some(next) => Some(next.as_str()?.to_owned()),
    };
    let mark = match (entry.get("keys"), entry.get("taken")) {
        (None, None) => None,
        (keys, ties) => Some(Mark {
            keys: keys?.as_array()?.iter().map(read_key).collect::<Option<_>>()?,
            ties: ties?.as_array()?.iter().map(read_tie).collect::<Option<_>>()?,
        }),
    };
    (interval.min < interval.max).then_some((interval, Standing { continuation, mark }))
}

/// `[value]`, or `[]` for undefined.
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
