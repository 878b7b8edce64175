//! `perihelion workflow history`: the events of one execution of a workflow.

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use duroxide::providers::ProviderAdmin;
use duroxide::{ErrorDetails, Event, EventKind};
use duroxide_cdb::CosmosDBProvider;
use perihelion_dashboard::{event_texts, event_type};

use super::instance;
use crate::context::Context;
use crate::exit::Failure;
use crate::output::table::Column;
use crate::output::text::{cut, time};

const EXAMPLES: &str = "\
Examples:
  perihelion workflow history order-7
  perihelion workflow history order-7 --execution 1 --type failed
  perihelion workflow history order-7 -o jsonl > order-7.jsonl

OF is the number of the event that this event answers. The table cuts long values; -o json has the
events whole, as duroxide stores them.";

/// Show the events of a workflow
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct HistoryArgs {
    /// The instance
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    instance: String,

    /// The number of the execution [default: the current one]
    #[arg(long, value_name = "N")]
    execution: Option<u64>,

    /// Only events whose type contains this text, in any case: activity, timer, failed
    #[arg(long = "type", value_name = "TEXT")]
    kind: Option<String>,

    /// Only the last events
    #[arg(long, value_name = "N")]
    last: Option<usize>,
}

/// The most characters of a name in the table, so that the value behind it stays in sight. The table
/// itself cuts the whole cell.
const NAME_CHARS_MAX: usize = 60;

const COLUMNS: &[Column<Event>] = &[
    Column::number("EVENT", |event, _| event.event_id.to_string()),
    Column::new("TIME", |event, _| time(event.timestamp_ms)),
    Column::new("TYPE", |event, _| event_type(event)),
    // The number of the event that this event answers, such as the schedule of an activity.
    Column::number("OF", |event, _| event.source_event_id.map_or("-".to_owned(), |id| id.to_string())),
    Column::new("DETAIL", |event, _| detail(&event.kind)),
];

pub(super) async fn run(args: HistoryArgs, context: &Context) -> Result<(), Failure> {
    let events = context.with_provider(async |provider| read(provider, &args).await).await?;
    context.print_list(COLUMNS, &events)
}

async fn read(provider: &CosmosDBProvider, args: &HistoryArgs) -> Result<Vec<Event>, Failure> {
    let failed = |error: duroxide::providers::ProviderError| Failure::runtime(error.message);
    let row = instance::get(provider, &args.instance).await?;
    let execution = args.execution.unwrap_or(row.execution_id);
    let kept = provider.list_executions(&args.instance).await.map_err(failed)?;
    if args.execution.is_some() && !kept.contains(&execution) {
        let kept: Vec<String> = kept.iter().map(ToString::to_string).collect();
        return Err(Failure::not_found(format!(
            "{:?} has no execution {execution}; it has {}",
            args.instance,
            kept.join(", ")
        )));
    }
    let events = provider.read_history_with_execution_id(&args.instance, execution).await.map_err(failed)?;
    let wanted = args.kind.as_ref().map(|text| text.to_lowercase());
    let is_wanted =
        |event: &Event| wanted.as_ref().is_none_or(|text| event_type(event).to_lowercase().contains(text));
    let mut events: Vec<Event> = events.into_iter().filter(is_wanted).collect();
    if let Some(last) = args.last {
        events.drain(..events.len().saturating_sub(last));
    }
    Ok(events)
}

/// The details of an event for a person: a failure in words; for other events the names and the
/// values in the event, such as an activity's name and its input.
fn detail(kind: &EventKind) -> String {
    if let EventKind::OrchestrationFailed { details }
    | EventKind::ActivityFailed { details }
    | EventKind::SubOrchestrationFailed { details } = kind
    {
        return failure(details);
    }
    let [names, values] = event_texts(kind);
    let names = names.iter().map(|name| cut(name, NAME_CHARS_MAX));
    names.chain(values).collect::<Vec<_>>().join(" ")
}

/// A failure for a person: its category, and its message in the words of duroxide.
fn failure(details: &ErrorDetails) -> String {
    let message = details.display_message();
    let category = details.category();
    match message.starts_with(category) {
        true => message,
        false => format!("{category}: {message}"),
    }
}

#[cfg(test)]
mod tests {
    use duroxide::AppErrorKind;

    use super::*;

    #[test]
    fn a_failure_is_shown_with_its_message_and_not_as_json() {
        let message = "card declined ".repeat(10);
        let details = |kind| ErrorDetails::Application { kind, message: message.clone(), retryable: false };
        let failed = EventKind::OrchestrationFailed { details: details(AppErrorKind::OrchestrationFailed) };
        assert_eq!(detail(&failed), format!("application: {message}"));
        let infrastructure = ErrorDetails::Infrastructure {
            operation: "ack".to_owned(),
            message: "no disk".to_owned(),
            retryable: true,
        };
        let failed = EventKind::ActivityFailed { details: infrastructure };
        assert_eq!(detail(&failed), "infrastructure:ack: no disk");
    }
}
