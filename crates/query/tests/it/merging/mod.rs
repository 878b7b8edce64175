//! Merging against a model: whatever the ranges, the pages, the splits, the
//! order of arrival and the stops in between, the merged answer is that of
//! the statement over all documents at once.

mod backend;
mod random;
mod refusals;

use perihelion_model::json::{Style, Value, parse_str, to_text};
use perihelion_query::merge::{Fetch, KeyRange, Merge, MergePlan, NextPage, NextRow, Settings, Token};
use perihelion_query::{Parameters, QueryRange, compare_values, compile, parse, plan};

use crate::support::{conformance, json, now, text};
use backend::Backend;
use random::RandomDocuments;

const ALL_FEATURES: &str = "Aggregate, CompositeAggregate, CountIf, Distinct, GroupBy, MultipleOrderBy, \
    MultipleAggregates, OffsetAndLimit, OrderBy, Top, NonValueAggregate, DCount, NonStreamingOrderBy";

const PARAMETERS: &str = r#"[{"name":"@TOPCOUNT","value":42},{"name":"@n","value":7}]"#;

/// How strictly two answers are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sameness {
    Exact,
    /// The plan does not carry the order.
    AnyOrder,
}

/// Statements of every kind.
const STATEMENTS: &[(&str, Sameness)] = &[
    ("SELECT * FROM c", Sameness::Exact),
    ("SELECT c.id, c.blah FROM c WHERE c.n > 0", Sameness::Exact),
    ("SELECT VALUE c.a FROM c", Sameness::Exact),
    ("SELECT VALUE ch.name FROM c JOIN ch IN c.children", Sameness::Exact),
    ("SELECT TOP 5 c.id FROM c", Sameness::Exact),
    ("SELECT TOP 0 c.id FROM c", Sameness::Exact),
    ("SELECT TOP @n c.id FROM c WHERE c.n < 2", Sameness::Exact),
    ("SELECT c.id FROM c OFFSET 3 LIMIT 6", Sameness::Exact),
    ("SELECT VALUE c.id FROM c OFFSET 9 LIMIT 0", Sameness::Exact),
    ("SELECT VALUE c.id FROM c OFFSET 1000 LIMIT 5", Sameness::Exact),
    ("SELECT c.id FROM c ORDER BY c.n", Sameness::Exact),
    ("SELECT c.id, c.any FROM c ORDER BY c.any DESC", Sameness::Exact),
    ("SELECT * FROM c ORDER BY c.blah ASC, c.n DESC", Sameness::Exact),
    ("SELECT VALUE c.name FROM c ORDER BY c.any, c.grp DESC, c.n", Sameness::Exact),
    ("SELECT VALUE c.a FROM c WHERE c.n >= 0 ORDER BY c.grp", Sameness::Exact),
    ("SELECT VALUE ch.age FROM c JOIN ch IN c.children ORDER BY c.grp DESC", Sameness::Exact),
    (
        "SELECT VALUE {\"a\": ch.age, \"i\": c.id} FROM c JOIN ch IN c.children ORDER BY c.grp, c._ts",
        Sameness::Exact,
    ),
    ("SELECT c.id FROM c ORDER BY c._ts", Sameness::Exact),
    ("SELECT c.id FROM c ORDER BY LOWER(c.name) DESC", Sameness::Exact),
    ("SELECT TOP 7 c.id FROM c ORDER BY c.blah", Sameness::Exact),
    ("SELECT TOP 3 VALUE c.id FROM c ORDER BY c.grp DESC, c.id DESC", Sameness::Exact),
    ("SELECT c.id FROM c ORDER BY c.any OFFSET 4 LIMIT 9", Sameness::Exact),
    ("SELECT c.id FROM c ORDER BY c.n DESC OFFSET 0 LIMIT 1", Sameness::Exact),
    ("SELECT DISTINCT c.grp FROM c", Sameness::Exact),
    ("SELECT DISTINCT VALUE c.any FROM c", Sameness::Exact),
    ("SELECT DISTINCT TOP 3 c.blah FROM c", Sameness::Exact),
    ("SELECT DISTINCT VALUE c.blah FROM c OFFSET 1 LIMIT 2", Sameness::Exact),
    ("SELECT DISTINCT VALUE c.blah FROM c ORDER BY c.blah", Sameness::Exact),
    ("SELECT DISTINCT VALUE c.any FROM c ORDER BY c.any DESC", Sameness::Exact),
    ("SELECT DISTINCT TOP 4 VALUE c.any FROM c ORDER BY c.any DESC", Sameness::Exact),
    ("SELECT DISTINCT VALUE c.n FROM c ORDER BY c.n OFFSET 2 LIMIT 5", Sameness::Exact),
    ("SELECT DISTINCT c.grp, c.name FROM c ORDER BY c.grp", Sameness::Exact),
    ("SELECT DISTINCT c.grp FROM c ORDER BY c.grp DESC OFFSET 1 LIMIT 3", Sameness::Exact),
    ("SELECT VALUE COUNT(1) FROM c", Sameness::Exact),
    ("SELECT VALUE COUNT(c.any) FROM c WHERE c.n > 100", Sameness::Exact),
    ("SELECT VALUE SUM(c.n) FROM c", Sameness::Exact),
    ("SELECT VALUE SUM(c.blah) FROM c", Sameness::Exact),
    ("SELECT VALUE SUM(c.missing) FROM c", Sameness::Exact),
    ("SELECT VALUE AVG(c.n) FROM c", Sameness::Exact),
    ("SELECT VALUE AVG(c.a) FROM c", Sameness::Exact),
    ("SELECT VALUE AVG(c.missing) FROM c", Sameness::Exact),
    ("SELECT VALUE MIN(c.n) FROM c", Sameness::Exact),
    ("SELECT VALUE MAX(c.n) FROM c WHERE c.n < -1", Sameness::Exact),
    ("SELECT VALUE MIN(c.blah) FROM c", Sameness::Exact),
    ("SELECT VALUE MAX(c.blah) FROM c", Sameness::Exact),
    ("SELECT VALUE MIN(c.any) FROM c", Sameness::Exact),
    ("SELECT VALUE MAX(c.any) FROM c WHERE c.n > 2", Sameness::Exact),
    ("SELECT VALUE MAX(c.missing) FROM c", Sameness::Exact),
    ("SELECT VALUE COUNTIF(c.n > 1) FROM c", Sameness::Exact),
    ("SELECT VALUE MAKELIST(c.name) FROM c", Sameness::Exact),
    ("SELECT VALUE MAKESET(c.any) FROM c", Sameness::Exact),
    ("SELECT TOP 1 VALUE COUNT(1) FROM c", Sameness::Exact),
    ("SELECT VALUE COUNT(1) FROM c OFFSET 1 LIMIT 2", Sameness::Exact),
    (
        "SELECT COUNT(1) AS n, SUM(c.n) AS s, AVG(c.n) AS m, MIN(c.blah) AS lo, MAX(c.any) AS hi FROM c",
        Sameness::Exact,
    ),
    ("SELECT SUM(c.blah), AVG(c.a), MIN(c.any) FROM c", Sameness::Exact),
    ("SELECT c.grp, COUNT(1) AS n FROM c GROUP BY c.grp", Sameness::Exact),
    ("SELECT COUNT(1) AS n, c.grp, AVG(c.n) AS m, MAX(c.any) AS hi FROM c GROUP BY c.grp", Sameness::Exact),
    ("SELECT c.any, c.grp, SUM(c.n) AS s, MIN(c.blah) AS lo FROM c GROUP BY c.any, c.grp", Sameness::Exact),
    ("SELECT VALUE AVG(c.n) FROM c GROUP BY c.grp", Sameness::Exact),
    ("SELECT VALUE c.any FROM c GROUP BY c.any", Sameness::Exact),
    ("SELECT VALUE {\"g\": c.grp} FROM c GROUP BY {\"g\": c.grp}", Sameness::Exact),
    ("SELECT c.grp, MAKESET(c.name) AS names, MAKELIST(c.n) AS all FROM c GROUP BY c.grp", Sameness::Exact),
    ("SELECT TOP 2 c.grp FROM c GROUP BY c.grp", Sameness::Exact),
    ("SELECT c.grp, COUNT(1) AS n FROM c GROUP BY c.grp OFFSET 1 LIMIT 2", Sameness::Exact),
    ("SELECT DISTINCT COUNT(1) AS n FROM c GROUP BY c.grp", Sameness::Exact),
    ("SELECT LOWER(c.name) AS l, COUNT(1) AS n FROM c WHERE c.n > 0 GROUP BY LOWER(c.name)", Sameness::Exact),
    ("SELECT c.grp, COUNT(1) AS n FROM c GROUP BY c.grp ORDER BY c.grp", Sameness::AnyOrder),
    ("SELECT ch.name, COUNT(1) AS n FROM c JOIN ch IN c.children GROUP BY ch.name", Sameness::Exact),
];

