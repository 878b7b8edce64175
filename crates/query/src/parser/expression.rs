//! Parsing scalar expressions, with a Pratt parser.
//!
//! Binding powers follow the service's grammar, from weak to strong: `??`,
//! `?:`, `OR`, `AND`, the predicates (`BETWEEN`, `IN`, `LIKE`; they do not
//! chain), `||`, `|`, `^`, `&`, equality, relations, shifts, sums, products, unary
//! operators (`NOT` among them), then paths.
//!
//! So `NOT c.a = 1` means `(NOT c.a) = 1`: the grammar of Microsoft's SDK
//! (azure-cosmos-dotnet-v3, `src/Query/Core/Parser/sql.g4`) has `NOT` beside
//! `-`, `+` and `~` in `unary_scalar_expression`. These operators bind more
//! strongly than every binary operator. The documentation only says that `NOT`
//! binds more strongly than `AND`, and `AND` more strongly than `OR`.

use super::{Parse, Parser};
use crate::ast::{BinaryOperator, Expr, ExprKind, LogicalOperator, Name, SubqueryKind, UnaryOperator};
use crate::diagnostic::Span;
use crate::lexer::{Keyword, Symbol, TokenKind};

/// How strongly an operator binds its operands.
type Power = u8;

/// Accepts every operator.
const WEAKEST: Power = 0;
const COALESCE: Power = 1;
const CONDITIONAL: Power = 2;
const OR: Power = 3;
const AND: Power = 4;
const PREDICATE: Power = 5;
/// The least power inside an operand of a predicate. Every operator that binds more
/// strongly than a predicate has at least this power.
const OPERAND: Power = 6;

/// An operator that may follow a complete operand.
enum Infix {
    Binary(BinaryOperator, Power),
    Logical(LogicalOperator, Power),
    Conditional,
    Predicate,
}

