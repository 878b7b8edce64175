//! The client's merge of a query over several ranges. Plans and pages come from a server. The
//! application may have stored the continuation token. An input is lines of text: the statement, a
//! plan (or an empty line, for our own plan of the statement), a continuation token (or an empty
//! line), and then a page in each line, which is a JSON array of rows.
//!
//! What always holds: a token that the merge returns is accepted again.

use perihelion_model::json::{self, Value};
use perihelion_query::merge::{KeyRange, Merge, MergePlan, MergeToken, NextRow, Settings};
use perihelion_query::{Parameters, parse, plan};

/// The most steps of one merge. A step takes a row or gives pages to the merge.
const STEPS_MAX: usize = 64;

pub(super) const WORDS: &[&str] = &[
    "\n",
    "\n\n",
    "[]",
    "null",
    "-1",
    "\"take\":0",
    "\"skip\":18446744073709551615",
    "\"ranges\":[]",
    "\"keys\":[{}]",
    "\"last\":[1]",
    "\"scope\":null",
    "\"orderByItems\":[{\"item\":1},{}]",
    "\"groupByItems\":[{}]",
    "\"payload\":{}",
    "\"min\":\"05\"",
    "ORDER BY c.n DESC",
    "GROUP BY c.n",
    "DISTINCT",
    "OFFSET 1 LIMIT 2",
    "VALUE SUM(c.n)",
];

/// The features that our client's merge has.
const FEATURES: &str = "Aggregate,CompositeAggregate,CountIf,DCount,Distinct,GroupBy,HybridSearch,ListAndSetAggregate,\
     MultipleAggregates,MultipleOrderBy,NonStreamingOrderBy,NonValueAggregate,OffsetAndLimit,OrderBy,Top,\
     WeightedRankFusion";

