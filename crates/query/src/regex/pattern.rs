//! Turns a pattern of the service's engine, which is PCRE, into a pattern of `regex-lite`.
//!
//! Constructs that `regex-lite` lacks are written in another way where that is short: quoted
//! text (`\Q…\E`), classes of white space, braces that are not a counted repetition, `$` and `\Z`
//! (which also match before a line feed that ends the text), and letter case beyond ASCII. A
//! pattern with any other construct of PCRE is refused, because it would match something else or
//! nothing. A pattern that is not valid is copied, and `regex-lite` finds the mistake.

use std::fmt::Write as _;

/// The pattern has a construct that cannot be expressed in `regex-lite`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unsupported;

type Translated = Result<(), Unsupported>;

/// The members of `\h`, as they are written in a class.
const HORIZONTAL: &str = r"\t \xA0\u{1680}\u{180E}\u{2000}-\u{200A}\u{202F}\u{205F}\u{3000}";

/// The members of `\v`, as they are written in a class.
const VERTICAL: &str = r"\n-\r\x85\u{2028}\u{2029}";

/// Matches at the end of the text, and before a line feed that ends the text.
const END: &str = r"(?:\n?\z)";

/// The longest name of a class such as `[:^xdigit:]`, with room to spare. It bounds how far each
/// bracket looks ahead.
const NAME_LENGTH_MAX: usize = 16;

/// The longest text in the braces of a counted repetition, with room to spare. It bounds how far
/// each brace looks ahead.
const COUNT_LENGTH_MAX: usize = 32;

/// The pattern for `regex-lite`.
pub(super) fn translate(pattern: &str, modifiers: &str) -> Result<String, Unsupported> {
    let has = |flag: char| modifiers.contains(flag);
    let mut translator = Translator {
        rest: pattern,
        out: String::with_capacity(pattern.len()),
        flags: Flags { ignores_case: has('i'), ignores_blanks: has('x'), is_multi_line: has('m') },
        outer_flags: Vec::new(),
        follows_quantifier: false,
    };
    while let Some(character) = translator.next() {
        translator.item(character)?;
    }
    Ok(translator.out)
}

/// The flags that change the translation. `regex-lite` itself knows what they do to ASCII letters.
#[derive(Debug, Clone, Copy)]
struct Flags {
    ignores_case: bool,
    ignores_blanks: bool,
    is_multi_line: bool,
}

impl Flags {
    /// The flags after the text between `(?` and `)` or `:`, such as `i` or `m-i`.
    fn changed_by(mut self, text: &str) -> Flags {
        let mut is_set = true;
        for character in text.chars() {
            match character {
                '-' => is_set = false,
                'i' => self.ignores_case = is_set,
                'x' => self.ignores_blanks = is_set,
                'm' => self.is_multi_line = is_set,
                _ => {}
            }
        }
        self
    }
}

struct Translator<'p> {
    rest: &'p str,
    out: String,
    /// The flags at this position.
    flags: Flags,
    /// For each open group, the flags after its end.
    outer_flags: Vec<Flags>,
    /// Whether the last item was a quantifier. A `?` after a quantifier makes it lazy, and a `+`
    /// makes it possessive.
    follows_quantifier: bool,
}

