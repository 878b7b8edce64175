//! The parser turns tokens into the syntax tree. This file has the cursor over the
//! tokens and the syntax errors.
//!
//! The parser is written by hand, because the codes and locations of its
//! errors are part of the protocol. It stops at the first mistake. Clauses are
//! in [`clauses`], scalar expressions in [`expression`], literals in
//! [`literal`].

mod clauses;
mod expression;
mod literal;

use crate::ast::{HEIGHT_MAX, Name, Select};
use crate::diagnostic::{Diagnostic, LIMIT_CODE, Span};
use crate::lexer::{Keyword, Symbol, Token, TokenKind, tokenize};

/// The longest statement that the service accepts, in bytes
/// (`maxSqlQueryInputLength`).
pub(crate) const QUERY_LENGTH_MAX: usize = 512 * 1024;

/// The most joins in one statement (`maxJoinsPerSqlQuery`).
pub(crate) const JOINS_MAX: usize = 10;

/// How deep the parser may recurse, so that no statement overflows the stack. A subquery takes
/// two levels.
const NESTING_MAX: u16 = 80;

/// The result of parsing something.
type Parse<T> = Result<T, Diagnostic>;

/// Parses a whole statement.
pub(crate) fn parse(text: &str) -> Parse<Box<Select>> {
    if text.len() > QUERY_LENGTH_MAX {
        let message = format!("The query is longer than the maximum of {QUERY_LENGTH_MAX} bytes.");
        return Err(Diagnostic { code: LIMIT_CODE, message, start: 0, end: 0 });
    }
    let tokens = tokenize(text);
    let mut parser = Parser { text, tokens, at: 0, nesting: 0, joins: 0 };
    let select = parser.select()?;
    match parser.peek() {
        TokenKind::End => Ok(select),
        _ => Err(parser.unexpected()),
    }
}

struct Parser<'a> {
    text: &'a str,
    tokens: Vec<Token>,
    /// The index of the current token.
    at: usize,
    /// How deep the parser has recursed.
    nesting: u16,
    /// The joins in the statement so far.
    joins: usize,
}

impl Parser<'_> {
    fn token(&self) -> Token {
        self.ahead(0)
    }

    /// The token `count` tokens after the current one; the `End` token beyond the last.
    fn ahead(&self, count: usize) -> Token {
        let last = self.tokens.len() - 1;
        self.tokens[(self.at + count).min(last)]
    }

    fn peek(&self) -> TokenKind {
        self.token().kind
    }

    fn span(&self) -> Span {
        self.token().span
    }

    /// The span of the token before the current one.
    fn last_span(&self) -> Span {
        self.tokens[self.at.saturating_sub(1)].span
    }

    fn advance(&mut self) -> Token {
        let token = self.token();
        if token.kind != TokenKind::End {
            self.at += 1;
        }
        token
    }

    fn at_keyword(&self, keyword: Keyword) -> bool {
        self.peek() == TokenKind::Keyword(keyword)
    }

    fn at_symbol(&self, symbol: Symbol) -> bool {
        self.peek() == TokenKind::Symbol(symbol)
    }

    fn eat_keyword(&mut self, keyword: Keyword) -> bool {
        let found = self.at_keyword(keyword);
        self.at += usize::from(found);
        found
    }

    fn eat_symbol(&mut self, symbol: Symbol) -> bool {
        let found = self.at_symbol(symbol);
        self.at += usize::from(found);
        found
    }

    fn expect_keyword(&mut self, keyword: Keyword) -> Parse<()> {
        if self.eat_keyword(keyword) { Ok(()) } else { Err(self.unexpected()) }
    }

    fn expect_symbol(&mut self, symbol: Symbol) -> Parse<()> {
        if self.eat_symbol(symbol) { Ok(()) } else { Err(self.unexpected()) }
    }

    /// Whether the token `count` tokens after the current one is this
    /// identifier, in any letter case.
    fn at_word(&self, count: usize, word: &str) -> bool {
        let token = self.ahead(count);
        token.kind == TokenKind::Identifier && token.span.text(self.text).eq_ignore_ascii_case(word)
    }

    fn identifier(&mut self) -> Parse<Name> {
        match self.peek() {
            TokenKind::Identifier => {
                let span = self.advance().span;
                Ok(Name { text: span.text(self.text).to_owned(), span })
            }
            _ => Err(self.unexpected()),
        }
    }

    /// The syntax error at the current token.
    fn unexpected(&self) -> Diagnostic {
        let token = self.token();
        let near = token.span.text(self.text);
        let (code, message) = match token.kind {
            TokenKind::End => ("SC1002", "Syntax error, unexpected end-of-file.".to_owned()),
            TokenKind::Invalid if near.starts_with(['"', '\'']) => {
                ("SC1012", format!("Syntax error, invalid string literal token '{near}'."))
            }
            TokenKind::Invalid => ("SC1010", format!("Syntax error, invalid token '{near}'.")),
            TokenKind::Identifier
            | TokenKind::Keyword(_)
            | TokenKind::Parameter
            | TokenKind::String
            | TokenKind::Number
            | TokenKind::Symbol(_) => ("SC1001", format!("Syntax error, incorrect syntax near '{near}'.")),
        };
        Diagnostic::new(code, message, self.text, token.span)
    }

    /// Parses a part one level deeper, or returns an error when that is deeper than
    /// [`NESTING_MAX`].
    fn nested<T>(&mut self, part: impl FnOnce(&mut Self) -> Parse<T>) -> Parse<T> {
        if self.nesting >= NESTING_MAX {
            return Err(self.too_deep(self.span()));
        }
        self.nesting += 1;
        let outcome = part(self);
        self.nesting -= 1;
        outcome
    }

    /// Returns the part, or an error when its tree is higher than [`HEIGHT_MAX`].
    fn within_height<T>(&self, height: u16, span: Span, part: T) -> Parse<T> {
        if height > HEIGHT_MAX { Err(self.too_deep(span)) } else { Ok(part) }
    }

    fn too_deep(&self, span: Span) -> Diagnostic {
        self.limit_exceeded("The query is nested too deeply.", span)
    }

    fn limit_exceeded(&self, message: &str, span: Span) -> Diagnostic {
        Diagnostic::new(LIMIT_CODE, message, self.text, span)
    }
}
