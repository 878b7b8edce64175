//! Tests of `dev` and `server` as running programs: the banner, HTTP and TLS,
//! signals, addresses, and the options of Microsoft's emulator image.

use std::io::{Read, Write};
use std::net::TcpListener;

use perihelion_testkit::ScratchDirectory;
use perihelion_testkit::http_client::{HttpClient, HttpRequest};

use crate::program::{RunningServer, command, get, own_host, text};

/// A key for tests.
const OWN_KEY: &str = "YSBrZXkgZm9yIHRlc3RzLCBub3QgYSBzZWNyZXQ=";

#[test]
fn dev_prints_a_connection_string_and_answers() {
    let scratch = ScratchDirectory::new();
    let server = RunningServer::start(&mut command(&scratch, &["dev", "--port", "0"]));
    let banner = server.banner();
    let port = server.port();
    for part in [
        format!("http://127.0.0.1:{port}/ and https://127.0.0.1:{port}/"),
        format!("AccountEndpoint=http://127.0.0.1:{port}/;AccountKey=C2y6yDjf5/"),
        "in memory".to_owned(),
        scratch.path().join("perihelion/tls/ca.pem").display().to_string(),
    ] {
        assert!(banner.contains(&part), "{part} is missing in {banner}");
    }
    assert!(get(server.connect(), "/ready").starts_with("HTTP/1.1 200 "));
}

#[test]
fn every_region_has_an_address_in_the_banner_and_answers_there() {
    let scratch = ScratchDirectory::new();
    let arguments = ["dev", "--port", "0", "--regions", "West US,East US", "--replication-delay", "5ms"];
    let server = RunningServer::start(&mut command(&scratch, &arguments));
    let banner = server.banner();
    for name in ["West US", "East US"] {
        let line = format!("Region      {name}: http://127.0.0.1:");
        let rest = banner.split_once(&line).unwrap_or_else(|| panic!("no {name} in {banner}")).1;
        let port: u16 = rest.split('/').next().and_then(|port| port.parse().ok()).expect("a port");
        let stream = std::net::TcpStream::connect(("127.0.0.1", port)).expect("the region listens");
        assert!(get(stream, "/ready").starts_with("HTTP/1.1 200 "), "{name}");
    }
    // The same region twice, and a delay that is not a time, are wrong usage.
    let output =
        command(&scratch, &["dev", "--regions", "West US,west us"]).output().expect("the binary runs");
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    let output =
        command(&scratch, &["dev", "--replication-delay", "soon"]).output().expect("the binary runs");
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
}

#[test]
fn the_stream_limit_is_announced_to_http2_clients() {
    let scratch = ScratchDirectory::new();
    let arguments = ["dev", "--port", "0", "--streams-per-connection", "20"];
    let server = RunningServer::start(&mut command(&scratch, &arguments));
    let mut stream = server.connect();
    // The client preface of HTTP/2 and an empty SETTINGS frame.
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").expect("a preface");
    let mut head = [0; 9];
    stream.read_exact(&mut head).expect("a frame");
    assert_eq!(head[3], 4, "the first frame is SETTINGS: {head:?}");
    let mut settings = vec![0; usize::from(head[2])];
    stream.read_exact(&mut settings).expect("the settings");
    // MAX_CONCURRENT_STREAMS is setting 3.
    assert!(settings.chunks(6).any(|setting| setting == [0, 3, 0, 0, 0, 20]), "{settings:?}");
    // A limit of zero is wrong usage.
    let output =
        command(&scratch, &["dev", "--streams-per-connection", "0"]).output().expect("the binary runs");
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
}

#[test]
fn signals_end_the_program_with_success() {
    for signal in ["TERM", "INT"] {
        let scratch = ScratchDirectory::new();
        let server = RunningServer::start(&mut command(&scratch, &["server", "--port", "0"]));
        server.signal(signal);
        let (status, log) = server.wait_for_end();
        assert_eq!(status.code(), Some(0), "{signal}: {log}");
        assert!(log.contains("draining"), "{log}");
    }
}

