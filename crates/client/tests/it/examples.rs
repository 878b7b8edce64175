//! Every example runs without arguments, against the engine in its process.

use std::process::Command;

/// What each example prints, in part.
const EXAMPLES: [(&str, &str); 10] = [
    ("batch", "operation Some(1): 409"),
    ("change_feed", "Delete of Some(\"later\")"),
    ("embedded", "run 2: 2 visits"),
    ("entra_id", "a token for https://account.perihelion.internal/.default"),
    ("items", "after deletion: None"),
    ("patch", "already paid"),
    ("queries", "Some(60) orders in all"),
    ("read_many", "requests"),
    ("regions_and_hedging", "hedge"),
    ("throughput", "Autoscale { max: 4000 }"),
];

#[test]
fn every_example_runs_and_does_what_it_says() {
    for (name, expected) in EXAMPLES {
        let output = Command::new(env!("CARGO"))
            .args(["run", "--quiet", "--package", "perihelion-client", "--example", name])
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .env_remove("AZURE_COSMOS_CONNECTION_STRING")
            .env_remove("COSMOS_ENDPOINT")
            .output()
            .expect("cargo runs");
        let told = String::from_utf8_lossy(&output.stdout);
        let failed = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{name}: {told}{failed}");
        assert!(told.to_lowercase().contains(&expected.to_lowercase()), "{name}: {told}");
    }
}
