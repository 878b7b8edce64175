//! The cost of a workflow: in all, and by turn. The cost of a turn is stored by the next commit, so
//! the last turn is missing, and the section says so.

use duroxide_cdb::{TurnCost, WorkflowCost};

use super::Shown;
use crate::html::{Html, tag};
use crate::pages::parts::{self, ago, nothing, number, text};

/// The most turns that are shown: the newest ones.
const SHOWN_MAX: usize = 100;

/// The total, for the summary.
pub(super) fn total(cost: &WorkflowCost) -> Html {
    match cost.requests {
        0 => nothing(),
        _ => text(format!("{:.2} RU in {} requests", cost.request_units, cost.requests)),
    }
}

pub(super) fn section(shown: &Shown<'_>) -> Option<Html> {
    let turns = &shown.detail.record.cost.turns;
    if turns.is_empty() {
        return None;
    }
    let rows = turns.iter().rev().take(SHOWN_MAX).map(|turn| row(turn, shown.now_ms)).collect();
    // `#` marks a column of numbers; `table` removes it.
    let table = parts::table("Cost by turn", &["Turn", "Committed", "#RU", "#Requests"], rows);
    let note = parts::note(
        "The cost of a turn is that of its commit, of its activities and messages, and of fetching the next \
         turn. The last turn is missing: its cost would be stored by the next one. Polls and reads of \
         clients are not counted.",
    );
    let hidden = turns.len().saturating_sub(SHOWN_MAX);
    let more = (hidden > 0).then(|| parts::note(format!("{hidden} older turns are not shown.")));
    let is_cut = !shown.detail.record.cost.is_complete;
    let cut = is_cut.then(|| parts::note("There are older turns that were not read. The total has them."));
    let content = Html::default().add(note).add(table).add(more).add(cut);
    let folded = tag("details").add(tag("summary").add(format!("{} turns", turns.len()))).add(content);
    Some(
        parts::section("cost", "Cost", Html::default().add(total(&shown.detail.record.cost)).add(folded))
            .done(),
    )
}

fn row(turn: &TurnCost, now_ms: u64) -> Html {
    let name = if turn.turn == 0 { text("start") } else { text(turn.turn) };
    let committed = turn.committed_at_ms.map_or_else(nothing, |at| ago(at, now_ms));
    let units = number(format!("{:.2}", turn.request_units));
    parts::row(vec![name, committed, units, number(turn.requests)]).done()
}
