//! `Pause`: the place where a page ended, if it did not end after a row. It is part of the
//! continuation.
//!
//! A page usually ends after a row, and the next page starts after that row. A page may also end
//! when its time is over, or within the rows of one document: joins can make many rows from one
//! document. Then the continuation names the first place that was not read.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use perihelion_query::RowPlace;

use super::smallest_rows::SortKey;
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
    /// With ORDER BY: all rows up to this key that were read are in `best`. `None` in a scan of an
    /// index, and if no rows were read.
    pub(super) sure_up_to: Option<SortKey>,
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

/// The most bytes of the order keys of [`Pause::sure_up_to`] in a token.
const SURE_KEY_BYTES_MAX: usize = 48;

/// How many of the smallest rows a token has. With them and the order keys of a cursor the whole
/// token stays below 1 KB. The number is the same for all pages of a query, so that the rows in a
/// token are always the smallest of all that were read.
const BEST_ROWS_MAX: usize = 6;

/// How many of the smallest rows the token of a query with joins has. Such rows have longer places.
const BEST_JOINED_ROWS_MAX: usize = 2;

/// The most elements of a place in a token. No statement may have this many joins.
const ELEMENTS_MAX: usize = 32;

impl Pause {
    /// A pause before a document.
    pub(super) fn before(range: RangeId, rid: u64) -> Pause {
        let place = RowPlace::default();
        Pause { range, rid, place, index_key: None, best: Vec::new(), sure_up_to: None }
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
        if let Some(key) = &self.sure_up_to {
            let key = key.shortened(SURE_KEY_BYTES_MAX);
            text.push_str(&format!("#BSU:{}.{}.{}", STANDARD.encode(key.order), key.rid, key.row));
        }
        text
    }

    /// Parses the fields of a token; `None` if one is malformed.
    pub(super) fn parse<'t>(pause: &str, field: impl Fn(&str) -> Option<&'t str>) -> Option<Pause> {
        let mut parts = pause.splitn(3, '.');
        let (range, rid) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        let place = parse_place(parts.next()?)?;
        let index_key = match field("PAI") {
            Some(text) if text.len() <= 2 * INDEX_KEY_BYTES_MAX => Some(STANDARD.decode(text).ok()?),
            Some(_) => return None,
            None => None,
        };
        let best = match field("BST") {
            Some(rows) => rows.split(',').map(BestRow::parse).collect::<Option<Vec<_>>>()?,
            None => Vec::new(),
        };
        let sure_up_to = match field("BSU") {
            Some(key) => Some(parse_key(key)?),
            None => None,
        };
        // Each of the rows is looked up in its document, so a token that the client made up must not
        // have many.
        let pause = Pause { range, rid, place, index_key, best, sure_up_to };
        (pause.best.len() <= BEST_ROWS_MAX).then_some(pause)
    }
}

impl BestRow {
    /// The most rows in a token, if the first row has this place. All rows of one query have places
    /// of the same length.
    pub(super) fn count_max(place: &RowPlace) -> usize {
        if place.elements.is_empty() { BEST_ROWS_MAX } else { BEST_JOINED_ROWS_MAX }
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

fn parse_key(text: &str) -> Option<SortKey> {
    let mut parts = text.splitn(3, '.');
    let order = STANDARD.decode(parts.next()?).ok().filter(|order| order.len() <= SURE_KEY_BYTES_MAX)?;
    Some(SortKey { order, rid: parts.next()?.parse().ok()?, row: parts.next()?.parse().ok()? })
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
        let field =
            |name: &str| text.split('#').find_map(|field| field.strip_prefix(name)?.strip_prefix(':'));
        Pause::parse(field("PAU")?, field)
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
                sure_up_to: Some(SortKey { order: vec![7; SURE_KEY_BYTES_MAX], rid: 8, row: u64::MAX }),
                ..Pause::before(3, 99)
            };
            assert_eq!(parse_fields(&pause.print()), Some(pause));
        }
        for bad in ["", "1", "1.2", "1.2.3", "1.2.3.x", "1.2.3.1-", "1.2.3.-1", "a.2.3.", "1.2.3.4294967296"]
        {
            assert_eq!(Pause::parse(bad, |_| None), None, "{bad}");
        }
        assert_eq!(Pause::parse(&format!("1.2.3.{}", ["1"; 33].join("-")), |_| None), None);
        for (name, bad) in [("PAI", "?"), ("BST", "1.2.3"), ("BSU", "AAAA.1")] {
            assert_eq!(Pause::parse("1.2.3.", |field| (field == name).then_some(bad)), None, "{name}");
        }
    }

    /// Story of a bug: a token that a client had made up had 170 rows, and for each of them a document
    /// with many joined rows was evaluated.
    #[test]
    fn a_token_with_too_many_best_rows_is_refused() {
        let rows = |count: usize| vec!["1.1.1."; count].join(",");
        let parse = |rows: &str| parse_fields(&format!("#PAU:1.2.3.#BST:{rows}"));
        assert_eq!(parse(&rows(BEST_ROWS_MAX)).map(|pause| pause.best.len()), Some(BEST_ROWS_MAX));
        assert_eq!(parse(&rows(BEST_ROWS_MAX + 1)), None);
    }
}
