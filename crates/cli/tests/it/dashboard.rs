//! Tests of the dashboard as a program: beside the server of `dev`, and by itself.

use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Stdio;

use perihelion_testkit::ScratchDirectory;

use crate::program::{RunningServer, command, get, run, text};

/// The address in a line such as `Dashboard  http://127.0.0.1:8082/`.
pub(crate) fn address(output: &str) -> Option<String> {
    let line = output.lines().find(|line| line.trim_start().starts_with("Dashboard "))?;
    Some(line.split("http://").nth(1)?.trim_end_matches('/').to_owned())
}

fn page(address: &str) -> String {
    get(TcpStream::connect(address).expect("the dashboard listens"), "/workflows")
}

#[test]
fn dev_starts_a_dashboard_and_redirects_the_explorer_to_it() {
    let scratch = ScratchDirectory::new();
    let server = RunningServer::start(&mut command(&scratch, &["dev", "--port", "0"]));
    let dashboard = address(&server.banner()).expect("an address");
    let answer = page(&dashboard);
    // There are no workflows yet, and the page says so.
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains("duroxide/duroxide"), "{answer}");
    for path in ["/_explorer", "/_explorer/index.html"] {
        let answer = get(server.connect(), path);
        assert!(answer.starts_with("HTTP/1.1 307 "), "{answer}");
        assert!(answer.contains(&format!("location: http://{dashboard}/")), "{answer}");
    }
}

#[test]
fn dev_with_a_key_of_its_own_has_a_dashboard_with_a_token() {
    let scratch = ScratchDirectory::new();
    let mut dev = command(&scratch, &["dev", "--port", "0"]);
    let server = RunningServer::start(dev.env("PERIHELION_KEY", "YSBrZXkgZm9yIHRlc3RzLCBub3QgYSBzZWNyZXQ="));
    let banner = server.banner();
    let dashboard = address(&banner).expect("an address");
    assert!(page(&dashboard).starts_with("HTTP/1.1 401 "), "the dashboard needs a token");
    let file = sign_in_file(&banner, &dashboard);
    server.signal("TERM");
    assert!(server.wait_for_end().0.success());
    assert!(!file.exists(), "the file with the token is left after the end of the server");
}

/// The file that the output names, after a check that it has the link, that only its owner can read
/// it, and that the output itself has no token.
fn sign_in_file(output: &str, dashboard: &str) -> PathBuf {
    let line = output.lines().find_map(|line| line.trim_start().strip_prefix("Sign in ")).expect("a line");
    let file = PathBuf::from(line.trim_start().strip_prefix("the link is in the file ").expect("a file"));
    let link = std::fs::read_to_string(&file).expect("the file");
    let token = link.trim_end().split_once(&format!("http://{dashboard}/#token=")).expect("a link").1;
    assert_eq!(token.len(), 64, "{link}");
    assert!(!output.contains(token), "{output}");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = std::fs::metadata(&file).expect("the file").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
    file
}

/// Story of a bug: the link with the token was in the log of `server --explorer`. People who may not
/// use the account may be able to read that log.
#[test]
fn the_links_of_two_servers_are_in_two_files_and_not_in_their_logs() {
    let scratch = ScratchDirectory::new();
    let key = ("PERIHELION_KEY", "YSBrZXkgZm9yIHRlc3RzLCBub3QgYSBzZWNyZXQ=");
    let start = || {
        let mut server = command(&scratch, &["server", "--port", "0", "--explorer"]);
        RunningServer::start(server.envs([key]))
    };
    let servers = [start(), start()];
    let files = servers.each_ref().map(|server| {
        let dashboard = address(&server.banner()).expect("an address");
        sign_in_file(&server.banner(), &dashboard)
    });
    assert_ne!(files[0], files[1]);
    for (server, file) in servers.into_iter().zip(files) {
        let token = std::fs::read_to_string(&file).expect("the file");
        let token = token.trim_end().rsplit_once("#token=").expect("a token").1;
        server.signal("TERM");
        let (status, log) = server.wait_for_end();
        assert!(status.success() && !log.contains(token), "{log}");
        assert!(!file.exists(), "{}", file.display());
    }
}

