//! Tests of the names of metrics (`docs/metrics.md` and the Grafana dashboard have all of them, and no
//! others), and of the exports to a collector of OpenTelemetry.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use duroxide_cdb::ProviderMetrics;
use perihelion_testkit::ScratchDirectory;
use regex_lite::Regex;
use serde_json::Value;

use crate::dashboard;
use crate::dev_server::DevServer;
use crate::program::{RunningServer, TIMEOUT, command, get, run, text};

fn repository_file(path: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)).expect("a file")
}

/// The names of all metrics that a server, a provider and a dashboard write.
fn written() -> BTreeSet<String> {
    let dev = DevServer::start();
    let output = dev.run(&["metrics"]);
    let dashboard = dashboard::address(&dev.server.banner()).expect("an address");
    let page = get(TcpStream::connect(dashboard).expect("the dashboard listens"), "/metrics");
    let all = text(&output.stdout) + &ProviderMetrics::default().prometheus_text() + &page;
    let names = all.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
    names.map(str::to_owned).collect()
}

/// The names of our metrics in a text. `_bucket`, the suffix of a histogram, is removed.
fn names_in(text: &str) -> BTreeSet<String> {
    let pattern = Regex::new(r"\b(perihelion|duroxide_cdb)_[a-z_]+\b").expect("a pattern");
    let found = pattern.find_iter(text).map(|found| found.as_str());
    found.map(|name| name.trim_end_matches("_bucket").to_owned()).collect()
}

#[test]
fn the_documentation_and_the_grafana_dashboard_have_exactly_the_names_that_are_written() {
    let written = written();
    assert!(written.len() > 20, "{written:?}");
    let listed: String =
        repository_file("docs/metrics.md").lines().filter(|line| line.starts_with("| `")).collect();
    assert_eq!(names_in(&listed), written, "docs/metrics.md lists other names");

    let dashboard: Value =
        serde_json::from_str(&repository_file("packaging/grafana/perihelion.json")).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().into_iter().flatten());
    let queries: Vec<&str> = targets.filter_map(|target| target["expr"].as_str()).collect();
    assert!(queries.len() > 15, "{queries:?}");
    let used = names_in(&queries.join("\n"));
    assert!(used.is_subset(&written), "unknown: {:?}", used.difference(&written));
    assert!(written.is_subset(&used), "not shown: {:?}", written.difference(&used));
}

/// Takes one export, as a collector does. Returns the request's first line and its body.
fn take_export(collector: &TcpListener) -> (String, Value) {
    let (stream, _) = collector.accept().expect("a connection");
    stream.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
    let mut reader = BufReader::new(stream);
    let mut first = String::new();
    reader.read_line(&mut first).expect("a request");
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).expect("a header");
        let line = line.trim().to_ascii_lowercase();
        if line.is_empty() {
            break;
        }
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().expect("a number");
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).expect("a body");
    reader.get_mut().write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").expect("an answer");
    (first.trim().to_owned(), serde_json::from_slice(&body).expect("JSON"))
}

#[test]
fn metrics_are_exported_to_a_collector_of_opentelemetry() {
    let collector = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", collector.local_addr().expect("an address"));
    let scratch = ScratchDirectory::new();
    let mut dev = command(&scratch, &["dev", "--port", "0", "--no-dashboard", "--otlp-endpoint", &url]);
    let _server = RunningServer::start(&mut dev);
    let (first, body) = take_export(&collector);
    assert_eq!(first, "POST /v1/metrics HTTP/1.1");
    let exported = &body["resourceMetrics"][0];
    assert_eq!(exported["resource"]["attributes"][0]["value"]["stringValue"], "perihelion");
    let metrics = exported["scopeMetrics"][0]["metrics"].as_array().expect("metrics");
    let ready = metrics.iter().find(|metric| metric["name"] == "perihelion_ready").expect("a metric");
    assert_eq!(ready["gauge"]["dataPoints"][0]["asDouble"], 1);
    let counter =
        metrics.iter().find(|metric| metric["name"] == "perihelion_requests_total").expect("a metric");
    assert_eq!(counter["sum"]["isMonotonic"], true);
}

#[test]
fn a_server_works_and_ends_without_its_collector() {
    let scratch = ScratchDirectory::new();
    let arguments = ["dev", "--port", "0", "--no-dashboard", "--otlp-endpoint", "http://127.0.0.1:1"];
    let server = RunningServer::start(&mut command(&scratch, &arguments));
    assert!(get(server.connect(), "/metrics").starts_with("HTTP/1.1 200 "));
    server.signal("TERM");
    let (status, errors) = server.wait_for_end();
    assert!(status.success(), "{errors}");
    assert_eq!(errors.matches("metrics were not exported").count(), 1, "{errors}");
}

#[test]
fn an_endpoint_of_a_collector_that_is_not_a_url_is_wrong_usage() {
    let refused = run(&["dev", "--port", "0", "--otlp-endpoint", "collector"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("write it like http://127.0.0.1:4318"));
}

#[test]
fn a_collector_that_does_not_answer_does_not_delay_the_end_of_a_server() {
    let collector = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", collector.local_addr().expect("an address"));
    let scratch = ScratchDirectory::new();
    let arguments = ["dev", "--port", "0", "--no-dashboard", "--otlp-endpoint", &url];
    let server = RunningServer::start(&mut command(&scratch, &arguments));
    let (_open, _) = collector.accept().expect("an export");
    let started_at = Instant::now();
    server.signal("TERM");
    let (status, errors) = server.wait_for_end();
    assert!(status.success(), "{errors}");
    // An ordinary export may take 5 s. The server must not wait for it.
    assert!(started_at.elapsed() < Duration::from_secs(4), "{:?}", started_at.elapsed());
}
