//! The lexer turns text into tokens.
//!
//! Tokens are small (a kind and two byte offsets) and do not own text. A character
//! that does not start a token becomes an `Invalid` token and not an error. The
//! parser reports an `Invalid` token when it reaches the token. So the error is about
//! the first mistake of the statement, as in the service.

use crate::diagnostic::Span;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TokenKind {
    Identifier,
    Keyword(Keyword),
    /// `@name`
    Parameter,
    /// In single or double quotes; the span includes the quotes.
    String,
    Number,
    Symbol(Symbol),
    /// An invalid character, or a string without its closing quote.
    Invalid,
    End,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keyword {
    And,
    Array,
    As,
    Asc,
    Between,
    By,
    Desc,
    Distinct,
    Escape,
    Exists,
    False,
    From,
    Group,
    In,
    Join,
    Left,
    Like,
    Limit,
    Not,
    Null,
    Offset,
    Or,
    Order,
    Right,
    Select,
    Top,
    True,
    Udf,
    Undefined,
    Value,
    Where,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Symbol {
    Star,
    Comma,
    Dot,
    OpenParen,
    CloseParen,
    OpenBracket,
    CloseBracket,
    OpenBrace,
    CloseBrace,
    Colon,
    Question,
    Coalesce,
    Plus,
    Minus,
    Slash,
    Percent,
    Ampersand,
    Caret,
    Bar,
    Concat,
    Tilde,
    Equal,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    ShiftLeft,
    ShiftRight,
    ShiftRightZero,
}

/// A token: its kind and its location in the text.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Token {
    pub(crate) kind: TokenKind,
    pub(crate) span: Span,
}

/// All tokens of the text, followed by one `End` token.
pub(crate) fn tokenize(text: &str) -> Vec<Token> {
    let mut lexer = Lexer { text, bytes: text.as_bytes(), at: 0 };
    let mut tokens = Vec::new();
    loop {
        lexer.skip_blanks();
        let start = lexer.at;
        let kind = lexer.next_token_kind();
        tokens.push(Token { kind, span: Span::new(start, lexer.at) });
        if kind == TokenKind::End {
            return tokens;
        }
    }
}

struct Lexer<'a> {
    text: &'a str,
    bytes: &'a [u8],
    /// The offset of the next byte to read.
    at: usize,
}

impl Lexer<'_> {
    /// The byte `ahead` bytes after the next one; 0 beyond the end.
    fn peek(&self, ahead: usize) -> u8 {
        self.bytes.get(self.at + ahead).copied().unwrap_or(0)
    }

    /// Skips blanks and `--` comments. The service does not support `/* */`.
    fn skip_blanks(&mut self) {
        loop {
            match self.peek(0) {
                b' ' | b'\t' | b'\r' | b'\n' => self.at += 1,
                b'-' if self.peek(1) == b'-' => {
                    while self.at < self.bytes.len() && self.peek(0) != b'\n' {
                        self.at += 1;
                    }
                }
                _ => return,
            }
        }
    }

    fn next_token_kind(&mut self) -> TokenKind {
        if self.at >= self.bytes.len() {
            return TokenKind::End;
        }
        match self.peek(0) {
            b'a'..=b'z' | b'A'..=b'Z' | b'_' => self.word(),
            b'@' if is_word_start(self.peek(1)) => {
                self.at += 1;
                self.skip_word();
                TokenKind::Parameter
            }
            b'0'..=b'9' => self.number(),
            b'.' if self.peek(1).is_ascii_digit() => self.number(),
            quote @ (b'"' | b'\'') => self.string(quote),
            _ => self.symbol(),
        }
    }

    fn skip_word(&mut self) {
        while is_word_start(self.peek(0)) || self.peek(0).is_ascii_digit() {
            self.at += 1;
        }
    }

    fn word(&mut self) -> TokenKind {
        let start = self.at;
        self.skip_word();
        keyword(&self.text[start..self.at]).map_or(TokenKind::Identifier, TokenKind::Keyword)
    }

    /// Reads digits, a fraction and an exponent, or `0x` and hexadecimal digits. The sign is an
    /// operator.
    fn number(&mut self) -> TokenKind {
        if self.peek(0) == b'0' && matches!(self.peek(1), b'x' | b'X') {
            self.at += 2;
            while self.peek(0).is_ascii_hexdigit() {
                self.at += 1;
            }
            return TokenKind::Number;
        }
        self.skip_digits();
        if self.peek(0) == b'.' {
            self.at += 1;
            self.skip_digits();
        }
        if matches!(self.peek(0), b'e' | b'E') {
            let sign = usize::from(matches!(self.peek(1), b'+' | b'-'));
            if self.peek(1 + sign).is_ascii_digit() {
                self.at += 1 + sign;
                self.skip_digits();
            }
        }
        TokenKind::Number
    }

    fn skip_digits(&mut self) {
        while self.peek(0).is_ascii_digit() {
            self.at += 1;
        }
    }

    fn string(&mut self, quote: u8) -> TokenKind {
        self.at += 1;
        while self.at < self.bytes.len() {
            let byte = self.peek(0);
            self.at += 1;
            if byte == quote {
                return TokenKind::String;
            }
            if byte == b'\\' {
                // The escaped character may be several bytes long; its
                // continuation bytes are neither quotes nor backslashes.
                self.at = (self.at + 1).min(self.bytes.len());
            }
        }
        TokenKind::Invalid
    }

    fn symbol(&mut self) -> TokenKind {
        let pair = match (self.peek(0), self.peek(1)) {
            (b'?', b'?') => Some(Symbol::Coalesce),
            (b'|', b'|') => Some(Symbol::Concat),
            (b'!', b'=') | (b'<', b'>') => Some(Symbol::NotEqual),
            (b'<', b'<') => Some(Symbol::ShiftLeft),
            (b'>', b'>') if self.peek(2) == b'>' => {
                self.at += 1;
                Some(Symbol::ShiftRightZero)
            }
            (b'>', b'>') => Some(Symbol::ShiftRight),
            (b'<', b'=') => Some(Symbol::LessEqual),
            (b'>', b'=') => Some(Symbol::GreaterEqual),
            _ => None,
        };
        if let Some(symbol) = pair {
            self.at += 2;
            return TokenKind::Symbol(symbol);
        }
        let Some(symbol) = symbol_of_one_character(self.peek(0)) else {
            self.at += self.text[self.at..].chars().next().map_or(1, char::len_utf8);
            return TokenKind::Invalid;
        };
        self.at += 1;
        TokenKind::Symbol(symbol)
    }
}

