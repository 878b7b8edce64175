//! The continuation token: where the next page starts.
//!
//! The outer form is the service's: the first page returns
//! `{"token":"...","range":{"min","max"}}`, and each later page returns a list with one
//! such object. The content of `token` is the engine's own. A token is untrusted input: a
//! text that is not a token is refused with "Invalid Continuation Token".

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use perihelion_model::json::{self, Style, Value, object};
use perihelion_model::resource_id::ChildKind;
use perihelion_query::Program;
use sha2::{Digest, Sha256};

use perihelion_wire::status;

use super::pause::Pause;
use crate::catalog::Container;
use crate::keys::RangeId;
use crate::refusal::Refusal;

/// The state of a query between two pages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Continuation {
    /// The last row that was returned, or skipped by OFFSET; `None` while there is no such row. A
    /// page that pauses can end without such a row.
    pub(super) after: Option<RowCursor>,
    /// The progress in ranges that were split before the query had read them to
    /// the end. The children of such a range continue from its watermark.
    pub(super) watermarks: Vec<Watermark>,
    /// Where the last page ended, if that was not after a row.
    pub(super) pause: Option<Pause>,
    /// How many rows are still to be skipped (OFFSET).
    pub(super) skip: u64,
    /// How many rows are still to be returned (TOP, LIMIT); `None` without a limit.
    pub(super) take: Option<u64>,
    /// The number of pages so far. The service's own token has it too.
    pub(super) pages: u64,
    /// The number of rows so far. The service's own token has it too.
    pub(super) rows: u64,
    /// The time that the date functions saw on the first page, in ticks since 1970, if rows are
    /// gathered or sorted by an expression. With another time a later page would have other rows,
    /// or another order.
    pub(super) ticks: Option<u64>,
}

/// The last row of a page. If the rows of the query are gathered (`gather.rs`), the place of
/// the row is its `order`, its `position` and its number `row` among equal rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RowCursor {
    pub(super) range: RangeId,
    /// The counter in the `_rid` of the document.
    pub(super) rid: u64,
    /// The number of the row among the rows of its document, from 0 on. If the rows are
    /// gathered, how many rows with this `order` and `position` were returned.
    pub(super) row: u64,
    /// The encoded order keys of an ordered query. If they are long, only their beginning: see
    /// [`RowCursor::shorten`].
    pub(super) order: Option<Vec<u8>>,
    /// The position of a gathered row: bytes that depend only on the value of the row. Gathered
    /// rows are sorted by them (`value_position.rs`). It is not the position of a range in its log.
    pub(super) position: Option<Vec<u8>>,
    /// The row after this one, if `order` is only the beginning of the order keys.
    pub(super) next: Option<NextRow>,
}

/// The first row that was not returned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum NextRow {
    /// A gathered row.
    Value {
        /// The position of the row.
        position: Vec<u8>,
        /// The hash of the row's order keys.
        hash: u64,
        /// The hash of the order keys of the last row that was returned.
        last_hash: u64,
    },
    /// A row of a document.
    Document {
        /// The counter in the `_rid` of the document.
        rid: u64,
        /// The number of the row among the rows of its document.
        row: u64,
        /// The hash of the row's order keys.
        hash: u64,
        /// The hash of the order keys of the last row that was returned.
        last_hash: u64,
    },
}

/// The most bytes of order keys in a cursor. With them the whole token stays below 1 KB, the
/// smallest limit that a client can ask for (`responsecontinuationtokenlimitinkb`).
pub(super) const ORDER_BYTES_MAX: usize = 256;

impl RowCursor {
    /// The place before all rows of a range: the counters in `_rid`s begin with 1.
    pub(super) fn before(range: RangeId) -> Self {
        RowCursor { range, rid: 0, row: 0, order: None, position: None, next: None }
    }

