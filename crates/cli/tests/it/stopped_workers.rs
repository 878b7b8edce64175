//! Tests of what a command with `--data` says about workers. The command has opened the data directory
//! itself, so nothing else runs on it, whatever recent heartbeats say.

use std::sync::Arc;
use std::time::Duration;

use duroxide::providers::Provider;
use duroxide::runtime::Runtime;
use duroxide::runtime::registry::ActivityRegistry;
use duroxide::{OrchestrationContext, OrchestrationRegistry};
use duroxide_cdb::CosmosDBProvider;
use perihelion_client::{Client, Credential};
use perihelion_testkit::ScratchDirectory;
use serde_json::Value;

use crate::program::{RunningServer, TIMEOUT, command, text};

/// Story of a bug: a worker that was stopped was shown as alive for as long as its last heartbeat was
/// recent, and `workflow wait` said that the workflow goes on.
#[test]
fn no_worker_is_alive_on_a_data_directory_that_the_command_has_open() {
    let scratch = ScratchDirectory::new();
    let data = scratch.path().join("data").display().to_string();
    let server = RunningServer::start(&mut command(&scratch, &["dev", "--port", "0", "--data", &data]));
    let endpoint = server.endpoint();
    let threads = tokio::runtime::Runtime::new().expect("threads");
    let worker = threads.block_on(start_worker(&endpoint));
    let run = |arguments: &[&str], place: &[&str]| {
        let output = command(&scratch, &[arguments, place].concat()).output().expect("the binary runs");
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    let list = ["worker", "list", "-o", "json"];
    let is_alive = |out: &str| serde_json::from_str::<Value>(out).expect("JSON")[0]["isAlive"].clone();
    let (_, out, errors) = run(&list, &["--endpoint", &endpoint]);
    assert_eq!((is_alive(&out), errors.as_str()), (true.into(), ""));
    server.signal("TERM");
    assert!(server.wait_for_end().0.success());
    threads.block_on(worker.shutdown(Some(100)));

    let (code, out, errors) = run(&list, &["--data", &data]);
    assert_eq!((code, is_alive(&out)), (Some(0), false.into()), "{out}{errors}");
    assert!(errors.contains("no worker is alive: this command has the data directory open"), "{errors}");
    assert_eq!(run(&["workflow", "start", "hello", "--id", "hello-1"], &["--data", &data]).0, Some(0));
    let wait = ["workflow", "wait", "hello-1", "--timeout", "100ms"];
    let (code, _, errors) = run(&wait, &["--data", &data]);
    assert_eq!(code, Some(8), "{errors}");
    assert!(errors.contains("is pending after 100ms") && errors.contains("no worker can run"), "{errors}");
}

/// Starts a worker and waits for its heartbeat.
async fn start_worker(endpoint: &str) -> Arc<Runtime> {
    let client = Client::with_credential(endpoint, Credential::emulator()).await.expect("an account");
    let provider = CosmosDBProvider::builder().with_client(client).open().await.expect("a provider");
    let store: Arc<dyn Provider> = Arc::new(provider.clone());
    let orchestrations = OrchestrationRegistry::builder()
        .register("hello", |_: OrchestrationContext, name: String| async move { Ok(name) })
        .build();
    let worker = Runtime::start_with_store(store, ActivityRegistry::builder().build(), orchestrations).await;
    let seen = async {
        while !provider.workers().await.expect("the workers").iter().any(|worker| worker.runs_orchestrations)
        {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, seen).await.expect("a heartbeat of a worker that takes turns");
    worker
}
