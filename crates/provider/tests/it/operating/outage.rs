//! What a log says about an outage, and about failures of one part of the work, with duroxide's runtime
//! and its default number of dispatchers and workers.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use duroxide::providers::Provider;
use duroxide::runtime::Runtime;
use duroxide::runtime::registry::ActivityRegistry;
use duroxide::{ActivityContext, Client, OrchestrationContext, OrchestrationRegistry};
use duroxide_cdb::{CommitTier, CosmosDBProvider};
use perihelion_server::EmbeddedOptions;
use perihelion_testkit::TestServer;
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

/// How long the outage lasts: less than five minutes. After five minutes the runtime removes old
/// sessions, and it logs a line of its own if that fails.
const OUTAGE: Duration = Duration::from_secs(290);

/// The most bytes of a line.
const LINE_MAX: usize = 500;

/// A log in memory.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn lines(&self) -> Vec<String> {
        let bytes = self.0.lock().unwrap();
        String::from_utf8_lossy(&bytes).lines().map(str::to_owned).collect()
    }
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Log {
    type Writer = Log;

    fn make_writer(&self) -> Log {
        self.clone()
    }
}

impl Log {
    /// Writes what this thread logs to this log, at the levels of the runtime's own log, until the guard
    /// is dropped.
    fn begin(&self) -> DefaultGuard {
        // As the runtime logs if the program does not log itself.
        let filter = EnvFilter::new("warn,duroxide::orchestration=info,duroxide::activity=info");
        let subscriber = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(false);
        tracing::subscriber::set_default(subscriber.with_writer(self.clone()).finish())
    }
}

/// A runtime with the orchestration `greeting`.
async fn start_runtime(provider: &Arc<CosmosDBProvider>) -> Arc<Runtime> {
    let activities = ActivityRegistry::builder()
        .register("greet", |_: ActivityContext, name: String| async move { Ok(name) })
        .build();
    let orchestrations = OrchestrationRegistry::builder()
        .register("greeting", |context: OrchestrationContext, name: String| async move {
            context.schedule_activity("greet", name).await
        })
        .build();
    Runtime::start_with_store(provider.clone(), activities, orchestrations).await
}

/// An outage once printed two lines of several hundred characters a second.
#[tokio::test(start_paused = true)]
async fn an_outage_prints_one_short_line_at_once_and_then_one_a_minute() {
    let log = Log::default();
    let _guard = log.begin();
    let server = TestServer::in_process(EmbeddedOptions::default()).await;
    let builder = CosmosDBProvider::builder().with_client(server.client().await);
    let provider = Arc::new(builder.open().await.unwrap());
    let runtime = start_runtime(&provider).await;
    let client = Client::new(provider.clone());
    client.start_orchestration("before", "greeting", "ada").await.unwrap();
    client.wait_for_orchestration("before", Duration::from_secs(30)).await.unwrap();
    let before = log.lines().len();

    server.fault(r#"{"status":503}"#).await;
    tokio::time::sleep(OUTAGE).await;
    server.clear_faults().await;
    let lines = log.lines().split_off(before);
    assert!(!lines.is_empty() && lines.len() <= 6, "{} lines: {lines:#?}", lines.len());
    for line in &lines {
        assert!(line.contains("the database does not answer") && line.len() <= LINE_MAX, "{line}");
    }

    client.start_orchestration("after", "greeting", "ada").await.unwrap();
    client.wait_for_orchestration("after", Duration::from_secs(30)).await.unwrap();
    runtime.shutdown(Some(0)).await;
    server.stop().await;
}

/// Story of a bug: while the rest of the database answered, failed claims, heartbeats and rounds of the
/// reconciler were logged at the level debug only. A workflow stood still, and no line said so.
///
/// The requests of one kind fail for [`OUTAGE`], with a workflow that has been started. Checks that the
/// log has one line a minute with `words`, and that the workflow ends afterwards.
async fn check_notice(partitions: u32, rule: &str, words: &str) {
    let log = Log::default();
    let _guard = log.begin();
    let mut options = EmbeddedOptions::default();
    options.account.partitions = partitions;
    let server = TestServer::in_process(options).await;
    let builder = CosmosDBProvider::builder().with_client(server.client().await);
    // Each fetch writes its lock.
    let builder = builder.with_commit_tier(CommitTier::Durable);
    let provider = Arc::new(builder.open().await.unwrap());
    let client = Client::new(provider.clone());
    client.start_orchestration("one", "greeting", "ada").await.unwrap();
    provider.enqueue_for_worker(super::work("two", 1)).await.unwrap();
    let before = log.lines().len();
    server.fault(rule).await;
    let runtime = start_runtime(&provider).await;
    tokio::time::sleep(OUTAGE).await;
    let all = log.lines().split_off(before);
    let lines: Vec<&String> = all.iter().filter(|line| line.contains(words)).collect();
    assert!((3..=6).contains(&lines.len()), "{} lines for {rule}: {all:#?}", lines.len());
    assert!(lines.iter().all(|line| line.len() <= LINE_MAX), "{lines:#?}");
    server.clear_faults().await;
    client.wait_for_orchestration("one", Duration::from_secs(120)).await.unwrap();
    runtime.shutdown(Some(0)).await;
    server.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_instance_that_cannot_be_claimed_is_told_once_a_minute() {
    check_notice(1, r#"{"operation":"create_item","status":503}"#, "turns of instances are not taken").await;
}

#[tokio::test(start_paused = true)]
async fn an_activity_that_cannot_be_locked_is_told_once_a_minute() {
    check_notice(1, r#"{"operation":"patch_item","status":503}"#, "activities are not taken").await;
}

#[tokio::test(start_paused = true)]
async fn a_heartbeat_that_cannot_be_written_is_told_once_a_minute() {
    check_notice(1, r#"{"operation":"upsert_item","status":503}"#, "no heartbeat of this process").await;
}

#[tokio::test(start_paused = true)]
async fn a_partition_that_the_reconciler_cannot_read_is_told_once_a_minute() {
    check_notice(2, r#"{"operation":"query","range":"1","status":503}"#, "the background repair fails").await;
}
