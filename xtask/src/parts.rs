//! The steps of each part. A step is one command, with the runner whose output it prints. A
//! part is good if all its steps are good. Building and running tests are separate steps
//! with separate time limits, because on a busy machine a build may take long and must not
//! use up the time of the tests. The examples of the documentation are an exception: they
//! are built while they run, and have the limit of a build.

use std::ffi::OsString;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::checkout::Checkout;
use crate::house;
use crate::outcome::{PartOutcome, Phase, StepOutcome};
use crate::package;
use crate::part::{Part, Scope};
use crate::process::{self, Step};
use crate::runners::Runner;
use crate::version_before;

/// The limit of a build. A cold build of everything takes minutes on two idle cores, and most
/// of an hour beside other builds.
const BUILD_LIMIT: Duration = Duration::from_secs(90 * 60);

/// The limit of a run of tests. All tests of the workspace take a few minutes.
const RUN_LIMIT: Duration = Duration::from_secs(30 * 60);

/// The limit of a suite, and of a check of the formatting. A suite with an SDK installs its
/// packages and runs for about a minute.
const SUITE_LIMIT: Duration = Duration::from_secs(10 * 60);

/// The variable that tells a suite which server to start.
const SERVER_VARIABLE: &str = "PERIHELION_BIN";

/// The variable with the connection string of a live account, for the client's scenarios.
const LIVE_VARIABLE: &str = "PERIHELION_LIVE_CONNECTION_STRING";

/// The variable with the path of a file, in which the published provider's container is
/// stored. The provider's migration tests read the file.
const PUBLISHED_CONTAINER_VARIABLE: &str = "PERIHELION_PUBLISHED_CONTAINER";

/// The variable with the directory of the previous version, for the provider's test of two
/// versions.
const VERSION_BEFORE_VARIABLE: &str = "PERIHELION_VERSION_BEFORE";

/// The manifest that builds the provider on the oldest duroxide that the provider accepts.
const OLDEST_MANIFEST: &str = "compat/duroxide-0.1.29/Cargo.toml";

/// The variable with the seeds of the simulation's random runs, and the variable's value for
/// `--quick`: fewer seeds than by default.
const QUICK_SEEDS: (&str, &str) = ("SIMULATION_SEEDS", "0..25");

/// `--quick` leaves out the tests whose names contain one of these texts.
const SLOW_TESTS: [&str; 5] = [
    // duroxide's validations on disk and over a socket. The validations in memory still run.
    "real_time::",
    // Faults at every request of every scenario.
    "single_faults::",
    "operations::",
    // Programs that are killed, and simulated power cuts.
    "kills::",
    "power_cuts",
];

