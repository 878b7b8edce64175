//! The banner: the text that tells a person or a test how to connect to a server.
//!
//! Tools search for two of its lines, so these lines must not change: `Now listening
//! on:`, and the last line, `Started` with a carriage return (the Cosmos DB module of
//! Testcontainers waits for exactly that line).

use std::fmt::Write;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use perihelion_server::AuthMode;

use crate::settings::{Mode, Settings};
use crate::sign_in::SignIn;

/// The facts of a started server that the banner shows.
pub(crate) struct StartedServer<'a> {
    pub(crate) address: SocketAddr,
    /// With several regions, the name and the address of each region; else empty.
    pub(crate) regions: Vec<(String, SocketAddr)>,
    /// The file of the CA certificate; `None` if the certificate is in memory only.
    pub(crate) ca_path: Option<&'a Path>,
    /// The address of the dashboard, if it runs.
    pub(crate) dashboard: Option<SocketAddr>,
    /// How people sign in to the dashboard, if it needs a token.
    pub(crate) sign_in: Option<&'a SignIn>,
    /// The time from the start of the program until the server was ready.
    pub(crate) start_time: Duration,
}

/// The whole banner, ready to be written at once.
pub(crate) fn banner(settings: &Settings, server: &StartedServer<'_>) -> String {
    let options = &settings.options;
    let authority = authority(&options.host, server.address);
    let http = format!("http://{authority}/");
    let endpoint = options.public_endpoint.as_deref().unwrap_or(&http);
    let data = match &options.account.data {
        Some(directory) => directory.display().to_string(),
        None => "in memory, lost when the server ends (keep it with --data DIR)".to_owned(),
    };
    let ca = match (server.ca_path, &options.account.data) {
        (Some(path), None) => format!("{} (print it: perihelion cert ca)", path.display()),
        (Some(path), Some(data)) => {
            format!("{} (print it: perihelion cert ca --data {})", path.display(), data.display())
        }
        (None, _) => "created for this run only, because no directory could store it".to_owned(),
    };
    let mut lines = vec![
        ("Endpoint", format!("{http} and https://{authority}/")),
        ("Connection", format!("AccountEndpoint={endpoint};AccountKey={};", shown_key(settings))),
    ];
    if let Some(address) = server.dashboard {
        lines.push(("Dashboard", format!("http://{address}/")));
        lines.extend(server.sign_in.map(|sign_in| ("Sign in", sign_in.to_string())));
    }
    for (name, address) in &server.regions {
        lines.push(("Region", format!("{name}: http://{}/", self::authority(&options.host, *address))));
    }
    lines.extend([("Data", data), ("CA", ca)]);
    match options.auth {
        AuthMode::Key => (),
        AuthMode::Any => lines.push(("Auth", "any Entra ID token is accepted".to_owned())),
        AuthMode::Off => lines.push(("Auth", "off: every request is accepted".to_owned())),
    }
    let mut text = title(settings.mode, server.start_time);
    for (name, value) in lines {
        // Writing to a string does not fail.
        let _ = writeln!(text, "  {name:<11} {value}");
    }
    let _ = write!(text, "Now listening on: http://{authority}\nStarted\r\n");
    text
}

fn title(mode: Mode, start_time: Duration) -> String {
    let version = env!("CARGO_PKG_VERSION");
    format!("perihelion {version} {}: ready in {} ms\n", mode.name(), start_time.as_millis())
}

/// The key for the connection string. The well-known key is public. Any other key is
/// shown only with `--show-key`.
fn shown_key(settings: &Settings) -> String {
    let key = &settings.options.keys.primary;
    if key.is_emulator_key() || settings.show_key {
        key.reveal()
    } else {
        "(hidden, see --show-key)".to_owned()
    }
}

/// Host and port as a client on this machine writes them. An address that stands for all
/// interfaces becomes `localhost`.
fn authority(host: &str, address: SocketAddr) -> String {
    let port = address.port();
    match host.parse::<IpAddr>() {
        Ok(ip) if ip.is_unspecified() => format!("localhost:{port}"),
        Ok(ip) => SocketAddr::new(ip, port).to_string(),
        Err(_) => format!("{host}:{port}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::ServeArgs;

    const OWN_KEY: &str = "bm90IGEgc2VjcmV0";

    fn banner_for(args: ServeArgs) -> String {
        let settings = Settings::resolve(ServeArgs { partitions: 1, ..args }, Mode::Dev).expect("settings");
        let address = SocketAddr::from(([0, 0, 0, 0], 4711));
        let regions = vec![("East US".to_owned(), SocketAddr::from(([0, 0, 0, 0], 4713)))];
        let (ca_path, start_time) = (Some(Path::new("/ca.pem")), Duration::from_millis(12));
        let dashboard = Some(SocketAddr::from(([127, 0, 0, 1], 8082)));
        let sign_in = None;
        let server = StartedServer { address, regions, ca_path, dashboard, sign_in, start_time };
        banner(&settings, &server)
    }

    #[test]
    fn the_banner_has_everything_that_a_client_needs_to_connect() {
        let text = banner_for(ServeArgs::default());
        for part in [
            "ready in 12 ms",
            "http://127.0.0.1:4711/ and https://127.0.0.1:4711/",
            "AccountEndpoint=http://127.0.0.1:4711/;AccountKey=C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw==;",
            "in memory",
            "Dashboard   http://127.0.0.1:8082/",
            "Region      East US: http://127.0.0.1:4713/",
            "/ca.pem (print it: perihelion cert ca)",
            "\nNow listening on: http://127.0.0.1:4711\n",
        ] {
            assert!(text.contains(part), "{part} is missing in {text}");
        }
        assert!(text.ends_with("\nStarted\r\n"));
    }

    #[test]
    fn a_secret_key_is_hidden_unless_show_key_is_given() {
        let own = ServeArgs { key: Some(OWN_KEY.to_owned()), ..ServeArgs::default() };
        assert!(!banner_for(own.clone()).contains(OWN_KEY));
        assert!(banner_for(ServeArgs { show_key: true, ..own }).contains(OWN_KEY));
    }

    #[test]
    fn addresses_are_written_as_a_client_writes_them() {
        let address = SocketAddr::from(([0, 0, 0, 0], 1));
        for (host, expected) in
            [("0.0.0.0", "localhost:1"), ("::1", "[::1]:1"), ("db.internal", "db.internal:1")]
        {
            assert_eq!(authority(host, address), expected);
        }
    }
}
