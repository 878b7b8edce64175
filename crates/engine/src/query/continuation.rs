//! Where the next page starts.
//!
//! The outer form is the service's: `{"token":"...","range":{"min","max"}}`,
//! and from the second page on a list of one of these (`docs/cosmos.md`,
//! pages). The inside is ours. It is attacker input: everything is parsed
//! strictly and anything else is "Invalid Continuation Token".

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use perihelion_model::json::{self, Style, Value, object};
use perihelion_model::resource_id::ChildKind;
use perihelion_query::Program;

use crate::catalog::Container;
use crate::keys::RangeId;
use crate::refusal::Refusal;

/// The state between two pages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Continuation {
    pub(super) after: Option<Place>,
    /// How far ranges were read that were split before the query was through
    /// with them; their children go on from there.
    pub(super) floors: Vec<Floor>,
    /// Rows still to be skipped (OFFSET) and still to be returned (TOP, LIMIT).
    pub(super) skip: u64,
    pub(super) take: Option<u64>,
    /// Pages and rows so far, as the service's own token tells them.
    pub(super) pages: u64,
    pub(super) rows: u64,
}

/// The last row of a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) range: RangeId,
    pub(super) rid: u64,
    /// Which of the document's rows, when it makes several.
    pub(super) row: u64,
    /// The encoded order keys of an ordered query.
    pub(super) order: Option<Vec<u8>>,
}

/// The last row that was read of a range, in the order of `_rid`s.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Floor {
    pub(super) range: RangeId,
    pub(super) rid: u64,
    pub(super) row: u64,
}

/// Splits that one query may live through, one within the other.
const FLOORS_MAX: usize = 32;

impl Continuation {
    pub(super) fn start(program: &Program) -> Self {
        let take = match (program.top(), program.limit()) {
            (Some(top), Some(limit)) => Some(top.min(limit)),
            (top, limit) => top.or(limit),
        };
        let skip = program.offset().unwrap_or(0);
        Continuation { after: None, floors: Vec::new(), skip, take, pages: 0, rows: 0 }
    }

    pub(super) fn print(&self, container: &Container) -> String {
        let mut token = String::from("-RID:~");
        if let Some(place) = &self.after {
            token.push_str(&container.rid.child(ChildKind::Document, place.rid));
        }
        token.push_str(&format!("#RT:{}#TRC:{}", self.pages, self.rows));
        if let Some(place) = &self.after {
            token.push_str(&format!("#PKR:{}#ROW:{}", place.range, place.row));
            if let Some(order) = &place.order {
                token.push_str(&format!("#ORD:{}", STANDARD.encode(order)));
            }
        }
        if !self.floors.is_empty() {
            let floors =
                self.floors.iter().map(|floor| format!("{}.{}.{}", floor.range, floor.rid, floor.row));
            token.push_str(&format!("#SPL:{}", floors.collect::<Vec<_>>().join(",")));
        }
        token.push_str(&format!("#SKP:{}", self.skip));
        if let Some(take) = self.take {
            token.push_str(&format!("#TAK:{take}"));
        }
        token.push_str("#ISV:2#IEO:65599#QCF:8");
        let range = object([("min", "".into()), ("max", "FF".into())]);
        let entry = object([("token", token.into()), ("range", range)]);
        let whole = if self.pages > 1 { Value::Array(vec![entry]) } else { entry };
        json::to_text(&whole, Style::Point)
    }

    pub(super) fn parse(text: &str, container: &Container) -> Result<Self, Refusal> {
        parse(text, container).ok_or_else(|| Refusal::gateway(400, "Invalid Continuation Token"))
    }
}

/// The longest token we read; ours are far shorter unless order keys are long.
const TOKEN_BYTES_MAX: usize = 64 * 1024;

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
        rid => Some(Place {
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
    let floors = match fields.get("SPL") {
        Some(floors) => floors.split(',').map(parse_floor).collect::<Option<Vec<_>>>()?,
        None => Vec::new(),
    };
    if floors.len() > FLOORS_MAX {
        return None;
    }
    Some(Continuation {
        after,
        floors,
        skip: number("SKP")?,
        take,
        pages: number("RT")?,
        rows: number("TRC")?,
    })
}

fn parse_floor(text: &str) -> Option<Floor> {
    let mut numbers = text.split('.');
    let floor = Floor {
        range: numbers.next()?.parse().ok()?,
        rid: numbers.next()?.parse().ok()?,
        row: numbers.next()?.parse().ok()?,
    };
    numbers.next().is_none().then_some(floor)
}
