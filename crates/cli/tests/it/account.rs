//! Tests of how commands find their account (by options, environment, file or data directory), and
//! that a key is never printed.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use perihelion_testkit::ScratchDirectory;
use perihelion_wire::signature::EMULATOR_KEY;

use crate::dev_server::DevServer;
use crate::program::{RunningServer, command, text};

/// A key that no server here has.
const SECRET: &str = "c2VjcmV0IGtleSBvZiBtaW5l";

/// Runs a command and returns its standard output. The command must end with this exit code, its
/// standard error must contain `error`, and neither output may contain [`SECRET`].
fn check(command: &mut Command, code: i32, error: &str) -> String {
    let Output { status, stdout, stderr } = command.output().expect("the binary runs");
    let (stdout, stderr) = (text(&stdout), text(&stderr));
    assert_eq!(status.code(), Some(code), "{stdout}{stderr}");
    assert!(stderr.contains(error), "{error} is not in {stderr}");
    assert!(!format!("{stdout}{stderr}").contains(SECRET), "{stdout}{stderr}");
    stdout
}

fn create(scratch: &ScratchDirectory, endpoint: &str) {
    let arguments = ["container", "create", "shop/orders", "--key-path", "/id", "--endpoint", endpoint];
    check(&mut command(scratch, &arguments), 0, "created shop/orders");
}

const LIST: [&str; 4] = ["container", "list", "-o", "jsonl"];

const LISTED: &str =
    "{\"database\":\"shop\",\"container\":\"orders\",\"partitionKey\":[\"/id\"],\"defaultTtl\":null}\n";

#[test]
fn an_account_is_found_by_options_the_environment_and_a_file() {
    let scratch = ScratchDirectory::new();
    let server = RunningServer::start(&mut command(&scratch, &["dev", "--port", "0"]));
    let endpoint = server.endpoint();
    create(&scratch, &endpoint);
    let list = |extra: &[&str]| command(&scratch, &[&LIST, extra].concat());
    let string = format!("AccountEndpoint={endpoint};AccountKey={EMULATOR_KEY};");

    let key_file = scratch.path().join("key");
    std::fs::write(&key_file, format!("{EMULATOR_KEY}\n")).expect("a key file");
    let key_file = key_file.to_str().expect("a path");
    assert_eq!(check(&mut list(&["--endpoint", &endpoint, "--key-file", key_file]), 0, ""), LISTED);
    assert_eq!(check(&mut list(&["--connection-string", &string]), 0, ""), LISTED);
    for name in ["AZURE_COSMOS_CONNECTION_STRING", "COSMOS_CONNECTION_STRING"] {
        assert_eq!(check(list(&[]).env(name, &string), 0, ""), LISTED);
    }
    let by_endpoint = &mut list(&[]);
    by_endpoint.env("COSMOS_ENDPOINT", &endpoint).env("COSMOS_KEY", EMULATOR_KEY);
    assert_eq!(check(by_endpoint, 0, ""), LISTED);

    let below = scratch.path().join("a/b");
    std::fs::create_dir_all(&below).expect("a directory");
    let file = format!("[account]\nendpoint = \"{endpoint}\"\nkey_file = \"key\"\n");
    std::fs::write(scratch.path().join("perihelion.toml"), file).expect("a file");
    assert_eq!(check(list(&[]).current_dir(&below), 0, ""), LISTED);
    let wrong = "[account]\nendpont = \"x\"\n";
    std::fs::write(below.join("perihelion.toml"), wrong).expect("a file");
    check(list(&[]).current_dir(&below), 2, "line 2: unknown field `endpont`");
}

#[test]
fn a_wrong_key_is_refused_and_never_printed() {
    let scratch = ScratchDirectory::new();
    let server = RunningServer::start(&mut command(&scratch, &["dev", "--port", "0"]));
    let endpoint = server.endpoint();
    let list = |extra: &[&str]| command(&scratch, &[&LIST, extra].concat());
    check(&mut list(&["--endpoint", &endpoint, "--key", SECRET]), 1, "check the key");
    check(list(&["--endpoint", &endpoint]).env("COSMOS_KEY", SECRET), 1, "check the key");
    let string = format!("AccountEndpoint={endpoint};AccountKey={SECRET};");
    check(list(&[]).env("COSMOS_CONNECTION_STRING", &string), 1, "from COSMOS_CONNECTION_STRING");
    let string = format!("AccountKey={SECRET};");
    check(list(&[]).env("COSMOS_CONNECTION_STRING", &string), 2, "cannot use the connection string");
    let file = format!("[account]\nkey = \"{SECRET}\"\nendpont = \"x\"\n");
    std::fs::write(scratch.path().join("perihelion.toml"), file).expect("a file");
    check(list(&[]).current_dir(scratch.path()), 2, "line 3");
}

