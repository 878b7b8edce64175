//! `Transcript`: the commands of a file, with their output.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write as _};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::channel;

use super::normal::normal;
use super::world::World;
use crate::program::{TIMEOUT, command, text};

/// A file without the output of its commands.
pub(super) struct Transcript {
    lines: Vec<Line>,
    /// Whether the file is a page for people. The columns of a page are aligned again.
    is_page: bool,
}

enum Line {
    /// A line that is neither a command nor output: a comment, or the text of a page.
    Kept(String),
    Command(String),
}

impl Transcript {
    /// Parses a file. In a page (`is_page`) only blocks that begin with ```console have commands.
    pub(super) fn parse(written: &str, is_page: bool) -> Transcript {
        let mut lines = Vec::new();
        let mut is_inside = !is_page;
        let mut is_output = false;
        for line in written.lines() {
            if is_page && line.starts_with("```") {
                is_inside = line == "```console" && !is_inside;
                is_output = false;
                lines.push(Line::Kept(line.to_owned()));
            } else if !is_inside || line.starts_with('#') {
                lines.push(Line::Kept(line.to_owned()));
                is_output = false;
            } else if let Some(command_text) = line.strip_prefix("$ ") {
                lines.push(Line::Command(command_text.to_owned()));
                is_output = true;
            } else if !is_output {
                lines.push(Line::Kept(line.to_owned()));
            }
        }
        Transcript { lines, is_page }
    }

    /// Runs the commands and returns the file with their output.
    pub(super) fn run(&self, world: &World) -> String {
        let mut found = String::new();
        for line in &self.lines {
            match line {
                Line::Kept(text) => found.push_str(&format!("{text}\n")),
                Line::Command(command_text) => {
                    let output = execute(command_text, world);
                    found.push_str(&shown(command_text, &output, world, self.is_page));
                }
            }
        }
        found
    }
}

/// Runs a command line: variables, the program and its arguments. After them may be `<<< text`, for
/// standard input, or `^C text`: as soon as a line of standard output begins with the text, the
/// program gets the signal of Ctrl-C.
fn execute(command_text: &str, world: &World) -> Output {
    let words = words(command_text);
    let end = words.iter().position(|word| word == "<<<" || word == "^C").unwrap_or(words.len());
    let (line, rest) = words.split_at(end);
    let (input, last_line) = match rest {
        [mark, text] if mark == "^C" => (None, Some(text)),
        [_, text] => (Some(text.as_str()), None),
        _ => (None, None),
    };
    let variables: Vec<(&str, &str)> = line.iter().map_while(|word| word.split_once('=')).collect();
    assert_eq!(line.get(variables.len()).map(String::as_str), Some("perihelion"), "{command_text}");
    let arguments: Vec<&str> = line[variables.len() + 1..].iter().map(String::as_str).collect();
    let mut command = command(&world.scratch, &arguments);
    command.current_dir(world.scratch.path()).env("COSMOS_ENDPOINT", world.endpoint()).envs(variables);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the binary runs");
    let mut stdin = child.stdin.take().expect("a pipe");
    stdin.write_all(input.unwrap_or_default().as_bytes()).expect("the program reads");
    drop(stdin);
    match last_line {
        None => child.wait_with_output().expect("the program ends"),
        Some(last_line) => interrupt_after(child, last_line),
    }
}

/// Waits for a line of standard output that begins with this text, and interrupts the program. A
/// program that prints no such line is killed.
fn interrupt_after(mut child: Child, last_line: &str) -> Output {
    let stdout = BufReader::new(child.stdout.take().expect("a pipe"));
    let (send, lines) = channel();
    let reader = std::thread::spawn(move || {
        for line in stdout.split(b'\n').map_while(Result::ok) {
            // Nobody receives the lines after `last_line`. They are read nevertheless, because a full
            // pipe would stop the program.
            let _ = send.send(line);
        }
    });
    let mut found = Vec::new();
    let mut is_found = false;
    while !is_found && let Ok(line) = lines.recv_timeout(TIMEOUT) {
        is_found = line.starts_with(last_line.as_bytes());
        found.extend_from_slice(&line);
        found.push(b'\n');
    }
    let signal = if is_found { "INT" } else { "KILL" };
    let id = child.id().to_string();
    let sent = Command::new("kill").args(["-s", signal, &id]).status().expect("kill runs");
    let mut output = child.wait_with_output().expect("the program ends");
    reader.join().expect("no panic");
    assert!(is_found && sent.success(), "no line {last_line:?}: {}{}", text(&found), text(&output.stderr));
    output.stdout = found;
    output
}

/// A command and its output, in the form of the file.
fn shown(command_text: &str, output: &Output, world: &World, is_page: bool) -> String {
    let mut found = format!("$ {command_text}\n");
    let scratch = world.scratch.path().display().to_string();
    let read = |bytes: &[u8]| normal(&text(bytes).replace(&scratch, "<scratch>"));
    let stdout = read(&output.stdout);
    found.push_str(&if is_page { aligned(&stdout) } else { stdout });
    for line in read(&output.stderr).lines() {
        writeln!(found, "{}", format!("! {line}").trim_end()).expect("a string");
    }
    match output.status.code() {
        Some(0) => {}
        code => writeln!(found, "= {}", code.unwrap_or(-1)).expect("a string"),
    }
    found
}

/// Aligns the columns of a table again, because replacements have changed the widths of cells. A
/// text in which the lines have different numbers of cells is not changed.
fn aligned(text: &str) -> String {
    let cells = |line: &str| -> Vec<String> {
        let indent = &line[..line.len() - line.trim_start().len()];
        let mut cells: Vec<String> = line.trim_start().split("  ").map(str::to_owned).collect();
        cells[0].insert_str(0, indent);
        cells
    };
    let lines: Vec<Vec<String>> = text.lines().map(cells).collect();
    let Some(columns) = lines.first().map(Vec::len) else { return String::new() };
    if columns < 2 || lines.iter().any(|line| line.len() != columns) {
        return text.to_owned();
    }
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut aligned = String::new();
    for line in &lines {
        let padded: Vec<String> =
            line.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        aligned.push_str(padded.join("  ").trim_end());
        aligned.push('\n');
    }
    aligned
}

/// The words of a command line. Single quotes keep spaces; there are no other rules.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut is_quoted = false;
    for c in line.chars() {
        match c {
            '\'' => is_quoted = !is_quoted,
            ' ' if !is_quoted => words.push(String::new()),
            c => words.last_mut().expect("a word").push(c),
        }
    }
    words
}
