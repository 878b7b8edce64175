//! A parsed statement: the text and its syntax tree.

use crate::ast::Select;
use crate::diagnostic::Diagnostic;
use crate::{parser, printer};

/// A statement that parsed.
#[derive(Debug, Clone)]
pub struct Query {
    pub(crate) text: Box<str>,
    pub(crate) select: Box<Select>,
}

/// Parses a statement. An error holds one diagnostic, for the first mistake.
pub fn parse(text: &str) -> Result<Query, Vec<Diagnostic>> {
    let select = parser::parse(text).map_err(|diagnostic| vec![diagnostic])?;
    Ok(Query { text: text.into(), select })
}

impl Query {
    /// The text that was parsed.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The statement in the parser's normal form, on one line.
    pub fn normal_form(&self) -> String {
        let mut out = String::new();
        printer::print_select(&mut out, &self.select, printer::Layout::OneLine);
        out
    }
}
