//! Merges compared with a model: the merged result must equal the result of the statement
//! over all documents at once. These are chosen at random: the documents, the ranges, the
//! sizes of pages, the order of fetches, the splits and merges of ranges, and the rows after
//! which a merge is stopped and resumed.

mod backend;
mod random;
mod refusals;
mod tokens;

use perihelion_model::json::{Style, Value, parse_str, to_text};
use perihelion_query::merge::{Fetch, KeyRange, Merge, MergePlan, MergeToken, NextPage, NextRow, Settings};
use perihelion_query::{Parameters, QueryRange, compare_values, compile, parse, plan};

use crate::support::{ALL_FEATURES, conformance, json, now, text};
use backend::Backend;
use random::RandomDocuments;

/// The parameters of [`STATEMENTS`] and of the conformance file.
const PARAMETERS: &str = r#"[{"name":"@TOPCOUNT","value":42},{"name":"@n","value":7}]"#;

/// How two results are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Exact,
    AnyOrder,
}

/// Statements of every kind.
const STATEMENTS: &[&str] = &[
    "SELECT * FROM c",
    "SELECT c.id, c.blah FROM c WHERE c.n > 0",
    "SELECT VALUE c.a FROM c",
    "SELECT VALUE ch.name FROM c JOIN ch IN c.children",
    "SELECT TOP 5 c.id FROM c",
    "SELECT TOP 0 c.id FROM c",
    "SELECT TOP @n c.id FROM c WHERE c.n < 2",
    "SELECT c.id FROM c OFFSET 3 LIMIT 6",
    "SELECT VALUE c.id FROM c OFFSET 9 LIMIT 0",
    "SELECT VALUE c.id FROM c OFFSET 1000 LIMIT 5",
    "SELECT c.id FROM c ORDER BY c.n",
    "SELECT c.id, c.any FROM c ORDER BY c.any DESC",
    "SELECT * FROM c ORDER BY c.blah ASC, c.n DESC",
    "SELECT VALUE c.name FROM c ORDER BY c.any, c.grp DESC, c.n",
    "SELECT VALUE c.a FROM c WHERE c.n >= 0 ORDER BY c.grp",
    "SELECT VALUE ch.age FROM c JOIN ch IN c.children ORDER BY c.grp DESC",
    "SELECT VALUE {\"a\": ch.age, \"i\": c.id} FROM c JOIN ch IN c.children ORDER BY c.grp, c._ts",
    "SELECT c.id FROM c ORDER BY c._ts",
    "SELECT c.id FROM c ORDER BY c.name DESC",
    "SELECT TOP 7 c.id FROM c ORDER BY c.blah",
    "SELECT TOP 3 VALUE c.id FROM c ORDER BY c.grp DESC, c.id DESC",
    "SELECT c.id FROM c ORDER BY c.any OFFSET 4 LIMIT 9",
    "SELECT c.id FROM c ORDER BY c.n DESC OFFSET 0 LIMIT 1",
    "SELECT DISTINCT c.grp FROM c",
    "SELECT DISTINCT VALUE c.any FROM c",
    "SELECT DISTINCT TOP 3 c.blah FROM c",
    "SELECT DISTINCT VALUE c.blah FROM c OFFSET 1 LIMIT 2",
    "SELECT DISTINCT VALUE c.blah FROM c ORDER BY c.blah",
    "SELECT DISTINCT VALUE c.any FROM c ORDER BY c.any DESC",
    "SELECT DISTINCT TOP 4 VALUE c.any FROM c ORDER BY c.any DESC",
    "SELECT DISTINCT VALUE c.n FROM c ORDER BY c.n OFFSET 2 LIMIT 5",
    "SELECT DISTINCT c.grp, c.name FROM c ORDER BY c.grp",
    "SELECT DISTINCT c.grp FROM c ORDER BY c.grp DESC OFFSET 1 LIMIT 3",
    "SELECT VALUE COUNT(1) FROM c",
    "SELECT VALUE COUNT(c.any) FROM c WHERE c.n > 100",
    "SELECT VALUE SUM(c.n) FROM c",
    "SELECT VALUE SUM(c.blah) FROM c",
    "SELECT VALUE SUM(c.missing) FROM c",
    "SELECT VALUE AVG(c.n) FROM c",
    "SELECT VALUE AVG(c.a) FROM c",
    "SELECT VALUE AVG(c.missing) FROM c",
    "SELECT VALUE MIN(c.n) FROM c",
    "SELECT VALUE MAX(c.n) FROM c WHERE c.n < -1",
    "SELECT VALUE MIN(c.blah) FROM c",
    "SELECT VALUE MAX(c.blah) FROM c",
    "SELECT VALUE MIN(c.any) FROM c",
    "SELECT VALUE MAX(c.any) FROM c WHERE c.n > 2",
    "SELECT VALUE MAX(c.missing) FROM c",
    "SELECT VALUE COUNTIF(c.n > 1) FROM c",
    "SELECT VALUE MAKELIST(c.name) FROM c",
    "SELECT VALUE MAKESET(c.any) FROM c",
    "SELECT TOP 1 VALUE COUNT(1) FROM c",
    "SELECT VALUE COUNT(1) FROM c OFFSET 1 LIMIT 2",
    "SELECT COUNT(1) AS n, SUM(c.n) AS s, AVG(c.n) AS m, MIN(c.blah) AS lo, MAX(c.any) AS hi FROM c",
    "SELECT SUM(c.blah), AVG(c.a), MIN(c.any) FROM c",
    "SELECT c.grp, COUNT(1) AS n FROM c GROUP BY c.grp",
    "SELECT COUNT(1) AS n, c.grp, AVG(c.n) AS m, MAX(c.any) AS hi FROM c GROUP BY c.grp",
    "SELECT c.any, c.grp, SUM(c.n) AS s, MIN(c.blah) AS lo FROM c GROUP BY c.any, c.grp",
    "SELECT VALUE AVG(c.n) FROM c GROUP BY c.grp",
    "SELECT VALUE c.any FROM c GROUP BY c.any",
    "SELECT VALUE {\"g\": c.grp} FROM c GROUP BY {\"g\": c.grp}",
    "SELECT c.grp, MAKESET(c.name) AS names, MAKELIST(c.n) AS all FROM c GROUP BY c.grp",
    "SELECT TOP 2 c.grp FROM c GROUP BY c.grp",
    "SELECT c.grp, COUNT(1) AS n FROM c GROUP BY c.grp OFFSET 1 LIMIT 2",
    "SELECT DISTINCT COUNT(1) AS n FROM c GROUP BY c.grp",
    "SELECT LOWER(c.name) AS l, COUNT(1) AS n FROM c WHERE c.n > 0 GROUP BY LOWER(c.name)",
    "SELECT c.grp, COUNT(1) AS n FROM c GROUP BY c.grp ORDER BY c.grp",
    "SELECT COUNT(1) AS n FROM c GROUP BY c.grp ORDER BY c.grp DESC",
    "SELECT VALUE MAX(c.n) FROM c GROUP BY c.grp, c.name ORDER BY c.name DESC, c.grp",
    "SELECT TOP 2 c.name, SUM(c.n) AS s FROM c GROUP BY c.name ORDER BY c.name DESC",
    "SELECT c.grp FROM c GROUP BY c.grp ORDER BY c.grp DESC OFFSET 1 LIMIT 2",
    "SELECT ch.name, COUNT(1) AS n FROM c JOIN ch IN c.children GROUP BY ch.name",
    "SELECT DISTINCT VALUE c.any FROM c GROUP BY c.any, c.grp ORDER BY c.any",
];

