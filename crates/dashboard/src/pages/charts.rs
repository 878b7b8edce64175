//! Charts of requests, request units, throttled requests and latencies, of the cost of work and of
//! background (see `split`), and of workflows that ended, with their durations. The figures about
//! requests come from the server's counters, if it has them. The workflows are read while the page is
//! watched.

mod ended;
mod figures;
mod split;

use std::sync::Arc;
use std::time::Duration;

use self::figures::{Column, figures};
use self::split::Split;
use super::parts::{self, number, row, section, table, text};
use super::{Page, View};
use crate::app::App;
use crate::draw::chart::Chart;
use crate::failure::{Failure, PART_TIME_MAX, within};
use crate::html::{Html, list, tag};
use crate::http::Parameters;
use crate::samples::{GAP_MAX, Sample, latencies, rates};
use crate::text::{cut, grouped, now_ms, time_of_day};

pub(super) const PAGE: Page = Page {
    path: "/charts",
    name: "Charts",
    section: "/charts",
    // The counters are read at the same interval.
    interval: Some(Duration::from_secs(5)),
    view: |app, query| Box::pin(view(app, query)),
    act: None,
};

/// The rows of the table of figures: the samples of two minutes.
const FIGURES_MAX: usize = 24;

async fn view(app: Arc<App>, _query: Parameters) -> Result<View, Failure> {
    let workflows = match app.source.provider().await {
        Ok(provider) => match within(PART_TIME_MAX, ended::section(&provider)).await {
            Ok(workflows) => workflows,
            Err(failure) => section("ended", "Workflows", parts::unread(&failure)).done(),
        },
        Err(failure) => section("ended", "Workflows", parts::note(failure.message)).done(),
    };
    let requests = match &app.source.counters {
        None => parts::note(
            "Requests, request units and throttled requests of the whole account are counted by a Perihelion server \
             with its management interface. This account has no such counters; in Azure, the portal's \
             metrics show them.",
        ),
        Some(_) => account(&app, now_ms()),
    };
    let own = own(&app).await;
    let html = parts::heading(
        "Charts",
        tag("span").class("faint").add("since the dashboard started, at most an hour"),
    )
    .add(section("requests", "Requests of the account", requests))
    .add(workflows)
    .add(section("own", "What this dashboard itself uses", own));
    Ok(View { title: "Charts".to_owned(), html })
}

/// The charts and tables from the server's counters.
fn account(app: &App, now_ms: u64) -> Html {
    let samples = app.samples.of_last_hour(now_ms);
    let failure = app.samples.failure().map(|(at_ms, why)| {
        let clock: String = time_of_day(at_ms).chars().take("00:00:00".len()).collect();
        let why = format!("The counters of the server could not be read at {clock}: {why}.");
        tag("p").class("notice error").attr("role", "alert").add(why)
    });
    let Some(last) = samples.last() else {
        let none = failure.is_none();
        let yet = none.then(|| parts::note("The counters of the server have not been read yet."));
        return Html::default().add(failure).add(yet);
    };
    let mut requests = rates(&samples, |sample| sample.requests as f64);
    let mut units = rates(&samples, |sample| sample.request_units);
    let mut throttles = rates(&samples, |sample| sample.throttles as f64);
    let (mut median, mut slow) = (latencies(&samples, 50), latencies(&samples, 99));
    let mut split = Split::of(app, &samples);
    let mut ends: Vec<u64> = samples.iter().skip(1).map(|sample| sample.at_ms).collect();
    if is_old(last, now_ms) {
        // The current values are not known. An unknown value at the end makes the charts say so.
        let all = [&mut requests, &mut units, &mut throttles, &mut median, &mut slow];
        all.into_iter().chain([&mut split.background, &mut split.work]).for_each(|values| values.push(None));
        ends.push(now_ms);
    }
    let short = |value: f64| format!("{value:.1}");
    let fine = |value: f64| format!("{value:.2}");
    let charts = [
        Chart { title: "Requests", unit: "/s", values: &requests, ends: &ends, format: short },
        Chart { title: "Request units", unit: "RU/s", values: &units, ends: &ends, format: short },
        Chart { title: "Throttled (429)", unit: "/s", values: &throttles, ends: &ends, format: short },
        Chart { title: "Latency, median", unit: "ms", values: &median, ends: &ends, format: fine },
        Chart { title: "Latency, 99th percentile", unit: "ms", values: &slow, ends: &ends, format: fine },
        Chart { title: "Background", unit: "RU/s", values: &split.background, ends: &ends, format: short },
        Chart { title: "Work", unit: "RU/s", values: &split.work, ends: &ends, format: short },
    ];
    let heads = ["Requests/s", "RU/s", "429/s", "Median ms", "99th ms", "Background RU/s", "Work RU/s"];
    let columns = charts.iter().zip(heads).map(|(chart, head)| Column {
        head,
        values: chart.values,
        format: chart.format,
    });
    Html::default()
        .add(failure)
        .add(tag("div").class("panels").add(list(charts.iter().map(Chart::draw))))
        .add(figures("The newest figures", &ends, &columns.collect::<Vec<_>>(), FIGURES_MAX))
        .add(parts::note(
            "Latencies are those that the server measures, without the network. They may be up to a quarter too high.",
        ))
        .add(split.facts())
        .add(operations(last))
        .add(hottest(app, last))
}