#[test]
fn manage_signs_its_request_with_the_key_of_the_account() {
    let scratch = ScratchDirectory::new();
    let mut server = command(&scratch, &["dev", "--port", "0"]);
    let server = RunningServer::start(server.env("PERIHELION_KEY", OWN_KEY));
    let endpoint = server.endpoint();
    let manage = |key: &str| {
        let mut manage = command(&scratch, &["manage", "GET", "counters"]);
        manage.env("COSMOS_ENDPOINT", &endpoint).env("COSMOS_KEY", key).output().expect("the binary runs")
    };
    let output = manage(OWN_KEY);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("\"requests\":"), "{}", text(&output.stdout));
    let output = manage("YW5vdGhlcg==");
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("401"), "{}", text(&output.stderr));
}

#[test]
fn the_refusal_of_weak_authentication_off_loopback_names_the_option_that_allows_it() {
    let arguments = ["server", "--host", "0.0.0.0", "--auth", "off", "--port", "0"];
    let mut command = command(&ScratchDirectory::new(), &arguments);
    let output = command.env("PERIHELION_KEY", OWN_KEY).output().expect("the binary runs");
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("--allow-weak-auth"), "{}", text(&output.stderr));
}

#[test]
fn check_accepts_the_data_of_a_server_and_refuses_a_damaged_file() {
    let scratch = ScratchDirectory::new();
    let data = scratch.path().join("data");
    let directory = data.display().to_string();
    let check = || command(&scratch, &["check", &directory]).output().expect("the binary runs");
    assert_eq!(check().status.code(), Some(6), "there is no directory yet");
    std::fs::create_dir(&data).expect("a directory");
    assert_eq!(check().status.code(), Some(2), "there is no data yet");
    let server =
        RunningServer::start(&mut command(&scratch, &["server", "--port", "0", "--data", &directory]));
    let output = check();
    assert_eq!(output.status.code(), Some(3), "a server uses it: {}", text(&output.stderr));
    assert!(!text(&output.stderr).contains("backup"), "nothing is damaged: {}", text(&output.stderr));
    server.signal("TERM");
    assert_eq!(server.wait_for_end().0.code(), Some(0));
    let output = check();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("no problems"), "{}", text(&output.stdout));

    let file = data.join("perihelion.redb");
    // All bytes are damaged, except for the first page of the file.
    let mut bytes = std::fs::read(&file).expect("the data file");
    let end = bytes.len();
    for byte in &mut bytes[4096..end] {
        *byte ^= 0x55;
    }
    std::fs::write(&file, bytes).expect("written");
    let output = check();
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stdout));
}