fn symbol_of_one_character(byte: u8) -> Option<Symbol> {
    Some(match byte {
        b'*' => Symbol::Star,
        b',' => Symbol::Comma,
        b'.' => Symbol::Dot,
        b'(' => Symbol::OpenParen,
        b')' => Symbol::CloseParen,
        b'[' => Symbol::OpenBracket,
        b']' => Symbol::CloseBracket,
        b'{' => Symbol::OpenBrace,
        b'}' => Symbol::CloseBrace,
        b':' => Symbol::Colon,
        b'?' => Symbol::Question,
        b'+' => Symbol::Plus,
        b'-' => Symbol::Minus,
        b'/' => Symbol::Slash,
        b'%' => Symbol::Percent,
        b'&' => Symbol::Ampersand,
        b'^' => Symbol::Caret,
        b'|' => Symbol::Bar,
        b'~' => Symbol::Tilde,
        b'=' => Symbol::Equal,
        b'<' => Symbol::Less,
        b'>' => Symbol::Greater,
        _ => return None,
    })
}

fn is_word_start(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || byte == b'_'
}

/// The length of the longest keyword. A longer word is not converted to upper
/// case.
const KEYWORD_LENGTH_MAX: usize = 9;

/// The keyword that the word is, if it is one. Letter case does not matter, except for
/// `udf` and the constants (`false`, `null`, `true`, `undefined`): the service accepts
/// these in lower case only.
fn keyword(word: &str) -> Option<Keyword> {
    match word {
        "false" => return Some(Keyword::False),
        "null" => return Some(Keyword::Null),
        "true" => return Some(Keyword::True),
        "udf" => return Some(Keyword::Udf),
        "undefined" => return Some(Keyword::Undefined),
        _ if word.len() > KEYWORD_LENGTH_MAX => return None,
        _ => {}
    }
    Some(match word.to_ascii_uppercase().as_str() {
        "AND" => Keyword::And,
        "ARRAY" => Keyword::Array,
        "AS" => Keyword::As,
        "ASC" => Keyword::Asc,
        "BETWEEN" => Keyword::Between,
        "BY" => Keyword::By,
        "DESC" => Keyword::Desc,
        "DISTINCT" => Keyword::Distinct,
        "ESCAPE" => Keyword::Escape,
        "EXISTS" => Keyword::Exists,
        "FROM" => Keyword::From,
        "GROUP" => Keyword::Group,
        "IN" => Keyword::In,
        "JOIN" => Keyword::Join,
        "LEFT" => Keyword::Left,
        "LIKE" => Keyword::Like,
        "LIMIT" => Keyword::Limit,
        "NOT" => Keyword::Not,
        "OFFSET" => Keyword::Offset,
        "OR" => Keyword::Or,
        "ORDER" => Keyword::Order,
        "RIGHT" => Keyword::Right,
        "SELECT" => Keyword::Select,
        "TOP" => Keyword::Top,
        "VALUE" => Keyword::Value,
        "WHERE" => Keyword::Where,
        _ => return None,
    })
}