impl Translator<'_> {
    fn next(&mut self) -> Option<char> {
        let character = self.rest.chars().next()?;
        self.rest = &self.rest[character.len_utf8()..];
        Some(character)
    }

    fn eat(&mut self, text: &str) -> bool {
        let rest = self.rest.strip_prefix(text);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    /// Removes the text before `end`, and `end` itself. Without `end`, removes the rest of the
    /// pattern. Returns the removed text without `end`.
    fn take_until(&mut self, end: &str) -> &str {
        let (taken, rest) = self.rest.split_once(end).unwrap_or((self.rest, ""));
        self.rest = rest;
        taken
    }

    /// Translates an item outside of a class.
    fn item(&mut self, character: char) -> Translated {
        let follows_quantifier = std::mem::take(&mut self.follows_quantifier);
        match character {
            '\\' => self.escape()?,
            '[' => self.class()?,
            '(' => self.group()?,
            ')' => {
                self.out.push(')');
                self.flags = self.outer_flags.pop().unwrap_or(self.flags);
            }
            '+' if follows_quantifier => return Err(Unsupported),
            '*' | '+' | '?' => {
                self.out.push(character);
                self.follows_quantifier = !follows_quantifier;
            }
            '{' => match counted(self.rest) {
                Some(length) => {
                    let _ = write!(self.out, "{{{}", &self.rest[..length]);
                    self.rest = &self.rest[length..];
                    self.follows_quantifier = true;
                }
                None => self.out.push_str(r"\{"),
            },
            '$' if !self.flags.is_multi_line && self.is_last() => self.out.push_str(END),
            '#' if self.flags.ignores_blanks => {
                self.take_until("\n");
            }
            _ => self.literal(character),
        }
        Ok(())
    }

    /// Whether an alternative or the pattern ends here.
    fn is_last(&self) -> bool {
        self.rest.is_empty() || self.rest.starts_with([')', '|'])
    }

    /// A character that means itself, or an operator that needs no translation.
    fn literal(&mut self, character: char) {
        match other_case(character).filter(|_| self.flags.ignores_case) {
            Some(other) => {
                let _ = write!(self.out, "[{character}{other}]");
            }
            None => self.out.push(character),
        }
    }

    fn escape(&mut self) -> Translated {
        let Some(escaped) = self.next() else {
            self.out.push('\\');
            return Ok(());
        };
        match escaped {
            'Q' => {
                let quoted = self.take_until(r"\E").to_owned();
                quoted.chars().for_each(|character| self.quoted(character));
            }
            'E' => {}
            'h' => self.class_of("", HORIZONTAL),
            'H' => self.class_of("^", HORIZONTAL),
            'v' => self.class_of("", VERTICAL),
            'V' => self.class_of("^", VERTICAL),
            'N' => self.out.push_str(r"[^\n]"),
            'R' => {
                let _ = write!(self.out, r"(?:\r\n|[{VERTICAL}])");
            }
            'Z' if self.is_last() => self.out.push_str(END),
            'b' if self.rest.starts_with('{') => return Err(Unsupported),
            'Z' => return Err(Unsupported),
            _ => return self.common_escape(escaped),
        }
        Ok(())
    }

    /// An escape that means the same inside and outside of a class.
    fn common_escape(&mut self, escaped: char) -> Translated {
        match escaped {
            'e' => self.out.push_str(r"\x1B"),
            'c' | 'C' | 'G' | 'K' | 'X' | 'g' | 'k' | 'o' | 'p' | 'P' | '0'..='9' => return Err(Unsupported),
            'x' if !is_hexadecimal(self.rest) => return Err(Unsupported),
            _ if escaped.is_ascii_alphabetic() => {
                let _ = write!(self.out, "\\{escaped}");
            }
            _ => self.quoted(escaped),
        }
        Ok(())
    }

    /// A character that means itself, whatever it means in a pattern.
    fn quoted(&mut self, character: char) {
        if character.is_alphanumeric() {
            self.literal(character);
        } else {
            let _ = write!(self.out, r"\x{{{:X}}}", character as u32);
        }
    }

    fn class_of(&mut self, negation: &str, members: &str) {
        let _ = write!(self.out, "[{negation}{members}]");
    }

    /// A class, after its opening bracket. A `]` directly after the opening bracket is a member.
    fn class(&mut self) -> Translated {
        self.out.push('[');
        if self.eat("^") {
            self.out.push('^');
        }
        if self.eat("]") {
            self.out.push_str(r"\]");
        }
        while let Some(character) = self.next() {
            match character {
                ']' => {
                    self.out.push(']');
                    return Ok(());
                }
                '[' if has_class_name(self.rest) => {
                    let name = self.take_until(":]").to_owned();
                    let _ = write!(self.out, "[{name}:]");
                }
                '[' | '&' | '~' => {
                    let _ = write!(self.out, "\\{character}");
                }
                '\\' => self.class_escape()?,
                _ => self.class_member(character),
            }
        }
        Ok(())
    }

    fn class_escape(&mut self) -> Translated {
        match self.next() {
            Some('h') => self.out.push_str(HORIZONTAL),
            Some('v') => self.out.push_str(VERTICAL),
            Some('b') => self.out.push_str(r"\x08"),
            Some('H' | 'V' | 'Q' | 'R' | 'N') => return Err(Unsupported),
            Some(escaped) if escaped.is_ascii_alphanumeric() => return self.common_escape(escaped),
            Some(escaped) => {
                let _ = write!(self.out, r"\x{{{:X}}}", escaped as u32);
            }
            None => self.out.push('\\'),
        }
        Ok(())
    }

    /// A member of a class, or a range of members. Beyond ASCII, members of the other letter case
    /// are added. For a range they are added if they are a range of the same length.
    fn class_member(&mut self, first: char) {
        self.out.push(first);
        let mut after = self.rest.chars();
        let last = match (after.next(), after.next()) {
            (Some('-'), Some(last)) if !matches!(last, ']' | '[' | '\\') => Some(last),
            _ => None,
        };
        if let Some(last) = last {
            self.rest = after.as_str();
            let _ = write!(self.out, "-{last}");
        }
        if !self.flags.ignores_case {
            return;
        }
        match (other_case(first), last, last.and_then(other_case)) {
            (Some(other), None, _) => self.out.push(other),
            (Some(other), Some(last), Some(other_last))
                if (other as u32).wrapping_sub(first as u32)
                    == (other_last as u32).wrapping_sub(last as u32) =>
            {
                let _ = write!(self.out, "{other}-{other_last}");
            }
            _ => {}
        }
    }

    /// A group, after its opening parenthesis. Comments are dropped.
    fn group(&mut self) -> Translated {
        if self.rest.starts_with('*') {
            return Err(Unsupported);
        }
        if self.eat("?#") {
            self.take_until(")");
            return Ok(());
        }
        let Some(after) = self.rest.strip_prefix('?') else {
            self.out.push('(');
            self.outer_flags.push(self.flags);
            return Ok(());
        };
        let is_name = |text: &str| text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        let is_named = after.strip_prefix("P<").or(after.strip_prefix('<')).is_some_and(is_name);
        let flags_end = after.find(|c: char| !"imsx-".contains(c)).unwrap_or(after.len());
        if !is_named && !after[flags_end..].starts_with([':', ')']) {
            // A pattern that ends here is not valid, and `regex-lite` refuses it.
            return if after[flags_end..].is_empty() { self.copy_group(flags_end) } else { Err(Unsupported) };
        }
        self.copy_group(if is_named { 0 } else { flags_end })
    }

    /// Copies `(?` and the flags after it. Without a colon, as in `(?i)`, this is no group: the flags
    /// hold to the end of the group around them.
    fn copy_group(&mut self, flags_length: usize) -> Translated {
        let length = 1 + flags_length;
        let (copied, rest) = self.rest.split_at(length);
        let _ = write!(self.out, "({copied}");
        self.rest = rest;
        let flags = self.flags.changed_by(&copied[1..]);
        if self.eat(")") {
            self.out.push(')');
        } else {
            self.outer_flags.push(self.flags);
        }
        self.flags = flags;
        Ok(())
    }
}

