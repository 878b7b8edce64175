//! Polling: a workflow follows a job on a printer. It asks for the number of printed pages until
//! all are printed. A client follows the progress of the workflow.
//!
//! Between two polls the workflow is only a timer in the database. A workflow that needs hundreds
//! of polls should continue as new now and then (see the sample `continue_as_new`).

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use duroxide::providers::Provider;
use duroxide::runtime::registry::ActivityRegistry;
use duroxide::runtime::{OrchestrationStatus, Runtime};
use duroxide::{ActivityContext, Client, OrchestrationContext, OrchestrationRegistry};

/// The longest time to wait for a workflow.
const TIME_LIMIT: Duration = Duration::from_secs(30);

/// How often the client polls the status of the workflow.
const STATUS_INTERVAL: Duration = Duration::from_millis(20);

/// The pause between two polls of the printer.
const PAUSE: Duration = Duration::from_millis(100);

/// How often the workflow polls the printer before it gives up.
const POLLS_MAX: u32 = 50;

pub(crate) async fn run(store: Arc<dyn Provider>) -> Result<(), Box<dyn Error>> {
    // The printer prints a page between two polls.
    let printed = Arc::new(AtomicU32::new(0));
    let activities = ActivityRegistry::builder()
        .register_typed("pages printed", move |_: ActivityContext, _job: String| {
            let printed = Arc::clone(&printed);
            async move { Ok(printed.fetch_add(1, Ordering::Relaxed)) }
        })
        .build();
    let orchestrations = OrchestrationRegistry::builder().register_typed("print", print).build();
    let runtime = Runtime::start_with_store(store.clone(), activities, orchestrations).await;
    let client = Client::new(store);

    client.start_orchestration_typed("print-1", "print", 4_u32).await?;
    // Every change of the custom status has a higher version. A client that polls rarely may
    // miss some changes, but never the last one.
    let mut version_seen = 0;
    loop {
        match client.wait_for_status_change("print-1", version_seen, STATUS_INTERVAL, TIME_LIMIT).await? {
            OrchestrationStatus::Running { custom_status, custom_status_version } => {
                println!("{}", custom_status.unwrap_or_default());
                version_seen = custom_status_version;
            }
            OrchestrationStatus::Completed { output, custom_status, .. } => {
                println!("{output}");
                assert_eq!(custom_status.as_deref(), Some("4 of 4 pages"));
                assert_eq!(output, "printed");
                break;
            }
            other => return Err(format!("the job should be printed: {other:?}").into()),
        }
    }

    runtime.shutdown(None).await;
    Ok(())
}

async fn print(context: OrchestrationContext, pages: u32) -> Result<String, String> {
    for _ in 0..POLLS_MAX {
        let printed: u32 = context.schedule_activity_typed("pages printed", &context.instance_id()).await?;
        context.set_custom_status(format!("{printed} of {pages} pages"));
        if printed >= pages {
            return Ok("printed".to_owned());
        }
        context.schedule_timer(PAUSE).await;
    }
    Err(format!("not printed after {POLLS_MAX} polls"))
}
