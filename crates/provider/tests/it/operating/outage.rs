//! What a log says about an outage, with duroxide's runtime and its default number of dispatchers
//! and workers.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use duroxide::runtime::Runtime;
use duroxide::runtime::registry::ActivityRegistry;
use duroxide::{ActivityContext, Client, OrchestrationContext, OrchestrationRegistry};
use duroxide_cdb::CosmosDBProvider;
use perihelion_server::EmbeddedOptions;
use perihelion_testkit::TestServer;
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

/// Once an outage printed two lines a second, each of several hundred characters.
#[tokio::test(start_paused = true)]
async fn an_outage_prints_one_short_line_at_once_and_then_one_a_minute() {
    let log = Log::default();
    // The runtime logs with this filter if the program has not set up a log.
    let filter = EnvFilter::new("warn,duroxide::orchestration=info,duroxide::activity=info");
    let subscriber = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(false);
    let _guard = tracing::subscriber::set_default(subscriber.with_writer(log.clone()).finish());
    let server = TestServer::in_process(EmbeddedOptions::default()).await;
    let builder = CosmosDBProvider::builder().with_client(server.client().await);
    let provider = Arc::new(builder.open().await.unwrap());
    let activities = ActivityRegistry::builder()
        .register("greet", |_: ActivityContext, name: String| async move { Ok(name) })
        .build();
    let orchestrations = OrchestrationRegistry::builder()
        .register("greeting", |context: OrchestrationContext, name: String| async move {
            context.schedule_activity("greet", name).await
        })
        .build();
    let runtime = Runtime::start_with_store(provider.clone(), activities, orchestrations).await;
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
