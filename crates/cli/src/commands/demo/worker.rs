//! The worker: a process that owns the database and runs the workflows. The shop is the
//! process that starts the worker. It sends commands to the worker's standard input and
//! reads messages from the worker's standard output. An activity only sends a message,
//! which stands for a change outside the database. The worker may be killed at any time.
//! The next worker continues from the data on disk.

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

/// The longest time that the work of a killed worker stays locked.
const LOCK_TIMEOUT: Duration = Duration::from_secs(2);

/// The worker fails when it gets no command for this long. It also fails when an order
/// has not ended this long after the command `AwaitEnd`, which follows the last step.
const STALL_TIMEOUT: Duration = Duration::from_secs(30);

/// How long an orderly shutdown may take, in milliseconds.
const SHUTDOWN_TIMEOUT_MS: u64 = 2_000;

/// How often the cost is sent. Requests between the last such message and a kill of the
/// worker are not counted.
const COST_INTERVAL: Duration = Duration::from_millis(50);

/// The most commands that wait to be executed. At this number, the thread that reads
/// commands waits until one is taken.
const COMMANDS_MAX: usize = 1_024;

pub(super) async fn run(data: PathBuf) -> Result<(), Failure> {
    let database = Embedded::open(EmbeddedOptions::default().with_data(data)).await;
    let database = database.map_err(|error| Failure::start(&error))?;
    let client = perihelion_client::Client::over(&database.endpoint(), database.transport()).await;
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
    let outcome = serve(&database, Client::new(provider)).await;
    runtime.shutdown(Some(SHUTDOWN_TIMEOUT_MS)).await;
    database.close().await;
    outcome
}

/// Executes commands until the shop sends `Finish` or its process ends. Fails when a command
/// fails, or when the shop sends no command for [`STALL_TIMEOUT`].
async fn serve(database: &Embedded, client: Client) -> Result<(), Failure> {
    let client = Arc::new(client);
    let (failure_sender, mut failures) = mpsc::channel::<String>(1);
    let mut commands = read_commands();
    let mut ticks = tokio::time::interval(COST_INTERVAL);
    let mut deadline = Instant::now() + STALL_TIMEOUT;
    loop {
        let command = tokio::select! {
            command = commands.recv() => command,
            _ = ticks.tick() => {
                send_cost(database).await;
                continue;
            }
            () = tokio::time::sleep_until(deadline) => return Err(Failure::runtime("no order makes progress")),
            failure = failures.recv() => return Err(Failure::runtime(failure.unwrap_or_default())),
        };
        let Some(command) = command else { return Ok(()) };
        deadline = Instant::now() + STALL_TIMEOUT;
        if command == WorkerCommand::Finish {
            send_cost(database).await;
            return Ok(());
        }
        let (client, failure_sender) = (Arc::clone(&client), failure_sender.clone());
        tokio::spawn(async move {
            if let Err(failure) = execute(&client, command).await {
                send(&WorkerMessage::Failed { why: failure.clone() });
                // The worker ends with its first error, so later errors are dropped.
                let _ = failure_sender.try_send(failure);
            }
        });
    }
}

async fn execute(client: &Client, command: WorkerCommand) -> Result<(), String> {
    let (order, outcome) = match command {
        WorkerCommand::Start(order) => (order, start(client, order).await),
        WorkerCommand::Approve(order) => {
            let instance = workflows::instance_id(order);
            (order, client.enqueue_event(instance, workflows::APPROVALS, "approved").await)
        }
        WorkerCommand::AwaitEnd(order) => return report_end(client, order).await,
        WorkerCommand::Finish => return Ok(()),
    };
    outcome.map_err(|error| format!("order {order}: {error}"))
}

/// Starts an order, unless an earlier worker has started it.
async fn start(client: &Client, order: Order) -> Result<(), duroxide::ClientError> {
    let instance = workflows::instance_id(order);
    match client.get_orchestration_status(&instance).await? {
        OrchestrationStatus::NotFound => {
            client.start_orchestration(&instance, workflows::ORDER, order.to_string()).await
        }
        _ => Ok(()),
    }
}

/// Waits for the end of an order, counts the completions in its history, and sends the
/// outcome and the count. An order that does not complete is an error.
async fn report_end(client: &Client, order: Order) -> Result<(), String> {
    let instance = workflows::instance_id(order);
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
async fn send_cost(database: &Embedded) {
    let Ok(answer) = database.manage(http::Method::GET, "counters", "").await else { return };
    let Ok(counters) = serde_json::from_slice::<serde_json::Value>(answer.body()) else { return };
    send(&WorkerMessage::Cost {
        requests: counters["requests"].as_u64().unwrap_or_default(),
        units: counters["requestUnits"].as_f64().unwrap_or_default(),
    });
}

/// Sends a message. A failure is ignored: when the shop's process has ended, standard input
/// ends too, and the end of the input ends the worker.
fn send(message: &WorkerMessage) {
    let _ = messages::write(&mut io::stdout().lock(), message);
}

/// Reads commands from standard input on a thread. The thread ends at the end of
/// the input, at a line that is not a command, or when the receiver is dropped.
fn read_commands() -> mpsc::Receiver<WorkerCommand> {
    let (sender, receiver) = mpsc::channel(COMMANDS_MAX);
    std::thread::spawn(move || {
        for line in io::stdin().lock().lines() {
            let Ok(command) = line.map_err(drop).and_then(|line| serde_json::from_str(&line).map_err(drop))
            else {
                return;
            };
            if sender.blocking_send(command).is_err() {
                return;
            }
        }
    });
    receiver
}