/// How a merge is run.
#[derive(Debug, Clone, Copy)]
struct RunOptions {
    /// Ranges are split and merged between two pages.
    moves_ranges: bool,
    /// The merge is stopped, and resumed from its token.
    stops: bool,
    /// The result is read row by row, and not in pages.
    by_row: bool,
}

/// One merge of a statement over a backend, with random pages, failures, splits and stops.
struct Run<'b> {
    backend: &'b mut Backend,
    random: RandomDocuments,
    query: String,
    plan: MergePlan,
    settings: Settings,
    options: RunOptions,
    /// How often the merge was resumed from a token.
    resumed: u32,
    /// How often a split or a merge of ranges was tried.
    moved: u32,
}

impl<'b> Run<'b> {
    fn new(
        backend: &'b mut Backend,
        mut random: RandomDocuments,
        query: &str,
        plan: MergePlan,
        options: RunOptions,
    ) -> Self {
        let settings = settings(&mut random);
        Run { backend, random, query: query.to_owned(), plan, settings, options, resumed: 0, moved: 0 }
    }

    /// The merged result. The seed decides in which order everything happens.
    fn result(&mut self) -> Vec<Value> {
        let mut merge =
            Merge::new(self.plan.clone(), &self.query, &self.backend.ranges, self.settings).unwrap();
        let mut in_flight: Vec<Fetch> = Vec::new();
        let mut rows = Vec::new();
        loop {
            assert!(in_flight.len() <= self.settings.parallel_max);
            match self.next(&mut merge, &mut rows) {
                Progress::Rows => {}
                Progress::Done => break,
                Progress::Pending => {
                    in_flight.extend(merge.next_fetches());
                    assert!(!in_flight.is_empty(), "the merge is pending without a fetch: {merge:?}");
                    let fetch = in_flight.swap_remove(self.random.below(in_flight.len() as u64) as usize);
                    self.complete_fetch(&mut merge, &fetch);
                    self.move_ranges();
                    continue;
                }
            }
            if let Some(resumed) = self.stop_and_resume(&merge) {
                merge = resumed;
                in_flight.clear();
            }
        }
        assert_eq!(merge.token(), MergeToken::Finished);
        assert!(merge.next_fetches().is_empty(), "a finished merge fetches a page");
        rows
    }

