//! Human approval: a large expense waits for the decision of a manager. Without a
//! decision in time it goes to the board.
//!
//! The orchestration begins to wait for the decision **before** it asks the manager. An event is
//! dropped if it arrives before the orchestration waits for it, and a manager may be quick.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use duroxide::providers::Provider;
use duroxide::runtime::Runtime;
use duroxide::runtime::registry::ActivityRegistry;
use duroxide::{ActivityContext, Client, Either2, OrchestrationContext, OrchestrationRegistry};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

/// The longest time to wait for a workflow.
const TIME_LIMIT: Duration = Duration::from_secs(30);

/// The largest expense that needs no approval.
const SMALL_MAX: u32 = 50;

/// The most mails in the manager's mailbox. When it is full, the sender waits.
const MAILS_MAX: usize = 8;

#[derive(Serialize, Deserialize)]
struct Expense {
    amount: u32,
    /// How long to wait for a decision. In real life a week.
    patience: Duration,
}

#[derive(Serialize, Deserialize)]
struct Decision {
    is_approved: bool,
    by: String,
}

pub(crate) async fn run(store: Arc<dyn Provider>) -> Result<(), Box<dyn Error>> {
    let (mailbox, mut mails) = mpsc::channel::<String>(MAILS_MAX);
    let activities = ActivityRegistry::builder()
        .register("mail the manager", move |context: ActivityContext, _: String| {
            let mailbox = mailbox.clone();
            async move {
                let mail = context.instance_id().to_owned();
                mailbox.send(mail).await.map_err(|error| error.to_string())?;
                Ok(String::new())
            }
        })
        .build();
    let orchestrations = OrchestrationRegistry::builder().register_typed("expense", expense).build();
    let runtime = Runtime::start_with_store(store.clone(), activities, orchestrations).await;
    let client = Client::new(store);

    let (long, short) = (TIME_LIMIT, Duration::from_millis(300));
    let expenses = [("pencil", 2, long), ("desk", 900, long), ("yacht", 90_000, long), ("lamp", 90, short)];
    for (instance, amount, patience) in expenses {
        client.start_orchestration_typed(instance, "expense", Expense { amount, patience }).await?;
    }

    // The manager decides on the desk and on the yacht, and ignores the lamp.
    let mut decisions_left = 2;
    while decisions_left > 0 {
        let instance =
            tokio::time::timeout(TIME_LIMIT, mails.recv()).await?.ok_or("the mailbox is closed")?;
        if instance != "lamp" {
            let decision = Decision { is_approved: instance == "desk", by: "Grace".to_owned() };
            client.raise_event_typed(instance, "decision", &decision).await?;
            decisions_left -= 1;
        }
    }

    for (instance, expected) in [
        ("pencil", "approved without asking"),
        ("desk", "approved by Grace"),
        ("yacht", "rejected by Grace"),
        ("lamp", "no decision, goes to the board"),
    ] {
        let output: String = client.wait_for_orchestration_typed(instance, TIME_LIMIT).await??;
        println!("{instance}: {output}");
        assert_eq!(output, expected);
    }

    runtime.shutdown(None).await;
    Ok(())
}

async fn expense(context: OrchestrationContext, expense: Expense) -> Result<String, String> {
    if expense.amount <= SMALL_MAX {
        return Ok("approved without asking".to_owned());
    }
    let decision = context.schedule_wait("decision");
    context.schedule_activity("mail the manager", "").await?;
    let end = context.schedule_timer(expense.patience);
    match context.select2(decision, end).await {
        Either2::First(text) => {
            // The text comes from outside. If it is wrong, the workflow fails and says why.
            let decision: Decision =
                serde_json::from_str(&text).map_err(|error| format!("not a decision: {text}: {error}"))?;
            let verdict = if decision.is_approved { "approved" } else { "rejected" };
            Ok(format!("{verdict} by {}", decision.by))
        }
        Either2::Second(()) => Ok("no decision, goes to the board".to_owned()),
    }
}
