//! Workflows that ended lately: how many per minute, and how long they took. Each look reads one page
//! of the newest workflows, however many workflows there are.

use duroxide_cdb::{CosmosDBProvider, ListOptions, ListOrder, ListedInstance};

use super::figures::{Column, figures};
use crate::draw::chart::Chart;
use crate::failure::Failure;
use crate::html::{Html, list, tag};
use crate::pages::parts;
use crate::text::{counted, duration, now_ms};

/// The most workflows that are read. The charts show only these workflows.
const ROWS: u32 = 200;

/// The time that is shown, in minutes. A chart has one value for each minute.
const MINUTES: u64 = 30;

pub(super) async fn section(provider: &CosmosDBProvider) -> Result<Html, Failure> {
    let now_ms = now_ms();
    let from_ms = now_ms.saturating_sub(MINUTES * 60_000);
    let mut options = ListOptions::new().with_order(ListOrder::RecentFirst).with_page_size(ROWS);
    options.updated_from = Some(from_ms);
    let page = provider.list(&options).await?;
    let ended: Vec<&ListedInstance> =
        page.instances.iter().filter(|row| row.completed_at.is_some()).collect();
    let is_cut = page.continuation.is_some();
    // Times before the oldest row are not known if there are more rows.
    let known_from = if is_cut {
        page.instances.iter().map(|row| row.updated_at).min().unwrap_or(from_ms)
    } else {
        from_ms
    };
    let minutes = per_minute(&ended, now_ms, known_from);
    let mut latencies: Vec<u64> =
        ended.iter().filter_map(|row| Some(row.completed_at?.saturating_sub(row.created_at))).collect();
    latencies.sort_unstable();
    let count = counted(ended.len() as u64, "workflow");
    let [median, slow] = [50, 99].map(|percent| latency_by_minute(&ended, percent, now_ms, known_from));
    let in_words = |ms: f64| duration(ms as u64);
    let ends: Vec<u64> = minutes_of(now_ms).map(|(_, end)| end).collect();
    let charts = [
        Chart {
            title: "Ended",
            unit: "/min",
            values: &minutes,
            ends: &ends,
            format: |value| format!("{value:.0}"),
        },
        Chart { title: "Duration, median", unit: "", values: &median, ends: &ends, format: in_words },
        Chart { title: "Duration, 99th percentile", unit: "", values: &slow, ends: &ends, format: in_words },
    ];
    let columns = charts.iter().zip(["Ended", "Median", "99th percentile"]).map(|(chart, head)| Column {
        head,
        values: chart.values,
        format: chart.format,
    });
    let figures = figures("Workflows by minute", &ends, &columns.collect::<Vec<_>>(), MINUTES as usize);
    let failed = ended.iter().filter(|row| row.status == "Failed").count();
    let facts = parts::facts(vec![
        ("Latency, median", parts::text(percentile_text(&latencies, 50))),
        ("95th percentile", parts::text(percentile_text(&latencies, 95))),
        ("Longest", parts::text(percentile_text(&latencies, 100))),
        ("Failed", parts::text(format!("{failed} of {}", ended.len()))),
    ]);
    let note = match is_cut {
        true => format!("Of the newest {count} that ended. Earlier ones are not read."),
        false => format!("Of {count} that ended in the last {MINUTES} minutes."),
    };
    let panels = tag("div").class("panels").add(list(charts.iter().map(Chart::draw)));
    let html = Html::default().add(panels).add(figures).add(facts).add(parts::note(note));
    Ok(parts::section("ended", "Workflows", html).done())
}

/// The begin and the end of each minute, oldest first.
fn minutes_of(now_ms: u64) -> impl Iterator<Item = (u64, u64)> {
    (0..MINUTES).rev().map(move |ago| {
        let end = now_ms.saturating_sub(ago * 60_000);
        (end.saturating_sub(60_000), end)
    })
}

/// The durations of the workflows that ended in this interval, shortest first.
fn durations(ended: &[&ListedInstance], (begin, end): (u64, u64)) -> Vec<u64> {
    let took = |row: &&ListedInstance| {
        let at = row.completed_at.filter(|at| *at > begin && *at <= end)?;
        Some(at.saturating_sub(row.created_at))
    };
    let mut durations: Vec<u64> = ended.iter().filter_map(took).collect();
    durations.sort_unstable();
    durations
}

/// How many workflows ended in each minute, oldest first. `None` for minutes that were not read whole.
fn per_minute(ended: &[&ListedInstance], now_ms: u64, known_from_ms: u64) -> Vec<Option<f64>> {
    minutes_of(now_ms)
        .map(|minute| (minute.0 >= known_from_ms).then(|| durations(ended, minute).len() as f64))
        .collect()
}

/// For each minute, a percentile of the durations of the workflows that ended in it, in milliseconds,
/// oldest minute first. `None` for minutes that were not read whole, and for minutes in which no workflow
/// ended.
fn latency_by_minute(
    ended: &[&ListedInstance],
    percent: usize,
    now_ms: u64,
    known_from_ms: u64,
) -> Vec<Option<f64>> {
    let of = |minute: (u64, u64)| percentile(&durations(ended, minute), percent).map(|ms| ms as f64);
    minutes_of(now_ms).map(|minute| of(minute).filter(|_| minute.0 >= known_from_ms)).collect()
}

/// A percentile of sorted durations, as a text.
fn percentile_text(sorted: &[u64], percent: usize) -> String {
    percentile(sorted, percent).map_or_else(|| "–".to_owned(), duration)
}

fn percentile(sorted: &[u64], percent: usize) -> Option<u64> {
    sorted.get((sorted.len() * percent).div_ceil(100).saturating_sub(1)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ended_workflows_are_counted_by_minute_as_far_as_they_were_read() {
        let now = 100 * 60_000;
        // Each workflow was created at 0, so its duration is the time of its end.
        let row = |at: u64| {
            let mut row = ListedInstance::default();
            row.completed_at = Some(at);
            row
        };
        let rows = [row(now), row(now - 1), row(now - 60_000), row(now - 90_000)];
        let rows: Vec<&ListedInstance> = rows.iter().collect();
        let minutes = per_minute(&rows, now, now - 150_000);
        assert_eq!(minutes.len(), 30);
        assert_eq!(minutes[27..], [None, Some(2.0), Some(2.0)]);
        assert_eq!(
            latency_by_minute(&rows, 50, now, now - 150_000)[27..],
            [None, Some(5_910_000.0), Some(5_999_999.0)]
        );
        assert_eq!([percentile_text(&[], 50), percentile_text(&[10, 20, 30, 40], 50)], ["–", "20ms"]);
    }
}