    /// Shortens long order keys, so that the token stays short. `next` are the order keys of
    /// the next row. If the two rows differ in the first bytes, these bytes are enough to say
    /// where the next page starts. If they do not, the cursor names the next row as well, and
    /// the next page finds the rest of the keys in the document.
    pub(super) fn shorten(&mut self, next: &[u8], next_row: impl FnOnce(&[u8]) -> NextRow) {
        let Some(order) = self.order.as_mut().filter(|order| order.len() > ORDER_BYTES_MAX) else { return };
        let start = order[..ORDER_BYTES_MAX].to_vec();
        if next.starts_with(&start) {
            self.next = Some(next_row(order));
            *order = start;
        } else {
            // The rows are sorted, and the next row does not begin with `start`. So all rows that
            // begin with `start` were returned, and the next page may begin after them.
            *order = crate::keys::after_prefix(&start);
        }
    }
}

/// A hash by which order keys are recognized.
pub(super) fn hash_of(order: &[u8]) -> u64 {
    let digest = Sha256::digest(order);
    digest.iter().take(8).fold(0, |hash, byte| (hash << 8) | u64::from(*byte))
}

/// The last row that was read in a range, in `_rid` order. The fields are those of
/// [`RowCursor`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Watermark {
    pub(super) range: RangeId,
    pub(super) rid: u64,
    pub(super) row: u64,
}

/// The most watermarks in a token. Each nested split of a range during a query adds a watermark.
const WATERMARKS_MAX: usize = 32;

impl Continuation {
    /// The state before the first page: the OFFSET, LIMIT and TOP of the query.
    pub(super) fn start(program: &Program) -> Self {
        let take = match (program.top(), program.limit()) {
            (Some(top), Some(limit)) => Some(top.min(limit)),
            (top, limit) => top.or(limit),
        };
        let skip = program.offset().unwrap_or(0);
        Continuation {
            after: None,
            watermarks: Vec::new(),
            pause: None,
            skip,
            take,
            pages: 0,
            rows: 0,
            ticks: None,
        }
    }

    /// The position of the last gathered row; empty while no row was returned.
    pub(super) fn last_position(&self) -> &[u8] {
        self.after.as_ref().and_then(|cursor| cursor.position.as_deref()).unwrap_or_default()
    }

    pub(super) fn print(&self, container: &Container) -> String {
        let mut token = String::from("-RID:~");
        if let Some(cursor) = &self.after {
            token.push_str(&container.rid.child(ChildKind::Document, cursor.rid));
        }
        token.push_str(&format!("#RT:{}#TRC:{}", self.pages, self.rows));
        if let Some(cursor) = &self.after {
            token.push_str(&format!("#PKR:{}#ROW:{}", cursor.range, cursor.row));
            if let Some(order) = &cursor.order {
                token.push_str(&format!("#ORD:{}", STANDARD.encode(order)));
            }
            if let Some(position) = &cursor.position {
                token.push_str(&format!("#VAL:{}", STANDARD.encode(position)));
            }
            match &cursor.next {
                None => {}
                Some(NextRow::Value { position, hash, last_hash }) => {
                    token.push_str(&format!("#NXV:{}.{hash}.{last_hash}", STANDARD.encode(position)));
                }
                Some(NextRow::Document { rid, row, hash, last_hash }) => {
                    token.push_str(&format!("#NXD:{rid}.{row}.{hash}.{last_hash}"));
                }
            }
        }
        if !self.watermarks.is_empty() {
            let watermarks = self
                .watermarks
                .iter()
                .map(|watermark| format!("{}.{}.{}", watermark.range, watermark.rid, watermark.row));
            token.push_str(&format!("#SPL:{}", watermarks.collect::<Vec<_>>().join(",")));
        }
        if let Some(pause) = &self.pause {
            token.push_str(&pause.print());
        }
        token.push_str(&format!("#SKP:{}", self.skip));
        if let Some(take) = self.take {
            token.push_str(&format!("#TAK:{take}"));
        }
        if let Some(ticks) = self.ticks {
            token.push_str(&format!("#NOW:{ticks}"));
        }
        // The service's tokens end with these fields. The engine does not read them.
        token.push_str("#ISV:2#IEO:65599#QCF:8");
        let range = object([("min", "".into()), ("max", "FF".into())]);
        let entry = object([("token", token.into()), ("range", range)]);
        let whole = if self.pages > 1 { Value::Array(vec![entry]) } else { entry };
        json::to_text(&whole, Style::Point)
    }

    pub(super) fn parse(text: &str, container: &Container) -> Result<Self, Refusal> {
        parse(text, container).ok_or_else(Continuation::invalid)
    }