/// Runs the parts in order, with one exception. The suites without a build (the SDKs in other
/// languages, the browser) mostly wait, for packages and for answers. So they run at the same time
/// as the parts after them, which mostly build.
pub(crate) fn run_all(parts: &[Part], scope: Scope, checkout: &Checkout) -> Vec<PartOutcome> {
    let first_suite = parts.iter().position(|part| part.has_no_build()).unwrap_or(parts.len());
    let (before, rest) = parts.split_at(first_suite);
    let (suites, others): (Vec<Part>, Vec<Part>) = rest.iter().partition(|part| part.has_no_build());
    let run_in_order = |parts: &[Part]| -> Vec<PartOutcome> {
        parts.iter().map(|part| run(*part, scope, checkout)).collect()
    };
    let mut outcomes = run_in_order(before);
    // The server is built first, because cargo runs one build at a time in a directory.
    let has_server = suites.is_empty() || process::run(server_build(checkout)).is_good();
    std::thread::scope(|threads| {
        let beside = threads.spawn(|| {
            let without_server =
                |part: &Part| PartOutcome::new(*part, vec![StepOutcome::failed("the server was not built")]);
            if has_server { run_in_order(&suites) } else { suites.iter().map(without_server).collect() }
        });
        let others = run_in_order(&others);
        outcomes.extend(beside.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        outcomes.extend(others);
    });
    outcomes
}

fn run(part: Part, scope: Scope, checkout: &Checkout) -> PartOutcome {
    let steps = match part {
        Part::House => return PartOutcome::new(part, house(checkout)),
        Part::Fmt => fmt(checkout),
        Part::Clippy => clippy(checkout),
        Part::Unit => Ok(unit(checkout, scope)),
        Part::Oldest => Ok(oldest(checkout)),
        Part::Doc => Ok(doc(checkout)),
        Part::Python => script_suite(checkout, "python3", "interop/python/run.py"),
        Part::Javascript => script_suite(checkout, "node", "interop/javascript/run.mjs"),
        Part::Browser => script_suite(checkout, "node", "interop/browser/run.mjs"),
        Part::Rust => Ok(rust_suite(checkout, "interop/rust")),
        Part::Holes => Ok(rust_suite(checkout, "interop/holes")),
        Part::Migration => Ok(migration(checkout)),
        Part::Package => return PartOutcome::new(part, package::run(checkout)),
        Part::Versions => match version_before::check_out(checkout) {
            Ok(directory) => Ok(versions(checkout, &directory)),
            Err(why) => {
                eprintln!("\n=== skipped: {why}");
                return PartOutcome::new(part, vec![StepOutcome::skipped()]);
            }
        },
    };
    let outcomes = match steps {
        Ok(steps) => run_steps(steps),
        Err(why) => vec![StepOutcome::failed(why)],
    };
    PartOutcome::new(part, outcomes)
}

/// Runs the steps in order. If a needed step fails, the steps after it are skipped.
fn run_steps(steps: Vec<Step>) -> Vec<StepOutcome> {
    let mut outcomes: Vec<StepOutcome> = Vec::new();
    for step in steps {
        let is_needed = step.is_needed;
        let outcome = process::run(step);
        let is_over = is_needed && !outcome.is_good();
        outcomes.push(outcome);
        if is_over {
            break;
        }
    }
    outcomes
}

fn house(checkout: &Checkout) -> Vec<StepOutcome> {
    let started = Instant::now();
    let mut outcomes = house::run(checkout);
    if let Some(first) = outcomes.first_mut() {
        first.took = started.elapsed();
    }
    outcomes
}

fn fmt(checkout: &Checkout) -> Result<Vec<Step>, String> {
    ensure_component(checkout, "fmt", "rustfmt")?;
    let manifests = [
        "Cargo.toml",
        "bench/Cargo.toml",
        "bench/clients/sdk/Cargo.toml",
        "bench/clients/raw/Cargo.toml",
        "bench/clients/ours/Cargo.toml",
        "bench/providers/ours/Cargo.toml",
        "bench/providers/peers/Cargo.toml",
        "bench/providers/published/Cargo.toml",
        "interop/common/Cargo.toml",
        "interop/rust/Cargo.toml",
        OLDEST_MANIFEST,
        "interop/holes/Cargo.toml",
        "interop/migration/Cargo.toml",
    ];
    let step = |manifest: &str| {
        let words = ["fmt", "--all", "--check", "--manifest-path", manifest];
        run_step(checkout, &words, Runner::ExitCode, SUITE_LIMIT)
    };
    Ok(manifests.into_iter().map(step).collect())
}

fn clippy(checkout: &Checkout) -> Result<Vec<Step>, String> {
    ensure_component(checkout, "clippy", "clippy")?;
    // The default build is without azure_core. This feature adds the provider's adapter for
    // azure_core to the check.
    let workspace = "clippy --workspace --all-targets --features duroxide-cdb/azure-core -- -D warnings";
    let bench = "clippy --locked --manifest-path bench/Cargo.toml --workspace --all-targets -- -D warnings";
    let step = |words: &str| {
        let words: Vec<&str> = words.split(' ').collect();
        let mut step = build_step(checkout, &words);
        // The benchmarks use the target directory of the workspace too, so that the dependencies
        // which both have are checked once.
        step.command.env("CARGO_TARGET_DIR", checkout.target_directory());
        Step { runner: Runner::ExitCode, is_needed: false, ..step }
    };
    Ok([workspace, bench].map(step).into())
}

/// All tests of the workspace except the examples of the documentation. `--quick` leaves out
/// [`SLOW_TESTS`]. If [`LIVE_VARIABLE`] is set, the client's scenarios also run on that
/// account.
fn unit(checkout: &Checkout, scope: Scope) -> Vec<Step> {
    let mut steps: Vec<Step> = tests(checkout, &["--workspace"]).into();
    if let (Scope::Quick, Some(run)) = (scope, steps.last_mut()) {
        run.command.env(QUICK_SEEDS.0, QUICK_SEEDS.1).arg("--");
        for name in SLOW_TESTS {
            run.command.args(["--skip", name]);
        }
    }
    if std::env::var_os(LIVE_VARIABLE).is_some_and(|text| !text.is_empty()) {
        // The whole workspace is named, so that nothing is built again.
        let words = ["test", "--workspace", "--test", "it", "live_account", "--", "--ignored"];
        steps.push(run_step(checkout, &words, Runner::CargoTest, RUN_LIMIT));
    }
    steps
}

/// The provider's tests on the oldest duroxide that the provider accepts. The lock file has
/// the workspace's versions of everything else, and the target directory is the same. So only
/// duroxide and the crates that use it are built a second time.
fn oldest(checkout: &Checkout) -> Vec<Step> {
    let mut steps: Vec<Step> = tests(checkout, &["--locked", "--manifest-path", OLDEST_MANIFEST]).into();
    for step in &mut steps {
        step.command.arg("--target-dir").arg(checkout.target_directory());
    }
    steps
}

/// Builds the tests, then runs them: with nextest if it is installed, or else with cargo.
/// `selection` has the arguments that select packages.
fn tests(checkout: &Checkout, selection: &[&str]) -> [Step; 2] {
    let (words, runner): (&[&str], _) = if checkout.has_cargo_command("nextest") {
        (&["nextest", "run"], Runner::Nextest)
    } else {
        (&["test", "--lib", "--bins", "--tests"], Runner::CargoTest)
    };
    let build = build_step(checkout, &[words, selection, &["--no-run"]].concat());
    let run = run_step(checkout, &[words, selection, &["--no-fail-fast"]].concat(), runner, RUN_LIMIT);
    [build, run]
}

/// The pages of the documentation must build without a warning (a broken link is a warning),
/// and their examples must work. Examples are built while they run.
fn doc(checkout: &Checkout) -> Vec<Step> {
    // The same features as for clippy, so that the dependencies are not checked again.
    let words = ["doc", "--workspace", "--no-deps", "--features", "duroxide-cdb/azure-core"];
    let mut pages = build_step(checkout, &words);
    pages.command.env("RUSTDOCFLAGS", "-D warnings");
    let pages = Step { runner: Runner::ExitCode, is_needed: false, ..pages };
    let examples = ["test", "--workspace", "--doc", "--no-fail-fast"];
    vec![pages, run_step(checkout, &examples, Runner::CargoTest, BUILD_LIMIT)]
}

/// A suite in Rust, in a workspace of its own.
fn rust_suite(checkout: &Checkout, directory: &str) -> Vec<Step> {
    let manifest = format!("{directory}/Cargo.toml");
    let [build, mut run] = suite_program(checkout, &manifest);
    run.command.env(SERVER_VARIABLE, checkout.server_program());
    vec![server_build(checkout), build, run]
}

/// The published provider begins workflows on our server and is stopped. Then the tests of
/// our provider migrate the unfinished workflows and finish them.
fn migration(checkout: &Checkout) -> Vec<Step> {
    let manifest = "interop/migration/Cargo.toml";
    let container = checkout.target_directory().join("published-container.json");
    let [build, mut begin] = suite_program(checkout, manifest);
    begin.command.env(SERVER_VARIABLE, checkout.server_program()).arg("--").arg(&container);
    begin.is_needed = true;
    // The whole workspace is named, so that nothing is built again.
    let words = ["test", "--workspace", "--test", "it", "migration::"];
    let mut finish = run_step(checkout, &words, Runner::CargoTest, SUITE_LIMIT);
    finish.command.env(PUBLISHED_CONTAINER_VARIABLE, &container);
    vec![server_build(checkout), build, begin, finish]
}

/// The provider of the previous version and the provider of this version run jobs on one
/// container. The tests of the previous version are built first, because our test starts one of
/// its processes.
fn versions(checkout: &Checkout, before: &Path) -> Vec<Step> {
    let words = ["test", "--locked", "-p", "duroxide-cdb", "--test", "it", "--no-run"];
    let mut build_before = build_step(checkout, &words);
    // Not the workspace's target directory: cargo would take crates of the same name in two
    // checkouts for one crate, and would not build them again when it should.
    build_before.command.current_dir(before).env("CARGO_TARGET_DIR", before.join("target"));
    // The whole workspace is named, so that nothing is built again.
    let words = ["test", "--workspace", "--test", "it", "two_versions_of_the_provider", "--", "--ignored"];
    let mut run = run_step(checkout, &words, Runner::CargoTest, SUITE_LIMIT);
    run.command.env(VERSION_BEFORE_VARIABLE, before);
    vec![server_build(checkout), build_before, run]
}

/// Builds a suite's program, then runs it. The target directory is the workspace's: a
/// dependency that both have with the same version, features and profile is built once.
fn suite_program(checkout: &Checkout, manifest: &str) -> [Step; 2] {
    let words = ["--locked", "--manifest-path", manifest];
    let mut build = build_step(checkout, &[&["build"], words.as_slice()].concat());
    let mut run = run_step(checkout, &[&["run"], words.as_slice()].concat(), Runner::Suite, SUITE_LIMIT);
    for step in [&mut build, &mut run] {
        step.command.arg("--target-dir").arg(checkout.target_directory());
    }
    [build, run]
}

/// A suite that an interpreter runs: of an SDK in another language, or of the dashboard in a
/// browser. [`run_all`] has built the server that the suite starts.
fn script_suite(checkout: &Checkout, interpreter: &str, script: &str) -> Result<Vec<Step>, String> {
    if !checkout.path(script).is_file() {
        return Err(format!("{script} is missing"));
    }
    let mut command = checkout.command(&OsString::from(interpreter));
    command.arg(script).env(SERVER_VARIABLE, checkout.server_program());
    let name = format!("{interpreter} {script}");
    let run = Step {
        name,
        command,
        runner: Runner::Suite,
        phase: Phase::Run,
        limit: SUITE_LIMIT,
        is_needed: false,
    };
    Ok(vec![run])
}

/// Builds the server that the suites start, together with all tests. A build of the server
/// alone would have other features of its dependencies, and would build them again.
fn server_build(checkout: &Checkout) -> Step {
    build_step(checkout, &["test", "--workspace", "--no-run"])
}

/// A step that builds. A build is not a check of its own: only its failure counts, and the
/// steps after it are then skipped.
fn build_step(checkout: &Checkout, words: &[&str]) -> Step {
    let step = run_step(checkout, words, Runner::Build, BUILD_LIMIT);
    Step { phase: Phase::Build, is_needed: true, ..step }
}

/// A step that runs cargo with these arguments.
fn run_step(checkout: &Checkout, words: &[&str], runner: Runner, limit: Duration) -> Step {
    let mut command = checkout.cargo();
    command.args(words);
    let name = format!("cargo {}", words.join(" "));
    Step { name, command, runner, phase: Phase::Run, limit, is_needed: false }
}

/// Installs a component of the toolchain, unless `cargo_command` works already. A minimal
/// toolchain has neither rustfmt nor clippy.
fn ensure_component(checkout: &Checkout, cargo_command: &str, component: &str) -> Result<(), String> {
    if checkout.has_cargo_command(cargo_command) {
        return Ok(());
    }
    let added = checkout.command(&OsString::from("rustup")).args(["component", "add", component]).status();
    match added {
        Ok(status) if status.success() => Ok(()),
        _ => Err(format!("cargo {cargo_command} is not installed; try: rustup component add {component}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(step: &Step) -> Vec<String> {
        step.command.get_args().map(|word| word.to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn tests_are_built_before_they_run_and_with_a_limit_of_their_own() {
        let checkout = Checkout::of_this_program();
        for steps in [unit(&checkout, Scope::Whole), oldest(&checkout)] {
            let [build, run, ..] = steps.as_slice() else { panic!("two steps at least") };
            assert!(build.phase == Phase::Build && build.is_needed && build.limit == BUILD_LIMIT);
            assert!(words(build).contains(&"--no-run".to_owned()));
            assert!(run.phase == Phase::Run && run.limit == RUN_LIMIT);
        }
    }

    #[test]
    fn quick_leaves_out_slow_tests_and_a_whole_run_leaves_out_none() {
        let checkout = Checkout::of_this_program();
        let skips = |scope| words(&unit(&checkout, scope)[1]).iter().filter(|word| *word == "--skip").count();
        assert_eq!(skips(Scope::Quick), SLOW_TESTS.len());
        assert_eq!(skips(Scope::Whole), 0);
    }

    #[test]
    fn a_needed_step_that_fails_ends_its_part() {
        let checkout = Checkout::of_this_program();
        let step = |words: &str, is_needed| {
            let step = run_step(&checkout, &[words], Runner::ExitCode, RUN_LIMIT);
            Step { is_needed, ..step }
        };
        let fails = "there-is-no-such-command";
        assert_eq!(run_steps(vec![step(fails, true), step("--version", false)]).len(), 1);
        assert_eq!(run_steps(vec![step(fails, false), step("--version", false)]).len(), 2);
    }
}
