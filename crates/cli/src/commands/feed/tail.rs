//! `perihelion feed tail`: prints the changes of a container as they happen.

use std::time::{Duration, UNIX_EPOCH};

use clap::Args;
use perihelion_client::{ChangeFeed, ChangeFeedOptions, Container};
use perihelion_model::json::Value;
use perihelion_model::timestamp;

use crate::commands::item::KeyArgs;
use crate::context::Context;
use crate::exit::Failure;
use crate::output::text::{escaped, time};
use crate::output::{self, Form, JsonList, refuse_endless_json};
use crate::process::{Signals, print, tell};

const EXAMPLES: &str = "\
Examples:
  perihelion feed tail -d shop -c orders                    from now on, until Ctrl-C
  perihelion feed tail --from beginning --until-now -o jsonl > items.jsonl
  perihelion feed tail --from 2026-11-17T04:00Z --pk ada --limit 10

After a failure that may pass, the command prints it and goes on; with --until-now it ends.

A line is the time of the change, the id and the item; with -o jsonl it is the item. -o json prints
one list of items, and needs --until-now or --limit, so that the list has an end. Of several changes
to an item between two reads of the feed only the last appears; deleted items do not appear.";

/// Print the changes of a container as they happen
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct TailArgs {
    /// Where to begin: now, beginning, or a time (UTC)
    #[arg(long, value_name = "TIME", default_value = "now", value_parser = start)]
    from: Start,

    /// End when all changes up to now are printed
    #[arg(long)]
    until_now: bool,

    /// End after this many changes
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,

    #[command(flatten)]
    key: KeyArgs,
}

/// Where the feed begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    Now,
    Beginning,
    /// Milliseconds since 1970.
    Time(u64),
}

fn start(text: &str) -> Result<Start, String> {
    match text {
        "now" => Ok(Start::Now),
        "beginning" => Ok(Start::Beginning),
        _ => timestamp::parse_ms(text)
            .map(Start::Time)
            .ok_or_else(|| format!("`{text}` is not now, beginning, or a time like 2026-11-17T04:05Z")),
    }
}

/// How often the feed is read while there is no change.
const INTERVAL: Duration = Duration::from_secs(1);

/// The pause after a failure that may pass, as long as the default pause of `--watch`.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_secs(2);

pub(super) async fn run(args: TailArgs, context: &Context) -> Result<(), Failure> {
    let has_end = args.until_now || args.limit.is_some();
    if context.form == Form::Json && !has_end {
        return Err(refuse_endless_json("feed tail without --until-now or --limit prints changes"));
    }
    context
        .with_container(async |container| {
            let mut printer = Printer { form: context.form, list: JsonList::default() };
            let followed = follow(&args, context, container, &mut printer).await;
            match followed {
                // The JSON list is closed after a failure, too. The exit code tells of the failure.
                Err(failure) if printer.list.is_begun() => printer.end().and(Err(failure)),
                Err(failure) => Err(failure),
                Ok(()) => printer.end(),
            }
        })
        .await
}

/// Prints changes until the end that the options name, or until a signal.
async fn follow(
    args: &TailArgs,
    context: &Context,
    container: &Container,
    printer: &mut Printer,
) -> Result<(), Failure> {
    let options = match args.from {
        Start::Now => ChangeFeedOptions::from_now(),
        Start::Beginning => ChangeFeedOptions::from_beginning(),
        Start::Time(ms) => ChangeFeedOptions::from_time(UNIX_EPOCH + Duration::from_millis(ms)),
    };
    let options = match args.key.given()? {
        Some(key) => options.in_partition(key),
        None => options,
    };
    let mut feed: ChangeFeed<Value> = container.change_feed(options);
    let mut signals = Signals::listen()?;
    let mut left = args.limit.unwrap_or(u64::MAX);
    while left > 0 {
        let page = tokio::select! {
            page = next(&mut feed, args.until_now) => page,
            _ = signals.next() => return Ok(()),
        };
        let failed = |error| context.request_failed("cannot read the change feed", &error);
        let page = match page {
            // The feed keeps its place, so nothing is missed.
            Err(error) if error.is_transient() && !args.until_now => {
                tell(escaped(failed(error).message()));
                tokio::select! {
                    () = tokio::time::sleep(PAUSE_AFTER_FAILURE) => continue,
                    _ = signals.next() => return Ok(()),
                }
            }
            page => page.map_err(failed)?,
        };
        let Some(items) = page else { return Ok(()) };
        for item in items.iter().take(usize::try_from(left).unwrap_or(usize::MAX)) {
            printer.print(item)?;
            left -= 1;
        }
    }
    Ok(())
}

/// The next changes. With `stops_at_now`, `None` when all changes up to now were returned.
async fn next(
    feed: &mut ChangeFeed<Value>,
    stops_at_now: bool,
) -> Result<Option<Vec<Value>>, perihelion_client::Error> {
    match stops_at_now {
        true => Ok(feed.next_page().await?.map(|page| page.items)),
        false => Ok(Some(feed.wait_for_page(INTERVAL).await?.items)),
    }
}

/// Prints each change as soon as it is read.
struct Printer {
    form: Form,
    /// The list that `-o json` prints.
    list: JsonList,
}

impl Printer {
    fn print(&mut self, item: &Value) -> Result<(), Failure> {
        print(&match self.form {
            Form::Json => self.list.next(item)?,
            Form::Jsonl => output::line(item)?,
            Form::Table => row(item)?,
        })
    }

    /// Closes the JSON list.
    fn end(&self) -> Result<(), Failure> {
        match self.form {
            Form::Json => print(self.list.end()),
            Form::Jsonl | Form::Table => Ok(()),
        }
    }
}

/// The time of a change, the id and the item.
fn row(item: &Value) -> Result<String, Failure> {
    let written_at = item.get("_ts").and_then(Value::as_i64).and_then(|seconds| u64::try_from(seconds).ok());
    let at = written_at.map_or_else(|| "-".to_owned(), |seconds| time(seconds.saturating_mul(1000)));
    let id = item.get("id").and_then(Value::as_str).unwrap_or("-");
    let item = output::line(item)?;
    Ok(format!("{at}  {}  {}\n", escaped(id), escaped(item.trim_end())))
}
