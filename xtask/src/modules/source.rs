//! Reads one source file: the child modules that it declares, the paths that it names, and
//! the names that it imports. Items under `#[cfg(test)]` and modules called `tests` are left
//! out.
//!
//! Paths are made absolute: `["storage", "Store"]` is `crate::storage::Store`. A path that
//! begins with another name than `crate`, `super` or `self` is relative. A relative path can
//! reach a top-level module only from the crate's root file, so it is left out in all other
//! files.

use super::tokens::{Token, tokens};

/// An absolute path, without `crate`.
pub(super) type Path = Vec<String>;

/// The modules, paths and imports of one file.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Source {
    /// Child modules whose text is in another file.
    pub(super) children: Vec<Child>,
    /// Pairs of a module of the file and a path that it names.
    pub(super) paths: Vec<(Path, Path)>,
    /// Imports of the crate's root file: the imported name, and its absolute path.
    pub(super) imports: Vec<(String, Path)>,
    /// Words of the root file outside of imports. Some of them are imported names.
    pub(super) root_words: Vec<String>,
    /// Modules that the root file declares, inline or in another file.
    pub(super) declared: Vec<String>,
}

/// A declaration `mod name;`.
#[derive(Debug, PartialEq)]
pub(super) struct Child {
    pub(super) module: Path,
    /// The file that the attribute `#[path = "…"]` names, if there is one.
    pub(super) file: Option<String>,
}

/// Reads the text of a module. The path `module` of the crate's root is empty.
pub(super) fn read(text: &str, module: &[String]) -> Source {
    let mut source = Source::default();
    source.scan(&tokens(text), module);
    source
}