/// A statement and two pages of what a range returns for it.
const QUERIES: [[&str; 3]; 7] = [
    ["SELECT * FROM c", r#"[{"id":"1"},{"id":"2"}]"#, r#"[{"id":"3"}]"#],
    ["SELECT * FROM c OFFSET 1 LIMIT 2", r#"[{"id":"1"},{"id":"2"}]"#, r#"[{"id":"3"}]"#],
    ["SELECT DISTINCT VALUE c.n FROM c", "[1,1,2]", "[2,3]"],
    [
        "SELECT * FROM c ORDER BY c.n DESC",
        r#"[{"_rid":"AAAAAAAAAAABAAAAAAAAAA==","orderByItems":[{"item":9}],"payload":{"id":"1"}},{"_rid":"AAAAAAAAAAACAAAAAAAAAA==","orderByItems":[{"item":5}],"payload":{"id":"2"}}]"#,
        r#"[{"_rid":"AAAAAAAAAAADAAAAAAAACA==","orderByItems":[{"item":9}],"payload":{"id":"3"}}]"#,
    ],
    [
        "SELECT DISTINCT VALUE c.s FROM c ORDER BY c.s",
        r#"[{"_rid":"AAAAAAAAAAABAAAAAAAAAA==","orderByItems":[{"item":"a"}],"payload":"a"},{"_rid":"AAAAAAAAAAACAAAAAAAAAA==","orderByItems":[{"item":"b"}],"payload":"b"}]"#,
        r#"[{"_rid":"AAAAAAAAAAADAAAAAAAACA==","orderByItems":[{"item":"a"}],"payload":"a"}]"#,
    ],
    [
        "SELECT c.n, COUNT(1) AS k FROM c GROUP BY c.n",
        r#"[{"groupByItems":[{"item":1}],"payload":{"n":1,"k":{"item":2}}}]"#,
        r#"[{"groupByItems":[{"item":1}],"payload":{"n":1,"k":{"item":3}}},{"groupByItems":[{}],"payload":{"k":{"item":1}}}]"#,
    ],
    [
        "SELECT VALUE AVG(c.n) FROM c",
        r#"[[{"item":{"sum":3,"count":2}}]]"#,
        r#"[[{"item":{"sum":1,"count":1}}]]"#,
    ],
];

pub(super) fn examples() -> Vec<Vec<u8>> {
    let mut examples = Vec::new();
    for [statement, one, other] in QUERIES {
        let plan = json::to_text(&our_plan(statement).expect("a constant"), json::Style::Point);
        examples.push(format!("{statement}\n\n\n{one}\n{other}\n{one}").into_bytes());
        examples.push(format!("{statement}\n{plan}\n\n{one}\n{other}").into_bytes());
        for token in tokens(statement, &[one, other]) {
            examples.push(format!("{statement}\n\n{token}\n{other}\n{one}").into_bytes());
        }
    }
    assert!(examples.len() > 2 * QUERIES.len() + 4, "the queries have too few tokens");
    examples
}

/// The plan that our client makes itself.
fn our_plan(statement: &str) -> Option<Value> {
    let parameters = Parameters::from_json(Value::Array(Vec::new())).expect("a constant");
    Some(plan(&parse(statement).ok()?, &parameters, Some(FEATURES), &["/pk"]).ok()?.to_json())
}

fn ranges() -> [KeyRange; 2] {
    [KeyRange::new("0", "", "1F"), KeyRange::new("1", "1F", "FF")]
}

/// The tokens after each row of the merge of these pages.
fn tokens(statement: &str, pages: &[&str]) -> Vec<String> {
    let plan = MergePlan::from_json(&our_plan(statement).expect("a constant")).expect("a constant");
    let merge = Merge::new(plan, statement, &ranges(), Settings::default()).expect("a constant");
    let pages = pages.iter().map(|page| rows(page.as_bytes()).expect("a constant"));
    let mut tokens = Vec::new();
    take_rows(merge, pages, |merge| {
        if let MergeToken::Resume(token) = merge.token() {
            tokens.push(token);
        }
    });
    tokens
}

fn rows(page: &[u8]) -> Option<Vec<Value>> {
    match json::parse(page) {
        Ok(Value::Array(rows)) => Some(rows),
        _ => None,
    }
}

/// Gives the pages to the merge, in the order in which it asks for them, and calls `after_row` after
/// each row.
fn take_rows(mut merge: Merge, pages: impl Iterator<Item = Vec<Value>>, mut after_row: impl FnMut(&Merge)) {
    let mut pages = pages.peekable();
    let mut steps_left = STEPS_MAX;
    while let Ok(next) = merge.next_row() {
        match next {
            NextRow::Row(_) => after_row(&merge),
            NextRow::Done => return,
            NextRow::Pending => {
                for fetch in merge.next_fetches() {
                    let Some(page) = pages.next() else { return };
                    let continuation = pages.peek().map(|_| "next".to_owned());
                    if merge.add_page(fetch.id, page, continuation).is_err() {
                        return;
                    }
                }
            }
        }
        steps_left -= 1;
        if steps_left == 0 {
            return;
        }
    }
}

pub(super) fn run(input: &[u8]) {
    let mut lines = input.split(|byte| *byte == b'\n');
    let mut text = || lines.next().and_then(|line| std::str::from_utf8(line).ok());
    let (Some(statement), Some(plan), Some(token)) = (text(), text(), text()) else { return };
    let plan = match plan {
        "" => our_plan(statement).and_then(|plan| MergePlan::from_json(&plan).ok()),
        plan => MergePlan::parse(plan).ok(),
    };
    let Some(plan) = plan else { return };
    let (ranges, settings) = (ranges(), Settings::default());
    let merge = match token {
        "" => Merge::new(plan.clone(), statement, &ranges, settings),
        token => Merge::resume(plan.clone(), statement, &ranges, settings, token),
    };
    let Ok(merge) = merge else { return };
    take_rows(merge, lines.filter_map(rows), |merge| {
        if let MergeToken::Resume(token) = merge.token() {
            let resumed = Merge::resume(plan.clone(), statement, &ranges, settings, &token);
            assert!(resumed.is_ok(), "a returned token is refused: {token}: {:?}", resumed.err());
        }
    });
}
