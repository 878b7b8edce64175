//! The scanner of the filter language: cuts a text into terms, each with its field, its
//! comparison and its value, and remembers where they are.

use super::FilterError;

/// The most characters of a filter. A longer one is a mistake, and too long for the address of a page.
const CHARS_MAX: usize = 2000;

/// The most terms of a filter. There are only eight fields, so a longer filter is a mistake.
const TERMS_MAX: usize = 32;

/// A term, such as `created<2h`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Term {
    pub(super) field: String,
    pub(super) comparison: Comparison,
    pub(super) value: Value,
    /// The numbers of characters before the field, the comparison and the value.
    positions: [usize; 3],
}

/// How a term compares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Comparison {
    /// `=`
    Equal,
    /// `~`
    Contains,
    /// `<`, `<=`, `>` and `>=`
    Time(Order),
}

/// The order of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Order {
    pub(super) is_greater: bool,
    pub(super) or_equal: bool,
}

/// The value of a term.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Value {
    Exact(String),
    /// The text before the `*`, of a value that ends with `*`.
    Prefix(String),
}

impl Term {
    pub(super) fn error_at_field(&self, message: String) -> FilterError {
        FilterError { message, position: self.positions[0] }
    }

    pub(super) fn error_at_comparison(&self, message: String) -> FilterError {
        FilterError { message, position: self.positions[1] }
    }

    pub(super) fn error_at_value(&self, message: String) -> FilterError {
        FilterError { message, position: self.positions[2] }
    }
}

/// The terms of a filter.
pub(super) fn terms(text: &str) -> Result<Vec<Term>, FilterError> {
    let chars: Vec<char> = text.chars().collect();
    if chars.len() > CHARS_MAX {
        let message = format!("a filter has at most {CHARS_MAX} characters");
        return Err(FilterError { message, position: CHARS_MAX });
    }
    let mut scanner = Scanner { chars: &chars, position: 0 };
    let mut terms = Vec::new();
    while scanner.skip_spaces() {
        if terms.len() == TERMS_MAX {
            return Err(scanner.error(format!("a filter has at most {TERMS_MAX} terms")));
        }
        terms.push(scanner.term()?);
    }
    Ok(terms)
}

struct Scanner<'a> {
    chars: &'a [char],
    position: usize,
}

impl Scanner<'_> {
    fn error(&self, message: String) -> FilterError {
        FilterError { message, position: self.position }
    }

    fn peek(&self) -> Option<char> {
        self.chars.get(self.position).copied()
    }

    /// Skips white space. Returns whether text follows.
    fn skip_spaces(&mut self) -> bool {
        while self.peek().is_some_and(char::is_whitespace) {
            self.position += 1;
        }
        self.peek().is_some()
    }

    /// The characters from here on for which `is_part` is true.
    fn take_while(&mut self, is_part: impl Fn(char) -> bool) -> String {
        let begin = self.position;
        while self.peek().is_some_and(&is_part) {
            self.position += 1;
        }
        self.chars[begin..self.position].iter().collect()
    }

    fn term(&mut self) -> Result<Term, FilterError> {
        let field_at = self.position;
        let field = self.take_while(|c| c.is_alphanumeric() || c == '_').to_lowercase();
        if field.is_empty() {
            return Err(self.error("a term begins with a field, such as status=failed".to_owned()));
        }
        let comparison_at = self.position;
        let comparison = self.comparison(&field)?;
        let value_at = self.position;
        let value = match self.peek() {
            Some('"') => Value::Exact(self.quoted()?),
            _ => self.bare()?,
        };
        Ok(Term { field, comparison, value, positions: [field_at, comparison_at, value_at] })
    }

    fn comparison(&mut self, field: &str) -> Result<Comparison, FilterError> {
        let Some(sign) = self.peek().filter(|sign| ['=', '~', '<', '>'].contains(sign)) else {
            return Err(self.error(format!("`{field}` needs a comparison: = ~ < <= > or >=")));
        };
        self.position += 1;
        let or_equal = ['<', '>'].contains(&sign) && self.peek() == Some('=');
        self.position += usize::from(or_equal);
        Ok(match sign {
            '=' => Comparison::Equal,
            '~' => Comparison::Contains,
            _ => Comparison::Time(Order { is_greater: sign == '>', or_equal }),
        })
    }

    /// A value without quotes: up to the next space.
    fn bare(&mut self) -> Result<Value, FilterError> {
        let begin = self.position;
        let text = self.take_while(|c| !c.is_whitespace() && c != '"');
        if self.peek() == Some('"') {
            return Err(self.error("a value with a quote in it is written in quotes".to_owned()));
        }
        let (text, is_prefix) = match text.strip_suffix('*') {
            Some(prefix) => (prefix, true),
            None => (text.as_str(), false),
        };
        if let Some(star) = text.chars().position(|c| c == '*') {
            let message = "a `*` is allowed only at the end of a value";
            return Err(FilterError { message: message.to_owned(), position: begin + star });
        }
        match (text.is_empty(), is_prefix) {
            (true, _) => Err(FilterError { message: "a value is missing here".to_owned(), position: begin }),
            (false, true) => Ok(Value::Prefix(text.to_owned())),
            (false, false) => Ok(Value::Exact(text.to_owned())),
        }
    }

    /// A value in quotes. The scanner is at the opening quote.
    fn quoted(&mut self) -> Result<String, FilterError> {
        let begin = self.position;
        self.position += 1;
        let mut text = String::new();
        while let Some(next) = self.peek() {
            self.position += 1;
            match next {
                '"' if self.peek().is_none_or(char::is_whitespace) => return not_empty(text, begin),
                '"' => return Err(self.error("a space belongs between two terms".to_owned())),
                '\\' => match self.peek() {
                    Some(escaped @ ('"' | '\\')) => {
                        text.push(escaped);
                        self.position += 1;
                    }
                    _ => return Err(self.error("write \\\\ for a backslash and \\\" for a quote".to_owned())),
                },
                other => text.push(other),
            }
        }
        Err(FilterError { message: "this quote is not closed".to_owned(), position: begin })
    }
}

/// Refuses an empty value. It is probably a mistake: a shell replaces a variable that is not set
/// with an empty text.
fn not_empty(text: String, position: usize) -> Result<String, FilterError> {
    match text.is_empty() {
        true => Err(FilterError { message: "this value is empty".to_owned(), position }),
        false => Ok(text),
    }
}