#[test]
fn a_data_directory_is_used_without_a_server_and_never_while_a_server_runs_on_it() {
    let scratch = ScratchDirectory::new();
    let data = scratch.path().join("data");
    let data_text = data.to_str().expect("a path");
    let list = || command(&scratch, &[&LIST[..], &["--data", data_text]].concat());
    check(&mut list(), 6, "there is no data directory");
    assert!(!Path::new(&data).exists(), "a misspelt directory is not created");
    std::fs::create_dir(&data).expect("a directory");
    check(&mut list(), 2, "holds no data of a server");
    assert_eq!(std::fs::read_dir(&data).expect("the directory").count(), 0, "no database is made in it");

    let server = RunningServer::start(&mut command(&scratch, &["dev", "--port", "0", "--data", data_text]));
    create(&scratch, &server.endpoint());
    check(&mut list(), 3, "");
    server.signal("TERM");
    let (status, errors) = server.wait_for_end();
    assert!(status.success(), "{errors}");
    assert_eq!(check(&mut list(), 0, ""), LISTED);
    let started = ["workflow", "start", "hello", "--data", data_text];
    check(&mut command(&scratch, &started), 6, "the container duroxide/duroxide does not exist");
    let create = ["container", "create", "duroxide/duroxide", "--workflows", "--data", data_text];
    check(&mut command(&scratch, &create), 0, "created");
    check(&mut command(&scratch, &[&started[..], &["--id", "hello-1"]].concat()), 0, "");
    let count = ["workflow", "count", "-o", "jsonl", "--data", data_text];
    let counted = check(&mut command(&scratch, &count), 0, "");
    assert_eq!(counted, "{\"total\":1,\"isComplete\":true,\"byStatus\":{\"Pending\":1}}\n");
}

/// An endpoint without a listener. A command that connects to it fails with another error than a
/// command that refuses the account.
const NO_LISTENER: &str = "http://127.0.0.1:1/";

#[test]
fn a_file_uses_no_key_of_the_environment_and_no_key_file_outside_its_directory() {
    let scratch = ScratchDirectory::new();
    let project = scratch.path().join("project");
    std::fs::create_dir(&project).expect("a directory");
    std::fs::write(scratch.path().join("key"), SECRET).expect("a key");
    let file = project.join("perihelion.toml");
    let list = |text: &str| {
        std::fs::write(&file, format!("[account]\nendpoint = \"https://shop.invalid/\"\n{text}"))
            .expect("a file");
        let mut list = command(&scratch, &LIST);
        list.current_dir(&project).env("COSMOS_KEY", SECRET);
        list
    };
    check(&mut list(""), 2, "COSMOS_KEY is not used for an account that a file names");
    let outside = "key_file must lie in the directory of this file";
    check(&mut list("key_file = \"../key\"\n"), 2, outside);
    let absolute = format!("key_file = {:?}\n", scratch.path().join("key").display().to_string());
    check(&mut list(&absolute), 2, outside);
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink("../key", project.join("link")).expect("a link");
        check(&mut list("key_file = \"link\"\n"), 2, outside);
    }
}

#[test]
fn perihelion_toml_is_not_read_by_manage_metrics_and_stress() {
    let scratch = ScratchDirectory::new();
    let file = format!("[account]\nendpoint = \"{NO_LISTENER}\"\nkey = \"{SECRET}\"\n");
    std::fs::write(scratch.path().join("perihelion.toml"), file).expect("a file");
    let server = RunningServer::start(&mut command(&scratch, &["dev", "--port", "0"]));
    let endpoint = server.endpoint();
    let mut manage = command(&scratch, &["manage", "GET", "counters"]);
    check(manage.current_dir(scratch.path()).env("COSMOS_ENDPOINT", &endpoint), 0, "");
    let metrics =
        command(&scratch, &["metrics"]).current_dir(scratch.path()).output().expect("the binary runs");
    let errors = text(&metrics.stderr);
    assert!(!errors.contains("127.0.0.1:1") && !errors.contains("perihelion.toml"), "{errors}");
    let stress = ["stress", "--orchestrations", "1", "--activities", "1", "--concurrency", "1", "-o", "json"];
    let report = check(command(&scratch, &stress).current_dir(scratch.path()), 0, "");
    assert!(!report.contains("127.0.0.1:1/"), "{report}");
    check(command(&scratch, &LIST).current_dir(scratch.path()), 1, "cannot connect to the account");
}