    fn next(&mut self, merge: &mut Merge, out: &mut Vec<Value>) -> Progress {
        if self.options.by_row {
            return match merge.next_row().unwrap() {
                NextRow::Row(row) => {
                    out.push(row);
                    Progress::Rows
                }
                NextRow::Pending => Progress::Pending,
                NextRow::Done => Progress::Done,
            };
        }
        match merge.next_page().unwrap() {
            NextPage::Page(rows) => {
                assert!(!rows.is_empty());
                out.extend(rows);
                Progress::Rows
            }
            NextPage::Pending => Progress::Pending,
            NextPage::Done => Progress::Done,
        }
    }

    fn complete_fetch(&mut self, merge: &mut Merge, fetch: &Fetch) {
        if self.random.one_in(20) {
            return merge.fetch_failed(fetch.id).unwrap();
        }
        match self.backend.page(fetch, &mut self.random) {
            Ok((rows, continuation)) => merge.add_page(fetch.id, rows, continuation).unwrap(),
            Err(backend::Gone) => merge.range_gone(fetch.id, &self.backend.ranges).unwrap(),
        }
    }

    fn move_ranges(&mut self) {
        if !self.options.moves_ranges || !self.random.one_in(4) {
            return;
        }
        self.moved += 1;
        if self.random.one_in(3) || self.backend.ranges.len() > 12 {
            self.backend.join(&mut self.random);
        } else {
            self.backend.split(&mut self.random);
        }
    }

