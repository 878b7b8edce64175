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

use perihelion_wire::status;

use crate::catalog::Container;
use crate::keys::RangeId;
use crate::refusal::Refusal;

/// The state of a query between two pages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Continuation {
    /// The last row that was returned, or skipped by OFFSET; `None` before the first
    /// page.
    pub(super) after: Option<RowCursor>,
    /// The progress in ranges that were split before the query had read them to
    /// the end. The children of such a range continue from its watermark.
    pub(super) watermarks: Vec<Watermark>,
    /// How many rows are still to be skipped (OFFSET).
    pub(super) skip: u64,
    /// How many rows are still to be returned (TOP, LIMIT); `None` without a limit.
    pub(super) take: Option<u64>,
    /// The number of pages so far. The service's own token has it too.
    pub(super) pages: u64,
    /// The number of rows so far. The service's own token has it too.
    pub(super) rows: u64,
}

/// The last row of a page. If the rows of the query are gathered (`gather.rs`), only `row`
/// is used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RowCursor {
    pub(super) range: RangeId,
    /// The counter in the `_rid` of the document.
    pub(super) rid: u64,
    /// The number of the row among the rows of its document, from 0 on. If the rows are
    /// gathered, it is the number among all rows, from 1 on.
    pub(super) row: u64,
    /// The encoded order keys of an ordered query.
    pub(super) order: Option<Vec<u8>>,
}

/// The last row that was read in a range, in `_rid` order. The fields are those of
/// [`RowCursor`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Watermark {
    pub(super) range: RangeId,
    pub(super) rid: u64,
    pub(super) row: u64,
}

/// The most watermarks in a token. Each nested split of a range during a query adds one.
const WATERMARKS_MAX: usize = 32;

impl Continuation {
    /// The state before the first page: the OFFSET, LIMIT and TOP of the query.
    pub(super) fn start(program: &Program) -> Self {
        let take = match (program.top(), program.limit()) {
            (Some(top), Some(limit)) => Some(top.min(limit)),
            (top, limit) => top.or(limit),
        };
        let skip = program.offset().unwrap_or(0);
        Continuation { after: None, watermarks: Vec::new(), skip, take, pages: 0, rows: 0 }
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
        }
        if !self.watermarks.is_empty() {
            let watermarks = self
                .watermarks
                .iter()
                .map(|watermark| format!("{}.{}.{}", watermark.range, watermark.rid, watermark.row));
            token.push_str(&format!("#SPL:{}", watermarks.collect::<Vec<_>>().join(",")));
        }
        token.push_str(&format!("#SKP:{}", self.skip));
        if let Some(take) = self.take {
            token.push_str(&format!("#TAK:{take}"));
        }
        // The service's tokens end with these fields. The engine does not read them.
        token.push_str("#ISV:2#IEO:65599#QCF:8");
        let range = object([("min", "".into()), ("max", "FF".into())]);
        let entry = object([("token", token.into()), ("range", range)]);
        let whole = if self.pages > 1 { Value::Array(vec![entry]) } else { entry };
        json::to_text(&whole, Style::Point)
    }

    pub(super) fn parse(text: &str, container: &Container) -> Result<Self, Refusal> {
        parse(text, container)
            .ok_or_else(|| Refusal::gateway(status::BAD_REQUEST, "Invalid Continuation Token"))
    }
}

/// The longest token that is accepted. Tokens are far shorter, unless the last row of a
/// page has long order keys. Such a query cannot be continued.
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
    let after = match rid {
        "" => None,
        rid => Some(RowCursor {
            rid: container.parse_document_rid(rid)?,
            range: u32::try_from(number("PKR")?).ok()?,
            row: number("ROW")?,
            order: match fields.get("ORD") {
                Some(order) => Some(STANDARD.decode(order).ok()?),
                None => None,
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
    Some(Continuation {
        after,
        watermarks,
        skip: number("SKP")?,
        take,
        pages: number("RT")?,
        rows: number("TRC")?,
    })
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
