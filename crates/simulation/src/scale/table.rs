//! The tables of the measurements, in Markdown.

use std::fmt::Write as _;
use std::time::Duration;

use crate::scale::cell::{self, CellOutcome};
use crate::scale::crowd::CrowdOutcome;
use crate::scale::fan_out::FanOutOutcome;
use crate::scale::idle::{self, IdleOutcome};
use crate::scale::membership::{HOTTEST_UNITS_MAX, MembershipOutcome};
use crate::scale::programs::FAN_OUT_STEP;
use crate::traffic::{Kind, Window};

/// The table of cells under load.
pub fn cells(outcomes: &[CellOutcome]) -> String {
    let mut text = format!(
        "Limits: overhead (polls, repair looks, heartbeats) at most {:.0} % of the RU spent where N <= 4P, else of \
         the RU provisioned; lost commits at most {:.0} % of commits; pick-up of a start by another process p50 under \
         {} ms, p99 under {} ms; at least {:.0} % of the offered workflows done.\n\n",
        cell::OVERHEAD_SHARE_MAX * 100.0,
        cell::LOST_SHARE_MAX * 100.0,
        cell::PICK_UP_MEDIAN_MAX.as_millis(),
        cell::PICK_UP_P99_MAX.as_millis(),
        cell::THROUGHPUT_SHARE_MIN * 100.0
    );
    text += "| N | P | load | offered/s | done/s | RU/s | slice polls | range polls | repair looks | heartbeats | \
             overhead of spent | of provisioned | lost (412) | 429/s | pick-up p50 | p99 | requests/s | verdict |\n\
             |--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|---|\n";
    outcomes.iter().for_each(|outcome| text += &cell_row(outcome));
    text
}

/// A row of the table of cells under load.
pub fn cell_row(outcome: &CellOutcome) -> String {
    let (cell, window) = (&outcome.cell, &outcome.window);
    let all = window.sum(&Kind::ALL);
    let units = |kind| window.per_second(window.of(kind).request_units);
    format!(
        "| {} | {} | {:.0} % | {:.0} | {:.0} | {:.0} | {:.0} | {:.0} | {:.0} | {:.0} | {:.2} % | {:.2} % | \
             {:.2} % ({}) | {:.0} | {} | {} | {:.0} | {} |\n",
        cell.size.processes,
        cell.size.partitions,
        cell.load * 100.0,
        window.per_second(outcome.starts_due as f64),
        window.per_second(window.completions as f64),
        outcome.units(),
        units(Kind::SlicePoll),
        units(Kind::RangePoll),
        units(Kind::RepairLook),
        units(Kind::Membership),
        outcome.overhead_share_of_spent() * 100.0,
        outcome.overhead_share_of_provisioned() * 100.0,
        outcome.lost_share() * 100.0,
        window.preconditions_failed,
        window.per_second(all.throttles as f64),
        pick_up(window, 0.5),
        pick_up(window, 0.99),
        window.per_second(all.requests as f64),
        verdict(&outcome.failures()),
    )
}

/// The table of idle cells.
pub fn idle_cells(outcomes: &[IdleOutcome]) -> String {
    let mut text = format!(
        "Limits: at most {} x P + {} x N requests a second; pick-up of a start by another process p99 under {} ms.\n\n",
        idle::REQUESTS_PER_PARTITION_MAX,
        idle::REQUESTS_PER_PROCESS_MAX,
        idle::PICK_UP_P99_MAX.as_millis()
    );
    text += "| N | P | requests/s | limit | polls/s | repair looks/s | heartbeats/s | RU/s | starts | pick-up p50 | \
             p99 | verdict |\n|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|---|\n";
    outcomes.iter().for_each(|outcome| text += &idle_row(outcome));
    text
}