impl Parser<'_> {
    pub(super) fn expression(&mut self) -> Parse<Expr> {
        self.nested(|parser| parser.expression_from(WEAKEST))
    }

    /// One or more expressions between commas.
    pub(super) fn expressions(&mut self) -> Parse<Vec<Expr>> {
        let mut list = vec![self.expression()?];
        while self.eat_symbol(Symbol::Comma) {
            list.push(self.expression()?);
        }
        Ok(list)
    }

    /// An expression, or an error when its tree is too high.
    fn new_expr(&self, kind: ExprKind, span: Span) -> Parse<Expr> {
        let expr = Expr::new(kind, span);
        self.within_height(expr.height, span, expr)
    }

    /// Parses an expression whose operators bind at least as strongly as
    /// `power_min`.
    fn expression_from(&mut self, power_min: Power) -> Parse<Expr> {
        let left = self.unary()?;
        self.operators_after(left, power_min)
    }

    /// Parses the operators after the first operand.
    fn operators_after(&mut self, mut left: Expr, power_min: Power) -> Parse<Expr> {
        let mut follows_predicate = false;
        while let Some(infix) = self.infix() {
            left = match infix {
                Infix::Binary(operator, power) if power >= power_min => {
                    self.advance();
                    let right = self.nested(|parser| parser.expression_from(power + 1))?;
                    let span = left.span.to(right.span);
                    self.new_expr(ExprKind::Binary(operator, Box::new(left), Box::new(right)), span)?
                }
                Infix::Logical(operator, power) if power >= power_min => {
                    follows_predicate = false;
                    self.logical(left, operator, power)?
                }
                Infix::Conditional if CONDITIONAL >= power_min => self.conditional(left)?,
                Infix::Predicate if PREDICATE >= power_min && !follows_predicate => {
                    follows_predicate = true;
                    self.predicate(left)?
                }
                Infix::Binary(..) | Infix::Logical(..) | Infix::Conditional | Infix::Predicate => break,
            };
        }
        Ok(left)
    }

    fn infix(&self) -> Option<Infix> {
        use BinaryOperator as B;
        let (operator, power) = match self.peek() {
            TokenKind::Keyword(Keyword::Or) => return Some(Infix::Logical(LogicalOperator::Or, OR)),
            TokenKind::Keyword(Keyword::And) => return Some(Infix::Logical(LogicalOperator::And, AND)),
            TokenKind::Keyword(Keyword::Between | Keyword::In | Keyword::Like | Keyword::Not) => {
                return Some(Infix::Predicate);
            }
            TokenKind::Symbol(symbol) => match symbol {
                Symbol::Question => return Some(Infix::Conditional),
                Symbol::Coalesce => (B::Coalesce, COALESCE),
                Symbol::Concat => (B::Concat, 6),
                Symbol::Bar => (B::BitOr, 7),
                Symbol::Caret => (B::BitXor, 8),
                Symbol::Ampersand => (B::BitAnd, 9),
                Symbol::Equal => (B::Equal, 10),
                Symbol::NotEqual => (B::NotEqual, 10),
                Symbol::Less => (B::Less, 11),
                Symbol::LessEqual => (B::LessEqual, 11),
                Symbol::Greater => (B::Greater, 11),
                Symbol::GreaterEqual => (B::GreaterEqual, 11),
                Symbol::ShiftLeft => (B::ShiftLeft, 12),
                Symbol::ShiftRight => (B::ShiftRight, 12),
                Symbol::ShiftRightZero => (B::ShiftRightZero, 12),
                Symbol::Plus => (B::Add, 13),
                Symbol::Minus => (B::Subtract, 13),
                Symbol::Star => (B::Multiply, 14),
                Symbol::Slash => (B::Divide, 14),
                Symbol::Percent => (B::Modulo, 14),
                _ => return None,
            },
            _ => return None,
        };
        Some(Infix::Binary(operator, power))
    }

    /// `left AND right`, or `left OR right`. A chain of the same operator stays one node,
    /// however long the chain is.
    fn logical(&mut self, left: Expr, operator: LogicalOperator, power: Power) -> Parse<Expr> {
        self.advance();
        let right = self.nested(|parser| parser.expression_from(power + 1))?;
        let span = left.span.to(right.span);
        match left.kind {
            ExprKind::Logical(chained, mut operands) if chained == operator => {
                // `Expr::new` would walk all operands to compute the height. For a chain
                // that takes quadratic time.
                let height = left.height.max(right.height.saturating_add(1));
                operands.push(right);
                let expr = Expr { kind: ExprKind::Logical(operator, operands), span, height };
                self.within_height(height, span, expr)
            }
            _ => self.new_expr(ExprKind::Logical(operator, vec![left, right]), span),
        }
    }

    fn conditional(&mut self, condition: Expr) -> Parse<Expr> {
        self.expect_symbol(Symbol::Question)?;
        let consequent = self.expression()?;
        self.expect_symbol(Symbol::Colon)?;
        let alternative = self.nested(|parser| parser.expression_from(CONDITIONAL))?;
        let span = condition.span.to(alternative.span);
        self.new_expr(
            ExprKind::Conditional(Box::new(condition), Box::new(consequent), Box::new(alternative)),
            span,
        )
    }

    /// `[NOT] BETWEEN`, `[NOT] IN`, `[NOT] LIKE`.
    fn predicate(&mut self, value: Expr) -> Parse<Expr> {
        let negated = self.eat_keyword(Keyword::Not);
        let value = Box::new(value);
        let start = value.span;
        let kind = match self.peek() {
            TokenKind::Keyword(Keyword::Between) => {
                self.advance();
                let low = Box::new(self.operand()?);
                self.expect_keyword(Keyword::And)?;
                let high = Box::new(self.operand()?);
                ExprKind::Between { value, low, high, negated }
            }
            TokenKind::Keyword(Keyword::In) => {
                self.advance();
                self.expect_symbol(Symbol::OpenParen)?;
                let list = self.expressions()?;
                self.expect_symbol(Symbol::CloseParen)?;
                ExprKind::In { value, list, negated }
            }
            TokenKind::Keyword(Keyword::Like) => {
                self.advance();
                let pattern = Box::new(self.operand()?);
                let escape = self.escape()?;
                ExprKind::Like { value, pattern, escape, negated }
            }
            _ => return Err(self.unexpected()),
        };
        self.new_expr(kind, start.to(self.last_span()))
    }

    fn operand(&mut self) -> Parse<Expr> {
        self.nested(|parser| parser.expression_from(OPERAND))
    }

    fn escape(&mut self) -> Parse<Option<String>> {
        if !self.eat_keyword(Keyword::Escape) {
            return Ok(None);
        }
        match self.peek() {
            TokenKind::String => self.string().map(Some),
            _ => Err(self.unexpected()),
        }
    }

    fn unary(&mut self) -> Parse<Expr> {
        let start = self.span();
        let operator = match self.peek() {
            TokenKind::Symbol(Symbol::Plus) => UnaryOperator::Plus,
            TokenKind::Symbol(Symbol::Minus) => UnaryOperator::Minus,
            TokenKind::Symbol(Symbol::Tilde) => UnaryOperator::BitNot,
            TokenKind::Keyword(Keyword::Not) => UnaryOperator::Not,
            _ => return self.path(),
        };
        self.advance();
        // A minus directly before a number is part of the number, so that the
        // smallest i64 can be written.
        if operator == UnaryOperator::Minus
            && self.peek() == TokenKind::Number
            && self.span().start == start.end
        {
            let value = self.number(true)?;
            return self.new_expr(ExprKind::Literal(Some(value)), start.to(self.last_span()));
        }
        let operand = self.nested(Self::unary)?;
        let span = start.to(operand.span);
        self.new_expr(ExprKind::Unary(operator, Box::new(operand)), span)
    }

    /// A primary expression and the path steps after it.
    fn path(&mut self) -> Parse<Expr> {
        let base = self.primary()?;
        self.steps(base)
    }

    fn steps(&mut self, mut base: Expr) -> Parse<Expr> {
        loop {
            let start = base.span;
            if self.eat_symbol(Symbol::Dot) {
                let name = self.identifier()?;
                let span = start.to(name.span);
                base = self.new_expr(ExprKind::Member(Box::new(base), name), span)?;
            } else if self.eat_symbol(Symbol::OpenBracket) {
                let index = Box::new(self.expression()?);
                self.expect_symbol(Symbol::CloseBracket)?;
                base = self.new_expr(ExprKind::Index(Box::new(base), index), start.to(self.last_span()))?;
            } else {
                return Ok(base);
            }
        }
    }

    fn primary(&mut self) -> Parse<Expr> {
        let start = self.span();
        let kind = match self.peek() {
            TokenKind::Identifier => self.word()?,
            TokenKind::Keyword(keyword) => self.keyword_primary(keyword)?,
            TokenKind::Parameter => ExprKind::Parameter(self.advance().span.text(self.text).to_owned()),
            TokenKind::String => ExprKind::Literal(Some(self.string()?.into())),
            TokenKind::Number => ExprKind::Literal(Some(self.number(false)?)),
            TokenKind::Symbol(Symbol::OpenParen) => return self.parenthesized(),
            TokenKind::Symbol(Symbol::OpenBracket) => self.array()?,
            TokenKind::Symbol(Symbol::OpenBrace) => self.object()?,
            TokenKind::Symbol(_) | TokenKind::Invalid | TokenKind::End => return Err(self.unexpected()),
        };
        self.new_expr(kind, start.to(self.last_span()))
    }

    /// An identifier, a call, or `ALL`, `FIRST`, `LAST` over a subquery.
    fn word(&mut self) -> Parse<ExprKind> {
        let is_call = self.ahead(1).kind == TokenKind::Symbol(Symbol::OpenParen);
        if is_call && self.ahead(2).kind == TokenKind::Keyword(Keyword::Select) {
            let kinds =
                [("ALL", SubqueryKind::All), ("FIRST", SubqueryKind::First), ("LAST", SubqueryKind::Last)];
            if let Some((_, kind)) = kinds.into_iter().find(|(word, _)| self.at_word(0, word)) {
                self.advance();
                return self.subquery(kind);
            }
        }
        let name = self.identifier()?;
        if is_call {
            return self.call(name, false);
        }
        Ok(ExprKind::Identifier(name.text))
    }

    fn keyword_primary(&mut self, keyword: Keyword) -> Parse<ExprKind> {
        let literal = match keyword {
            Keyword::True => Some(true.into()),
            Keyword::False => Some(false.into()),
            Keyword::Null => Some(perihelion_model::json::Value::Null),
            Keyword::Undefined => None,
            Keyword::Array | Keyword::Exists => {
                self.advance();
                let kind = if keyword == Keyword::Array { SubqueryKind::Array } else { SubqueryKind::Exists };
                return self.subquery(kind);
            }
            Keyword::Left | Keyword::Right => {
                let span = self.advance().span;
                let text = span.text(self.text).to_owned();
                return self.call(Name { text, span }, false);
            }
            Keyword::Udf => {
                self.advance();
                self.expect_symbol(Symbol::Dot)?;
                let name = self.identifier()?;
                return self.call(name, true);
            }
            _ => return Err(self.unexpected()),
        };
        self.advance();
        Ok(ExprKind::Literal(literal))
    }

    fn call(&mut self, name: Name, is_udf: bool) -> Parse<ExprKind> {
        self.expect_symbol(Symbol::OpenParen)?;
        if self.eat_symbol(Symbol::CloseParen) {
            return Ok(ExprKind::Call { name, is_udf, arguments: Vec::new() });
        }
        let arguments = self.expressions()?;
        self.expect_symbol(Symbol::CloseParen)?;
        Ok(ExprKind::Call { name, is_udf, arguments })
    }

    fn subquery(&mut self, kind: SubqueryKind) -> Parse<ExprKind> {
        self.expect_symbol(Symbol::OpenParen)?;
        let select = self.select()?;
        self.expect_symbol(Symbol::CloseParen)?;
        Ok(ExprKind::Subquery(kind, select))
    }

    /// Parses consecutive opening parentheses without recursion. The printer puts every
    /// operator in parentheses, so a printed chain of thousands of conditions begins with
    /// thousands of them.
    fn parenthesized(&mut self) -> Parse<Expr> {
        let mut open = 0_usize;
        while self.at_symbol(Symbol::OpenParen) && self.ahead(1).kind != TokenKind::Keyword(Keyword::Select) {
            self.advance();
            open += 1;
        }
        if open == 0 {
            let start = self.span();
            let kind = self.subquery(SubqueryKind::Scalar)?;
            return self.new_expr(kind, start.to(self.last_span()));
        }
        let mut expr = self.expression()?;
        loop {
            self.expect_symbol(Symbol::CloseParen)?;
            open -= 1;
            if open == 0 {
                return Ok(expr);
            }
            expr = self.steps(expr)?;
            expr = self.operators_after(expr, WEAKEST)?;
        }
    }

    fn array(&mut self) -> Parse<ExprKind> {
        self.expect_symbol(Symbol::OpenBracket)?;
        if self.eat_symbol(Symbol::CloseBracket) {
            return Ok(ExprKind::Array(Vec::new()));
        }
        let items = self.expressions()?;
        self.expect_symbol(Symbol::CloseBracket)?;
        Ok(ExprKind::Array(items))
    }

    fn object(&mut self) -> Parse<ExprKind> {
        self.expect_symbol(Symbol::OpenBrace)?;
        let mut members = Vec::new();
        if self.eat_symbol(Symbol::CloseBrace) {
            return Ok(ExprKind::Object(members));
        }
        loop {
            let name = match self.peek() {
                TokenKind::String => self.string()?,
                _ => self.identifier()?.text,
            };
            self.expect_symbol(Symbol::Colon)?;
            members.push((name, self.expression()?));
            if !self.eat_symbol(Symbol::Comma) {
                break;
            }
        }
        self.expect_symbol(Symbol::CloseBrace)?;
        Ok(ExprKind::Object(members))
    }
}
