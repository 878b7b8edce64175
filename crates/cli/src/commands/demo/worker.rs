//! The worker: a process that owns the database and runs the workflows. The shop, the
//! process that starts it, sends commands to its standard input and reads messages from
//! its standard output. Activities of the worker send such a message, which stands for
//! a change outside the database. The worker may be killed at any time; the next one
//! continues from the data on disk.

use std::io::{self, BufRead};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use duroxide::providers::Provider;
use duroxide::runtime::{OrchestrationStatus, Runtime, RuntimeOptions};
use duroxide::{Client, EventKind};
use duroxide_cdb::CosmosDBProvider;
use perihelion_server::{Embedded, EmbeddedOptions};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::messages::{self, Order, WorkerCommand, WorkerMessage};
use super::workflows;
use crate::exit::Failure;

/// How long the work of a killed worker stays locked at most.
const LOCK_TIMEOUT: Duration = Duration::from_secs(2);

/// The worker fails when it gets no command for this long, or when an order has not
/// ended this long after the command `AwaitEnd`, which follows its last step.
const STALL_TIMEOUT: Duration = Duration::from_secs(30);

/// How long an orderly shutdown may take, in milliseconds.
const SHUTDOWN_MS: u64 = 2_000;

/// How often the cost is sent. Requests between the last time and a kill of the worker
/// are not counted.
const COST_INTERVAL: Duration = Duration::from_millis(50);

/// The most commands that wait to be executed. When there are more, the thread that
/// reads them waits.
const COMMANDS_MAX: usize = 1_024;

pub(super) async fn run(data: PathBuf) -> Result<(), Failure> {
    let engine = Embedded::open(EmbeddedOptions::default().with_data(data)).await;
    let engine = engine.map_err(|error| Failure::start(&error))?;
    let client = perihelion_client::Client::over(&engine.endpoint(), engine.transport()).await;
    let provider = CosmosDBProvider::builder().with_client(client.map_err(Failure::runtime)?).open().await;
    let provider: Arc<dyn Provider> = Arc::new(provider.map_err(Failure::runtime)?);
    let options = RuntimeOptions {
        orchestrator_lock_timeout: LOCK_TIMEOUT,
        worker_lock_timeout: LOCK_TIMEOUT,
        worker_lock_renewal_buffer: LOCK_TIMEOUT / 2,
        ..RuntimeOptions::default()
    };
    let activities = workflows::activities(|order, step| send(&WorkerMessage::StepDone { order, step }));
    let runtime =
        Runtime::start_with_options(Arc::clone(&provider), activities, workflows::orchestrations(), options)
            .await;
    let outcome = serve(&engine, Client::new(provider)).await;
    runtime.shutdown(Some(SHUTDOWN_MS)).await;
    engine.close().await;
    outcome
}

/// Executes commands until the shop sends `Finish` or is gone. Fails when a command fails or
/// the shop sends none for [`STALL_TIMEOUT`].
async fn serve(engine: &Embedded, client: Client) -> Result<(), Failure> {
    let client = Arc::new(client);
    let (failed, mut failures) = mpsc::channel::<String>(1);
    let mut commands = read_commands();
    let mut ticks = tokio::time::interval(COST_INTERVAL);
    let mut stalled_at = Instant::now() + STALL_TIMEOUT;
    loop {
        let command = tokio::select! {
            command = commands.recv() => command,
            _ = ticks.tick() => {
                send_cost(engine).await;
                continue;
            }
            () = tokio::time::sleep_until(stalled_at) => return Err(Failure::runtime("no order makes progress")),
            failure = failures.recv() => return Err(Failure::runtime(failure.unwrap_or_default())),
        };
        let Some(command) = command else { return Ok(()) };
        stalled_at = Instant::now() + STALL_TIMEOUT;
        if command == WorkerCommand::Finish {
            send_cost(engine).await;
            return Ok(());
        }
        let (client, failed) = (Arc::clone(&client), failed.clone());
        tokio::spawn(async move {
            if let Err(failure) = execute(&client, command).await {
                send(&WorkerMessage::Failed { why: failure.clone() });
                // The worker ends with its first error.
                let _ = failed.try_send(failure);
            }
        });
    }
}

async fn execute(client: &Client, command: WorkerCommand) -> Result<(), String> {
    let (order, done) = match command {
        WorkerCommand::Start(order) => (order, start(client, order).await),
        WorkerCommand::Approve(order) => {
            (order, client.enqueue_event(workflows::instance(order), workflows::APPROVALS, "approved").await)
        }
        WorkerCommand::AwaitEnd(order) => return report_end(client, order).await,
        WorkerCommand::Finish => return Ok(()),
    };
    done.map_err(|error| format!("order {order}: {error}"))
}

/// Starts an order, unless an earlier worker has started it.
async fn start(client: &Client, order: Order) -> Result<(), duroxide::ClientError> {
    let instance = workflows::instance(order);
    match client.get_orchestration_status(&instance).await? {
        OrchestrationStatus::NotFound => {
            client.start_orchestration(&instance, workflows::ORDER, order.to_string()).await
        }
        _ => Ok(()),
    }
}

/// Waits for the end of an order, counts the completions in its history, and sends both.
/// An order that does not complete is an error.
async fn report_end(client: &Client, order: Order) -> Result<(), String> {
    let instance = workflows::instance(order);
    let failed = |error: duroxide::ClientError| format!("order {order}: {error}");
    let outcome = match client.wait_for_orchestration(&instance, STALL_TIMEOUT).await.map_err(failed)? {
        OrchestrationStatus::Completed { output, .. } => output,
        other => return Err(format!("order {order}: {other:?}")),
    };
    let mut completions = 0;
    for execution in client.list_executions(&instance).await.map_err(failed)? {
        let history = client.read_execution_history(&instance, execution).await.map_err(failed)?;
        let ends = |kind: &EventKind| matches!(kind, EventKind::OrchestrationCompleted { .. });
        completions += history.iter().filter(|event| ends(&event.kind)).count();
    }
    send(&WorkerMessage::Ended { order, outcome, completions });
    Ok(())
}

/// Sends the cost so far. If the counters cannot be read, nothing is sent.
async fn send_cost(engine: &Embedded) {
    let Ok(answer) = engine.manage(http::Method::GET, "counters", "").await else { return };
    let Ok(counters) = serde_json::from_slice::<serde_json::Value>(answer.body()) else { return };
    send(&WorkerMessage::Cost {
        requests: counters["requests"].as_u64().unwrap_or_default(),
        units: counters["requestUnits"].as_f64().unwrap_or_default(),
    });
}

/// Sends a message. When the shop is gone, standard input ends too, and with it
/// the worker.
fn send(message: &WorkerMessage) {
    let _ = messages::write(&mut io::stdout().lock(), message);
}

/// Reads commands from standard input on a thread. The thread ends with the input, at a
/// line that is not a command, or when the receiver is dropped.
fn read_commands() -> mpsc::Receiver<WorkerCommand> {
    let (send, receive) = mpsc::channel(COMMANDS_MAX);
    std::thread::spawn(move || {
        for line in io::stdin().lock().lines() {
            let Ok(command) = line.map_err(drop).and_then(|line| serde_json::from_str(&line).map_err(drop))
            else {
                return;
            };
            if send.blocking_send(command).is_err() {
                return;
            }
        }
    });
    receive
}
