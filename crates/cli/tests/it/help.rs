//! Tests of the help texts.

use crate::program::{run, text};

/// Options of both `dev` and `server`.
const SERVE_OPTIONS: [&str; 31] = [
    "--port",
    "--host",
    "--data",
    "--partitions",
    "--regions",
    "--multi-write",
    "--replication-delay",
    "--merge-in-gateway",
    "--strict-gateway",
    "--strict-index",
    "--throughput",
    "--transaction-operations",
    "--transaction-bytes",
    "--ledger-age",
    "--ledger-entries",
    "--ledger-bytes",
    "--strict-transactions",
    "--streams-per-connection",
    "--key",
    "--key-file",
    "--show-key",
    "--allow-well-known-key",
    "--allow-weak-auth",
    "--auth",
    "--management",
    "--tls-name",
    "--public-endpoint",
    "--open-account",
    "--health-port",
    "--otlp-endpoint",
    "--log",
];

/// The variables of Microsoft's emulator image, which `server` reads.
const IMAGE_VARIABLES: [&str; 14] = [
    "PORT",
    "PROTOCOL",
    "ENABLE_EXPLORER",
    "EXPLORER_PORT",
    "EXPLORER_PROTOCOL",
    "KEY_FILE",
    "DATA_PATH",
    "CERT_PATH",
    "CERT_SECRET",
    "LOG_LEVEL",
    "ENABLE_OTLP_EXPORTER",
    "ENABLE_CONSOLE_EXPORTER",
    "GATEWAY_PUBLIC_ENDPOINT",
    "ENABLE_TELEMETRY",
];

/// Runs the program, which must succeed, and returns its standard output.
fn help(arguments: &[&str]) -> String {
    let output = run(arguments);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}");
    assert!(output.stderr.is_empty(), "{arguments:?}");
    text(&output.stdout)
}

/// Checks that a help contains all these parts.
fn check(arguments: &[&str], expected: &[&str]) {
    let help = help(arguments);
    for part in expected {
        assert!(help.contains(part), "{arguments:?} does not mention {part}:\n{help}");
    }
}

#[test]
fn help_names_the_commands_examples_and_exit_codes() {
    let parts = [
        "demo",
        "dev",
        "server",
        "dashboard",
        "migrate",
        "stress",
        "transaction",
        "workflow",
        "queue",
        "query",
        "cert",
        "--version",
        "Examples:",
        "Exit codes:",
        "perihelion dev --data",
    ];
    check(&["--help"], &parts);
    check(&["-h"], &parts);
}

/// The commands in the help, found by their indentation of two spaces.
fn commands() -> Vec<String> {
    let help = help(&["--help"]);
    let (_, list) = help.split_once("\nCommands:\n").expect("a list of commands");
    let lines = list.lines().take_while(|line| !line.is_empty());
    let names = lines.filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    names.filter(|name| !name.is_empty() && *name != "help").map(str::to_owned).collect()
}

#[test]
fn every_command_has_a_help_with_its_purpose_and_the_exit_codes() {
    let commands = commands();
    assert!(commands.len() >= 6, "{commands:?}");
    for command in commands {
        let help = help(&[&command, "--help"]);
        assert!(!help.starts_with("Usage:"), "{command} does not say what it does:\n{help}");
        check(&[&command, "--help"], &["Usage:", "Exit codes:"]);
    }
}

#[test]
fn help_of_the_serving_commands_names_their_options_and_variables() {
    for command in ["dev", "server"] {
        check(&[command, "--help"], &SERVE_OPTIONS);
        check(&[command, "-h"], &SERVE_OPTIONS);
        check(
            &[command, "--help"],
            &["Exit codes:", "PERIHELION_KEY", "PERIHELION_ALLOW_WELL_KNOWN_KEY", "8081"],
        );
    }
    check(&["server", "--help"], &IMAGE_VARIABLES);
    check(&["server", "--help"], &["--explorer", "PERIHELION_EXPLORER"]);
}

#[test]
fn help_of_cert_names_its_subcommands() {
    check(&["cert", "--help"], &["\n  ca ", "\n  path "]);
    check(&["cert", "ca", "--help"], &["--data"]);
}

#[test]
fn help_of_migrate_names_its_options_and_variables() {
    let parts = ["--from", "--to", "--dry-run", "--force", "--leave", "COSMOS_CONNECTION_STRING"];
    check(&["migrate", "--help"], &parts);
    check(&["migrate", "--help"], &["COSMOS_ENDPOINT", "COSMOS_KEY", "Examples:", "Exit codes:"]);
}

#[test]
fn help_of_stress_names_its_options_its_columns_and_the_harness() {
    let options =
        ["--concurrency", "--duration", "--orchestrations", "--activities", "--container", "--output"];
    check(&["stress", "--help"], &options);
    check(&["stress", "--help"], &["COSMOS_ENDPOINT", "duroxide's harness", "orch/s", "409/412", "Ctrl-C"]);
}

#[test]
fn help_of_transaction_shows_the_form_of_the_file_and_what_to_do_with_a_token() {
    let parts = ["FILE.json", "--token", "ifMatch", "DATABASE/CONTAINER", "COSMOS_ENDPOINT", "Exit codes:"];
    check(&["transaction", "run", "--help"], &parts);
    check(&["transaction", "--help"], &["run"]);
}

#[test]
fn completions_and_manual_pages_name_the_verbs() {
    for shell in ["bash", "zsh", "fish"] {
        check(&["completions", shell], &["perihelion", "workflow", "describe", "connection-string"]);
    }
    check(&["man"], &[".TH perihelion", "perihelion\\-workflow"]);
    check(&["man", "--help"], &["--directory"]);
    let scratch = perihelion_testkit::ScratchDirectory::new();
    let directory = scratch.path().join("man1");
    assert!(help(&["man", "--directory", directory.to_str().expect("a path")]).is_empty());
    let page = std::fs::read_to_string(directory.join("perihelion-workflow-list.1")).expect("a page");
    assert!(page.contains("List workflows") && page.contains("status=failed"), "{page}");
}

#[test]
fn the_printed_version_is_the_version_of_the_package() {
    check(&["--version"], &[concat!("perihelion ", env!("CARGO_PKG_VERSION"))]);
}
