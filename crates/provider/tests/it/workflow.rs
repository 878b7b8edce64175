//! The real runtime on the provider: an order with activities, a timer, a
//! sub-orchestration, an external event and a second execution. Its process ends half
//! way, once by a shutdown and once by an abort inside an activity. Another process
//! completes the order, and no recorded step is repeated.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use duroxide::providers::Provider;
use duroxide::runtime::registry::ActivityRegistry;
use duroxide::runtime::{OrchestrationStatus, Runtime, RuntimeOptions};
use duroxide::{ActivityContext, Client, Event, EventKind, OrchestrationContext, OrchestrationRegistry};
use perihelion_testkit::provider::{Account, AccountKind, ShortPolls};
use tokio::sync::{Notify, oneshot};

const ORDER: &str = "order-1";
const SHIPMENT: &str = "shipment";

/// The custom status of the order while it waits for the approval.
const AWAITING_APPROVAL: &str = "awaiting approval";

/// A lock timeout that is long enough for a turn on a busy machine, and short enough to
/// wait for.
const LOCK: Duration = Duration::from_secs(2);

/// The time limit of a workflow.
const WORKFLOW_TIMEOUT: Duration = Duration::from_secs(30);

/// The interval at which a client polls the status.
const STATUS_POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The time limit of a shutdown, in milliseconds.
const SHUTDOWN_MS: u64 = 2_000;

/// How often each activity ran, by its input, in all processes together.
#[derive(Clone, Default)]
struct RunCounts(Arc<Mutex<BTreeMap<String, u32>>>);

impl RunCounts {
    fn record(&self, what: &str) {
        *self.0.lock().unwrap().entry(what.to_owned()).or_default() += 1;
    }

    fn runs(&self) -> Vec<(String, u32)> {
        self.0.lock().unwrap().iter().map(|(what, count)| (what.clone(), *count)).collect()
    }
}

#[tokio::test]
async fn an_order_survives_a_restart_and_every_step_happens_once() {
    for kind in [AccountKind::Embedded, AccountKind::Wire] {
        let account = Account::open(kind).await;
        let run_counts = RunCounts::default();

        let first = account.provider("orders", ShortPolls::ReturnAtOnce).await;
        let runtime = start(Arc::clone(&first), &run_counts, None).await;
        let client = Client::new(first);
        client.start_orchestration(ORDER, "Order", "1").await.unwrap();
        await_approval(&client).await;
        runtime.shutdown(Some(SHUTDOWN_MS)).await;
        drop(client);

        let second = account.provider("orders", ShortPolls::ReturnAtOnce).await;
        let runtime = start(Arc::clone(&second), &run_counts, None).await;
        let client = Client::new(Arc::clone(&second));
        client.raise_event(ORDER, "approval", "granted").await.unwrap();
        assert_eq!(output(&client).await, "order 1, shipped, granted, receipt sent");
        runtime.shutdown(Some(SHUTDOWN_MS)).await;

        let once = ["charge", "pack", "receipt", "settle"].map(|what| (what.to_owned(), 1));
        assert_eq!(run_counts.runs(), once, "{kind:?}");
        assert_one_completion_for_each(&second).await;
        account.stop().await;
    }
}

/// The process dies during the charge. When the lock has expired, another process runs the
/// charge again. The charge is recorded once.
#[tokio::test]
async fn an_interrupted_activity_runs_once_more_and_completes_once() {
    for kind in [AccountKind::Embedded, AccountKind::Wire] {
        let account = Account::open(kind).await;
        let run_counts = RunCounts::default();
        let charging = Arc::new(Notify::new());

        let process = Process::start();
        let interrupted = account.provider_in(process.handle(), "orders", ShortPolls::ReturnAtOnce).await;
        let client = Client::new(Arc::clone(&interrupted));
        client.start_orchestration(ORDER, "Order", "1").await.unwrap();
        drop(client);
        let (signal, runs) = (Arc::clone(&charging), run_counts.clone());
        process.handle().spawn(async move { start(interrupted, &runs, Some(signal)).await });
        tokio::time::timeout(WORKFLOW_TIMEOUT, charging.notified()).await.expect("the charge begins");
        process.kill();

        let survivor = account.provider("orders", ShortPolls::ReturnAtOnce).await;
        let runtime = start(Arc::clone(&survivor), &run_counts, None).await;
        let client = Client::new(Arc::clone(&survivor));
        await_approval(&client).await;
        client.raise_event(ORDER, "approval", "granted").await.unwrap();
        assert_eq!(output(&client).await, "order 1, shipped, granted, receipt sent");
        runtime.shutdown(Some(SHUTDOWN_MS)).await;

        let runs = [("charge", 2), ("pack", 1), ("receipt", 1), ("settle", 1)];
        assert_eq!(run_counts.runs(), runs.map(|(what, count)| (what.to_owned(), count)), "{kind:?}");
        assert_one_completion_for_each(&survivor).await;
        account.stop().await;
    }
}

/// A tokio runtime on a thread of its own. Killing it drops all its tasks.
///
/// The runtime has one thread on purpose. A runtime with several threads polls some tasks
/// while it drops others. So the dispatcher could see that its activity was cancelled, and
/// record a failure. A killed process cannot do that.
struct Process {
    handle: tokio::runtime::Handle,
    kill: oneshot::Sender<()>,
    thread: std::thread::JoinHandle<()>,
}

