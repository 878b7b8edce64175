//! `Pause`: where a page ended that could not go on, as part of the continuation.
//!
//! A page usually ends after a row, and the next page starts after that row. A page may also end
//! within the rows of one document, which joins can make many, or when its time is over. Then the
//! continuation names the first place that was not read.

use perihelion_query::RowPlace;

use crate::keys::RangeId;

/// The first place that was not read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pause {
    pub(super) range: RangeId,
    /// The counter in the `_rid` of the document. Documents before it were read.
    pub(super) rid: u64,
    /// The place among the rows of the document.
    pub(super) place: RowPlace,
}

/// The most elements of a place in a token: more than a statement may have joins.
const ELEMENTS_MAX: usize = 32;

impl Pause {
    /// The field of the token.
    pub(super) fn print(&self) -> String {
        format!("#PAU:{}.{}.{}", self.range, self.rid, print_place(&self.place))
    }

    /// Parses the field; `None` if it is malformed.
    pub(super) fn parse(text: &str) -> Option<Pause> {
        let mut parts = text.splitn(3, '.');
        let (range, rid) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        Some(Pause { range, rid, place: parse_place(parts.next()?)? })
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

    #[test]
    fn a_pause_is_printed_and_parsed() {
        for elements in [vec![], vec![7], vec![0, 12, u32::MAX]] {
            let pause = Pause { range: 3, rid: 99, place: RowPlace { row: 5, elements } };
            let text = pause.print();
            assert_eq!(Pause::parse(text.strip_prefix("#PAU:").unwrap()), Some(pause));
        }
        for bad in ["", "1", "1.2", "1.2.3", "1.2.3.x", "1.2.3.1-", "1.2.3.-1", "a.2.3.", "1.2.3.4294967296"]
        {
            assert_eq!(Pause::parse(bad), None, "{bad}");
        }
        assert_eq!(Pause::parse(&format!("1.2.3.{}", ["1"; 33].join("-"))), None);
    }
}