#[test]
fn variables_that_name_two_accounts_are_refused_by_every_command() {
    let scratch = ScratchDirectory::new();
    let string = format!("AccountEndpoint=https://shop.invalid/;AccountKey={SECRET};");
    for arguments in [&LIST[..], &["manage", "POST", "reset"], &["workflow", "list"], &["stress"]] {
        let mut command = command(&scratch, arguments);
        command.env("AZURE_COSMOS_CONNECTION_STRING", &string).env("COSMOS_ENDPOINT", NO_LISTENER);
        check(
            &mut command,
            2,
            "AZURE_COSMOS_CONNECTION_STRING and COSMOS_ENDPOINT name two different accounts",
        );
    }
}

#[test]
fn a_connection_string_in_place_of_an_endpoint_is_not_printed() {
    let scratch = ScratchDirectory::new();
    let string = format!("AccountEndpoint={NO_LISTENER};AccountKey={SECRET};");
    for arguments in [&LIST[..], &["manage", "GET", "counters"]] {
        check(
            command(&scratch, arguments).env("COSMOS_ENDPOINT", &string),
            2,
            "the endpoint (from COSMOS_ENDPOINT)",
        );
        let with_endpoint = [arguments, &["--endpoint", &string]].concat();
        check(&mut command(&scratch, &with_endpoint), 2, "the endpoint (from --endpoint)");
    }
}

/// `perihelion ... | head` closes the pipe early.
#[test]
fn a_closed_standard_output_ends_a_command_quietly() {
    let dev = DevServer::start();
    create(&dev.scratch, &dev.endpoint);
    let mut list = dev.command(&LIST);
    let mut list = list.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary runs");
    drop(list.stdout.take());
    let Output { status, stderr, .. } = list.wait_with_output().expect("the program ends");
    assert_eq!((status.code(), text(&stderr).as_str()), (Some(0), ""));
}

/// Story of a bug: a command whose standard error had no reader panicked when it wrote a message, even one
/// about something that it had already done. The exit code was 101.
#[test]
fn a_closed_standard_error_ends_no_command() {
    let dev = DevServer::start();
    let item = dev.scratch.path().join("item.json");
    std::fs::write(&item, "{\"id\":\"7\"}").expect("an item");
    let item = item.to_str().expect("a path");
    let orders = ["-d", "shop", "-c", "orders"];
    for arguments in [
        &["container", "create", "shop/orders", "--key-path", "/id"][..],
        &[&["item", "put", item][..], &orders].concat(),
        &[&["item", "get", "7"][..], &orders].concat(),
        &[&["query", "SELECT * FROM c"][..], &orders].concat(),
        &[&["item", "delete", "7", "--yes"][..], &orders].concat(),
    ] {
        let mut command = dev.command(arguments);
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary runs");
        drop(child.stderr.take());
        let Output { status, stdout, .. } = child.wait_with_output().expect("the program ends");
        assert_eq!(status.code(), Some(0), "{arguments:?}: {}", text(&stdout));
    }
}

/// Story of a bug: the account came from the environment and the container from a `perihelion.toml`, which
/// may have come with a cloned repository, and the command said only where the account came from.
#[test]
fn the_file_of_a_database_or_container_name_is_printed_if_the_account_is_from_elsewhere() {
    let dev = DevServer::start();
    let put = |extra: &[&str]| {
        let mut put = dev.command(&[&["item", "put", "item.json"], extra].concat());
        put.current_dir(dev.scratch.path());
        put
    };
    std::fs::write(dev.scratch.path().join("item.json"), "{\"id\":\"7\"}").expect("an item");
    dev.succeed(&["container", "create", "shop/orders", "--key-path", "/id"]);
    let file = dev.scratch.path().join("perihelion.toml");
    std::fs::write(&file, "[account]\ndatabase = \"shop\"\ncontainer = \"orders\"\n").expect("a file");
    let file = file.canonicalize().expect("a path");
    let both = format!("(from --endpoint); database and container from {}", file.display());
    check(&mut put(&[]), 0, &both);
    let database = format!("(from --endpoint); database from {}", file.display());
    check(&mut put(&["-c", "orders"]), 0, &database);
    let output = put(&["-d", "shop", "-c", "orders"]).output().expect("the binary runs");
    assert!(!text(&output.stderr).contains("perihelion.toml"), "{}", text(&output.stderr));
}
