//! Tests of the certificates: the CA that the program prints has signed the certificate
//! that the server uses.

use std::io::Write;
use std::sync::Arc;

use perihelion_testkit::ScratchDirectory;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::program::{RunningServer, command, get, text};

/// Runs the program, which must succeed, and returns its standard output.
fn stdout_of(scratch: &ScratchDirectory, arguments: &[&str]) -> String {
    let output = command(scratch, arguments).output().expect("the binary runs");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    text(&output.stdout)
}

/// Sends a GET over TLS to the server name `name`, and trusts `ca` alone.
fn get_trusting(server: &RunningServer, ca: &str, name: &str) -> std::io::Result<String> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(ca.as_bytes()).expect("a PEM certificate")).expect("a root");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from(name.to_owned()).expect("a name");
    let connection = ClientConnection::new(Arc::new(config), name).expect("a client");
    let mut stream = StreamOwned::new(connection, server.connect());
    stream.flush()?;
    Ok(get(stream, "/ready"))
}

#[test]
fn the_printed_ca_verifies_the_served_certificate() {
    let scratch = ScratchDirectory::new();
    // The CA of a server without further names may not sign `cosmos`, so the server with that name
    // creates another CA.
    let first = stdout_of(&scratch, &["cert", "ca"]);
    let server =
        RunningServer::start(&mut command(&scratch, &["dev", "--port", "0", "--tls-name", "cosmos"]));
    assert!(get_trusting(&server, &first, "cosmos").is_err());
    let ca = stdout_of(&scratch, &["cert", "ca"]);
    assert!(ca.starts_with("-----BEGIN CERTIFICATE-----") && !ca.contains("PRIVATE"), "{ca}");
    for name in ["localhost", "127.0.0.1", "cosmos"] {
        let answer = get_trusting(&server, &ca, name).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(answer.starts_with("HTTP/1.1 200 "), "{name}: {answer}");
    }
    assert!(get_trusting(&server, &ca, "elsewhere").is_err());
    let other_ca = stdout_of(&ScratchDirectory::new(), &["cert", "ca"]);
    assert!(get_trusting(&server, &other_ca, "localhost").is_err());
}

#[test]
fn the_ca_stays_the_same_between_starts() {
    let scratch = ScratchDirectory::new();
    drop(RunningServer::start(&mut command(&scratch, &["dev", "--port", "0"])));
    let first = stdout_of(&scratch, &["cert", "ca"]);
    let server = RunningServer::start(&mut command(&scratch, &["dev", "--port", "0"]));
    assert!(get_trusting(&server, &first, "localhost").is_ok());
    let path = stdout_of(&scratch, &["cert", "path"]);
    assert_eq!(std::fs::read_to_string(path.trim_end()).expect("the CA file"), first);
}

#[test]
fn a_data_directory_has_a_ca_of_its_own() {
    let scratch = ScratchDirectory::new();
    let data = scratch.path().join("data").display().to_string();
    let output = command(&scratch, &["cert", "ca", "--data", &data]).output().expect("the binary runs");
    assert_eq!(output.status.code(), Some(6), "no server has started there yet");
    assert!(!scratch.path().join("data").exists());
    let server = RunningServer::start(&mut command(&scratch, &["dev", "--port", "0", "--data", &data]));
    let ca = stdout_of(&scratch, &["cert", "ca", "--data", &data]);
    assert!(get_trusting(&server, &ca, "localhost").is_ok());
}

#[test]
fn without_a_directory_for_certificates_the_server_still_serves() {
    let scratch = ScratchDirectory::new();
    let mut command = command(&scratch, &["dev", "--port", "0"]);
    let server = RunningServer::start(command.env("XDG_CACHE_HOME", "/dev/null/nothing"));
    assert!(server.banner().contains("created for this run only"), "{}", server.banner());
    assert!(get(server.connect(), "/ready").starts_with("HTTP/1.1 200 "));
}
