//! Tables of texts, without lines and colours. There are two spaces between columns, and a column is
//! as wide as its widest cell. No library for tables is used, because the code is short and escapes
//! foreign texts.

use unicode_width::UnicodeWidthStr;

use super::text::{cut, escaped};

/// The most characters of a cell and of a heading in a table with columns. A longer text would push
/// the other columns out of sight. The output as JSON (`-o json`) has the whole text.
const CELL_CHARS_MAX: usize = 240;

/// The most characters of a text in a list of names with their texts ([`pairs`]).
const TEXT_CHARS_MAX: usize = 8000;

/// A column of a table of `T`.
pub(crate) struct Column<T> {
    head: &'static str,
    side: Side,
    /// The text of a cell, at a time in milliseconds since 1970.
    text: fn(&T, u64) -> String,
}

/// The side to which the cells of a column are aligned.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Left,
    Right,
}

impl<T> Column<T> {
    pub(crate) const fn new(head: &'static str, text: fn(&T, u64) -> String) -> Self {
        Column { head, side: Side::Left, text }
    }

    /// A column of numbers, aligned to the right.
    pub(crate) const fn number(head: &'static str, text: fn(&T, u64) -> String) -> Self {
        Column { head, side: Side::Right, text }
    }
}

/// A table with a head.
pub(crate) fn render<T>(columns: &[Column<T>], rows: &[T], now_ms: u64) -> String {
    let head = columns.iter().map(|column| column.head.to_owned()).collect();
    let cells = |row: &T| columns.iter().map(|column| cell(&(column.text)(row, now_ms))).collect();
    let lines: Vec<Vec<String>> = std::iter::once(head).chain(rows.iter().map(cells)).collect();
    let sides: Vec<Side> = columns.iter().map(|column| column.side).collect();
    aligned(&lines, &sides)
}

/// A table whose columns depend on the data; an empty text if there are no columns.
pub(crate) fn grid(heads: &[String], rows: &[Vec<String>]) -> String {
    if heads.is_empty() {
        return String::new();
    }
    let escaped = |line: &Vec<String>| line.iter().map(|text| cell(text)).collect();
    let lines: Vec<Vec<String>> = std::iter::once(&heads.to_vec()).chain(rows).map(escaped).collect();
    aligned(&lines, &vec![Side::Left; heads.len()])
}

/// Names with their texts, one per line.
pub(crate) fn pairs(lines: &[(&str, String)]) -> String {
    let lines: Vec<Vec<String>> =
        lines.iter().map(|(name, text)| vec![cell(name), escaped(&cut(text, TEXT_CHARS_MAX))]).collect();
    aligned(&lines, &[Side::Left, Side::Left])
}

/// A text as a cell shows it. The text is cut before it is escaped, so that no escape is cut in two.
pub(crate) fn cell(text: &str) -> String {
    escaped(&cut(text, CELL_CHARS_MAX))
}

fn aligned(lines: &[Vec<String>], sides: &[Side]) -> String {
    let width = |column: usize| lines.iter().map(|line| line[column].width()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..sides.len()).map(width).collect();
    let mut text = String::new();
    for line in lines {
        let mut row = String::new();
        for (index, cell) in line.iter().enumerate() {
            let gap = " ".repeat(widths[index].saturating_sub(cell.width()));
            let separator = if index == 0 { "" } else { "  " };
            match sides[index] {
                Side::Left => row.push_str(&format!("{separator}{cell}{gap}")),
                Side::Right => row.push_str(&format!("{separator}{gap}{cell}")),
            }
        }
        text.push_str(row.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_cell_and_a_long_heading_are_cut() {
        let long = "x".repeat(100_000);
        let text = grid(std::slice::from_ref(&long), &[vec![long.clone()]]);
        let expected = format!("{}…", "x".repeat(CELL_CHARS_MAX - 1));
        assert_eq!(text, format!("{expected}\n{expected}\n"));
        assert!(pairs(&[("id", long)]).chars().count() < TEXT_CHARS_MAX + 10);
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let columns: [Column<(&str, u64)>; 2] =
            [Column::new("NAME", |row, _| row.0.to_owned()), Column::number("N", |row, _| row.1.to_string())];
        let rows = [("漢字漢字", 7), ("a\x1b[2J", 100), ("", 0)];
        let expected = "NAME          N\n漢字漢字      7\na\\u{1b}[2J  100\n              0\n";
        assert_eq!(render(&columns, &rows, 0), expected);
        assert_eq!(render(&columns, &[], 0), "NAME  N\n");
        assert_eq!(
            pairs(&[("id", "a".to_owned()), ("status", "b\nc".to_owned())]),
            "id      a\nstatus  b\\nc\n"
        );
    }
}