/// Whether the text begins with the rest of a class such as `[:alpha:]`.
fn has_class_name(text: &str) -> bool {
    let Some(text) = text.strip_prefix(':') else { return false };
    let is_name = |byte: &u8| byte.is_ascii_alphabetic() || *byte == b'^';
    let length = text.as_bytes().iter().take(NAME_LENGTH_MAX).take_while(|byte| is_name(byte)).count();
    text[length..].starts_with(":]")
}

/// The length of a counted repetition (`2}`, `2,}` or `2,3}`) at the start of the text. Other
/// braces are literal in PCRE.
fn counted(text: &str) -> Option<usize> {
    let length = text.bytes().take(COUNT_LENGTH_MAX).position(|byte| byte == b'}')?;
    let count = &text[..length];
    let is_number = |digits: &str| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let is_counted = match count.split_once(',') {
        Some((low, high)) => is_number(low) && (high.is_empty() || is_number(high)),
        None => is_number(count),
    };
    is_counted.then_some(count.len() + 1)
}

/// Whether two hexadecimal digits follow, or digits in braces. PCRE accepts fewer digits too.
fn is_hexadecimal(text: &str) -> bool {
    text.starts_with('{') || text.len() > 1 && text.bytes().take(2).all(|byte| byte.is_ascii_hexdigit())
}

