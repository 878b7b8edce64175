//! Tests every verb as an operator runs it, against a real server over a socket: its table and
//! JSON, its help, and its errors for a wrong endpoint, a wrong key, and an instance, item or
//! container that does not exist. Which of these parts a command must have follows from its help.
//! `EXEMPTIONS` lists the parts that a command cannot have, with the reasons.
//!
//! A file of `tests/verbs` is a transcript: commands after `$ `, each with its output. A line
//! of standard error begins with `! `, and `= 6` is an exit code other than 0. A command that runs
//! until Ctrl-C ends with `^C` and the beginning of the line after which it is interrupted. The commands of a
//! file run in order in a `World` of their own. Times, ages, charges and random ids are replaced,
//! and gaps between columns count as two spaces: widths have tests of their own.
//! A new verb needs one file in that directory. The blocks of `docs/cli.md` are checked the same way.
//!
//! `PERIHELION_BLESS=1 cargo nextest run -p perihelion --test it verbs::` writes the output of the
//! commands into the files.

mod normal;
mod transcript;
mod world;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use self::transcript::Transcript;
pub(crate) use self::world::World;
use crate::program::{run, text};

/// How many files are checked at the same time. Most of the time they wait for refused connections.
const THREADS: usize = 8;

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/verbs")
}

fn files() -> Vec<PathBuf> {
    let files = std::fs::read_dir(directory()).expect("the transcripts");
    let mut files: Vec<PathBuf> = files.map(|file| file.expect("a file").path()).collect();
    files.push(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/cli.md"));
    files.sort();
    files
}

/// Runs the commands of a file. Returns the difference between their output and the file.
fn check(path: &Path) -> Option<String> {
    let writes_files = std::env::var_os("PERIHELION_BLESS").is_some();
    let written = std::fs::read_to_string(path).expect("a transcript");
    let world = World::of(&written);
    let found = Transcript::parse(&written, path.extension().is_some_and(|it| it == "md")).run(&world);
    if found == written {
        return None;
    }
    if writes_files {
        std::fs::write(path, &found).expect("the file is written");
        return None;
    }
    let differs = found.lines().zip(written.lines()).position(|(found, written)| found != written);
    let line = differs.unwrap_or(found.lines().count().min(written.lines().count()));
    let near = |text: &str| text.lines().skip(line.saturating_sub(3)).take(8).collect::<Vec<_>>().join("\n");
    Some(format!(
        "{} differs at line {}. It says:\n{}\nThe program prints:\n{}\n",
        path.display(),
        line + 1,
        near(&written),
        near(&found)
    ))
}

#[test]
fn every_verb_prints_what_its_transcript_says() {
    let waiting = Mutex::new(files());
    let differences = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                loop {
                    let Some(path) = waiting.lock().expect("no panic").pop() else { return };
                    let difference = check(&path);
                    differences.lock().expect("no panic").extend(difference);
                }
            });
        }
    });
    let differences = differences.into_inner().expect("no panic");
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

/// The subcommands in a help, found by their indentation of two spaces.
fn subcommands(arguments: &[&str]) -> Vec<String> {
    let output = run(&[arguments, &["--help"]].concat());
    let help = text(&output.stdout);
    let Some((_, list)) = help.split_once("\nCommands:\n") else { return Vec::new() };
    let lines = list.lines().take_while(|line| !line.is_empty());
    let names = lines.filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    names.filter(|name| !name.is_empty() && *name != "help").map(str::to_owned).collect()
}

/// A part of a transcript.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Help,
    /// A run that succeeds, with its table or text.
    Success,
    /// A run that succeeds with `-o json`. A run with `-o jsonl` does not count: its form is another one.
    Json,
    /// A run with `--watch` in the form of a table.
    Watch,
    WrongEndpoint,
    WrongKey,
    /// A thing that does not exist: exit code 6.
    MissingThing,
}

/// Parts that a command cannot have, with the reason.
const EXEMPTIONS: [(&str, Part, &str); 11] = [
    ("cert path", Part::MissingThing, "says where the CA will be, before a server has created it"),
    ("completions", Part::MissingThing, "names nothing"),
    ("completions", Part::Success, "a script of thousands of lines, which `help` tests"),
    ("dashboard", Part::Json, "its result is a page in a browser"),
    ("demo", Part::MissingThing, "creates what it uses"),
    ("dev", Part::MissingThing, "creates its data directory"),
    ("man", Part::MissingThing, "creates its directory"),
    ("manage", Part::Json, "prints the JSON of the server as it is"),
    ("metrics", Part::Json, "prints the text format of Prometheus"),
    ("server", Part::MissingThing, "creates its data directory"),
    ("container create", Part::MissingThing, "creates what it names"),
];

