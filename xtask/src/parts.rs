//! The parts of the test run and their steps. A step is one command with the
//! runner whose output it prints; a part is good when all its steps are. A
//! part adds a step here, and nothing else has to know.

use std::ffi::OsString;
use std::time::{Duration, Instant};

use crate::checkout::Checkout;
use crate::house;
use crate::outcome::{PartOutcome, StepOutcome};
use crate::part::Part;
use crate::process::{self, Step};
use crate::runners::Runner;

/// A cold build of everything takes minutes on two cores and the kill and
/// power-cut tests some more; a step beyond this hangs.
const BUILDING_STEP_LIMIT: Duration = Duration::from_secs(20 * 60);

/// An SDK suite installs its packages and runs for about a minute.
const SUITE_LIMIT: Duration = Duration::from_secs(10 * 60);

/// The variable by which a suite learns which server to start.
const SERVER_VARIABLE: &str = "PERIHELION_BIN";

/// The variable that names a live account for the client's scenarios.
const LIVE_VARIABLE: &str = "PERIHELION_LIVE_CONNECTION_STRING";

/// The variable that names a container of the published crate, for the tests
/// that move one.
const LEFT_VARIABLE: &str = "PERIHELION_PUBLISHED_CONTAINER";

/// The provider on the oldest duroxide that it accepts.
const OLDEST_MANIFEST: &str = "compat/duroxide-0.1.29/Cargo.toml";

/// Validations mostly wait for locks to run out; see .config/nextest.toml.
const VALIDATIONS_AT_A_TIME: &str = "--test-threads=8";

pub(crate) fn run(part: Part, checkout: &Checkout) -> PartOutcome {
    let started = Instant::now();
    let outcomes = match part {
        Part::House => house::run(checkout),
        Part::Fmt => fmt(checkout),
        Part::Clippy => clippy(checkout),
        Part::Unit => unit(checkout).into_iter().map(process::run).collect(),
        Part::Oldest => vec![process::run(oldest(checkout))],
        Part::Doc => doc(checkout).into_iter().map(process::run).collect(),
        Part::Python => suite(checkout, "python3", "interop/python/run.py"),
        Part::Javascript => suite(checkout, "node", "interop/javascript/run.mjs"),
        Part::Rust => rust(checkout, "interop/rust"),
        Part::Holes => rust(checkout, "interop/holes"),
        Part::Migration => migration(checkout),
    };
    PartOutcome::new(part, started.elapsed(), outcomes)
}

fn fmt(checkout: &Checkout) -> Vec<StepOutcome> {
    if let Err(why) = ensure_component(checkout, "fmt", "rustfmt") {
        return vec![StepOutcome::failed(why)];
    }
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
        process::run(cargo_step(checkout, &words, Runner::ExitCode))
    };
    manifests.into_iter().map(step).collect()
}

fn clippy(checkout: &Checkout) -> Vec<StepOutcome> {
    if let Err(why) = ensure_component(checkout, "clippy", "clippy") {
        return vec![StepOutcome::failed(why)];
    }
    // Azure's core crate is no part of the default build; its adapter is looked
    // at here.
    let workspace = "clippy --workspace --all-targets --features duroxide-cdb/azure-core -- -D warnings";
    let workspace: Vec<&str> = workspace.split(' ').collect();
    let bench = "clippy --locked --manifest-path bench/Cargo.toml --workspace --all-targets -- -D warnings";
    let bench: Vec<&str> = bench.split(' ').collect();
    [workspace, bench]
        .iter()
        .map(|words| process::run(cargo_step(checkout, words, Runner::ExitCode)))
        .collect()
}

/// All tests of the workspace, and the client's scenarios on a live account
/// when one is named; they count as skipped when none is.
fn unit(checkout: &Checkout) -> Vec<Step> {
    let live = ["test", "--package", "perihelion-client", "--test", "it", "live_account", "--", "--ignored"];
    let is_live = std::env::var_os(LIVE_VARIABLE).is_some_and(|text| !text.is_empty());
    let live = is_live.then(|| cargo_step(checkout, &live, Runner::CargoTest));
    let all = if checkout.has_cargo_command("nextest") {
        cargo_step(checkout, &["nextest", "run", "--workspace", "--no-fail-fast"], Runner::Nextest)
    } else {
        let words = ["test", "--workspace", "--lib", "--bins", "--tests", "--no-fail-fast"];
        cargo_step(checkout, &words, Runner::CargoTest)
    };
    [Some(all), live].into_iter().flatten().collect()
}