/// A row of the table of idle cells.
pub fn idle_row(outcome: &IdleOutcome) -> String {
    let quiet = &outcome.quiet;
    let rate = |kinds: &[Kind]| quiet.per_second(quiet.sum(kinds).requests as f64);
    format!(
        "| {} | {} | {:.1} | {:.1} | {:.1} | {:.1} | {:.1} | {:.1} | {} | {} | {} | {} |\n",
        outcome.size.processes,
        outcome.size.partitions,
        outcome.requests_per_second(),
        outcome.requests_per_second_max(),
        rate(&[Kind::SlicePoll, Kind::RangePoll]),
        rate(&[Kind::RepairLook]),
        rate(&[Kind::Membership]),
        quiet.per_second(quiet.sum(&Kind::ALL).request_units),
        outcome.trickle.starts,
        pick_up(&outcome.trickle, 0.5),
        pick_up(&outcome.trickle, 0.99),
        verdict(&outcome.failures()),
    )
}

/// The table of membership with very many processes.
pub fn membership(outcomes: &[MembershipOutcome]) -> String {
    let mut text = format!(
        "Limit: the hottest logical partition under {HOTTEST_UNITS_MAX:.0} RU/s.\n\n\
         | N | P | starts/s | heartbeats RU/s | polls and repair looks RU/s | hottest partition RU/s | 429/s | requests/s | verdict |\n\
         |--:|--:|--:|--:|--:|--:|--:|--:|---|\n"
    );
    for outcome in outcomes {
        let window = &outcome.window;
        let all = window.sum(&Kind::ALL);
        let members = window.per_second(window.of(Kind::Membership).request_units);
        let _ = writeln!(
            text,
            "| {} | {} | {:.0} | {members:.0} | {:.0} | {:.0} | {:.0} | {:.0} | {} |",
            outcome.size.processes,
            outcome.size.partitions,
            outcome.starts_per_second,
            outcome.overhead_units() - members,
            outcome.hottest_units(),
            window.per_second(all.throttles as f64),
            window.per_second(all.requests as f64),
            if outcome.is_good() { "ok" } else { "**fails**" },
        );
    }
    text
}

/// The result of a fan-out.
pub fn fan_out(outcome: &FanOutOutcome) -> String {
    let took = outcome.took.map_or("not ended".to_owned(), |took| format!("{:.1} s", took.as_secs_f64()));
    format!(
        "One instance with {} activities of {} ms over {} processes with 8 workers each ({} partitions): {took}; \
         the busiest process ran {:.2}x an even spread; {} runs more than activities; {} turns; {} lost writes; \
         {:.0} RU for each activity; {}.\n\
         Runs by process: {:?}\n",
        outcome.width,
        FAN_OUT_STEP.as_millis(),
        outcome.size.processes,
        outcome.size.partitions,
        outcome.largest_share(),
        outcome.reruns(),
        outcome.turns,
        outcome.window.lost_writes,
        outcome.window.sum(&Kind::ALL).request_units / outcome.width as f64,
        if outcome.is_good() { "ok" } else { "**fails**" },
        outcome.runs
    )
}

/// The result of a crowd.
pub fn crowd(outcome: &CrowdOutcome) -> String {
    let rates = |window: &Window| {
        let all = window.sum(&Kind::ALL);
        format!(
            "{:.2} requests/s, {:.2} RU/s",
            window.per_second(all.requests as f64),
            window.per_second(all.request_units)
        )
    };
    let (requests, units) = outcome.ratios();
    format!(
        "An idle process with {} ended and {} sleeping instances: {}; without them: {} (ratios {requests:.2} and \
         {units:.2}); {}.\n",
        outcome.ended,
        outcome.sleeping,
        rates(&outcome.crowded),
        rates(&outcome.empty),
        if outcome.is_good() { "ok" } else { "**fails**" }
    )
}

fn pick_up(window: &Window, quantile: f64) -> String {
    let ms = |time: Duration| format!("{} ms", time.as_millis());
    window.pick_up(quantile).map_or("too late".to_owned(), ms)
}

fn verdict(failures: &[String]) -> String {
    if failures.is_empty() { "ok".to_owned() } else { format!("**{}**", failures.join("; ")) }
}
