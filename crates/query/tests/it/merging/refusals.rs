//! Plans, pages and tokens that a merge refuses, and merges of hand-written plans.

use perihelion_model::json::parse_str;
use perihelion_query::merge::{
    HybridSearch, KeyRange, Merge, MergeError, MergePlan, MergeToken, NextRow, Settings,
};

fn ranges() -> [KeyRange; 2] {
    [KeyRange::new("0", "", "80"), KeyRange::new("1", "80", "FF")]
}

fn sorted_merge(query: &str) -> Merge {
    let plan = MergePlan::parse(r#"{"queryInfo":{"orderBy":["Ascending"]}}"#).unwrap();
    Merge::new(plan, query, &ranges(), Settings::default()).unwrap()
}

#[test]
fn a_plan_that_cannot_be_read_or_merged_is_refused() {
    for (plan, message) in [
        ("nonsense", "the query plan cannot be read: it is not valid JSON"),
        ("[]", "the query plan cannot be read: it is not an object"),
        (
            r#"{"hybridSearchQueryInfo":{"a":1}}"#,
            "the query needs hybrid search, which the client cannot merge across partitions",
        ),
        (
            r#"{"queryInfo":{"aggregates":["Median"]}}"#,
            "the query needs the aggregate 'Median', which the client cannot merge across partitions",
        ),
        (
            r#"{"queryInfo":{"distinctType":"Fuzzy"}}"#,
            "the query needs DISTINCT of the kind 'Fuzzy', which the client cannot merge across partitions",
        ),
        (
            r#"{"queryInfo":{"aggregates":["Count"],"orderBy":["Ascending"]}}"#,
            "the query needs ORDER BY over aggregates, which the client cannot merge across partitions",
        ),
        (r#"{"queryInfo":{"top":-1}}"#, "the query plan cannot be read: top, offset or limit is not a count"),
        (
            r#"{"queryInfo":{"orderBy":["Up"]}}"#,
            "the query plan cannot be read: orderBy holds an unknown direction",
        ),
        (r#"{"queryRanges":[{"min":""}]}"#, "the query plan cannot be read: a range lacks its min or max"),
    ] {
        let error = MergePlan::parse(plan).map(|_| ()).expect_err(plan);
        assert_eq!(error.to_string(), message);
    }
}

/// Story of a bug: the ORDER BY of groups is not in the plan. If the client could not parse the statement,
/// the groups were returned unsorted.
#[test]
fn sorted_groups_of_a_statement_that_cannot_be_parsed_are_refused() {
    let start = |query: &str| {
        let plan = r#"{"queryInfo":{"groupByExpressions":["c.a"],"groupByAliases":["a"]}}"#;
        let plan = MergePlan::parse(plan).unwrap();
        Merge::new(plan, query, &ranges(), Settings::default()).map(|_| ())
    };
    let unparsed = "SELECT c.a FROM c GROUP BY c.a OF TOMORROW";
    assert_eq!(start(unparsed), Ok(()));
    let refused = start(&format!("{unparsed} Order\n by c.a")).unwrap_err();
    assert!(matches!(refused, MergeError::Unsupported(_)), "{refused}");
}

#[test]
fn absent_and_unknown_members_of_a_plan_are_ignored() {
    for plan in
        ["{}", r#"{"queryInfo":null,"hybridSearchQueryInfo":null,"new":1}"#, r#"{"queryInfo":{"new":[]}}"#]
    {
        let plan = MergePlan::parse(plan).unwrap();
        let mut merge = Merge::new(plan, "SELECT * FROM c", &ranges(), Settings::default()).unwrap();
        let fetches = merge.next_fetches();
        assert_eq!(&*fetches[0].query, "SELECT * FROM c");
        for fetch in fetches {
            merge.add_page(fetch.id, vec![1_i64.into()], None).unwrap();
        }
        assert_eq!(merge.next_row(), Ok(NextRow::Row(1_i64.into())));
    }
}

#[test]
fn only_ranges_that_can_hold_a_result_are_fetched() {
    let plan = MergePlan::parse(
        r#"{"queryRanges":[{"min":"3A","max":"3A","isMinInclusive":true,"isMaxInclusive":true}]}"#,
    );
    let plan = plan.unwrap();
    let can_hold_result = |range: &KeyRange| plan.ranges().iter().any(|wanted| range.overlaps(wanted));
    assert_eq!(ranges().map(|range| can_hold_result(&range)), [true, false]);
    assert!(!can_hold_result(&KeyRange::new("2", "", "3A")));
    assert!(can_hold_result(&KeyRange::new("3", "3A", "3B")));
    let mut merge = Merge::within(plan, "q", ("", "FF"), &ranges(), Settings::default()).unwrap();
    let fetched: Vec<_> =
        merge.next_fetches().into_iter().map(|fetch| (fetch.range_id, fetch.keys)).collect();
    assert_eq!(fetched, [("0".to_owned(), None)]);
}

#[test]
fn a_query_within_some_keys_fetches_only_these_keys() {
    let plan = MergePlan::concatenation();
    let mut merge = Merge::within(plan, "q", ("70", "FF"), &ranges(), Settings::default()).unwrap();
    let fetched: Vec<_> =
        merge.next_fetches().into_iter().map(|fetch| (fetch.range_id, fetch.keys)).collect();
    assert_eq!(fetched, [("0".to_owned(), Some(("70".to_owned(), "80".to_owned()))), ("1".to_owned(), None)]);
}

#[test]
fn a_row_that_does_not_have_the_form_of_the_plan_is_an_error() {
    for row in
        ["1", "{}", r#"{"orderByItems":[]}"#, r#"{"orderByItems":[{"item":1},{"item":2}],"payload":1}"#]
    {
        let mut merge = sorted_merge("q");
        let fetch = merge.next_fetches().remove(0);
        let error = merge.add_page(fetch.id, vec![parse_str(row).unwrap()], None).expect_err(row);
        assert!(matches!(error, MergeError::UnexpectedRow(_)), "{error}");
    }
    let plan = MergePlan::parse(
        r#"{"queryInfo":{"groupByExpressions":["c.g"],"groupByAliases":["n"],"groupByAliasToAggregateType":{"n":"Sum"}}}"#,
    );
    for row in ["1", "{}", r#"{"groupByItems":[{}]}"#, r#"{"groupByItems":[{}],"payload":{"n":1}}"#] {
        let mut merge = Merge::new(plan.clone().unwrap(), "q", &ranges(), Settings::default()).unwrap();
        let fetch = merge.next_fetches().remove(0);
        let error = merge.add_page(fetch.id, vec![parse_str(row).unwrap()], None).expect_err(row);
        assert!(matches!(error, MergeError::UnexpectedRow(_)), "{error}");
    }
}

/// Story of a bug: the rows before a row of the wrong form stayed in the buffer, and were in the result
/// twice after the page was fetched again.
#[test]
fn a_page_that_is_refused_in_the_middle_leaves_no_rows() {
    let plan = r#"{"queryInfo":{"orderBy":["Ascending"],"hasNonStreamingOrderBy":true}}"#;
    let mut merge =
        Merge::new(MergePlan::parse(plan).unwrap(), "q", &ranges()[..1], Settings::default()).unwrap();
    let row = || parse_str(r#"{"_rid":"r","orderByItems":[{"item":1}],"payload":1}"#).unwrap();
    let fetch = merge.next_fetches().remove(0);
    assert!(merge.add_page(fetch.id, vec![row(), 1_i64.into()], None).is_err());
    let fetch = merge.next_fetches().remove(0);
    merge.add_page(fetch.id, vec![row()], None).unwrap();
    assert_eq!(merge.next_row(), Ok(NextRow::Row(1_i64.into())));
    assert_eq!(merge.next_row(), Ok(NextRow::Done));
}

/// Partial results cannot be taken back, so a second try would count the rows before the error twice.
#[test]
fn groups_with_a_page_that_is_refused_in_the_middle_stay_refused() {
    let plan = r#"{"queryInfo":{"aggregates":["Count"]}}"#;
    let mut merge = Merge::new(MergePlan::parse(plan).unwrap(), "q", &ranges(), Settings::default()).unwrap();
    let row = || parse_str(r#"[{"item":2}]"#).unwrap();
    let fetches = merge.next_fetches();
    assert!(merge.add_page(fetches[0].id, vec![row(), 1_i64.into()], None).is_err());
    assert!(merge.add_page(fetches[1].id, vec![row()], None).is_err());
    assert_eq!(merge.next_row(), Ok(NextRow::Pending));
    let fetch = merge.next_fetches().remove(0);
    let error = merge.add_page(fetch.id, vec![row()], None).unwrap_err();
    assert!(matches!(error, MergeError::UnexpectedRow(_)), "{error}");
}

/// Story of a bug: such counts ended the program with a panic in debug builds.
#[test]
fn counts_of_an_average_that_are_negative_or_overflow_are_an_error() {
    let start = || {
        let plan = MergePlan::parse(r#"{"queryInfo":{"aggregates":["Average"]}}"#).unwrap();
        Merge::new(plan, "q", &ranges(), Settings::default()).unwrap()
    };
    let row = |count: i64| parse_str(&format!(r#"[{{"item":{{"sum":1,"count":{count}}}}}]"#)).unwrap();
    for page in [vec![row(i64::MIN)], vec![row(-1)], vec![row(i64::MAX), row(1)]] {
        let mut merge = start();
        let fetch = merge.next_fetches().remove(0);
        let error = merge.add_page(fetch.id, page, None).unwrap_err();
        assert!(matches!(error, MergeError::UnexpectedRow(_)), "{error}");
    }
    let mut merge = start();
    for fetch in merge.next_fetches() {
        merge.add_page(fetch.id, vec![row(i64::MAX)], None).unwrap();
    }
    // A second try must not return the average without the second range.
    for _ in 0..2 {
        assert!(matches!(merge.next_row(), Err(MergeError::UnexpectedRow(_))));
    }
}

#[test]
fn a_list_of_ranges_with_an_empty_range_is_refused() {
    let ranges = [KeyRange::new("0", "", "80"), KeyRange::new("1", "80", "80")];
    let refused = Merge::new(MergePlan::concatenation(), "q", &ranges, Settings::default()).map(|_| ());
    let (min, max) = (String::new(), "FF".to_owned());
    assert_eq!(refused, Err(MergeError::RangesDoNotCover { min, max }));
}

#[test]
fn a_page_without_a_fetch_is_an_error() {
    let mut merge = sorted_merge("q");
    let fetch = merge.next_fetches().remove(0);
    merge.add_page(fetch.id, Vec::new(), None).unwrap();
    assert_eq!(merge.add_page(fetch.id, Vec::new(), None), Err(MergeError::UnknownFetch));
    assert_eq!(merge.fetch_failed(fetch.id), Err(MergeError::UnknownFetch));
}

#[test]
fn ranges_with_a_gap_cannot_replace_a_range_that_is_gone() {
    let mut merge = sorted_merge("q");
    let fetch = merge.next_fetches().remove(0);
    let error = merge.range_gone(fetch.id, &[KeyRange::new("2", "", "20"), KeyRange::new("3", "30", "80")]);
    assert_eq!(error, Err(MergeError::RangesDoNotCover { min: String::new(), max: "80".to_owned() }));
}

#[test]
fn a_range_that_is_always_gone_ends_the_query() {
    let mut merge = sorted_merge("q");
    let mut gone = 0;
    let error = loop {
        let fetch = merge
            .next_fetches()
            .into_iter()
            .find(|fetch| fetch.range_id == "0")
            .expect("the range is fetched again");
        match merge.range_gone(fetch.id, &ranges()) {
            Ok(()) => gone += 1,
            Err(error) => break error,
        }
        assert!(gone < 1000);
    };
    assert!(matches!(error, MergeError::GoneTooOften { .. }), "{error}");
}

#[test]
fn a_token_of_another_query_or_a_damaged_token_is_refused() {
    let mut merge = sorted_merge("SELECT * FROM c ORDER BY c.n");
    for (fetch, item) in merge.next_fetches().into_iter().zip([r#"{"item":1}"#, "{}"]) {
        let row = parse_str(&format!(r#"{{"_rid":"A","orderByItems":[{item}],"payload":"y"}}"#)).unwrap();
        merge.add_page(fetch.id, vec![row.clone(), row], Some("more".to_owned())).unwrap();
    }
    assert_eq!(merge.next_row(), Ok(NextRow::Row("y".into())));
    let MergeToken::Resume(token) = merge.token() else { panic!("a sorted query has a token") };
    let resume = |query: &str, plan: &str, token: &str| {
        Merge::resume(MergePlan::parse(plan).unwrap(), query, &ranges(), Settings::default(), token)
            .map(|_| ())
    };
    const PLAN: &str = r#"{"queryInfo":{"orderBy":["Ascending"]}}"#;
    const QUERY: &str = "SELECT * FROM c ORDER BY c.n";
    assert_eq!(resume(QUERY, PLAN, &token), Ok(()));
    let assert_refused = |query: &str, plan: &str, token: &str| {
        let error = resume(query, plan, token).expect_err(token);
        assert!(matches!(error, MergeError::InvalidToken(_)), "{error}");
    };
    let other = resume("SELECT * FROM c ORDER BY c.m", PLAN, &token);
    assert_eq!(other, Err(MergeError::TokenOfAnotherQuery));
    // The form of a token is checked before its fingerprint.
    assert_refused("SELECT * FROM c ORDER BY c.m", PLAN, "{}");
    assert_refused(QUERY, r#"{"queryInfo":{"aggregates":["Count"]}}"#, &token);
    assert_refused(QUERY, r#"{"queryInfo":{"orderBy":["Ascending"],"top":3}}"#, &token);
    assert_refused(QUERY, PLAN, "");
    assert_refused(QUERY, PLAN, &token.replace("\"perihelion\":1", "\"perihelion\":2"));
    // A token that is cut short or lacks a member is refused.
    for end in (0..token.len()).filter(|end| token.is_char_boundary(*end)) {
        assert_refused(QUERY, PLAN, &token[..end]);
    }
    for name in ["query", "skip", "take", "keys", "ranges", "min", "max", "taken"] {
        assert_refused(QUERY, PLAN, &token.replace(&format!("\"{name}\""), "\"other\""));
    }
}

#[test]
fn a_sort_that_partitions_do_not_perform_is_performed_by_the_merge() {
    let plan = r#"{"queryInfo":{"orderBy":["Descending"],"hasNonStreamingOrderBy":true,"top":3}}"#;
    let plan = MergePlan::parse(plan).unwrap();
    let mut merge = Merge::new(plan, "q", &ranges(), Settings::default()).unwrap();
    for (fetch, numbers) in merge.next_fetches().into_iter().zip([[3, 9, 1, 7], [2, 8, 6, 4]]) {
        let row = |number: i64| {
            parse_str(&format!(r#"{{"_rid":"r","orderByItems":[{{"item":{number}}}],"payload":{number}}}"#))
                .unwrap()
        };
        assert_eq!(merge.token(), MergeToken::Unavailable);
        merge.add_page(fetch.id, numbers.map(row).to_vec(), None).unwrap();
    }
    for number in [9_i64, 8, 7] {
        assert_eq!(merge.next_row(), Ok(NextRow::Row(number.into())));
    }
    assert_eq!(merge.next_row(), Ok(NextRow::Done));
    assert_eq!(merge.token(), MergeToken::Finished);
}

#[test]
fn distinct_values_are_counted_over_all_partitions() {
    for (alias, expect) in [("n", r#"{"n":3}"#), ("", "3")] {
        let plan = format!(
            r#"{{"queryInfo":{{"distinctType":"Unordered","dCountInfo":{{"dCountAlias":"{alias}"}}}}}}"#
        );
        let mut merge =
            Merge::new(MergePlan::parse(&plan).unwrap(), "q", &ranges(), Settings::default()).unwrap();
        for (fetch, names) in merge.next_fetches().into_iter().zip([["a", "b"], ["b", "c"]]) {
            merge.add_page(fetch.id, names.map(Into::into).to_vec(), None).unwrap();
        }
        assert_eq!(merge.next_row(), Ok(NextRow::Row(parse_str(expect).unwrap())));
        assert_eq!(merge.next_row(), Ok(NextRow::Done));
    }
}

/// A plan with two component queries. The first has its scores in the payload, the second beside it.
const HYBRID_PLAN: &str = r#"{"hybridSearchQueryInfo":{"globalStatisticsQuery":"STATISTICS","componentQueryInfos":[
    {"orderBy":["Descending"],"rewrittenQuery":"A({documentdb-formattablehybridsearchquery-totaldocumentcount}, {documentdb-formattablehybridsearchquery-totalwordcount-0}, {documentdb-formattablehybridsearchquery-hitcountsarray-0}) WHERE ({documentdb-formattableorderbyquery-filter})"},
    {"orderBy":["Ascending"],"rewrittenQuery":"B"}],
    "componentWeights":[1,2],"skip":1,"take":2,"requiresGlobalStatistics":true}}"#;

#[test]
fn the_ranks_of_component_queries_are_fused() {
    let json = |text: &str| parse_str(text).unwrap();
    let search = HybridSearch::from_json(&json(HYBRID_PLAN)).unwrap().expect("a hybrid plan");
    assert_eq!(search.statistics_query(), Some("STATISTICS"));
    let statistics = [
        json(r#"{"documentCount":3,"fullTextStatistics":[{"totalWordCount":20,"hitCounts":[1,2]}]}"#),
        json(r#"{"documentCount":1,"fullTextStatistics":[{"totalWordCount":5,"hitCounts":[0,1]}]}"#),
    ];
    let queries = search.component_queries(&statistics).unwrap();
    assert_eq!(queries, ["A(4, 25, [1,3]) WHERE (true)", "B"]);
    // The ranks by the first score are a, b, c, d. The ranks by the second score, which has twice
    // the weight, are c, then b and d, then a. So the fused order is c, b, a, d. The plan skips c
    // and takes two rows.
    let rows = [
        r#"{"_rid":"a","orderByItems":[{"item":9}],"payload":{"payload":"A","componentScores":[9,7]}}"#,
        r#"{"_rid":"b","orderByItems":[{"item":5}],"payload":{"payload":"B","componentScores":[5,3]}}"#,
        r#"{"_rid":"b","payload":"B","componentScores":[5,3]}"#,
        r#"{"_rid":"c","payload":"C","componentScores":[2,1]}"#,
        r#"{"_rid":"d","payload":"D","componentScores":[1,3]}"#,
    ];
    let fused = search.fuse(rows.map(json).to_vec()).unwrap();
    assert_eq!(fused, [json(r#""B""#), json(r#""A""#)]);
    assert!(HybridSearch::from_json(&json("{}")).unwrap().is_none());
    let error = search.fuse(vec![json("1")]).unwrap_err();
    assert_eq!(error, MergeError::UnexpectedRow("a row of a component query lacks its _rid or its scores"));
    assert!(search.component_queries(&[json("{}")]).is_err());
}
