//! `Block`: a block of commands of a page.

/// The languages of blocks with commands, after the three backticks.
const LANGUAGES: [&str; 3] = ["console", "sh", "bash"];

/// The mark of a block that is not run, on the line before it.
const MARK: (&str, &str) = ("<!-- not run: ", " -->");

#[derive(Debug, PartialEq)]
pub(crate) struct Block {
    /// The line of the page on which the block begins.
    pub(super) line: usize,
    /// Why the block is not run, if it is marked.
    pub(super) reason: Option<String>,
    pub(crate) commands: Vec<Command>,
}

#[derive(Debug, PartialEq)]
pub(crate) struct Command {
    pub(super) line: usize,
    /// The command without its prompt and its comment.
    pub(crate) text: String,
}

impl Block {
    /// The blocks of commands of a page.
    pub(crate) fn all(page: &str) -> Vec<Block> {
        let mut blocks: Vec<Block> = Vec::new();
        let mut is_inside = false;
        let mut has_commands = false;
        let mut before = "";
        for (number, line) in page.lines().enumerate().map(|(index, line)| (index + 1, line)) {
            if let Some(language) = line.strip_prefix("```") {
                is_inside = !is_inside;
                has_commands = is_inside && LANGUAGES.contains(&language);
                if has_commands {
                    let reason = before.strip_prefix(MARK.0).and_then(|rest| rest.strip_suffix(MARK.1));
                    blocks.push(Block {
                        line: number,
                        reason: reason.map(str::to_owned),
                        commands: Vec::new(),
                    });
                }
            } else if has_commands && let Some(block) = blocks.last_mut() {
                block.add_line(number, line);
            }
            before = line;
        }
        // In a block with prompts the other lines are output.
        for block in &mut blocks {
            if block.commands.iter().any(|command| command.text.starts_with("$ ")) {
                block.commands.retain(|command| command.text.starts_with("$ "));
            }
            for command in &mut block.commands {
                command.text = command.text.trim_start_matches("$ ").to_owned();
            }
        }
        blocks
    }

    fn add_line(&mut self, line: usize, text: &str) {
        let command_text = without_comment(text).trim_end();
        if !command_text.is_empty() {
            self.commands.push(Command { line, text: command_text.to_owned() });
        }
    }
}

/// A line without the comment at its end. A `#` within quotes does not begin a comment.
fn without_comment(line: &str) -> &str {
    let mut quote = None;
    let mut is_after_space = true;
    for (at, c) in line.char_indices() {
        match (quote, c) {
            (None, '#') if is_after_space => return &line[..at],
            (None, '\'' | '"') => quote = Some(c),
            (Some(open), c) if c == open => quote = None,
            _ => {}
        }
        is_after_space = c == ' ';
    }
    line
}

#[test]
fn blocks_have_their_commands_without_comments_prompts_and_output() {
    let page = "text\n```console\na 'b # c'   # a comment\n# only a comment\n```\n\n<!-- not run: it needs an account -->\n```sh\nd\n```\n```rust\nlet e;\n```\n```console\n$ f\nprinted\n```\n";
    let command = |line, command_text: &str| Command { line, text: command_text.to_owned() };
    let reason = Some("it needs an account".to_owned());
    assert_eq!(
        Block::all(page),
        [
            Block { line: 2, reason: None, commands: vec![command(3, "a 'b # c'")] },
            Block { line: 8, reason, commands: vec![command(9, "d")] },
            Block { line: 14, reason: None, commands: vec![command(15, "f")] },
        ]
    );
}
