//! Commands within sentences: code spans that begin with the name of a program.

use super::block::Command;

/// The word that stands for the name of any command.
const ANY_COMMAND: &str = "COMMAND";

/// The code spans of a page that begin with this program. Blocks of commands are skipped.
pub(super) fn commands(page: &str, program: &str) -> Vec<Command> {
    let mut found = Vec::new();
    let mut is_block = false;
    for (number, line) in page.lines().enumerate().map(|(index, line)| (index + 1, line)) {
        if line.starts_with("```") {
            is_block = !is_block;
        } else if !is_block {
            let spans = line.split('`').skip(1).step_by(2);
            let own =
                spans.filter(|span| span.strip_prefix(program).is_some_and(|rest| rest.starts_with(' ')));
            found.extend(own.map(|span| Command { line: number, text: span.to_owned() }));
        }
    }
    found
}

/// The command lines of a span, each with `--help`, so that the program parses the words of the span and
/// does nothing else. A span `p a | b` names two commands of the program `p`: `p a` and `p b`. A
/// redirection to a file is left out.
pub(super) fn help_of(span: &str) -> Vec<String> {
    let span = span.split(" > ").next().unwrap_or_default().replace(ANY_COMMAND, "dev");
    let Some((before, after)) = span.split_once(" | ") else { return vec![format!("{span} --help")] };
    let (other, options) = after.split_once(' ').unwrap_or((after, ""));
    let program = before.split(' ').next().unwrap_or_default();
    vec![format!("{before} {options} --help"), format!("{program} {other} {options} --help")]
}

#[test]
fn spans_of_sentences_are_found_and_become_requests_for_help() {
    let page = "run `p a` and `pp` or `q`\n```console\np b `p c`\n```\n`p d`";
    let command = |line, span: &str| Command { line, text: span.to_owned() };
    assert_eq!(commands(page, "p"), [command(1, "p a"), command(5, "p d")]);
    assert_eq!(help_of("p a > b"), ["p a --help"]);
    assert_eq!(help_of("p COMMAND --help"), ["p dev --help --help"]);
    assert_eq!(help_of("p a | b --c d"), ["p a --c d --help", "p b --c d --help"]);
}
