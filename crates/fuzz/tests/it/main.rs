//! The fuzzer on every target, for some seconds each. `FUZZ_SECONDS` sets how many, and
//! `FUZZ_SEED` the seed.

use std::time::Duration;

use perihelion_fuzz::{Plan, Target, fuzz};

/// The time of one target. All targets together take about a minute of one core.
const SECONDS: u64 = 8;

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn check(target: Target) {
    let time = Some(Duration::from_secs(number("FUZZ_SECONDS", SECONDS)));
    let plan = Plan { target, seed: number("FUZZ_SEED", 1), from: 0, inputs: u64::MAX, time };
    let count = fuzz(plan).unwrap_or_else(|failure| panic!("{failure}"));
    // So few inputs mean that the target is much too slow.
    assert!(count > 20, "only {count} inputs");
    println!("{}: {count} inputs", target.name());
}

#[test]
fn statements_parse_print_and_run_without_a_panic() {
    check(Target::Sql);
}

#[test]
fn printed_json_parses_to_the_same_value() {
    check(Target::Json);
}

#[test]
fn encoded_binary_json_decodes_to_the_same_value() {
    check(Target::BinaryJson);
}

#[test]
fn tokens_paths_and_credentials_are_parsed_or_refused() {
    check(Target::Tokens);
}

#[test]
fn no_patch_adds_more_bytes_than_its_stated_maximum() {
    check(Target::Patch);
}

#[test]
fn bodies_of_transactions_are_parsed_or_refused() {
    check(Target::Transaction);
}

#[test]
fn tokens_that_a_merge_returns_are_accepted_again() {
    check(Target::Merge);
}

#[test]
fn requests_are_answered_and_their_tokens_can_be_sent_back() {
    check(Target::Requests);
}

#[test]
fn damaged_log_files_are_refused_or_read_the_same_twice() {
    check(Target::Files);
}