/// Story of a bug: a server whose user cannot write the home directory had no dashboard, and did not
/// say what to do.
#[cfg(unix)]
#[test]
fn the_link_is_in_the_directory_of_temporary_files_if_the_cache_cannot_be_written() {
    let scratch = ScratchDirectory::new();
    let data = scratch.path().join("data").display().to_string();
    let start = |temporary_files: &str| {
        let mut server = command(&scratch, &["server", "--port", "0", "--explorer", "--data", &data]);
        server.env("PERIHELION_KEY", "YSBrZXkgZm9yIHRlc3RzLCBub3QgYSBzZWNyZXQ=");
        RunningServer::start(server.env("XDG_CACHE_HOME", "/dev/null/x").env("TMPDIR", temporary_files))
    };
    let server = start(&scratch.path().display().to_string());
    let dashboard = address(&server.banner()).expect("an address");
    let file = sign_in_file(&server.banner(), &dashboard);
    assert_eq!(file.parent(), Some(scratch.path()));
    server.signal("TERM");
    assert!(server.wait_for_end().0.success());

    let server = start("/dev/null/y");
    server.signal("TERM");
    let (status, log) = server.wait_for_end();
    assert!(status.success(), "the server runs without the dashboard");
    assert!(log.contains("the dashboard does not start: cannot write the dashboard's link"), "{log}");
    assert!(log.contains("\n  set XDG_CACHE_HOME or TMPDIR to a directory"), "{log}");
}

#[test]
fn each_server_has_its_own_dashboard_unless_the_option_no_dashboard_is_given() {
    let scratch = ScratchDirectory::new();
    let start = |more: &[&str]| {
        RunningServer::start(&mut command(&scratch, &[&["dev", "--port", "0"], more].concat()))
    };
    let [one, two] = [start(&[]), start(&[])];
    assert_ne!(address(&one.banner()), address(&two.banner()));
    let without = start(&["--no-dashboard"]);
    assert_eq!(address(&without.banner()), None);
    assert!(get(without.connect(), "/_explorer/index.html").starts_with("HTTP/1.1 200 "));
}

/// The location to which the server redirects the explorer.
fn explorer(server: &RunningServer) -> Option<String> {
    let answer = get(server.connect(), "/_explorer/index.html");
    let location = answer.lines().find_map(|line| line.strip_prefix("location: "));
    location.map(|to| to.trim().to_owned())
}

#[test]
fn the_command_server_starts_a_dashboard_only_if_an_option_or_a_variable_asks_for_it() {
    let scratch = ScratchDirectory::new();
    let start = |more: &[&str], variables: &[(&str, &str)]| {
        let mut server = command(&scratch, &[&["server", "--port", "0"], more].concat());
        RunningServer::start(server.envs(variables.iter().copied()))
    };
    for (more, variables) in [
        (&["--explorer"][..], &[][..]),
        (&["--enable-explorer"], &[]),
        (&["--enable-explorer", "true"], &[]),
        (&[], &[("PERIHELION_EXPLORER", "1")]),
        (&[], &[("ENABLE_EXPLORER", "true")]),
    ] {
        let server = start(more, variables);
        let dashboard = address(&server.banner()).unwrap_or_else(|| panic!("{more:?} {variables:?}"));
        assert!(page(&dashboard).starts_with("HTTP/1.1 200 "), "{more:?} {variables:?}");
        assert!(dashboard.starts_with("127.0.0.1:"), "{dashboard}");
        assert_eq!(explorer(&server), Some(format!("http://{dashboard}/")));
    }
    for (more, variables) in [
        (&[][..], &[][..]),
        (&["--enable-explorer", "false"], &[("ENABLE_EXPLORER", "true")]),
        (&[], &[("PERIHELION_EXPLORER", "0"), ("ENABLE_EXPLORER", "false")]),
    ] {
        let server = start(more, variables);
        assert_eq!((address(&server.banner()), explorer(&server)), (None, None), "{more:?} {variables:?}");
    }
}

#[test]
fn a_server_with_a_key_of_its_own_has_an_explorer_with_a_token() {
    let scratch = ScratchDirectory::new();
    let mut server = command(&scratch, &["server", "--port", "0", "--explorer"]);
    let server =
        RunningServer::start(server.env("PERIHELION_KEY", "YSBrZXkgZm9yIHRlc3RzLCBub3QgYSBzZWNyZXQ="));
    let dashboard = address(&server.banner()).expect("an address");
    assert!(page(&dashboard).starts_with("HTTP/1.1 401 "), "the dashboard needs a token");
    sign_in_file(&server.banner(), &dashboard);
}