/// Whether newer samples are missing.
fn is_old(last: &Sample, now_ms: u64) -> bool {
    now_ms.saturating_sub(last.at_ms) > GAP_MAX.as_millis() as u64
}

/// The cost of each kind of request so far, the most expensive first.
fn operations(sample: &Sample) -> Html {
    let mut operations = sample.operations.clone();
    operations.sort_by(|one, other| other.2.total_cmp(&one.2));
    let rows = operations.iter().map(|(name, requests, units)| {
        let share = units / sample.request_units.max(f64::MIN_POSITIVE) * 100.0;
        row(vec![
            tag("span").class("id").add(name.as_str()).done(),
            number(grouped(*requests)),
            number(format!("{units:.1}")),
            number(format!("{share:.0} %")),
        ])
        .done()
    });
    table(
        "Requests by operation since the server started",
        // `#` marks a column of numbers; `table` removes it.
        &["Operation", "#Requests", "#RU", "#Share"],
        rows.collect(),
    )
}

/// The partition keys that have used the most request units. In the container of workflows, a
/// partition key is the id of a workflow, or a number for the provider's own documents.
fn hottest(app: &App, sample: &Sample) -> Option<Html> {
    if sample.hottest.is_empty() {
        return None;
    }
    let rows = sample.hottest.iter().map(|partition| {
        let is_workflows =
            partition.database == app.source.database && partition.container == app.source.container;
        let id =
            serde_json::from_str::<Vec<String>>(&partition.key).ok().and_then(|key| key.into_iter().next());
        let key = match id {
            Some(id) if is_workflows => parts::workflow_link(&id),
            _ => tag("code").add(cut(&partition.key, 80)).done(),
        };
        row(vec![
            key,
            text(format!("{}/{}", partition.database, partition.container)),
            number(grouped(partition.requests)),
            number(format!("{:.1}", partition.request_units)),
            number(grouped(partition.throttled)),
        ])
        .done()
    });
    // `#` marks a column of numbers; `table` removes it.
    let heads = ["Partition key", "Container", "#Requests", "#RU", "#Throttled"];
    let table = table("Hottest partitions since the server started", &heads, rows.collect());
    Some(Html::default().add(tag("h3").add("Hottest partitions")).add(table))
}

fn milliseconds(duration: Duration) -> String {
    format!("{:.1} ms", duration.as_secs_f64() * 1000.0)
}

/// The requests of this dashboard's own provider, by method. The percentiles of the provider are upper
/// bounds, at most twice the real ones.
async fn own(app: &App) -> Html {
    let Ok(provider) = app.source.provider().await else {
        return parts::note("Nothing: the container of workflows was not opened yet.");
    };
    let metrics = provider.metrics();
    let rows = metrics.methods.iter().filter(|(_, method)| method.requests > 0).map(|(name, method)| {
        row(vec![
            tag("span").class("id").add(name.as_str()).done(),
            number(grouped(method.calls)),
            number(grouped(method.requests)),
            number(format!("{:.1}", method.request_units)),
            number(grouped(method.throttles)),
            number(milliseconds(method.latency.quantile(0.5))),
            number(milliseconds(method.latency.quantile(0.99))),
        ])
        .done()
    });
    // `#` marks a column of numbers; `table` removes it.
    let heads = ["Read", "#Calls", "#Requests", "#RU", "#Throttled", "#Median", "#99th percentile"];
    let total = format!("{:.1} RU in {} requests so far.", metrics.request_units, grouped(metrics.requests));
    table("Requests of this dashboard", &heads, rows.collect()).add(parts::note(text(total)))
}