    fn stop_and_resume(&mut self, merge: &Merge) -> Option<Merge> {
        if !self.options.stops || !self.random.one_in(3) {
            return None;
        }
        let MergeToken::Resume(token) = merge.token() else { return None };
        self.move_ranges();
        self.resumed += 1;
        self.settings = settings(&mut self.random);
        Some(
            Merge::resume(self.plan.clone(), &self.query, &self.backend.ranges, self.settings, &token)
                .unwrap(),
        )
    }
}

/// The outcome of reading the next rows of a merge.
enum Progress {
    Rows,
    Pending,
    Done,
}

fn settings(random: &mut RandomDocuments) -> Settings {
    Settings::default()
        .with_page_rows(1 + random.below(9) as usize)
        .with_parallel_max(1 + random.below(5) as usize)
}

fn parameters() -> Parameters {
    Parameters::from_json(json(PARAMETERS)).expect("good parameters")
}

/// The result of the statement over all documents, in range order.
fn expected(query: &str, backend: &Backend) -> Vec<Value> {
    let mut documents: Vec<&backend::Document> = backend.documents.iter().collect();
    let range_of = |key: &str| backend.ranges.iter().position(|range| key < range.max.as_str());
    documents.sort_by_key(|document| (range_of(&document.effective_key), document.rid));
    let values: Vec<Value> = documents.into_iter().map(|document| document.value.clone()).collect();
    let program = compile(&parse(query).expect("it parses"), &parameters(), now()).expect("it compiles");
    program.run(&values).expect("it runs")
}

fn our_plan(query: &str) -> Value {
    let query = parse(query).unwrap_or_else(|errors| panic!("{query}: {errors:?}"));
    let plan = plan(&query, &parameters(), Some(ALL_FEATURES), &["/pk"]).expect("a plan");
    plan.to_json_with_ranges(&[QueryRange::full()])
}

fn assert_same(found: &[Value], wanted: &[Value], comparison: Comparison, case: &str) {
    let texts = |rows: &[Value]| {
        let mut rows: Vec<&Value> = rows.iter().collect();
        if comparison == Comparison::AnyOrder {
            rows.sort_by(|a, b| compare_values(Some(a), Some(b)));
        }
        rows.into_iter().map(|row| to_text(row, Style::Query)).collect::<Vec<_>>()
    };
    assert_eq!(texts(found), texts(wanted), "{case}");
}

/// Runs a statement once for a seed; returns how often the merge was resumed and how often
/// a split or a merge of ranges was tried.
fn check(query: &str, plan: &Value, options: RunOptions, seed: u64) -> (u32, u32) {
    let mut random = RandomDocuments::new(seed);
    let count = random.below(60);
    // A range returns rows with equal sort keys, and unsorted rows, in the order of their `_rid`s. So if
    // ranges are split and merged, the expected order is certain only if the `_rid`s are in the order of
    // the ranges.
    let rids_follow_keys = options.moves_ranges;
    let documents = random.documents(count, rids_follow_keys);
    let ranges = 1 + random.below(6) as u32;
    let mut backend = Backend::new(documents, parameters(), ranges, &mut random);
    let wanted = expected(query, &backend);
    let plan = MergePlan::from_json(plan).expect("a plan we can merge");
    let mut run = Run::new(&mut backend, random, query, plan, options);
    let found = run.result();
    assert_same(&found, &wanted, Comparison::Exact, &format!("{query} under {options:?}, seed {seed}"));
    (run.resumed, run.moved)
}