/// Everything that may happen between the first and the last page.
#[derive(Debug, Clone, Copy)]
struct Weather {
    moves_ranges: bool,
    stops: bool,
    by_row: bool,
}

struct Run<'b> {
    backend: &'b mut Backend,
    random: RandomDocuments,
    query: String,
    plan: MergePlan,
    settings: Settings,
    weather: Weather,
    /// How often a token was used.
    resumed: u32,
    moved: u32,
}

impl Run<'_> {
    /// The merged answer. Everything is in an order that the seed decides.
    fn answer(&mut self) -> Vec<Value> {
        let mut merge =
            Merge::new(self.plan.clone(), &self.query, &self.backend.ranges, self.settings).unwrap();
        let mut under_way: Vec<Fetch> = Vec::new();
        let mut answer = Vec::new();
        loop {
            assert!(under_way.len() <= self.settings.parallel_max);
            match self.next(&mut merge, &mut answer) {
                Progress::Rows => {}
                Progress::Done => break,
                Progress::Pending => {
                    under_way.extend(merge.wanted());
                    assert!(!under_way.is_empty(), "pending, and nothing to wait for: {merge:?}");
                    let fetch = under_way.swap_remove(self.random.below(under_way.len() as u64) as usize);
                    self.deliver(&mut merge, &fetch);
                    self.move_ranges();
                    continue;
                }
            }
            if let Some(resumed) = self.stop_and_resume(&merge) {
                merge = resumed;
                under_way.clear();
            }
        }
        assert_eq!(merge.token(), Token::Finished);
        assert!(merge.wanted().is_empty(), "done, and still hungry");
        answer
    }

    fn next(&mut self, merge: &mut Merge, answer: &mut Vec<Value>) -> Progress {
        if self.weather.by_row {
            return match merge.next_row().unwrap() {
                NextRow::Row(row) => {
                    answer.push(row);
                    Progress::Rows
                }
                NextRow::Pending => Progress::Pending,
                NextRow::Done => Progress::Done,
            };
        }
        match merge.next_page().unwrap() {
            NextPage::Page(rows) => {
                assert!(!rows.is_empty());
                answer.extend(rows);
                Progress::Rows
            }
            NextPage::Pending => Progress::Pending,
            NextPage::Done => Progress::Done,
        }
    }

    fn deliver(&mut self, merge: &mut Merge, fetch: &Fetch) {
        if self.random.chance(20) {
            return merge.failed(fetch.id).unwrap();
        }
        match self.backend.answer(fetch, &mut self.random) {
            Ok((rows, continuation)) => merge.page(fetch.id, rows, continuation).unwrap(),
            Err(backend::Gone) => merge.gone(fetch.id, &self.backend.ranges).unwrap(),
        }
    }

    fn move_ranges(&mut self) {
        if !self.weather.moves_ranges || !self.random.chance(4) {
            return;
        }
        self.moved += 1;
        if self.random.chance(3) || self.backend.ranges.len() > 12 {
            self.backend.join(&mut self.random);
        } else {
            self.backend.split(&mut self.random);
        }
    }

    fn stop_and_resume(&mut self, merge: &Merge) -> Option<Merge> {
        if !self.weather.stops || !self.random.chance(3) {
            return None;
        }
        let Token::Resume(token) = merge.token() else { return None };
        self.move_ranges();
        self.resumed += 1;
        self.settings = settings(&mut self.random);
        Some(
            Merge::resume(self.plan.clone(), &self.query, &self.backend.ranges, self.settings, &token)
                .unwrap(),
        )
    }
}

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

