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

/// Story of a bug: these names and ids were sent, and the account refused them. The exit code was 1 or 6.
/// Nothing listens at port 1 of this machine, so exit code 2 says that no request was sent.
#[test]
fn names_and_ids_that_cannot_exist_are_wrong_usage() {
    let check = |arguments: &[&str], words: &[&str]| {
        check(&[arguments, &["--endpoint", "http://127.0.0.1:1"]].concat(), words);
    };
    let long = "x".repeat(3000);
    let split = "--database shop --container orders";
    for verb in [
        &["workflow", "list"][..],
        &["item", "get", "1", "--pk", "1"],
        &["query", "SELECT * FROM c"],
        &["feed", "tail"],
        &["dashboard"],
    ] {
        check(&[verb, &["-c", "shop/orders"]].concat(), &["the name of a container", split]);
        check(&[verb, &["-d", "a?"]].concat(), &["the name of a database", "1 to 255"]);
        check(&[verb, &["-c", ""]].concat(), &["the name of a container", "1 to 255"]);
    }
    check(&["container", "list", "a/b"], &["the name of a database"]);
    check(&["container", "show", "a/b?"], &["the name of a container"]);
    check(&["container", "create", "a/b ", "--key-path", "/id"], &["the name of a container"]);
    for id in [long.as_str(), "a/b", ""] {
        check(&["item", "get", id, "--pk", "1"], &["1 to 1023"]);
        check(&["item", "delete", id, "--pk", "1", "--yes"], &["1 to 1023"]);
        check(&["item", "patch", id, "--pk", "1", "--set", "/a=1"], &["1 to 1023"]);
    }
    check(&["workflow", "start", "hello", "--id", &long], &["has 3000 bytes", "at most 2048"]);
    // The id is the name and 17 more characters: a hyphen and a random number.
    check(&["workflow", "execute", &long], &["has 3017 bytes", "at most 2048"]);
    check(&["workflow", "restart", "hello-1", "--new-id", &long, "--yes"], &["at most 2048"]);
    check(&["migrate", "--from", "shop/old", "--to", "shop/old"], &["into itself", "--to"]);
    check(&["migrate", "--from", "shop/old", "--to", "shop/new#"], &["the name of a container"]);
}

/// Story of a bug: an option that `workflow raise` does not have, such as `--dry-run`, was taken for the
/// payload and sent. Nothing listens at port 1 of this machine, so exit code 1 says that the payload was
/// accepted.
#[test]
fn an_unknown_option_is_never_the_payload_of_an_event() {
    let raise = ["workflow", "raise", "order-7", "approved", "--endpoint", "http://127.0.0.1:1"];
    for option in ["--dry-run", "--yes", "--nonsense", "-y"] {
        check(&[&raise[..], &[option]].concat(), &["unexpected argument", option]);
    }
    for payload in [&["-1"][..], &["-2.5"], &["--", "--text"], &["--", "-"], &["{\"a\":-1}"]] {
        let output = run(&[&raise[..], payload].concat());
        let errors = text(&output.stderr);
        assert!(
            output.status.code() == Some(1) && errors.contains("cannot connect"),
            "{payload:?}: {errors}"
        );
    }
}

/// Story of a bug: with `-o json`, which promises one JSON document, these commands printed one document
/// after the other. Nothing listens at port 1 of this machine.
#[test]
fn a_command_that_runs_until_ctrl_c_refuses_to_print_one_json_document() {
    for verb in [
        &["feed", "tail"][..],
        &["queue", "list", "--watch"],
        &["worker", "list", "--watch"],
        &["session", "list", "--watch=1s"],
        &["workflow", "list", "--watch"],
        &["workflow", "count", "--watch"],
        &["workflow", "describe", "hello-1", "--watch"],
        &["workflow", "tree", "hello-1", "--watch"],
    ] {
        let arguments = [verb, &["-o", "json", "--endpoint", "http://127.0.0.1:1"]].concat();
        check(&arguments, &["until Ctrl-C", "-o jsonl"]);
    }
}

/// An invalid name in a variable is refused by the commands that use the variable. `migrate` does not.
#[test]
fn the_name_of_a_container_in_a_variable_is_checked() {
    let scratch = ScratchDirectory::new();
    let run_with_variable = |arguments: &[&str]| {
        let arguments = [arguments, &["--endpoint", "http://127.0.0.1:1"]].concat();
        let mut command = command(&scratch, &arguments);
        let output = command.env("COSMOS_CONTAINER", "shop/orders").output().expect("the binary runs");
        (output.status.code(), text(&output.stderr))
    };
    let (code, errors) = run_with_variable(&["workflow", "list"]);
    assert!(code == Some(2) && errors.contains("--database shop --container orders"), "{errors}");
    let (code, errors) = run_with_variable(&["migrate", "--from", "a/b", "--to", "a/c"]);
    assert!(code == Some(1) && errors.contains("cannot connect"), "{errors}");
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