/// Runs per statement: four, or the number in an environment variable.
fn rounds() -> u64 {
    std::env::var("PERIHELION_MERGE_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(4)
}

fn check_all_statements(options: RunOptions) -> (u32, u32) {
    let (mut resumed, mut moved) = (0, 0);
    for (number, query) in (0..).zip(STATEMENTS) {
        let plan = our_plan(query);
        for seed in (0..rounds()).map(|round| round * 1000 + number) {
            let (more_resumed, more_moved) = check(query, &plan, options, seed);
            resumed += more_resumed;
            moved += more_moved;
        }
    }
    println!("{} statements, {} runs each: {resumed} resumed, {moved} moves", STATEMENTS.len(), rounds());
    (resumed, moved)
}

#[test]
fn a_merged_result_is_the_result_over_all_documents() {
    check_all_statements(RunOptions { moves_ranges: false, stops: false, by_row: true });
    check_all_statements(RunOptions { moves_ranges: false, stops: false, by_row: false });
}

#[test]
fn stopping_and_resuming_loses_and_repeats_no_row() {
    let (resumed, _) = check_all_statements(RunOptions { moves_ranges: false, stops: true, by_row: true });
    assert!(resumed > 100, "{resumed}");
    let (resumed, _) = check_all_statements(RunOptions { moves_ranges: false, stops: true, by_row: false });
    assert!(resumed > 100, "{resumed}");
}

#[test]
fn splits_and_merges_of_ranges_do_not_change_the_result() {
    let (_, moved) = check_all_statements(RunOptions { moves_ranges: true, stops: false, by_row: true });
    assert!(moved > 500, "{moved}");
    let (resumed, moved) = check_all_statements(RunOptions { moves_ranges: true, stops: true, by_row: true });
    assert!(resumed > 100 && moved > 500, "{resumed} {moved}");
    check_all_statements(RunOptions { moves_ranges: true, stops: true, by_row: false });
}

/// A partition may return rows with equal keys in any order. Even when ranges are split
/// and merged, every row is returned once and in the order of the keys.
#[test]
fn rows_with_equal_keys_may_come_in_any_order_and_are_returned_once() {
    for query in [
        "SELECT c.id, c.grp AS k FROM c ORDER BY c.grp",
        "SELECT c.id, c.grp AS k FROM c ORDER BY c.grp DESC",
        "SELECT c.id, c._ts AS k, ch.age FROM c JOIN ch IN c.children ORDER BY c._ts DESC",
    ] {
        let plan = MergePlan::from_json(&our_plan(query)).unwrap();
        for seed in 0..rounds() * 10 {
            let mut random = RandomDocuments::new(seed);
            let documents = random.documents(50, false);
            let mut backend = Backend::new(documents, parameters(), 3, &mut random);
            backend.has_reversed_ties = random.one_in(2);
            let wanted = expected(query, &backend);
            let options = RunOptions { moves_ranges: true, stops: true, by_row: true };
            let mut run = Run::new(&mut backend, random, query, plan.clone(), options);
            let found = run.result();
            let keys = |rows: &[Value]| {
                rows.iter().map(|row| row.get("k").map(|key| to_text(key, Style::Query))).collect::<Vec<_>>()
            };
            assert_eq!(keys(&found), keys(&wanted), "{query}, seed {seed}");
            assert_same(&found, &wanted, Comparison::AnyOrder, &format!("{query}, seed {seed}"));
        }
    }
}

/// Story of a bug: ORDER BY does not compare the contents of arrays, so groups with equal arrays are not
/// neighbours, and DISTINCT returned their arrays again.
#[test]
fn distinct_arrays_of_sorted_groups_are_returned_once() {
    for query in [
        "SELECT DISTINCT VALUE c.tags FROM c GROUP BY c.tags, c.x ORDER BY c.tags",
        "SELECT DISTINCT c.tags FROM c GROUP BY c.tags, c.x ORDER BY c.tags DESC",
    ] {
        let plan = MergePlan::from_json(&our_plan(query)).unwrap();
        for seed in 0..rounds() {
            let mut random = RandomDocuments::new(seed);
            let document = |n: u64| backend::Document {
                effective_key: format!("{:02X}", n * 10),
                rid: n,
                value: json(&format!(r#"{{"id":"{n}","_rid":"{n:06}","tags":[{}],"x":{}}}"#, n % 2, n % 3)),
            };
            let documents = (1..25).map(document).collect();
            let mut backend = Backend::new(documents, parameters(), 3, &mut random);
            let wanted = expected(query, &backend);
            assert_eq!(wanted.len(), 2, "{query}");
            let options = RunOptions { moves_ranges: false, stops: false, by_row: true };
            let mut run = Run::new(&mut backend, random, query, plan.clone(), options);
            assert_same(&run.result(), &wanted, Comparison::Exact, &format!("{query}, seed {seed}"));
        }
    }
}

/// The service's own plans, in the form of the gateway.
#[test]
fn results_are_merged_by_the_plans_of_the_conformance_file() {
    let mut merged = 0;
    for case in conformance("query-plans.json") {
        let query = text(&case, "query");
        let Some(plan) = gateway_plan(&case) else { continue };
        let compiles =
            |text: &str| parse(text).and_then(|query| compile(&query, &parameters(), now())).is_ok();
        if !compiles(query) || MergePlan::from_json(&plan).is_err() {
            continue;
        }
        if query.contains("udf.") || reads_no_document(&case) {
            continue;
        }
        merged += 1;
        for seed in 0..rounds() {
            for moves_ranges in [false, true] {
                check(query, &plan, RunOptions { moves_ranges, stops: true, by_row: true }, seed);
            }
        }
    }
    println!("query-plans.json: {merged} plans merged");
    assert!(merged >= 60, "{merged}");
}

/// Whether the statement reads no document, so that its plan is for one range only. The
/// file writes this range as `[[],[]]`.
fn reads_no_document(case: &Value) -> bool {
    case.get("ranges").and_then(Value::as_array).and_then(|ranges| ranges.first()?.as_str())
        == Some("[[],[]]")
}

/// Converts a plan of the file to the form of the gateway. In the file names are in
/// PascalCase, counts are texts, and maps are lists.
fn gateway_plan(case: &Value) -> Option<Value> {
    let info = case.get("info")?.as_object()?;
    let mut members = perihelion_model::json::Object::new();
    for (name, value) in info.iter() {
        let name = format!("{}{}", name[..1].to_lowercase(), &name[1..]);
        let value = match (name.as_str(), value) {
            ("top" | "offset" | "limit", Value::String(count)) => parse_str(count).ok()?,
            ("hasSelectValue", value) => Value::Bool(value.as_str() == Some("True")),
            ("groupByAliasToAggregateType", Value::Array(items)) => {
                let member = |item: &Value| {
                    let function = text(item, "AggregateOperator");
                    let function = if function == "null" { Value::Null } else { function.into() };
                    (text(item, "Alias").to_owned(), function)
                };
                Value::Object(perihelion_model::json::Object::from_members(
                    items.iter().map(member).collect(),
                ))
            }
            (_, value) => value.clone(),
        };
        members.set(name, value);
    }
    members.set("rewrittenQuery", text(case, "rewritten").into());
    Some(perihelion_model::json::object([("queryInfo", Value::Object(members))]))
}

#[test]
fn a_merged_range_is_read_in_parts() {
    let plan = MergePlan::concatenation();
    let ranges = [KeyRange::new("1", "", "80"), KeyRange::new("2", "80", "FF")];
    let mut merge = Merge::new(plan, "SELECT * FROM c", &ranges, Settings::default()).unwrap();
    let fetches = merge.next_fetches();
    assert_eq!(fetches.iter().map(|fetch| fetch.range_id.as_str()).collect::<Vec<_>>(), ["1", "2"]);
    for fetch in fetches {
        merge.range_gone(fetch.id, &[KeyRange::new("3", "", "FF")]).unwrap();
    }
    let parts: Vec<_> =
        merge.next_fetches().into_iter().map(|fetch| (fetch.range_id, fetch.keys.unwrap())).collect();
    let part = |min: &str, max: &str| ("3".to_owned(), (min.to_owned(), max.to_owned()));
    assert_eq!(parts, [part("", "80"), part("80", "FF")]);
}