/// Story of a bug: after one failed commit every write was refused for ever, and the server said
/// that it was ready.
#[cfg(unix)]
#[test]
fn a_server_that_can_no_longer_write_its_data_ends_with_its_own_exit_code() {
    let scratch = ScratchDirectory::new();
    let data = scratch.path().join("data");
    let arguments = ["server", "--port", "0", "--data", &data.display().to_string()].map(str::to_owned);
    // No file may be longer than 4 MB (8192 blocks of 512 bytes). Without the trap, the signal XFSZ
    // would end the program.
    let script = "trap '' XFSZ; ulimit -f 8192; exec \"$0\" \"$@\"";
    let mut limited = std::process::Command::new("sh");
    limited.args(["-c", script, env!("CARGO_BIN_EXE_perihelion")]).args(arguments);
    limited.env("XDG_CACHE_HOME", scratch.path());
    let server = RunningServer::start(&mut limited);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let address = std::net::SocketAddr::from(([127, 0, 0, 1], server.port()));
        let client = HttpClient::new(address);
        for (path, body) in [
            ("/dbs", r#"{"id":"d"}"#),
            ("/dbs/d/colls", r#"{"id":"c","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2}}"#),
        ] {
            let body = perihelion_model::json::parse_str(body).expect("JSON");
            assert_eq!(
                client.send(&HttpRequest::new("POST", path).json(&body)).await.expect("an answer").status,
                201
            );
        }
        let pad = "x".repeat(500_000);
        for n in 0..40 {
            let body = format!(r#"{{"id":"{n}","pk":"a","pad":"{pad}"}}"#);
            let create = HttpRequest::new("POST", "/dbs/d/colls/c/docs")
                .header("x-ms-documentdb-partitionkey", r#"["a"]"#);
            match client.send(&create.body(body)).await {
                Ok(answer) if answer.status == 201 => {}
                _ => return,
            }
        }
        panic!("20 MB fit into files of 4 MB");
    });
    let (status, log) = server.wait_for_end();
    assert_eq!(status.code(), Some(5), "{log}");
}

#[test]
fn a_port_in_use_has_its_own_exit_code_and_a_clear_message() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("an address").port().to_string();
    let output =
        command(&ScratchDirectory::new(), &["dev", "--port", &port]).output().expect("the binary runs");
    assert_eq!(output.status.code(), Some(4));
    let stderr = text(&output.stderr);
    assert!(stderr.contains(&port) && stderr.contains("in use"), "{stderr}");
    assert!(stderr.contains("--port"), "{stderr}");
    assert!(output.stdout.is_empty(), "no banner before the address is bound");
}

#[test]
fn an_unknown_host_is_an_address_error() {
    let arguments = ["dev", "--host", "no-such-host.invalid", "--allow-well-known-key"];
    let output = command(&ScratchDirectory::new(), &arguments).output().expect("the binary runs");
    assert_eq!(output.status.code(), Some(4), "{}", text(&output.stderr));
}

#[test]
fn a_secret_key_is_never_printed() {
    let scratch = ScratchDirectory::new();
    let mut command = command(&scratch, &["server", "--port", "0", "--log", "trace"]);
    let server = RunningServer::start(command.env("PERIHELION_KEY", OWN_KEY));
    get(server.connect(), "/dbs");
    let banner = server.banner();
    assert!(banner.contains("hidden") && !banner.contains(OWN_KEY), "{banner}");
    server.signal("TERM");
    let (_, log) = server.wait_for_end();
    assert!(!log.contains(OWN_KEY), "{log}");
}

#[test]
fn the_key_of_a_key_file_is_shown_on_request() {
    let scratch = ScratchDirectory::new();
    let file = scratch.path().join("key");
    std::fs::write(&file, format!("{OWN_KEY}\n")).expect("a key file");
    let path = file.display().to_string();
    let arguments = ["dev", "--port", "0", "--key-file", &path, "--show-key"];
    let server = RunningServer::start(&mut command(&scratch, &arguments));
    assert!(server.banner().contains(&format!("AccountKey={OWN_KEY};")));
}

#[test]
fn an_unsigned_request_reads_the_account_document_if_perihelion_open_account_is_1() {
    let scratch = ScratchDirectory::new();
    let mut command = command(&scratch, &["dev", "--port", "0"]);
    let server = RunningServer::start(command.env("PERIHELION_OPEN_ACCOUNT", "1"));
    assert!(get(server.connect(), "/").starts_with("HTTP/1.1 200 "));
}

#[test]
fn variables_and_arguments_of_the_emulator_image_are_accepted() {
    let scratch = ScratchDirectory::new();
    let arguments = ["server", "--enable-explorer", "false", "--protocol", "https", "--log-level", "error"];
    let mut command = command(&scratch, &arguments);
    command
        .env("PORT", "0")
        .env("PERIHELION_HOST", "0.0.0.0")
        .env("PERIHELION_ALLOW_WELL_KNOWN_KEY", "1")
        .env("ENABLE_EXPLORER", "false")
        .env("ENABLE_TELEMETRY", "false")
        .env("GATEWAY_PUBLIC_ENDPOINT", "https://cosmos:8081")
        .env("CERT_PATH", "/nowhere.pfx");
    let server = RunningServer::start(&mut command);
    assert!(server.banner().contains("AccountEndpoint=https://cosmos:8081;"), "{}", server.banner());
    // Tests that start the image as a container also wait for the account document at
    // `/`, and do not sign that request. Requests for other resources need a signature.
    for path in ["/alive", "/ready", "/status", "/"] {
        assert!(get(server.connect(), path).starts_with("HTTP/1.1 200 "), "{path}");
    }
    assert!(get(server.connect(), "/dbs").starts_with("HTTP/1.1 401 "));
    server.signal("TERM");
    let (status, log) = server.wait_for_end();
    assert_eq!(status.code(), Some(0));
    assert!(log.contains("CERT_PATH is ignored"), "{log}");
}

/// The modules of Testcontainers for the image wait for a line of the log or for a health path, and
/// then fetch the certificate authority, which they put into a trust store.
#[test]
fn a_server_prints_the_lines_and_answers_the_paths_that_testcontainers_needs() {
    let scratch = ScratchDirectory::new();
    let server = RunningServer::start(&mut command(&scratch, &["server", "--port", "0"]));
    let lines: Vec<String> = server.banner().lines().map(str::to_owned).collect();
    let position = |begin: &str| lines.iter().position(|line| line.starts_with(begin));
    let (listening, started) = (position("Now listening on: http://"), position("Started"));
    assert!(listening.is_some() && listening < started, "{lines:?}");
    assert!(server.banner().ends_with("Started\r\n"), "the whole line is \"Started\"");

    let authority = get(server.connect(), "/_explorer/emulator.pem");
    let (head, pem) = authority.split_once("\r\n\r\n").expect("a head and a body");
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    let ca = command(&scratch, &["cert", "ca"]).output().expect("the binary runs");
    assert_eq!(pem.trim(), text(&ca.stdout).trim());
    for path in ["/alive", "/ready", "/status", "/_explorer/index.html"] {
        assert!(get(server.connect(), path).starts_with("HTTP/1.1 200 "), "{path}");
    }
}

#[test]
fn a_second_port_answers_health_checks() {
    // A port that was free a moment ago. No other test is given a port of this address.
    let host = own_host();
    let listener = TcpListener::bind((host.as_str(), 0)).expect("a port");
    let free = listener.local_addr().expect("an address").port();
    drop(listener);
    let scratch = ScratchDirectory::new();
    let health = free.to_string();
    let arguments = ["server", "--host", &host, "--port", "0", "--health-port", &health];
    let server = RunningServer::start(&mut command(&scratch, &arguments));
    assert_ne!(server.port(), free);
    let stream = std::net::TcpStream::connect((host.as_str(), free)).expect("a connection");
    assert!(get(stream, "/ready").starts_with("HTTP/1.1 200 "));
}

#[test]
fn dev_ignores_the_variables_of_the_emulator_image() {
    let scratch = ScratchDirectory::new();
    let data = scratch.path().join("not-ours");
    let mut command = command(&scratch, &["dev", "--port", "0"]);
    let server = RunningServer::start(command.env("PORT", "nonsense").env("DATA_PATH", &data));
    assert!(server.banner().contains("in memory"));
    assert!(!data.exists());
}

#[test]
fn data_and_certificates_are_kept_in_the_data_directory() {
    let scratch = ScratchDirectory::new();
    let data = scratch.path().join("data");
    let path = data.display().to_string();
    let server = RunningServer::start(&mut command(&scratch, &["dev", "--port", "0", "--data", &path]));
    assert!(server.banner().contains(&path));
    server.signal("TERM");
    assert_eq!(server.wait_for_end().0.code(), Some(0));
    assert!(data.join("tls/ca.pem").exists());
    assert!(!scratch.path().join("perihelion").exists(), "the cache is not used beside a data directory");
}
