//! Parsing the clauses of a select, in their fixed order. A method is named after the
//! clause that it parses.

use super::{JOINS_MAX, Parse, Parser};
use crate::ast::{
    Collection, Count, Direction, Expr, ExprKind, From, Name, OrderBy, OrderItem, PathStep, Select,
    SelectItem, Selection, Source, Window,
};
use crate::diagnostic::{Diagnostic, Span};
use crate::lexer::{Keyword, Symbol, TokenKind};

/// The largest number that may be written after `TOP`, `OFFSET` and `LIMIT`.
/// The value of a parameter may be larger.
const COUNT_MAX: u64 = u32::MAX as u64;

/// The most expressions in GROUP BY. Every part of the select list is compared with
/// each of them, so more would take too much time.
const GROUP_KEYS_MAX: usize = 64;

/// The service's error for a number that is too large or not an integer. Each clause
/// has its own error.
struct CountError {
    code: &'static str,
    message: &'static str,
}

const TOP: CountError =
    CountError { code: "SC2060", message: "The count value provided for a TOP clause must be an integer." };
const LIMIT: CountError =
    CountError { code: "SC2061", message: "The LIMIT count value exceeds the maximum allowed value." };
const OFFSET: CountError =
    CountError { code: "SC2062", message: "The OFFSET count value exceeds the maximum allowed value." };

