//! The figures behind charts as a table, for people who do not see the charts and for those who want
//! the numbers.

use super::super::parts::{nothing, number, row, table, text};
use crate::html::{Html, tag};
use crate::text::time_of_day;

/// A column: its head, and its values, oldest first. The last value is the newest one.
pub(super) struct Column<'a> {
    pub(super) head: &'a str,
    pub(super) values: &'a [Option<f64>],
    pub(super) format: fn(f64) -> String,
}

/// A table of the newest values, newest first, in a part of the page that a person opens. `ends` has the
/// end of each interval, in milliseconds since 1970.
pub(super) fn figures(caption: &str, ends: &[u64], columns: &[Column<'_>], rows_max: usize) -> Html {
    // `#` marks a column of numbers; `table` removes it.
    let heads: Vec<String> = columns.iter().map(|column| format!("#{}", column.head)).collect();
    let heads: Vec<&str> = std::iter::once("Until").chain(heads.iter().map(String::as_str)).collect();
    let rows = ends.iter().enumerate().rev().take(rows_max).map(|(index, end)| {
        let value = |column: &Column<'_>| {
            let value = column.values.get(index).copied().flatten();
            number(value.map_or_else(nothing, |value| text((column.format)(value))))
        };
        let cells = std::iter::once(text(time_of_day(*end))).chain(columns.iter().map(value));
        row(cells.collect()).done()
    });
    let table = table(caption, &heads, rows.collect());
    tag("details").class("figures").add(tag("summary").add("Figures")).add(table).done()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_values_come_first_and_unknown_ones_are_dashes() {
        let column = Column {
            head: "RU/s",
            values: &[Some(1.0), None, Some(3.0)],
            format: |value| format!("{value:.1}"),
        };
        let html = figures("Figures", &[1000, 2000, 3000], &[column], 2);
        let newest = html.as_str().find("00:00:03.000").expect("the newest row");
        let earlier = html.as_str().find("00:00:02.000").expect("the row before");
        assert!(newest < html.as_str().find(">3.0<").expect("its value"));
        assert!(newest < earlier && html.as_str()[earlier..].contains('–'), "{html:?}");
        assert!(!html.as_str().contains("00:00:01.000"), "there are two rows at most");
    }
}
