//! What is wrong with a statement: parameters that are not given, and the errors of the service with
//! their place.
//!
//! For the service, a parameter without a value is `undefined`, so the query finds nothing and does
//! not fail. A forgotten `--param` is therefore refused here.

use perihelion_client::{Error, query_error_start, query_messages};

/// The first parameter of the statement that is not in `given`. Comments, and texts in quotes, have no
/// parameters.
pub(super) fn missing_parameter<'a>(sql: &'a str, given: &[&str]) -> Option<&'a str> {
    let mut rest = sql;
    while let Some(at) = rest.find(['@', '\'', '"', '-', '/']) {
        let (token, after) = rest[at..].split_at(1);
        rest = match token {
            "@" => {
                let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
                let end = after.find(|c| !is_part(c)).unwrap_or(after.len());
                let name = &rest[at..at + 1 + end];
                if end > 0 && !given.contains(&name) {
                    return Some(name);
                }
                &after[end..]
            }
            "-" if after.starts_with('-') => after.find('\n').map_or("", |end| &after[end..]),
            "/" if after.starts_with('*') => after.find("*/").map_or("", |end| &after[end + 2..]),
            "-" | "/" => after,
            quote => after_quoted_text(after, quote),
        };
    }
    None
}

/// The rest of the statement after a text in quotes. `text` begins after the opening quote. A backslash
/// escapes the character after it.
fn after_quoted_text<'a>(text: &'a str, quote: &str) -> &'a str {
    let mut is_escaped = false;
    for (at, c) in text.char_indices() {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            c if quote.starts_with(c) => return &text[at + c.len_utf8()..],
            _ => {}
        }
    }
    ""
}

/// Why the service refuses a query, in the service's words, with the place of the first error.
pub(super) fn refusal(error: &Error, sql: &str) -> String {
    let messages = query_messages(error);
    if messages.is_empty() {
        return error.message().lines().next().unwrap_or_default().to_owned();
    }
    let start = query_error_start(error);
    let place = start.and_then(|start| pointer(sql, usize::try_from(start).ok()?)).unwrap_or_default();
    format!("{}{place}", messages.join(" "))
}

/// The line of the statement that has the character at `start`, and a line that points at it. `None`
/// if the statement is shorter.
fn pointer(sql: &str, start: usize) -> Option<String> {
    let mut line_start = 0;
    for line in sql.split('\n') {
        let length = line.chars().count();
        if start <= line_start + length {
            return Some(format!("\n  {line}\n  {}^", " ".repeat(start - line_start)));
        }
        line_start += length + 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parameter_that_is_not_given_is_found() {
        for (sql, expected) in [
            ("SELECT * FROM c WHERE c.a = @a AND c.b = @b_2", Some("@b_2")),
            ("SELECT * FROM c WHERE c.a = @a", None),
            ("SELECT '@x', \"@y\", 'it\\'s @z' FROM c -- @w\n WHERE c.a=@v", Some("@v")),
            ("SELECT /* @x */ 1 - 2 / 3 FROM c", None),
            ("SELECT 'open @x", None),
            ("SELECT @ FROM c", None),
            ("SELECT @é", None),
        ] {
            assert_eq!(missing_parameter(sql, &["@a"]), expected, "{sql}");
        }
    }

    #[test]
    fn an_error_points_at_its_place() {
        assert_eq!(pointer("SELEC 1", 0).as_deref(), Some("\n  SELEC 1\n  ^"));
        assert_eq!(pointer("SELECT *\nFORM c", 9).as_deref(), Some("\n  FORM c\n  ^"));
        assert_eq!(pointer("ab", 2).as_deref(), Some("\n  ab\n    ^"));
        assert_eq!(pointer("ab", 3), None);
    }
}
