//! Each environment variable of the transport, and the errors for bad values.

use std::time::Duration;

use super::*;

fn read(options: HttpOptions, variables: &[(&str, &str)]) -> Result<HttpOptions, BadHttpOptions> {
    options.or_environment(|name| {
        variables.iter().find(|(other, _)| *other == name).map(|(_, value)| (*value).to_owned())
    })
}

/// A variable, a value, and what the value does to the options.
type Case = (&'static str, &'static str, fn(HttpOptions) -> HttpOptions);

const CASES: [Case; 12] = [
    ("AZURE_COSMOS_MAX_STREAMS_PER_CLIENT", "7", |options| options.with_streams_per_connection_max(7)),
    ("AZURE_COSMOS_CONNECTION_POOL_MAX_HTTP2_STREAMS_PER_CLIENT", "8", |options| {
        options.with_streams_per_connection_max(8)
    }),
    ("AZURE_COSMOS_MAX_CLIENTS_PER_ENDPOINT", "9", |options| options.with_connections_max(9)),
    ("AZURE_COSMOS_CONNECTION_POOL_MAX_HTTP2_CONNECTIONS_PER_ENDPOINT", "10", |options| {
        options.with_connections_max(10)
    }),
    ("AZURE_COSMOS_CONNECTION_POOL_MIN_HTTP2_CONNECTIONS_PER_ENDPOINT", "3", |options| {
        options.with_connections_min(3)
    }),
    ("AZURE_COSMOS_SHARD_IDLE_TIMEOUT_SECS", "30", |options| {
        options.with_idle_timeout(Duration::from_secs(30))
    }),
    ("AZURE_COSMOS_CONNECTION_POOL_IDLE_HTTP2_CLIENT_TIMEOUT_MS", "1500", |options| {
        options.with_idle_timeout(Duration::from_millis(1500))
    }),
    ("AZURE_COSMOS_CONNECTION_POOL_MAX_CONNECT_TIMEOUT_MS", "700", |options| {
        options.with_connect_timeout(Duration::from_millis(700))
    }),
    ("AZURE_COSMOS_CONNECTION_POOL_HTTP2_KEEP_ALIVE_INTERVAL_MS", "701", |options| {
        options.with_ping_interval(Duration::from_millis(701))
    }),
    ("AZURE_COSMOS_CONNECTION_POOL_HTTP2_KEEP_ALIVE_TIMEOUT_MS", "702", |options| {
        options.with_ping_timeout(Duration::from_millis(702))
    }),
    ("AZURE_COSMOS_CONNECTION_POOL_READ_HANG_LIMIT_MS", "703", |options| {
        options.with_read_hang_limit(Duration::from_millis(703))
    }),
    ("AZURE_COSMOS_EMULATOR_SERVER_CERT_VALIDATION_DISABLED", "true", |options| {
        options.with_accept_unknown_loopback_certificates(true)
    }),
];

fn shown(options: &HttpOptions) -> String {
    format!("{options:?}")
}

#[test]
fn each_variable_sets_its_option_unless_code_has_set_it() {
    assert_eq!(shown(&read(HttpOptions::default(), &[]).unwrap()), shown(&HttpOptions::default()));
    for (name, value, set) in CASES {
        let expected = shown(&set(HttpOptions::default()));
        assert_ne!(expected, shown(&HttpOptions::default()), "{name}");
        assert_eq!(shown(&read(HttpOptions::default(), &[(name, value)]).unwrap()), expected);
        // Another value that the variable may have.
        let is_count = ["STREAMS", "CLIENTS", "CONNECTIONS"].iter().any(|word| name.contains(word));
        let other_value = match value {
            "true" => "false",
            _ if is_count => "4",
            _ => "5000",
        };
        let set_by_code = set(HttpOptions::default());
        assert_eq!(shown(&read(set_by_code, &[(name, other_value)]).unwrap()), expected, "{name}");
    }
    let both = [
        ("AZURE_COSMOS_MAX_STREAMS_PER_CLIENT", "7"),
        ("AZURE_COSMOS_CONNECTION_POOL_MAX_HTTP2_STREAMS_PER_CLIENT", "8"),
    ];
    assert_eq!(read(HttpOptions::default(), &both).unwrap().streams_per_connection_max, 8);
}

#[test]
fn the_error_for_a_bad_value_names_the_variable_and_its_range() {
    for (name, _, _) in CASES {
        for bad in ["0x1", "-1", "two"] {
            let error = read(HttpOptions::default(), &[(name, bad)]).unwrap_err().to_string();
            assert!(error.contains(name) && error.contains(bad) && error.contains("write"), "{error}");
        }
    }
    for (name, bad, range) in [
        ("AZURE_COSMOS_MAX_STREAMS_PER_CLIENT", "0", "from 1 to 1000"),
        ("AZURE_COSMOS_MAX_CLIENTS_PER_ENDPOINT", "1025", "from 1 to 1024"),
        ("AZURE_COSMOS_SHARD_IDLE_TIMEOUT_SECS", "0", "above 0"),
        ("AZURE_COSMOS_CONNECTION_POOL_IDLE_HTTP2_CLIENT_TIMEOUT_MS", "999", "1000 or more"),
        ("AZURE_COSMOS_CONNECTION_POOL_READ_HANG_LIMIT_MS", "99", "100 or more"),
    ] {
        let error = read(HttpOptions::default(), &[(name, bad)]).unwrap_err().to_string();
        assert!(error.contains(name) && error.contains(range), "{error}");
    }
}