/// The character in the other letter case, if it is one character. `regex-lite` itself knows the
/// cases of ASCII letters.
fn other_case(character: char) -> Option<char> {
    if character.is_ascii() {
        return None;
    }
    let single = |mut characters: Box<dyn Iterator<Item = char>>| {
        characters.next().filter(|other| *other != character && characters.next().is_none())
    };
    single(Box::new(character.to_lowercase())).or_else(|| single(Box::new(character.to_uppercase())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constructs_of_pcre_are_written_for_regex_lite() {
        for (pattern, expect) in [
            ("^a(?:b|c)+?$", r"^a(?:b|c)+?(?:\n?\z)"),
            (r"\Qa.b\E+", r"a\x{2E}b+"),
            ("{abc}", r"\{abc}"),
            ("a{,3}b{2}c{1,}d{1,2}", r"a\{,3}b{2}c{1,}d{1,2}"),
            ("[]a[&&b]", r"[\]a\[\&\&b]"),
            ("[[:alpha:]_]", "[[:alpha:]_]"),
            ("a(?#comment)b", "ab"),
            (r"\<\/\_", r"\x{3C}\x{2F}\x{5F}"),
            (r"a\Z|b", r"a(?:\n?\z)|b"),
        ] {
            assert_eq!(translate(pattern, ""), Ok(expect.to_owned()), "{pattern}");
        }
        assert_eq!(translate("é[à-ü]", "i"), Ok("[éÉ][à-üÀ-Ü]".to_owned()));
        assert_eq!(translate("a$", "m"), Ok("a$".to_owned()));
        assert_eq!(translate("a # (?=b\nc", "x"), Ok("a c".to_owned()));
    }

    #[test]
    fn flags_hold_to_the_end_of_their_group() {
        for (pattern, expect) in [
            ("(?x:a # b\n)#c", "(?x:a )#c"),
            ("(?i:é)é", "(?i:[éÉ])é"),
            ("a(?i)é", "a(?i)[éÉ]"),
            ("(a(?i)é|é)é", "(a(?i)[éÉ]|[éÉ])é"),
            ("(?i)é(?-i:é)é", "(?i)[éÉ](?-i:é)[éÉ]"),
            ("(?m:a$)a$", r"(?m:a$)a(?:\n?\z)"),
        ] {
            assert_eq!(translate(pattern, ""), Ok(expect.to_owned()), "{pattern}");
        }
    }

    #[test]
    fn other_constructs_of_pcre_are_refused() {
        for pattern in [
            r"\p{L}", r"[\P{L}]", "a++", "a*+", "a{2}+", "(?|a)", "(?R)", "(?1)", "(?P=n)", "(*FAIL)",
            r"\Ka", r"\101", r"\x1", "(?'n'a)", r"a\Zb", r"\X",
        ] {
            assert_eq!(translate(pattern, ""), Err(Unsupported), "{pattern}");
        }
    }
}