/// The statement over all documents, range after range.
fn expected(query: &str, backend: &Backend) -> Vec<Value> {
    let mut documents: Vec<&backend::Document> = backend.documents.iter().collect();
    let range_of = |key: &str| backend.ranges.iter().position(|range| key < range.max.as_str());
    documents.sort_by_key(|document| (range_of(&document.effective_key), document.rid));
    let values: Vec<Value> = documents.into_iter().map(|document| document.value.clone()).collect();
    let program = compile(&parse(query).expect("it parses"), &parameters(), now()).expect("it compiles");
    program.answer(&values).expect("it runs")
}

fn our_plan(query: &str) -> Value {
    let query = parse(query).unwrap_or_else(|errors| panic!("{query}: {errors:?}"));
    let plan = plan(&query, &parameters(), Some(ALL_FEATURES), &["/pk"]).expect("a plan");
    plan.to_json_with_ranges(&[QueryRange::full()])
}

fn assert_same(found: &[Value], wanted: &[Value], sameness: Sameness, story: &str) {
    let texts = |rows: &[Value]| {
        let mut rows: Vec<&Value> = rows.iter().collect();
        if sameness == Sameness::AnyOrder {
            rows.sort_by(|a, b| compare_values(Some(a), Some(b)));
        }
        rows.into_iter().map(|row| to_text(row, Style::Query)).collect::<Vec<_>>()
    };
    assert_eq!(texts(found), texts(wanted), "{story}");
}

