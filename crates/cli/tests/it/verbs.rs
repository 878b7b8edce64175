//! Tests every verb as an operator runs it, against a real server over a socket: its table and
//! JSON, its help, and its errors for a wrong endpoint, a wrong key, and an instance, item or
//! container that does not exist.
//!
//! A file of `tests/verbs` is a transcript: commands after `$ `, each with its output. A line
//! of standard error begins with `! `, and `= 6` is an exit code other than 0. The commands of a
//! file run in order in a `World` of their own. Times, ages, charges and random ids are replaced,
//! and gaps between columns count as two spaces: widths have tests of their own.
//! A new verb needs one file there. The blocks of `docs/cli.md` are checked the same way.
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
    let world = World::start();
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

/// Commands with tests of another form.
const TESTED_ELSEWHERE: [&str; 12] = [
    "demo",
    "dev",
    "server",
    "dashboard",
    "migrate",
    "stress",
    "transaction run",
    "manage",
    "check",
    "cert ca",
    "cert path",
    "man",
];

/// The command whose result is a text in the format of Prometheus.
const PLAIN_TEXT: &str = "metrics";

/// Commands that do not connect to an account.
const WITHOUT_ACCOUNT: [&str; 2] = ["completions", "new"];

#[test]
fn every_verb_has_a_transcript_with_its_help_and_its_errors() {
    let mut verbs = BTreeSet::new();
    for noun in subcommands(&[]) {
        let own = subcommands(&[&noun]);
        verbs.extend(own.iter().map(|verb| format!("{noun} {verb}")));
        verbs.extend(own.is_empty().then(|| noun.clone()));
    }
    assert!(verbs.len() > 30, "{verbs:?}");
    for verb in verbs.iter().filter(|verb| !TESTED_ELSEWHERE.contains(&verb.as_str())) {
        let path = directory().join(format!("{}.txt", verb.replace(' ', "-")));
        let transcript =
            std::fs::read_to_string(&path).unwrap_or_else(|_| panic!("{} is missing", path.display()));
        let has = |prefix: &str, words: &str| {
            transcript.lines().any(|line| {
                line.strip_prefix("$ ").is_some_and(|line| line.starts_with(prefix) && line.contains(words))
            })
        };
        assert!(has(&format!("perihelion {verb}"), "--help"), "{verb} has no help");
        if WITHOUT_ACCOUNT.contains(&verb.as_str()) {
            continue;
        }
        let shown = transcript.lines().filter(|line| line.starts_with(&format!("$ perihelion {verb}")));
        let (json, others): (Vec<&str>, Vec<&str>) = shown.partition(|line| line.contains("-o json"));
        assert!(others.iter().any(|line| !line.contains("--help")), "{verb} has no table");
        assert!(!json.is_empty() || verb == PLAIN_TEXT, "{verb} has no JSON");
        assert!(has("COSMOS_ENDPOINT=http://127.0.0.1:1 ", verb), "{verb} has no wrong endpoint");
        assert!(has("COSMOS_KEY=", verb), "{verb} has no wrong key");
        assert!(
            transcript.contains("\n= 6\n") || verb == "container create",
            "{verb} has no example with exit code 6"
        );
    }
}
