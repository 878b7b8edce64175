//! Splits a Rust source into the tokens that matter for paths: words, `::`, single
//! signs, and the contents of strings. Comments and character literals are left out.

/// One token. Numbers and the names of lifetimes count as words.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Token<'a> {
    Word(&'a str),
    /// The contents of a string literal, as written.
    Text(&'a str),
    /// `::`
    Separator,
    Sign(char),
}

pub(super) fn tokens(source: &str) -> Vec<Token<'_>> {
    let mut found = Vec::new();
    let mut rest = source;
    while let Some(first) = rest.chars().next() {
        let (token, length) = read_token(rest, first);
        found.extend(token);
        rest = &rest[length..];
    }
    found
}

/// Reads the first token, comment, space or character literal of the text. Returns the token
/// (`None` if it is not a token) and the number of bytes read.
fn read_token(rest: &str, first: char) -> (Option<Token<'_>>, usize) {
    if rest.starts_with("//") {
        return (None, rest.find('\n').unwrap_or(rest.len()));
    }
    if rest.starts_with("/*") {
        return (None, block_comment_length(rest));
    }
    if rest.starts_with("::") {
        return (Some(Token::Separator), 2);
    }
    if let Some((text, length)) = string_literal(rest) {
        return (Some(Token::Text(text)), length);
    }
    if first == '\'' {
        return (None, skipped_after_quote(rest));
    }
    if is_word(first) {
        // The `r#` of a raw identifier is not part of its name.
        let begin = if rest.starts_with("r#") { 2 } else { 0 };
        let length = begin + rest[begin..].find(|letter| !is_word(letter)).unwrap_or(rest.len() - begin);
        return (Some(Token::Word(&rest[begin..length])), length);
    }
    let token = (!first.is_whitespace()).then_some(Token::Sign(first));
    (token, first.len_utf8())
}

fn is_word(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

/// The length of a block comment in bytes, with the comments inside it.
fn block_comment_length(rest: &str) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while at < rest.len() {
        let (step, change) = match &rest.as_bytes()[at..] {
            [b'/', b'*', ..] => (2, 1),
            [b'*', b'/', ..] => (2, -1),
            _ => (1, 0),
        };
        at += step;
        depth = depth.saturating_add_signed(change);
        if depth == 0 {
            break;
        }
    }
    at
}

/// The string literal at the beginning, if there is one: its contents, and the length of the
/// whole literal in bytes.
fn string_literal(rest: &str) -> Option<(&str, usize)> {
    let prefix = ["br", "cr", "b", "c", "r", ""].into_iter().find(|prefix| {
        let after = rest.strip_prefix(prefix);
        after.is_some_and(|after| {
            let after = if prefix.contains('r') { after.trim_start_matches('#') } else { after };
            after.starts_with('"')
        })
    })?;
    let after = &rest[prefix.len()..];
    if prefix.contains('r') {
        let hashes = after.find('"')?;
        let end = format!("\"{}", &after[..hashes]);
        let contents = &after[hashes + 1..];
        let length = contents.find(&end).unwrap_or(contents.len());
        let whole = (prefix.len() + hashes + 1 + length + end.len()).min(rest.len());
        return Some((&contents[..length], whole));
    }
    let contents = &after[1..];
    let mut is_escaped = false;
    let length = contents
        .find(|letter| {
            let is_end = letter == '"' && !is_escaped;
            is_escaped = letter == '\\' && !is_escaped;
            is_end
        })
        .unwrap_or(contents.len());
    Some((&contents[..length], (prefix.len() + length + 2).min(rest.len())))
}

/// The number of bytes to skip at a single quote. `'a'` and `'\''` are characters and are
/// skipped whole. `'a` alone is a lifetime, and only its quote is skipped.
fn skipped_after_quote(rest: &str) -> usize {
    let mut letters = rest.char_indices().skip(1);
    match letters.next() {
        Some((_, '\\')) => {
            let close = letters.skip(1).find(|(_, letter)| *letter == '\'');
            close.map_or(rest.len(), |(at, _)| at + 1)
        }
        Some(_) => match letters.next() {
            Some((at, '\'')) => at + 1,
            _ => 1,
        },
        None => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_characters_are_skipped_and_strings_keep_their_text() {
        let source = r###"a::b // crate::x
            /* crate::y /* nested */ still */ '"' '\'' &'a str "text \" {" r#"raw "quoted""# r#type"###;
        let expected = [
            Token::Word("a"),
            Token::Separator,
            Token::Word("b"),
            Token::Sign('&'),
            Token::Word("a"),
            Token::Word("str"),
            Token::Text("text \\\" {"),
            Token::Text("raw \"quoted\""),
            Token::Word("type"),
        ];
        assert_eq!(tokens(source), expected);
    }
}