/// Runs a statement once for a seed; returns how often it was resumed and
/// how often ranges moved.
fn check(query: &str, plan: &Value, sameness: Sameness, weather: Weather, seed: u64) -> (u32, u32) {
    let mut random = RandomDocuments::new(seed);
    let count = random.below(60);
    let documents = random.documents(count, weather.moves_ranges);
    let ranges = 1 + random.below(6) as u32;
    let mut backend = Backend::new(documents, parameters(), ranges, &mut random);
    let wanted = expected(query, &backend);
    let mut run = Run {
        query: query.to_owned(),
        plan: MergePlan::from_json(plan).expect("a plan we can merge"),
        settings: settings(&mut random),
        backend: &mut backend,
        random,
        weather,
        resumed: 0,
        moved: 0,
    };
    let found = run.answer();
    assert_same(&found, &wanted, sameness, &format!("{query} under {weather:?}, seed {seed}"));
    (run.resumed, run.moved)
}

/// Runs per statement; every change has seconds, a hunt may have hours.
fn rounds() -> u64 {
    std::env::var("PERIHELION_MERGE_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(4)
}

fn check_all_statements(weather: Weather) -> (u32, u32) {
    let (mut resumed, mut moved) = (0, 0);
    for (number, (query, sameness)) in (0..).zip(STATEMENTS) {
        let plan = our_plan(query);
        for seed in (0..rounds()).map(|round| round * 1000 + number) {
            let (more_resumed, more_moved) = check(query, &plan, *sameness, weather, seed);
            resumed += more_resumed;
            moved += more_moved;
        }
    }
    println!("{} statements, {} runs each: {resumed} resumed, {moved} moves", STATEMENTS.len(), rounds());
    (resumed, moved)
}

#[test]
fn a_merged_answer_is_the_answer_over_all_documents() {
    check_all_statements(Weather { moves_ranges: false, stops: false, by_row: true });
    check_all_statements(Weather { moves_ranges: false, stops: false, by_row: false });
}

#[test]
fn stopping_and_resuming_loses_and_repeats_nothing() {
    let (resumed, _) = check_all_statements(Weather { moves_ranges: false, stops: true, by_row: true });
    assert!(resumed > 100, "{resumed}");
    let (resumed, _) = check_all_statements(Weather { moves_ranges: false, stops: true, by_row: false });
    assert!(resumed > 100, "{resumed}");
}

#[test]
fn splits_and_merges_of_ranges_change_nothing() {
    let (_, moved) = check_all_statements(Weather { moves_ranges: true, stops: false, by_row: true });
    assert!(moved > 500, "{moved}");
    let (resumed, moved) = check_all_statements(Weather { moves_ranges: true, stops: true, by_row: true });
    assert!(resumed > 100 && moved > 500, "{resumed} {moved}");
    check_all_statements(Weather { moves_ranges: true, stops: true, by_row: false });
}

/// The order of equal keys is the partition's own affair: whatever it is, and
/// however ranges move, every row comes once, in the order of its keys.
#[test]
fn equal_keys_may_come_in_any_order() {
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
            backend.has_reversed_ties = random.chance(2);
            let wanted = expected(query, &backend);
            let weather = Weather { moves_ranges: true, stops: true, by_row: true };
            let mut run = Run {
                query: query.to_owned(),
                plan: plan.clone(),
                settings: settings(&mut random),
                backend: &mut backend,
                random,
                weather,
                resumed: 0,
                moved: 0,
            };
            let found = run.answer();
            let keys = |rows: &[Value]| {
                rows.iter().map(|row| row.get("k").map(|key| to_text(key, Style::Query))).collect::<Vec<_>>()
            };
            assert_eq!(keys(&found), keys(&wanted), "{query}, seed {seed}");
            assert_same(&found, &wanted, Sameness::AnyOrder, &format!("{query}, seed {seed}"));
        }
    }
}