impl Source {
    fn scan(&mut self, tokens: &[Token<'_>], module: &[String]) {
        let mut at = 0;
        let mut file = None;
        while at < tokens.len() {
            match &tokens[at..] {
                [Token::Sign('#'), Token::Sign('!'), Token::Sign('['), ..] => {
                    let end = closing(tokens, at + 2);
                    if is_test(&tokens[at + 3..end]) {
                        return;
                    }
                    at = end + 1;
                }
                [Token::Sign('#'), Token::Sign('['), ..] => {
                    let end = closing(tokens, at + 1);
                    let attribute = &tokens[at + 2..end];
                    if is_test(attribute) {
                        at = after_item(tokens, end + 1);
                    } else {
                        if let [Token::Word("path"), Token::Sign('='), Token::Text(path)] = attribute {
                            file = Some((*path).to_owned());
                        }
                        self.read_attribute(attribute, module);
                        at = end + 1;
                    }
                }
                [Token::Word("mod"), Token::Word(name), Token::Sign(sign @ (';' | '{')), ..] => {
                    at = self.read_module(tokens, at, module, name, *sign, file.take());
                }
                [Token::Word("use"), next, ..] if *next != Token::Sign('<') => {
                    at = self.read_import(tokens, at + 1, module);
                }
                [Token::Word(word), rest @ ..] => {
                    let is_after_separator = at > 0 && tokens[at - 1] == Token::Separator;
                    if !is_after_separator && rest.first() == Some(&Token::Separator) {
                        self.read_path(&tokens[at..], module);
                    }
                    if module.is_empty() && !is_after_separator {
                        self.root_words.push((*word).to_owned());
                    }
                    at += 1;
                }
                _ => at += 1,
            }
        }
    }

    /// Reads the paths in an attribute's strings: serde's attributes name functions there.
    fn read_attribute(&mut self, attribute: &[Token<'_>], module: &[String]) {
        for token in attribute {
            if let Token::Text(text) = token
                && (text.starts_with("crate::") || text.starts_with("super::"))
            {
                self.read_path(&tokens(text), module);
            }
        }
    }

    /// Reads a module that is declared at the token `at`. Returns the place after the
    /// declaration. `sign` is `;` or `{`.
    fn read_module(
        &mut self,
        tokens: &[Token<'_>],
        at: usize,
        parent: &[String],
        name: &str,
        sign: char,
        file: Option<String>,
    ) -> usize {
        let module = joined(parent, &[name]);
        let end = if sign == '{' { closing(tokens, at + 2) } else { at + 2 };
        if name == "tests" {
            return end + 1;
        }
        if parent.is_empty() {
            self.declared.push(name.to_owned());
        }
        if sign == '{' {
            self.scan(&tokens[at + 3..end], &module);
        } else {
            self.children.push(Child { module, file });
        }
        end + 1
    }

    /// Reads the path at the beginning of the tokens, in an expression or a type.
    fn read_path(&mut self, tokens: &[Token<'_>], module: &[String]) {
        let mut words = Vec::new();
        for pair in tokens.chunks(2) {
            match pair {
                [Token::Word(word), Token::Separator] => words.push(*word),
                [Token::Word(word), ..] => {
                    words.push(word);
                    break;
                }
                _ => break,
            }
        }
        if let Some(path) = absolute(&words, module) {
            self.paths.push((module.to_vec(), path));
        }
    }

    /// Reads a `use` up to its semicolon. Returns the place after the semicolon.
    fn read_import(&mut self, tokens: &[Token<'_>], at: usize, module: &[String]) -> usize {
        let end = (at..tokens.len()).find(|at| tokens[*at] == Token::Sign(';')).unwrap_or(tokens.len());
        let mut leaves = Vec::new();
        // `use ::name` names another crate.
        if tokens.get(at) != Some(&Token::Separator) {
            collect_leaves(&tokens[at..end], &[], &mut leaves);
        }
        for (words, name) in leaves {
            let Some(path) = absolute(&words, module) else { continue };
            if module.is_empty() {
                self.imports.push((name.to_owned(), path));
            } else {
                self.paths.push((module.to_vec(), path));
            }
        }
        end + 1
    }
}

/// Adds to `leaves` the single paths of a `use` tree such as `a::{b, c::{self, D as E}}`,
/// each with the name that it gets. `before` is the path in front of the tree.
fn collect_leaves<'a>(tree: &[Token<'a>], before: &[&'a str], leaves: &mut Vec<(Vec<&'a str>, &'a str)>) {
    let mut words = before.to_vec();
    let mut at = 0;
    while at < tree.len() {
        match tree[at] {
            Token::Word("as") => {
                if let Some(Token::Word(name)) = tree.get(at + 1) {
                    leaves.push((words, name));
                }
                return;
            }
            Token::Word("self") if !words.is_empty() => {}
            Token::Word(word) => words.push(word),
            Token::Sign('*') => {
                leaves.push((words, "*"));
                return;
            }
            Token::Sign('{') => {
                let end = closing(tree, at);
                for branch in split_at_commas(&tree[at + 1..end]) {
                    collect_leaves(branch, &words, leaves);
                }
                return;
            }
            Token::Separator | Token::Sign(_) | Token::Text(_) => {}
        }
        at += 1;
    }
    if let Some(name) = words.last().copied()
        && !tree.is_empty()
    {
        leaves.push((words, name));
    }
}

/// Splits a list at its commas, but not at commas inside of inner braces.
fn split_at_commas<'a, 'b>(tokens: &'b [Token<'a>]) -> Vec<&'b [Token<'a>]> {
    let (mut found, mut begin, mut depth) = (Vec::new(), 0, 0_usize);
    for (at, token) in tokens.iter().enumerate() {
        match token {
            Token::Sign('{') => depth += 1,
            Token::Sign('}') => depth = depth.saturating_sub(1),
            Token::Sign(',') if depth == 0 => {
                found.push(&tokens[begin..at]);
                begin = at + 1;
            }
            _ => {}
        }
    }
    found.push(&tokens[begin..]);
    found
}

/// The absolute path of a path that a module names. `None` if the path cannot reach another
/// top-level module.
fn absolute(words: &[&str], module: &[String]) -> Option<Path> {
    let (first, rest) = words.split_first()?;
    let path = match *first {
        "crate" => joined(&[], rest),
        "self" => joined(module, rest),
        "super" => {
            let ups = words.iter().take_while(|word| **word == "super").count();
            let kept = module.len().checked_sub(ups)?;
            joined(&module[..kept], &words[ups..])
        }
        _ if module.is_empty() => joined(&[], words),
        _ => return None,
    };
    (!path.is_empty()).then_some(path)
}

/// The path of a module, followed by the words.
fn joined(module: &[String], words: &[&str]) -> Path {
    module.iter().cloned().chain(words.iter().map(|word| (*word).to_owned())).collect()
}

/// Whether an attribute compiles its item for tests only.
fn is_test(attribute: &[Token<'_>]) -> bool {
    let has = |word| attribute.contains(&Token::Word(word));
    attribute.first() == Some(&Token::Word("cfg")) && has("test") && !has("not") && !has("any")
}

/// The place of the bracket that closes the bracket at `at`. The last token if there is none.
fn closing(tokens: &[Token<'_>], at: usize) -> usize {
    let mut depth = 0_usize;
    for (place, token) in tokens.iter().enumerate().skip(at) {
        match token {
            Token::Sign('(' | '[' | '{') => depth += 1,
            Token::Sign(')' | ']' | '}') => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            return place;
        }
    }
    tokens.len().saturating_sub(1)
}

/// The place after the item, statement or field that begins at `at`. Attributes at `at`
/// belong to the item.
fn after_item(tokens: &[Token<'_>], mut at: usize) -> usize {
    while let [Token::Sign('#'), Token::Sign('['), ..] = &tokens[at.min(tokens.len())..] {
        at = closing(tokens, at + 1) + 1;
    }
    let first = tokens[at..].iter().find(|token| !matches!(token, Token::Word("pub")));
    let ends_with_semicolon = matches!(first, Some(Token::Word("use" | "const" | "static" | "type" | "let")));
    while at < tokens.len() {
        match tokens[at] {
            Token::Sign(';' | ',') => return at + 1,
            Token::Sign('}' | ')' | ']') => return at,
            Token::Sign('{') if !ends_with_semicolon => return closing(tokens, at) + 1,
            Token::Sign('(' | '[' | '{') => at = closing(tokens, at) + 1,
            _ => at += 1,
        }
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks which paths the module `a::b` names if its file has this text.
    fn check(text: &str, expected: &[&str]) {
        let module = ["a".to_owned(), "b".to_owned()];
        let found: Vec<String> = read(text, &module).paths.iter().map(|(_, path)| path.join("::")).collect();
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn grouped_renamed_and_starred_imports_are_taken_apart() {
        check("use crate::{x, y::{self, Z as Q}, w::*};", &["x", "y", "y::Z", "w"]);
        check("pub(crate) use super::super::other::Name;", &["other::Name"]);
        check("use super::sibling::Name;", &["a::sibling::Name"]);
        check("use std::fmt; use ::tokio::time; use child::Name;", &[]);
    }

    #[test]
    fn paths_in_code_macros_and_serde_attributes_are_found() {
        check("fn f() -> crate::x::Y { assert!(crate::z::is(1)) }", &["x::Y", "z::is"]);
        check("macro_rules! m { () => { $crate::x::run() } }", &["x::run"]);
        check("#[serde(with = \"crate::x::text\")] struct S;", &["x::text"]);
        check("fn f() -> impl Iterator + use<'_> { super::g() }", &["a::g"]);
    }

    #[test]
    fn code_that_is_compiled_for_tests_only_is_left_out() {
        check("#[cfg(test)] use crate::{x, y}; use crate::z;", &["z"]);
        check("#[cfg(test)] mod tests { use crate::x; } use crate::z;", &["z"]);
        check("#[cfg(test)] #[allow(dead_code)] fn f() { crate::x() } fn g() { crate::z() }", &["z"]);
        check("struct S { #[cfg(test)] f: crate::x::Y, g: crate::z::Z }", &["z::Z"]);
        check("mod tests; #[cfg(not(test))] use crate::z;", &["z"]);
        check("#![cfg(test)] use crate::x;", &[]);
    }

    #[test]
    fn the_root_has_modules_imports_and_words() {
        let source = read("mod a; pub mod b { use super::a::X; } pub use a::Y as Z; struct S(Z);", &[]);
        assert_eq!(source.declared, ["a", "b"]);
        assert_eq!(source.children, [Child { module: vec!["a".to_owned()], file: None }]);
        assert_eq!(source.imports, [("Z".to_owned(), vec!["a".to_owned(), "Y".to_owned()])]);
        assert_eq!(source.paths, [(vec!["b".to_owned()], vec!["a".to_owned(), "X".to_owned()])]);
        assert!(source.root_words.contains(&"Z".to_owned()));
    }

    #[test]
    fn a_path_attribute_names_the_file_of_the_module_that_follows() {
        let source = read("#[path = \"../x.rs\"] mod a; mod b;", &[]);
        assert_eq!(source.children[0].file.as_deref(), Some("../x.rs"));
        assert_eq!(source.children[1].file, None);
    }
}
