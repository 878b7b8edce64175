//! `Code`: a block with a program, or a part of one, with the mark that says what runs it.
//!
//! On the line before each such block is one of three marks:
//!
//! - `<!-- run by: FILE -->`: the file runs the text of this block.
//! - `<!-- run as: FILE, FILE -->`: the block is too short to run by itself. These files run, in tests
//!   or examples, and call each function that the block calls. So a renamed function is noticed.
//! - `<!-- not run: why -->`: nothing runs the block, for this reason.

use std::path::Path;

use regex_lite::Regex;

/// The languages of these blocks, after the three backticks.
const LANGUAGES: [&str; 8] = ["rust", "python", "javascript", "csharp", "java", "go", "toml", "yaml"];

#[derive(Debug, PartialEq)]
pub(super) struct Code {
    /// The line of the page on which the block begins.
    pub(super) line: usize,
    pub(super) mark: Mark,
    text: String,
}

#[derive(Debug, PartialEq)]
pub(super) enum Mark {
    Missing,
    RunBy(String),
    RunAs(Vec<String>),
    NotRun(String),
}

impl Mark {
    /// The mark on this line.
    fn parse(line: &str) -> Mark {
        let inside = line.strip_prefix("<!-- ").and_then(|rest| rest.strip_suffix(" -->"));
        match inside.and_then(|mark| mark.split_once(": ")) {
            Some(("run by", file)) => Mark::RunBy(file.to_owned()),
            Some(("run as", files)) => Mark::RunAs(files.split(", ").map(str::to_owned).collect()),
            Some(("not run", why)) => Mark::NotRun(why.to_owned()),
            Some(_) | None => Mark::Missing,
        }
    }
}

impl Code {
    /// The blocks with code of a page.
    pub(super) fn all(page: &str) -> Vec<Code> {
        let mut blocks: Vec<Code> = Vec::new();
        let (mut is_inside, mut is_code, mut before) = (false, false, "");
        for (number, line) in page.lines().enumerate().map(|(index, line)| (index + 1, line)) {
            if let Some(language) = line.strip_prefix("```") {
                is_inside = !is_inside;
                is_code = is_inside && LANGUAGES.contains(&language);
                if is_code {
                    blocks.push(Code { line: number, mark: Mark::parse(before), text: String::new() });
                }
            } else if is_code && let Some(block) = blocks.last_mut() {
                block.text.push_str(line);
                block.text.push('\n');
            }
            before = line;
        }
        blocks
    }

    /// What is wrong with the mark of the block. `page` is the file name of the block's page.
    pub(super) fn objection(&self, page: &str, root: &Path) -> Option<String> {
        let read = |file: &String| {
            std::fs::read_to_string(root.join(file)).map_err(|_| format!("{file} does not exist"))
        };
        match &self.mark {
            Mark::Missing => Some("it has no mark (see crates/cli/tests/it/pages/code.rs)".to_owned()),
            Mark::NotRun(why) => (why.chars().count() < super::REASON_CHARACTERS_MIN)
                .then(|| format!("the reason is short: {why:?}")),
            Mark::RunBy(file) => match read(file) {
                Ok(text) => (!text.contains(page)).then(|| format!("{file} does not name {page}")),
                Err(objection) => Some(objection),
            },
            Mark::RunAs(files) => match files.iter().map(read).collect::<Result<String, String>>() {
                Ok(text) => {
                    let missing: Vec<String> =
                        self.called_names().into_iter().filter(|call| !calls(&text, call)).collect();
                    (!missing.is_empty()).then(|| format!("{files:?} do not call {missing:?}"))
                }
                Err(objection) => Some(objection),
            },
        }
    }

    /// The names of the methods and associated functions that the block calls.
    fn called_names(&self) -> Vec<String> {
        let comment = Regex::new(r"(?m)(^|\s)(//|#\s).*$").expect("a pattern");
        let call = Regex::new(r"(?:\.|::)(\w+)(?:::<\w+>)?\(").expect("a pattern");
        let code = comment.replace_all(&self.text, "");
        call.captures_iter(&code).map(|found| found[1].to_owned()).collect()
    }
}

/// Whether a program calls a function of this name. Its own definition does not count.
fn calls(program: &str, name: &str) -> bool {
    let call = Regex::new(&format!(r"\b(fn )?{name}(?:::<[^(]+>)?\(")).expect("a pattern");
    call.captures_iter(program).any(|found| found.get(1).is_none())
}

#[test]
fn blocks_of_code_have_their_marks_and_their_calls() {
    let page = "<!-- run as: a.rs, b.rs -->\n```rust\nlet a = A::new(\"x\").b::<C>(); // d.e()\n```\n```console\nx\n```\n\n```toml\n[a]\n```\n";
    let blocks = Code::all(page);
    assert_eq!(blocks[0].mark, Mark::RunAs(vec!["a.rs".to_owned(), "b.rs".to_owned()]));
    assert_eq!(blocks[0].called_names(), ["new", "b"]);
    assert_eq!((blocks[1].line, &blocks[1].mark, blocks.len()), (9, &Mark::Missing, 2));
    assert!(calls("x.b::<Vec<C>>()", "b") && calls("B::b()", "b") && calls("b()", "b"));
    assert!(!calls("// b and a.bb()", "b") && !calls("fn b()", "b"));
}
