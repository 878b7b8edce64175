//! Tests of `perihelion doctor` that a transcript cannot express: a service whose clock differs, a
//! program that is not an account, TLS, a data directory. The transcript of `doctor` has the rest.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::Output;
use std::time::SystemTime;

use perihelion_testkit::ScratchDirectory;
use perihelion_wire::date;
use serde_json::Value;

use crate::program::{RunningServer, command, text};

fn doctor(arguments: &[&str]) -> Output {
    let arguments = [&["doctor"], arguments].concat();
    command(&ScratchDirectory::new(), &arguments).output().expect("the binary runs")
}

/// The result and the finding of one subject, from the JSON of `doctor`.
fn found(output: &Output, subject: &str) -> (String, String) {
    let checks: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}{}", text(&output.stdout), text(&output.stderr)));
    let check = checks.as_array().and_then(|all| all.iter().find(|check| check["subject"] == subject));
    let check = check.unwrap_or_else(|| panic!("nothing about {subject}: {checks}"));
    let of = |name: &str| check[name].as_str().unwrap_or_default().to_owned();
    (of("result"), of("finding"))
}

/// Starts a program that answers every request over HTTP/1.1 with this status, and with a date that
/// differs by some seconds from this machine's date. Returns its endpoint.
fn endpoint_that_answers(status: &'static str, skew_seconds: i64) -> String {
    endpoint_with(skew_seconds, move |_, _| (status, "{}"))
}

/// Starts a program that computes each answer, a status and a body, from the request and from the
/// number of requests before it. Its dates differ by `skew_seconds` from this machine's date.
fn endpoint_with(
    skew_seconds: i64,
    answer: impl Fn(&str, usize) -> (&'static str, &'static str) + Send + 'static,
) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let endpoint = format!("http://{}", listener.local_addr().expect("an address"));
    std::thread::spawn(move || {
        let mut count = 0;
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let mut request = [0; 4096];
            let Ok(read) = stream.read(&mut request) else { continue };
            // This program does not speak HTTP/2. It refuses the preface of HTTP/2, and the client
            // tries HTTP/1.1.
            if request[..read].starts_with(b"PRI ") {
                let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n");
                continue;
            }
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970").as_secs();
            let date = date::format(now.saturating_add_signed(skew_seconds));
            let (status, body) = answer(&text(&request[..read]), count);
            count += 1;
            let length = body.len();
            // The connection is closed after one answer, so this loop sees every request.
            let _ = write!(
                stream,
                "HTTP/1.1 {status}\r\ndate: {date}\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
            );
        }
    });
    endpoint
}

#[test]
fn a_skewed_clock_is_found_even_if_the_key_is_refused() {
    for (skew, expected, word) in
        [(0, "ok", "agrees"), (-120, "warning", "ahead of"), (3600, "problem", "behind")]
    {
        let output = doctor(&["--endpoint", &endpoint_that_answers("403 Forbidden", skew), "-o", "json"]);
        let (result, finding) = found(&output, "clock");
        assert_eq!(result, expected, "{finding}");
        assert!(finding.contains(word), "{finding}");
        assert_eq!(found(&output, "credential").0, "problem");
        assert_eq!(output.status.code(), Some(1));
    }
}

#[test]
fn a_program_that_is_not_an_account_is_a_problem() {
    for (status, word) in
        [("404 Not Found", "not a Cosmos"), ("200 OK", "not a Cosmos"), ("503 Busy", "503, twice")]
    {
        let output = doctor(&["--endpoint", &endpoint_that_answers(status, 0), "-o", "json"]);
        let (result, finding) = found(&output, "endpoint");
        assert_eq!(result, "problem");
        assert!(finding.contains(word), "{finding}");
        assert_eq!(output.status.code(), Some(1));
    }
}

#[test]
fn one_answer_of_a_busy_service_is_not_a_problem() {
    let endpoint = endpoint_with(0, |_, count| match count {
        0 => ("503 Busy", "{}"),
        _ => ("403 Forbidden", "{}"),
    });
    let output = doctor(&["--endpoint", &endpoint, "-o", "json"]);
    assert_eq!(found(&output, "endpoint").0, "ok");
    assert!(found(&output, "credential").1.contains("403"));
}

/// The part of an account document that `doctor` reads.
const ACCOUNT: &str = r#"{"userConsistencyPolicy":{"defaultConsistencyLevel":"Session"}}"#;

#[test]
fn a_server_that_is_not_ready_is_a_problem() {
    let endpoint = endpoint_with(0, |request, _| match request.starts_with("GET /ready ") {
        true => ("503 Not Ready", "the disk is full"),
        false => ("200 OK", ACCOUNT),
    });
    let output = doctor(&["--endpoint", &endpoint, "-o", "json"]);
    let (result, finding) = found(&output, "server");
    assert_eq!(result, "problem");
    assert!(finding.contains("the disk is full"), "{finding}");
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn an_untrusted_certificate_is_a_problem_of_tls() {
    let scratch = ScratchDirectory::new();
    let key = "c2VjcmV0IGtleQ==";
    let mut server = command(&scratch, &["dev", "--port", "0"]);
    let server = RunningServer::start(server.env("PERIHELION_KEY", key));
    let endpoint = format!("https://127.0.0.1:{}/", server.port());
    let output = doctor(&["--endpoint", &endpoint, "--key", key, "-o", "json"]);
    assert_eq!(found(&output, "endpoint").0, "ok");
    assert_eq!(found(&output, "TLS").0, "problem");

    // The certificate is trusted if the server's certificate authority is trusted.
    let authority = command(&scratch, &["cert", "path"]).output().expect("the binary runs");
    let mut trusting = command(&scratch, &["doctor", "--endpoint", &endpoint, "--key", key, "-o", "json"]);
    let output = trusting.env("SSL_CERT_FILE", text(&authority.stdout).trim()).output().expect("it runs");
    assert_eq!(found(&output, "TLS"), ("ok".to_owned(), "on, the certificate is trusted".to_owned()));
    assert_eq!(output.status.code(), Some(0));
}

/// The container of the workflows does not exist in the directory, which is only a warning.
#[test]
fn a_data_directory_is_checked_without_an_endpoint() {
    let (scratch, data) = (ScratchDirectory::new(), ScratchDirectory::new());
    let mut server = command(&scratch, &["dev", "--port", "0", "--data"]);
    let server = RunningServer::start(server.arg(data.path()));
    server.signal("TERM");
    server.wait_for_end();
    let output = doctor(&["--data", &data.path().display().to_string(), "-o", "json"]);
    assert_eq!(found(&output, "write regions").0, "ok");
    assert_eq!(found(&output, "container").0, "warning");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let output = doctor(&["--data", "/nowhere"]);
    assert_eq!(output.status.code(), Some(6), "the directory does not exist");
}