impl Parser<'_> {
    pub(super) fn select(&mut self) -> Parse<Box<Select>> {
        self.nested(Self::select_clauses)
    }

    fn select_clauses(&mut self) -> Parse<Box<Select>> {
        let start = self.span();
        self.expect_keyword(Keyword::Select)?;
        let select = Select {
            distinct: self.eat_keyword(Keyword::Distinct),
            top: self.top()?,
            selection: self.selection()?,
            from: self.from()?,
            filter: self.filter()?,
            group_by: self.group_by()?,
            order_by: self.order_by()?,
            window: self.window()?,
            height: 0,
        };
        let select = select.with_height();
        self.within_height(select.height, start.to(self.last_span()), Box::new(select))
    }

    fn top(&mut self) -> Parse<Option<Count>> {
        if !self.eat_keyword(Keyword::Top) {
            return Ok(None);
        }
        self.count(&TOP).map(Some)
    }

    fn selection(&mut self) -> Parse<Selection> {
        if self.at_symbol(Symbol::Star) {
            return Ok(Selection::Star(self.advance().span));
        }
        if self.eat_keyword(Keyword::Value) {
            return Ok(Selection::Value(self.expression()?));
        }
        let mut items = vec![self.select_item()?];
        while self.eat_symbol(Symbol::Comma) {
            items.push(self.select_item()?);
        }
        Ok(Selection::List(items))
    }

    fn select_item(&mut self) -> Parse<SelectItem> {
        let expr = self.expression()?;
        let alias = self.alias()?;
        Ok(SelectItem { expr, alias })
    }

    /// `AS name`, or just a name.
    fn alias(&mut self) -> Parse<Option<Name>> {
        if self.eat_keyword(Keyword::As) || self.peek() == TokenKind::Identifier {
            return self.identifier().map(Some);
        }
        Ok(None)
    }

    fn from(&mut self) -> Parse<Option<From>> {
        if !self.eat_keyword(Keyword::From) {
            return Ok(None);
        }
        let first = self.source()?;
        let mut joins = Vec::new();
        while self.at_keyword(Keyword::Join) {
            let span = self.advance().span;
            self.joins += 1;
            if self.joins > JOINS_MAX {
                return Err(self.limit_exceeded("The query exceeded the maximum number of joins.", span));
            }
            joins.push(self.source()?);
        }
        Ok(Some(From { first, joins }))
    }

    fn source(&mut self) -> Parse<Source> {
        let iterates =
            self.peek() == TokenKind::Identifier && self.ahead(1).kind == TokenKind::Keyword(Keyword::In);
        if iterates {
            let name = self.identifier()?;
            self.expect_keyword(Keyword::In)?;
            return Ok(Source::Iteration { name, collection: self.collection()? });
        }
        let collection = self.collection()?;
        let alias = self.alias()?;
        Ok(Source::Aliased { collection, alias })
    }

    fn collection(&mut self) -> Parse<Collection> {
        let start = self.span();
        if self.eat_symbol(Symbol::OpenParen) {
            let select = self.select()?;
            self.expect_symbol(Symbol::CloseParen)?;
            return Ok(Collection::Subquery { select, span: start.to(self.last_span()) });
        }
        let root = self.identifier()?;
        let mut steps = Vec::new();
        loop {
            if self.eat_symbol(Symbol::Dot) {
                steps.push(PathStep::Member(self.identifier()?.text));
            } else if self.eat_symbol(Symbol::OpenBracket) {
                steps.push(self.bracket_step()?);
                self.expect_symbol(Symbol::CloseBracket)?;
            } else {
                return Ok(Collection::Path { root, steps });
            }
        }
    }

    fn bracket_step(&mut self) -> Parse<PathStep> {
        match self.peek() {
            TokenKind::String => self.string().map(PathStep::Quoted),
            TokenKind::Number => {
                let digits = self.span().text(self.text).to_owned();
                let item = digits.parse().map_err(|_| self.unexpected())?;
                self.advance();
                Ok(PathStep::Item(item))
            }
            _ => Err(self.unexpected()),
        }
    }

    fn filter(&mut self) -> Parse<Option<Expr>> {
        if !self.eat_keyword(Keyword::Where) {
            return Ok(None);
        }
        self.expression().map(Some)
    }

    fn group_by(&mut self) -> Parse<Option<Vec<Expr>>> {
        if !self.eat_keyword(Keyword::Group) {
            return Ok(None);
        }
        self.expect_keyword(Keyword::By)?;
        let keys = self.expressions()?;
        match keys.get(GROUP_KEYS_MAX) {
            Some(key) => Err(self.limit_exceeded("The query groups by too many expressions.", key.span)),
            None => Ok(Some(keys)),
        }
    }

    fn order_by(&mut self) -> Parse<Option<OrderBy>> {
        if !self.eat_keyword(Keyword::Order) {
            return Ok(None);
        }
        self.expect_keyword(Keyword::By)?;
        // RANK is not a reserved word: in `ORDER BY rank` it is an identifier.
        let is_rank = self.at_word(0, "RANK") && self.ahead(1).kind == TokenKind::Identifier;
        if is_rank {
            self.advance();
        }
        let mut items = vec![self.order_item(is_rank)?];
        while self.eat_symbol(Symbol::Comma) {
            items.push(self.order_item(is_rank)?);
        }
        Ok(Some(OrderBy { is_rank, items }))
    }

    /// One key of ORDER BY; after `RANK` only function calls are allowed.
    fn order_item(&mut self, is_rank: bool) -> Parse<OrderItem> {
        if is_rank && self.ahead(1).kind != TokenKind::Symbol(Symbol::OpenParen) {
            return Err(self.unexpected());
        }
        let expr = self.expression()?;
        if is_rank && !matches!(expr.kind, ExprKind::Call { .. }) {
            return Err(self.unexpected());
        }
        let direction = match self.peek() {
            TokenKind::Keyword(Keyword::Asc) => Some(Direction::Ascending),
            TokenKind::Keyword(Keyword::Desc) => Some(Direction::Descending),
            _ => None,
        };
        if direction.is_some() {
            self.advance();
        }
        Ok(OrderItem { expr, direction })
    }

    fn window(&mut self) -> Parse<Option<Window>> {
        if !self.eat_keyword(Keyword::Offset) {
            return Ok(None);
        }
        let offset = self.count(&OFFSET)?;
        self.expect_keyword(Keyword::Limit)?;
        let limit = self.count(&LIMIT)?;
        Ok(Some(Window { offset, limit }))
    }

    fn count(&mut self, error: &CountError) -> Parse<Count> {
        let span: Span = self.span();
        match self.peek() {
            TokenKind::Parameter => {
                let text = self.advance().span.text(self.text).to_owned();
                Ok(Count::Parameter(Name { text, span }))
            }
            TokenKind::Number => {
                self.advance();
                match span.text(self.text).parse() {
                    Ok(value) if value <= COUNT_MAX => Ok(Count::Literal { value }),
                    _ => Err(Diagnostic::new(error.code, error.message, self.text, span)),
                }
            }
            _ => Err(self.unexpected()),
        }
    }
}