    /// The refusal of a text that is not a token of the query.
    pub(super) fn invalid() -> Refusal {
        Refusal::gateway(status::BAD_REQUEST, "Invalid Continuation Token")
    }
}

/// The [`Continuation::ticks`] of a token, read without parsing the whole token; `None` if the token
/// has no time, or if the text is not a token.
pub(super) fn ticks_of(text: &str) -> Option<i64> {
    let (_, rest) = text.get(..TOKEN_BYTES_MAX.min(text.len()))?.split_once("#NOW:")?;
    let digits = rest.split(|character: char| !character.is_ascii_digit()).next()?;
    digits.parse().ok()
}

/// The longest token that is accepted. Tokens are far shorter; those of earlier versions
/// held whole order keys.
const TOKEN_BYTES_MAX: usize = 64 * 1024;

/// Parses a token; `None` if the text is not a token.
fn parse(text: &str, container: &Container) -> Option<Continuation> {
    if text.len() > TOKEN_BYTES_MAX {
        return None;
    }
    let outer = json::parse_str(text).ok()?;
    let entry = match &outer {
        Value::Array(entries) if entries.len() == 1 => &entries[0],
        Value::Object(_) => &outer,
        _ => return None,
    };
    let token = entry.get("token")?.as_str()?;
    let mut parts = token.split('#');
    let rid = parts.next()?.strip_prefix("-RID:~")?;
    let mut fields = std::collections::HashMap::new();
    for part in parts {
        let (name, value) = part.split_once(':')?;
        fields.insert(name, value);
    }
    let number = |name: &str| fields.get(name)?.parse::<u64>().ok();
    // `Some(None)` for a missing field, `None` for a malformed field.
    let bytes = |name: &str| {
        fields.get(name).map(|text| STANDARD.decode(text).ok()).map_or(Some(None), |bytes| bytes.map(Some))
    };
    let after = match rid {
        "" => None,
        rid => Some(RowCursor {
            rid: container.parse_document_rid(rid)?,
            range: u32::try_from(number("PKR")?).ok()?,
            row: number("ROW")?,
            order: bytes("ORD")?,
            position: bytes("VAL")?,
            next: match (fields.get("NXV"), fields.get("NXD")) {
                (Some(next), _) => Some(parse_next_value(next)?),
                (None, Some(next)) => Some(parse_next_document(next)?),
                (None, None) => None,
            },
        }),
    };
    let take = match fields.get("TAK") {
        Some(take) => Some(take.parse().ok()?),
        None => None,
    };
    let watermarks = match fields.get("SPL") {
        Some(watermarks) => watermarks.split(',').map(parse_watermark).collect::<Option<Vec<_>>>()?,
        None => Vec::new(),
    };
    if watermarks.len() > WATERMARKS_MAX {
        return None;
    }
    let pause = match fields.get("PAU") {
        Some(pause) => {
            let field = |name: &str| fields.get(name).copied();
            Some(Pause::parse(pause, field)?)
        }
        None => None,
    };
    Some(Continuation {
        after,
        watermarks,
        pause,
        skip: number("SKP")?,
        take,
        pages: number("RT")?,
        rows: number("TRC")?,
        ticks: number("NOW"),
    })
}

fn parse_next_value(text: &str) -> Option<NextRow> {
    let mut parts = text.split('.');
    let position = STANDARD.decode(parts.next()?).ok()?;
    let (hash, last_hash) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    parts.next().is_none().then_some(NextRow::Value { position, hash, last_hash })
}

fn parse_next_document(text: &str) -> Option<NextRow> {
    let numbers = text.split('.').map(|number| number.parse().ok()).collect::<Option<Vec<u64>>>()?;
    let [rid, row, hash, last_hash] = numbers[..] else { return None };
    Some(NextRow::Document { rid, row, hash, last_hash })
}

fn parse_watermark(text: &str) -> Option<Watermark> {
    let mut numbers = text.split('.');
    let watermark = Watermark {
        range: numbers.next()?.parse().ok()?,
        rid: numbers.next()?.parse().ok()?,
        row: numbers.next()?.parse().ok()?,
    };
    numbers.next().is_none().then_some(watermark)
}