/// The provider's tests on the oldest duroxide that it accepts. Its lock file
/// has the product's versions of everything else and it builds in the same
/// directory, so that only our own crates are built a second time.
fn oldest(checkout: &Checkout) -> Step {
    let manifest = ["--locked", "--manifest-path", OLDEST_MANIFEST, "--no-fail-fast"];
    let (words, runner): (&[&str], _) = if checkout.has_cargo_command("nextest") {
        (&["nextest", "run", VALIDATIONS_AT_A_TIME], Runner::Nextest)
    } else {
        (&["test", "--tests"], Runner::CargoTest)
    };
    let mut step = cargo_step(checkout, &[words, &manifest].concat(), runner);
    step.command.arg("--target-dir").arg(checkout.target());
    if runner == Runner::CargoTest {
        step.command.args(["--", VALIDATIONS_AT_A_TIME]);
    }
    step
}

/// The pages must build without a warning (a broken link is one), and their
/// examples must work.
fn doc(checkout: &Checkout) -> [Step; 2] {
    let mut pages = cargo_step(checkout, &["doc", "--workspace", "--no-deps"], Runner::ExitCode);
    pages.command.env("RUSTDOCFLAGS", "-D warnings");
    let examples = ["test", "--workspace", "--doc", "--no-fail-fast"];
    [pages, cargo_step(checkout, &examples, Runner::CargoTest)]
}

/// A suite in Rust, in a workspace of its own.
fn rust(checkout: &Checkout, directory: &str) -> Vec<StepOutcome> {
    let manifest = format!("{directory}/Cargo.toml");
    if let Err(missing) = ready_for_suite(checkout, &manifest) {
        return vec![missing];
    }
    // Foreign crates stay out of the product's target directory: another lock
    // file there would rebuild what the two have in common.
    let mut step = cargo_step(checkout, &["run", "--locked", "--manifest-path", &manifest], Runner::Suite);
    step.command.arg("--target-dir").arg(checkout.path(&format!("{directory}/target")));
    step.command.env(SERVER_VARIABLE, checkout.server());
    vec![process::run(step)]
}

/// The published provider begins workflows on our server and is stopped; the
/// provider's own tests move what it left, and finish it.
fn migration(checkout: &Checkout) -> Vec<StepOutcome> {
    let manifest = "interop/migration/Cargo.toml";
    if let Err(missing) = ready_for_suite(checkout, manifest) {
        return vec![missing];
    }
    let left = checkout.target().join("published-container.json");
    let mut begin = cargo_step(checkout, &["run", "--locked", "--manifest-path", manifest], Runner::Suite);
    // Most of what it needs is built for the holes.
    begin.command.arg("--target-dir").arg(checkout.path("interop/holes/target"));
    begin.command.env(SERVER_VARIABLE, checkout.server()).arg("--").arg(&left);
    let begun = process::run(begin);
    if begun.tally.failed > 0 {
        return vec![begun];
    }
    // Of the whole workspace, so that nothing is built again.
    let words = ["test", "--workspace", "--test", "it", "migration::"];
    let mut finish = cargo_step(checkout, &words, Runner::CargoTest);
    finish.command.env(LEFT_VARIABLE, &left);
    vec![begun, process::run(finish)]
}

fn suite(checkout: &Checkout, program: &str, script: &str) -> Vec<StepOutcome> {
    if let Err(missing) = ready_for_suite(checkout, script) {
        return vec![missing];
    }
    let mut command = checkout.command(&OsString::from(program));
    command.arg(script).env(SERVER_VARIABLE, checkout.server());
    let name = format!("{program} {script}");
    vec![process::run(Step { name, command, runner: Runner::Suite, limit: SUITE_LIMIT })]
}

/// A suite can run when it exists and the server builds. The build is not a
/// check of its own: it says nothing that the unit tests have not said. It is
/// asked for with all tests, because a build of the server alone has other
/// features of its dependencies, and so would begin anew.
fn ready_for_suite(checkout: &Checkout, entry: &str) -> Result<(), StepOutcome> {
    if !checkout.path(entry).is_file() {
        return Err(StepOutcome::failed(format!("{entry} is missing")));
    }
    let build = process::run(cargo_step(checkout, &["test", "--workspace", "--no-run"], Runner::ExitCode));
    if build.tally.failed > 0 { Err(build) } else { Ok(()) }
}

fn cargo_step(checkout: &Checkout, words: &[&str], runner: Runner) -> Step {
    let mut command = checkout.cargo();
    command.args(words);
    Step { name: format!("cargo {}", words.join(" ")), command, runner, limit: BUILDING_STEP_LIMIT }
}

/// Installs a component that a minimal toolchain comes without.
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