impl Process {
    fn start() -> Process {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("a second runtime starts");
        let handle = runtime.handle().clone();
        let (kill, killed) = oneshot::channel();
        let thread = std::thread::spawn(move || {
            // Nothing is ever sent: `killed` ends with an error when `kill` drops the sender.
            let _ = runtime.block_on(killed);
            runtime.shutdown_background();
        });
        Process { handle, kill, thread }
    }

    fn handle(&self) -> &tokio::runtime::Handle {
        &self.handle
    }

    /// Drops every task, without a shutdown. No task runs any more when this returns.
    fn kill(self) {
        drop(self.kill);
        self.thread.join().expect("the process ends");
    }
}

/// Starts a runtime. With `charging`, the charge signals its start and never ends.
async fn start(
    provider: Arc<dyn Provider>,
    run_counts: &RunCounts,
    charging: Option<Arc<Notify>>,
) -> Arc<Runtime> {
    let run_counts = run_counts.clone();
    let step = move |_: ActivityContext, what: String| {
        let (run_counts, charging) = (run_counts.clone(), charging.clone());
        async move {
            run_counts.record(&what);
            if let (Some(charging), "charge") = (charging, what.as_str()) {
                charging.notify_one();
                std::future::pending::<()>().await;
            }
            Ok(what)
        }
    };
    let activities = ActivityRegistry::builder().register("Step", step).build();
    let orchestrations =
        OrchestrationRegistry::builder().register("Order", order).register("Shipment", shipment).build();
    let options = RuntimeOptions {
        orchestrator_lock_timeout: LOCK,
        worker_lock_timeout: LOCK,
        worker_lock_renewal_buffer: LOCK / 2,
        ..RuntimeOptions::default()
    };
    Runtime::start_with_options(provider, activities, orchestrations, options).await
}

/// Execution 1 charges, waits, ships, waits for an approval and settles. Execution 2
/// sends the receipt.
async fn order(context: OrchestrationContext, input: String) -> Result<String, String> {
    if input != "1" {
        context.schedule_activity("Step", "receipt").await?;
        return Ok(format!("{input}, receipt sent"));
    }
    context.schedule_activity("Step", "charge").await?;
    context.schedule_timer(Duration::from_millis(100)).await;
    let shipped = context.schedule_sub_orchestration_with_id("Shipment", SHIPMENT, "").await?;
    context.set_custom_status(AWAITING_APPROVAL);
    let approval = context.schedule_wait("approval").await;
    context.schedule_activity("Step", "settle").await?;
    context.continue_as_new(format!("order {input}, {shipped}, {approval}")).await
}

async fn shipment(context: OrchestrationContext, _: String) -> Result<String, String> {
    context.schedule_activity("Step", "pack").await?;
    Ok("shipped".to_owned())
}

async fn await_approval(client: &Client) {
    let status =
        client.wait_for_status_change(ORDER, 0, STATUS_POLL_INTERVAL, WORKFLOW_TIMEOUT).await.unwrap();
    let OrchestrationStatus::Running { custom_status, .. } = status else { panic!("{status:?}") };
    assert_eq!(custom_status.as_deref(), Some(AWAITING_APPROVAL));
}

async fn output(client: &Client) -> String {
    match client.wait_for_orchestration(ORDER, WORKFLOW_TIMEOUT).await.unwrap() {
        OrchestrationStatus::Completed { output, .. } => output,
        other => panic!("{other:?}"),
    }
}

/// Histories have one completion for each scheduled step, and all queues are empty.
async fn assert_one_completion_for_each(provider: &Arc<dyn Provider>) {
    let admin = provider.as_management_capability().expect("management is supported");
    assert_eq!(admin.list_executions(ORDER).await.unwrap(), [1, 2]);
    let mut instances = admin.list_instances_by_status("Completed").await.unwrap();
    instances.sort();
    assert_eq!(instances, [ORDER, SHIPMENT]);
    for (instance, execution) in [(ORDER, 1), (ORDER, 2), (SHIPMENT, 1)] {
        let history = admin.read_history_with_execution_id(instance, execution).await.unwrap();
        let (mut scheduled, mut completed) = (ids(&history, scheduled_id), ids(&history, completed_id));
        assert!(!scheduled.is_empty(), "{instance} {execution}: {history:?}");
        scheduled.sort_unstable();
        completed.sort_unstable();
        assert_eq!(scheduled, completed, "{instance} {execution}: {history:?}");
    }
    let depths = admin.get_queue_depths().await.unwrap();
    assert_eq!((depths.orchestrator_queue, depths.worker_queue, depths.timer_queue), (0, 0, 0));
}

fn ids(history: &[Event], which: fn(&Event) -> Option<u64>) -> Vec<u64> {
    history.iter().filter_map(which).collect()
}

/// The event's id, if the event schedules a step.
fn scheduled_id(event: &Event) -> Option<u64> {
    matches!(
        event.kind,
        EventKind::ActivityScheduled { .. }
            | EventKind::TimerCreated { .. }
            | EventKind::SubOrchestrationScheduled { .. }
    )
    .then(|| event.event_id())
}

/// The id of the event that scheduled the step, if this event completes a step.
fn completed_id(event: &Event) -> Option<u64> {
    matches!(
        event.kind,
        EventKind::ActivityCompleted { .. }
            | EventKind::TimerFired { .. }
            | EventKind::SubOrchestrationCompleted { .. }
    )
    .then(|| event.source_event_id())?
}
