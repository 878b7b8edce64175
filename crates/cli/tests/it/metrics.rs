//! The names of metrics: `docs/metrics.md` lists all of them, and the Grafana dashboard uses no
//! others.

use std::collections::BTreeSet;
use std::path::Path;

use duroxide_cdb::ProviderMetrics;
use perihelion_testkit::ScratchDirectory;
use regex_lite::Regex;
use serde_json::Value;

use crate::program::{RunningServer, command, text};

fn repository_file(path: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)).expect("a file")
}

/// The names that a server and a provider write.
fn written() -> BTreeSet<String> {
    let scratch = ScratchDirectory::new();
    let server = RunningServer::start(&mut command(&scratch, &["dev", "--port", "0"]));
    let endpoint = format!("http://127.0.0.1:{}/", server.port());
    let output = command(&scratch, &["metrics", "--endpoint", &endpoint]).output().expect("the binary runs");
    let all = text(&output.stdout) + &ProviderMetrics::default().prometheus_text();
    let names = all.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
    names.map(str::to_owned).collect()
}

/// The names of our metrics in a text, without the suffixes of histograms.
fn named(text: &str) -> BTreeSet<String> {
    let pattern = Regex::new(r"\b(perihelion|duroxide_cdb)_[a-z_]+\b").expect("a pattern");
    let found = pattern.find_iter(text).map(|found| found.as_str());
    found.map(|name| name.trim_end_matches("_bucket").to_owned()).collect()
}

#[test]
fn the_page_and_the_dashboard_have_the_names_that_are_written() {
    let written = written();
    assert!(written.len() > 20, "{written:?}");
    let listed: String =
        repository_file("docs/metrics.md").lines().filter(|line| line.starts_with("| `")).collect();
    assert_eq!(named(&listed), written, "docs/metrics.md lists other names");

    let dashboard: Value =
        serde_json::from_str(&repository_file("packaging/grafana/perihelion.json")).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().into_iter().flatten());
    let queries: Vec<&str> = targets.filter_map(|target| target["expr"].as_str()).collect();
    assert!(queries.len() > 15, "{queries:?}");
    let used = named(&queries.join("\n"));
    assert!(used.is_subset(&written), "unknown: {:?}", used.difference(&written));
    assert!(written.is_subset(&used), "not shown: {:?}", written.difference(&used));
}