#[test]
fn the_message_about_a_failed_start_names_what_was_asked_for() {
    let check = |more: &[&str], expected: &str| {
        let scratch = ScratchDirectory::new();
        let mut dev = command(&scratch, &[&["dev", "--port", "0"], more].concat());
        // No client can connect, because this variable has a value that no client accepts.
        let server =
            RunningServer::start(dev.env("AZURE_COSMOS_CONNECTION_POOL_MAX_CONNECT_TIMEOUT_MS", "soon"));
        server.signal("TERM");
        let (_, errors) = server.wait_for_end();
        assert!(errors.contains(&format!("perihelion: {expected}: ")), "{expected} is not in {errors}");
    };
    check(&[], "the dashboard does not start");
    check(&["--demo"], "the dashboard and the demo do not start");
    check(&["--no-dashboard", "--demo"], "the demo does not start");
}

#[test]
fn a_dashboard_beyond_loopback_needs_a_token_and_prints_no_key() {
    let (answer, output) = dashboard_of_a_server(&["--address", "0.0.0.0:0"], None);
    assert!(answer.starts_with("HTTP/1.1 401 "), "beyond loopback a token is needed");
    assert!(output.contains("Sign in    ") && output.contains("duroxide/duroxide on "), "{output}");
    assert!(!output.contains("C2y6yDjf5"), "the emulators' key is in the output: {output}");
}

#[test]
fn a_dashboard_that_acts_with_a_secret_key_needs_a_token_on_loopback_too() {
    let key = "YSBrZXkgZm9yIHRlc3RzLCBub3QgYSBzZWNyZXQ=";
    let (answer, output) = dashboard_of_a_server(&["--address", "127.0.0.1:0"], Some(key));
    assert!(answer.starts_with("HTTP/1.1 401 "), "{answer}");
    assert!(output.contains("Sign in    ") && !output.contains(key), "{output}");
    assert!(!output.contains('#'), "the token is in an output that is not a terminal: {output}");
}

/// Starts a server and a dashboard for it. Returns the dashboard's answer to a request without a
/// token, and its output.
fn dashboard_of_a_server(more: &[&str], key: Option<&str>) -> (String, String) {
    let scratch = ScratchDirectory::new();
    let mut dev = command(&scratch, &["dev", "--port", "0", "--no-dashboard"]);
    let server = RunningServer::start(dev.envs(key.map(|key| ("PERIHELION_KEY", key))));
    let endpoint = server.endpoint();
    let mut child = command(&scratch, &[&["dashboard", "--endpoint", &endpoint], more].concat())
        .envs(key.map(|key| ("COSMOS_KEY", key)))
        .stdout(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    let mut lines = BufReader::new(child.stdout.take().expect("standard output is piped")).lines();
    let output: Vec<String> = lines.by_ref().take(3).map(|line| line.expect("a line")).collect();
    let output = output.join("\n");
    let address = address(&output).expect("an address").replace("localhost", "127.0.0.1");
    let answer = page(&address);
    child.kill().expect("it runs");
    child.wait().expect("it ends");
    (answer, output)
}

#[test]
fn a_dashboard_that_cannot_start_says_why() {
    let refused = |arguments: &[&str], code: i32, words: &str| {
        let output = run(&[&["dashboard"], arguments].concat());
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{errors}");
        assert!(errors.contains(words), "{errors}");
    };
    refused(&["--endpoint", "http://127.0.0.1:1/"], 1, "cannot connect to the account http://127.0.0.1:1");
    refused(&["--token-file", "/nowhere/at/all"], 2, "the token file /nowhere/at/all");
    refused(&["--address", "localhost"], 2, "--address");
}

/// Story of a bug: a longer file was cut without a word, and the rest of its token was not needed to
/// sign in.
#[test]
fn a_token_file_that_is_too_long_is_refused() {
    let scratch = ScratchDirectory::new();
    let path = scratch.path().join("token");
    let dashboard = |token: &str| {
        std::fs::write(&path, token).expect("a file");
        let arguments = ["dashboard", "--endpoint", "http://127.0.0.1:1/", "--token-file"];
        let output = command(&scratch, &arguments).arg(&path).output().expect("the binary runs");
        (output.status.code(), text(&output.stderr))
    };
    let (code, errors) = dashboard(&"t0ken".repeat(1000));
    assert_eq!(code, Some(2), "{errors}");
    assert!(errors.contains("it has more than 4096 bytes") && !errors.contains("t0ken"), "{errors}");
    // The longest file that is read. The command then fails because the account does not answer.
    let (code, errors) = dashboard(&"t".repeat(4096));
    assert_eq!(code, Some(1), "{errors}");
}