/// What a transcript has about its verb. [`VerbTranscript::has`] and [`VerbTranscript::needs`] are the rules.
struct VerbTranscript {
    verb: String,
    /// The command lines of the verb, each with its exit code.
    commands: Vec<(String, i32)>,
    help: String,
}

impl VerbTranscript {
    fn read(verb: &str) -> VerbTranscript {
        let path = directory().join(format!("{}.txt", verb.replace(' ', "-")));
        let text = std::fs::read_to_string(&path).unwrap_or_else(|_| panic!("{} is missing", path.display()));
        let mut commands: Vec<(String, i32)> = Vec::new();
        let mut is_own = false;
        let mut help = String::new();
        let own = format!("perihelion {verb}");
        for line in text.lines() {
            if let Some(command) = line.strip_prefix("$ ") {
                // Variables may precede the program.
                let program = command.find("perihelion ").map_or("", |at| &command[at..]);
                is_own = program == own || program.starts_with(&format!("{own} "));
                if is_own {
                    commands.push((command.to_owned(), 0));
                }
            } else if let (true, Some(code), Some(last)) =
                (is_own, line.strip_prefix("= "), commands.last_mut())
            {
                last.1 = code.parse().expect("an exit code");
            } else if is_own && commands.last().is_some_and(|(command, _)| command.ends_with("--help")) {
                help.push_str(line);
                help.push('\n');
            }
        }
        VerbTranscript { verb: verb.to_owned(), commands, help }
    }

    fn has(&self, part: Part) -> bool {
        let any = |matches: &dyn Fn(&str, i32) -> bool| {
            self.commands.iter().any(|(command, code)| matches(command, *code))
        };
        let form = |command: &str| command.split_once(" -o ")?.1.split(' ').next().map(str::to_owned);
        let is_plain = |command: &str| !command.contains("--help") && form(command).is_none();
        match part {
            Part::Help => !self.help.is_empty(),
            // A result may have exit code 1 or 7 too (a problem was found, a workflow failed). Such a run
            // does not count here.
            Part::Success => any(&|command, code| is_plain(command) && code == 0),
            Part::Json => any(&|command, code| form(command).as_deref() == Some("json") && code == 0),
            Part::Watch => {
                any(&|command, code| is_plain(command) && command.contains(" --watch") && code == 0)
            }
            Part::WrongEndpoint => {
                any(&|command, code| command.starts_with("COSMOS_ENDPOINT=http://127.0.0.1:1 ") && code == 1)
            }
            Part::WrongKey => any(&|command, code| command.starts_with("COSMOS_KEY=") && code == 1),
            Part::MissingThing => any(&|_, code| code == 6),
        }
    }

    /// Whether a command with this help must have the part.
    fn needs(&self, part: Part) -> bool {
        let connects = self.help.contains("--endpoint <URL>");
        match part {
            Part::Help | Part::Success | Part::MissingThing => true,
            Part::Json => connects || self.help.contains("--output <FORM>"),
            Part::Watch => self.help.contains("--watch[=<TIME>]"),
            Part::WrongEndpoint | Part::WrongKey => connects,
        }
    }
}

#[test]
fn every_verb_has_a_transcript_with_its_help_its_forms_and_its_errors() {
    let mut verbs = BTreeSet::new();
    for noun in subcommands(&[]) {
        let own = subcommands(&[&noun]);
        verbs.extend(own.iter().map(|verb| format!("{noun} {verb}")));
        verbs.extend(own.is_empty().then(|| noun.clone()));
    }
    assert!(verbs.len() > 40, "{verbs:?}");
    let parts = [
        Part::Help,
        Part::Success,
        Part::Json,
        Part::Watch,
        Part::WrongEndpoint,
        Part::WrongKey,
        Part::MissingThing,
    ];
    for transcript in verbs.iter().map(|verb| VerbTranscript::read(verb)) {
        for part in parts {
            let verb = &transcript.verb;
            let is_exempt = EXEMPTIONS.iter().any(|(name, of, _)| name == verb && *of == part);
            let is_needed = transcript.needs(part) && !is_exempt;
            assert!(!is_needed || transcript.has(part), "the transcript of `{verb}` has no {part:?}");
            assert!(!is_exempt || !transcript.has(part), "`{verb}` needs no exemption: it has {part:?}");
        }
    }
    for (verb, _, reason) in EXEMPTIONS {
        assert!(verbs.contains(verb), "`{verb}` is exempt ({reason}), and there is no such command");
    }
}
