//! Tests of wrong usage: the exit code, the reason and the advice, without any secret.

use perihelion_testkit::ScratchDirectory;

use crate::program::{command, run, text};

/// Runs with invalid arguments and expects these words in the error.
fn check(arguments: &[&str], words: &[&str]) {
    let output = run(arguments);
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {stderr}");
    assert!(output.stdout.is_empty(), "{arguments:?}");
    for word in words {
        assert!(stderr.contains(word), "{arguments:?} does not say {word}: {stderr}");
    }
}

#[test]
fn invalid_options_are_wrong_usage() {
    check(&[], &["Usage"]);
    check(&["fly"], &["fly"]);
    check(&["dev", "--prot", "1"], &["--port"]);
    check(&["dev", "--port", "70000"], &["70000"]);
    check(&["dev", "--partitions", "0"], &["--partitions"]);
    check(&["dev", "--throughput", "0"], &["--throughput"]);
    check(&["dev", "--auth", "maybe"], &["key", "any", "off"]);
    check(&["dev", "--log", "loud"], &["trace"]);
    check(&["dev", "--public-endpoint", "nowhere"], &["URL"]);
    check(&["dev", "--enable-explorer", "false"], &["--enable-explorer"]);
}

#[test]
fn an_invalid_key_is_refused_and_not_repeated() {
    let output = run(&["dev", "--key", "certainly*not*base64"]);
    assert_eq!(output.status.code(), Some(2));
    let stderr = text(&output.stderr);
    assert!(stderr.contains("base64") && !stderr.contains("certainly"), "{stderr}");
}

#[test]
fn a_key_file_that_is_too_long_is_refused_and_not_cut() {
    let scratch = ScratchDirectory::new();
    let file = scratch.path().join("key");
    std::fs::write(&file, "QUJD".repeat(2000)).expect("a key file");
    check(&["dev", "--key-file", &file.display().to_string()], &["4096 bytes", "--key-file"]);
}

#[test]
fn the_well_known_key_is_refused_on_an_address_that_other_machines_reach() {
    check(&["dev", "--host", "0.0.0.0"], &["well-known key", "--allow-well-known-key", "--key-file"]);
    check(&["server", "--host", "::"], &["well-known key"]);
}

#[test]
fn an_invalid_variable_is_named() {
    let scratch = ScratchDirectory::new();
    let output = command(&scratch, &["server"]).env("PORT", "http").output().expect("the binary runs");
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("PORT"));
    let output = command(&scratch, &["dev"]).env("PERIHELION_PORT", "abc").output().expect("the binary runs");
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("the variable PERIHELION_PORT"), "{}", text(&output.stderr));
}
