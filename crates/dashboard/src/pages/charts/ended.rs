//! Workflows that ended lately: how many per minute, and how long they took. Each look reads one list
//! of the newest workflows, whatever the number of workflows.

use duroxide_cdb::{CosmosDBProvider, ListOptions, ListOrder, ListedInstance};

use crate::draw::chart::Chart;
use crate::failure::Failure;
use crate::html::{Html, list, tag};
use crate::pages::parts;
use crate::text::{counted, duration, now_ms};

/// The number of workflows that are read. The page shows the latencies of these workflows.
const ROWS: u32 = 200;

/// The time that is shown, in columns of a minute each.
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
    let chart =
        Chart { title: "Ended", unit: "/min", values: &minutes, format: |value| format!("{value:.0}") };
    let failed = ended.iter().filter(|row| row.status == "Failed").count();
    let facts = parts::facts(vec![
        ("Latency, median", parts::text(quantile(&latencies, 50))),
        ("95th percentile", parts::text(quantile(&latencies, 95))),
        ("Longest", parts::text(quantile(&latencies, 100))),
        ("Failed", parts::text(format!("{failed} of {}", ended.len()))),
    ]);
    let note = match is_cut {
        true => format!("Of the newest {count}. Earlier ones are not read."),
        false => format!("Of {count} that ended in the last {MINUTES} minutes."),
    };
    let panels = tag("div").class("panels").add(list([chart.draw()]));
    let html = Html::default().add(panels).add(facts).add(parts::note(note));
    Ok(parts::section("ended", "Workflows", html).done())
}

/// How many ended in each minute, oldest first. `None` for minutes that were not read whole.
fn per_minute(ended: &[&ListedInstance], now_ms: u64, known_from_ms: u64) -> Vec<Option<f64>> {
    (0..MINUTES)
        .rev()
        .map(|ago| {
            let end = now_ms.saturating_sub(ago * 60_000);
            let begin = end.saturating_sub(60_000);
            let is_within =
                |row: &&&ListedInstance| row.completed_at.is_some_and(|at| at > begin && at <= end);
            (begin >= known_from_ms).then(|| ended.iter().filter(is_within).count() as f64)
        })
        .collect()
}

/// A percentile of sorted durations, in words.
fn quantile(sorted: &[u64], percent: usize) -> String {
    let index = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
    sorted.get(index).map_or_else(|| "–".to_owned(), |ms| duration(*ms))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ended_workflows_are_counted_by_minute_as_far_as_they_were_read() {
        let now = 100 * 60_000;
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
        assert_eq!([quantile(&[], 50), quantile(&[10, 20, 30, 40], 50)], ["–", "20ms"]);
    }
}