/// The plans of the service itself, in the gateway's spelling.
#[test]
fn the_plans_of_the_conformance_file_merge() {
    let mut merged = 0;
    for case in conformance("query-plans.json") {
        let query = text(&case, "query");
        let Some(plan) = gateway_plan(&case) else { continue };
        let compiles =
            |text: &str| parse(text).and_then(|query| compile(&query, &parameters(), now())).is_ok();
        if !compiles(query) || MergePlan::from_json(&plan).is_err() {
            continue;
        }
        let sameness = if query.contains("GROUP BY") && query.contains("ORDER BY") {
            Sameness::AnyOrder
        } else {
            Sameness::Exact
        };
        if query.contains("udf.") || is_point(&case) {
            continue;
        }
        merged += 1;
        for seed in 0..rounds() {
            for moves_ranges in [false, true] {
                check(query, &plan, sameness, Weather { moves_ranges, stops: true, by_row: true }, seed);
            }
        }
    }
    println!("query-plans.json: {merged} plans merged");
    assert!(merged >= 60, "{merged}");
}

/// A statement that reads no document is for one range only.
fn is_point(case: &Value) -> bool {
    case.get("ranges").and_then(Value::as_array).and_then(|ranges| ranges.first()?.as_str())
        == Some("[[],[]]")
}

/// The file has PascalCase names, texts for counts and lists for maps.
fn gateway_plan(case: &Value) -> Option<Value> {
    let info = case.get("info")?.as_object()?;
    let mut members = perihelion_model::json::Object::new();
    for (name, value) in info.iter() {
        let name = format!("{}{}", name[..1].to_lowercase(), &name[1..]);
        let value = match (name.as_str(), value) {
            ("top" | "offset" | "limit", Value::String(count)) => parse_str(count).ok()?,
            ("hasSelectValue", value) => Value::Bool(value.as_str() == Some("True")),
            ("groupByAliasToAggregateType", Value::Array(entries)) => {
                let entry = |entry: &Value| {
                    let function = text(entry, "AggregateOperator");
                    let function = if function == "null" { Value::Null } else { function.into() };
                    (text(entry, "Alias").to_owned(), function)
                };
                Value::Object(perihelion_model::json::Object::from_members(
                    entries.iter().map(entry).collect(),
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
fn a_range_that_is_merged_is_read_in_parts() {
    let plan = MergePlan::concatenation();
    let ranges = [KeyRange::new("1", "", "80"), KeyRange::new("2", "80", "FF")];
    let mut merge = Merge::new(plan, "SELECT * FROM c", &ranges, Settings::default()).unwrap();
    let fetches = merge.wanted();
    assert_eq!(fetches.iter().map(|fetch| fetch.range_id.as_str()).collect::<Vec<_>>(), ["1", "2"]);
    for fetch in fetches {
        merge.gone(fetch.id, &[KeyRange::new("3", "", "FF")]).unwrap();
    }
    let parts: Vec<_> =
        merge.wanted().into_iter().map(|fetch| (fetch.range_id, fetch.keys.unwrap())).collect();
    let part = |min: &str, max: &str| ("3".to_owned(), (min.to_owned(), max.to_owned()));
    assert_eq!(parts, [part("", "80"), part("80", "FF")]);
}
