//! `Shop`: an account with workflows, a runtime that runs them, and a dashboard of it.

use std::sync::Arc;
use std::time::Duration;

use duroxide::runtime::Runtime;
use duroxide::runtime::registry::ActivityRegistry;
use duroxide::{ActivityContext, Client, OrchestrationContext, OrchestrationRegistry};
use duroxide_cdb::CosmosDBProvider;
use perihelion_dashboard::{Dashboard, DashboardOptions};
use perihelion_server::EmbeddedOptions;
use perihelion_testkit::server::TestServer;
use perihelion_testkit::wait::wait_until;
use serde_json::Value;
use tokio::net::TcpListener;

use crate::browser::Browser;

/// A test that has waited this long for one thing fails.
pub(crate) const LIMIT: Duration = Duration::from_secs(30);

pub(crate) struct Shop {
    pub(crate) server: TestServer,
    pub(crate) client: Client,
    /// The provider of the client and of the runtime.
    pub(crate) provider: CosmosDBProvider,
    pub(crate) dashboard: Dashboard,
    runtime: Option<Arc<Runtime>>,
}

impl Shop {
    /// A shop whose workflows run, with a dashboard that may change things.
    pub(crate) async fn open() -> Shop {
        Shop::with(|options| options).await
    }

    /// A shop whose dashboard has other options.
    pub(crate) async fn with(change: impl FnOnce(DashboardOptions) -> DashboardOptions) -> Shop {
        Shop::on(EmbeddedOptions::default(), change).await
    }

    /// A shop on an engine with these options, whose dashboard has other options.
    pub(crate) async fn on(
        engine: EmbeddedOptions,
        change: impl FnOnce(DashboardOptions) -> DashboardOptions,
    ) -> Shop {
        let server = TestServer::in_process(engine).await;
        let provider = CosmosDBProvider::builder().with_client(server.client().await).open().await;
        let provider = provider.expect("a provider");
        let store = Arc::new(provider.clone());
        let runtime = Runtime::start_with_store(store.clone(), activities(), orchestrations()).await;
        let options = change(DashboardOptions::new("duroxide", "duroxide").with_account("a test"));
        let socket = TcpListener::bind("127.0.0.1:0").await.expect("a socket");
        let dashboard = Dashboard::start(socket, server.client().await, options).expect("a dashboard");
        Shop { server, client: Client::new(store), provider, dashboard, runtime: Some(runtime) }
    }

    pub(crate) fn browser(&self) -> Browser {
        Browser::new(self.dashboard.address())
    }

    pub(crate) async fn start(&self, id: &str, name: &str, input: &str) {
        self.client.start_orchestration(id, name, input).await.expect("a start");
    }

    /// Starts a workflow and waits for its end.
    pub(crate) async fn run(&self, id: &str, name: &str, input: &str) {
        self.start(id, name, input).await;
        self.client.wait_for_orchestration(id, LIMIT).await.expect("an end");
    }

    /// Starts a workflow that waits for the event `approved`. Returns when the workflow waits.
    pub(crate) async fn wait_for_approval(&self, id: &str) {
        self.start(id, "approval", "lamp").await;
        let browser = self.browser();
        wait_until("the approval waits", LIMIT, async || {
            browser.get(&format!("/workflow?id={id}")).await.text.contains("ExternalSubscribed")
        })
        .await;
    }

    /// Writes copies of a workflow that has ended, as if they had run too.
    pub(crate) async fn copy(&self, id: &str, count: usize) {
        let container = self.server.client().await.database("duroxide").container("duroxide");
        let state: Value = container.read::<Value>(id, "i").await.expect("the state").value;
        let copies = (0..count).map(|number| {
            let (container, mut state) = (container.clone(), state.clone());
            let copy = format!("copy-{number:05}");
            state["instanceId"] = copy.as_str().into();
            async move { container.upsert(copy.as_str(), &state).await.map(drop) }
        });
        for copy in copies {
            copy.await.expect("a copy");
        }
    }

    /// Ends the workers, so that only the dashboard sends requests. Work that waits stays in the
    /// container.
    pub(crate) async fn stop_workers(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown(Some(1000)).await;
        }
    }

    pub(crate) async fn close(mut self) {
        self.stop_workers().await;
    }
}

fn activities() -> ActivityRegistry {
    let greet = |_: ActivityContext, name: String| async move { Ok(format!("Hello, {name}!")) };
    let refuse = |_: ActivityContext, why: String| async move { Err::<String, String>(why) };
    let pause = |_: ActivityContext, _: String| async move {
        std::future::pending::<()>().await;
        Ok(String::new())
    };
    ActivityRegistry::builder()
        .register("greet", greet)
        .register("refuse", refuse)
        .register("pause", pause)
        .build()
}

fn orchestrations() -> OrchestrationRegistry {
    OrchestrationRegistry::builder()
        .register("hello", |context: OrchestrationContext, name: String| async move {
            context.schedule_activity("greet", name).await
        })
        .register("slow", |context: OrchestrationContext, name: String| async move {
            context.schedule_activity("pause", name).await
        })
        .register("fail", |context: OrchestrationContext, why: String| async move {
            context.schedule_activity("refuse", why).await
        })
        .register("approval", |context: OrchestrationContext, item: String| async move {
            context.set_kv_value("item", item);
            context.set_custom_status("waits for approval");
            Ok(context.schedule_wait("approved").await)
        })
        .register("tagged", |context: OrchestrationContext, name: String| async move {
            context.schedule_activity("greet", name).with_tag("tape").await
        })
        .register("batch", |context: OrchestrationContext, name: String| async move {
            context.schedule_timer(Duration::from_millis(20)).await;
            context.schedule_sub_orchestration("hello", name).await
        })
        .register("loop", |context: OrchestrationContext, count: String| async move {
            match count.parse::<u32>().unwrap_or(0) {
                0 => Ok("done".to_owned()),
                left => context.continue_as_new((left - 1).to_string()).await,
            }
        })
        .build()
}
