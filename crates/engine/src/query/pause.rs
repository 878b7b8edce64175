//! `Pause`: where a page ended that could not go on, as part of the continuation.
//!
//! A page usually ends after a row, and the next page starts after that row. A page may also end
//! within the rows of one document, which joins can make many, or when its time is over. Then the
//! continuation names the first place that was not read.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use perihelion_query::RowPlace;

use crate::keys::RangeId;

/// The first place that was not read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pause {
    pub(super) range: RangeId,
    /// The counter in the `_rid` of the document. In a scan by `_rid`, the documents before it
    /// were read.
    pub(super) rid: u64,
    /// The place among the rows of the document.
    pub(super) place: RowPlace,
    /// In a scan of an index that gives the order: the beginning of the key of the entry. The
    /// entries before those with this beginning were read.
    pub(super) index_key: Option<Vec<u8>>,
    /// With ORDER BY, the smallest rows that were read, in their order.
    pub(super) best: Vec<BestRow>,
}

/// A row of a query with ORDER BY. Its order keys are read from its document again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct BestRow {
    pub(super) rid: u64,
    pub(super) place: RowPlace,
    /// The hash of the order keys, by which a changed row is recognized.
    pub(super) hash: u64,
}

/// The most bytes of an index key in a token.
pub(super) const INDEX_KEY_BYTES_MAX: usize = 96;

/// How many of the smallest rows a token has. With them and the order keys of a cursor the whole
/// token stays below 1 KB. The number is the same for all pages of a query, so that the rows in a
/// token are always the smallest of all that were read.
const BEST_ROWS_MAX: usize = 6;

/// How many of the smallest rows the token of a query with joins has. Such rows have longer places.
const BEST_JOINED_ROWS_MAX: usize = 2;

/// The most bytes of the smallest rows in a token that is parsed.
const BEST_ROWS_BYTES_MAX: usize = 1024;

/// The most elements of a place in a token: more than a statement may have joins.
const ELEMENTS_MAX: usize = 32;

impl Pause {
    /// A pause before a document.
    pub(super) fn before(range: RangeId, rid: u64) -> Pause {
        Pause { range, rid, place: RowPlace::default(), index_key: None, best: Vec::new() }
    }

    /// The fields of the token.
    pub(super) fn print(&self) -> String {
        let mut text = format!("#PAU:{}.{}.{}", self.range, self.rid, print_place(&self.place));
        if let Some(key) = &self.index_key {
            text.push_str(&format!("#PAI:{}", STANDARD.encode(key)));
        }
        if !self.best.is_empty() {
            let rows: Vec<String> = self.best.iter().map(BestRow::print).collect();
            text.push_str(&format!("#BST:{}", rows.join(",")));
        }
        text
    }

    /// Parses the fields; `None` if one is malformed.
    pub(super) fn parse(pause: &str, index_key: Option<&str>, best: Option<&str>) -> Option<Pause> {
        let mut parts = pause.splitn(3, '.');
        let (range, rid) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        let place = parse_place(parts.next()?)?;
        let index_key = match index_key {
            Some(text) if text.len() <= 2 * INDEX_KEY_BYTES_MAX => Some(STANDARD.decode(text).ok()?),
            Some(_) => return None,
            None => None,
        };
        let best = match best {
            Some(rows) if rows.len() <= BEST_ROWS_BYTES_MAX => {
                rows.split(',').map(BestRow::parse).collect::<Option<Vec<_>>>()?
            }
            Some(_) => return None,
            None => Vec::new(),
        };
        Some(Pause { range, rid, place, index_key, best })
    }
}

impl BestRow {
    /// The first rows, as many as a token has. All rows of one query have places of the same
    /// length.
    pub(super) fn first_of(rows: impl Iterator<Item = BestRow>) -> Vec<BestRow> {
        let mut rows = rows.peekable();
        let has_joins = rows.peek().is_some_and(|row| !row.place.elements.is_empty());
        rows.take(if has_joins { BEST_JOINED_ROWS_MAX } else { BEST_ROWS_MAX }).collect()
    }

    fn print(&self) -> String {
        format!("{}.{}.{}", self.rid, self.hash, print_place(&self.place))
    }

    fn parse(text: &str) -> Option<BestRow> {
        let mut parts = text.splitn(3, '.');
        let (rid, hash) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        Some(BestRow { rid, hash, place: parse_place(parts.next()?)? })
    }
}

/// A place as `ROW.ELEMENT-ELEMENT-…`.
fn print_place(place: &RowPlace) -> String {
    let elements: Vec<String> = place.elements.iter().map(u32::to_string).collect();
    format!("{}.{}", place.row, elements.join("-"))
}

fn parse_place(text: &str) -> Option<RowPlace> {
    let (row, elements) = text.split_once('.')?;
    let elements = match elements {
        "" => Vec::new(),
        elements => elements.split('-').map(|element| element.parse().ok()).collect::<Option<Vec<u32>>>()?,
    };
    (elements.len() <= ELEMENTS_MAX).then_some(RowPlace { row: row.parse().ok()?, elements })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parses the fields of a printed pause.
    fn parse_fields(text: &str) -> Option<Pause> {
        let field = |name: &str| text.split('#').find_map(|field| field.strip_prefix(name));
        Pause::parse(field("PAU:")?, field("PAI:"), field("BST:"))
    }

    #[test]
    fn a_pause_is_printed_and_parsed() {
        for elements in [vec![], vec![7], vec![0, 12, u32::MAX]] {
            let place = RowPlace { row: 5, elements };
            let best = BestRow { rid: 8, place: place.clone(), hash: u64::MAX };
            let pause = Pause {
                place,
                index_key: Some(vec![0, 255]),
                best: vec![best.clone(), best],
                ..Pause::before(3, 99)
            };
            assert_eq!(parse_fields(&pause.print()), Some(pause));
        }
        for bad in ["", "1", "1.2", "1.2.3", "1.2.3.x", "1.2.3.1-", "1.2.3.-1", "a.2.3.", "1.2.3.4294967296"]
        {
            assert_eq!(Pause::parse(bad, None, None), None, "{bad}");
        }
        assert_eq!(Pause::parse(&format!("1.2.3.{}", ["1"; 33].join("-")), None, None), None);
        assert_eq!(Pause::parse("1.2.3.", Some("?"), None), None);
        assert_eq!(Pause::parse("1.2.3.", None, Some("1.2.3")), None);
    }
}
