//! The size of continuation tokens, and tokens that no merge has made.

use perihelion_model::json::{DEPTH_MAX, Value, parse_envelope, parse_str};
use perihelion_query::merge::{KeyRange, Merge, MergeError, MergePlan, MergeToken, NextRow, Settings};

const QUERY: &str = "SELECT * FROM c ORDER BY c.n";
const PLAN: &str = r#"{"queryInfo":{"orderBy":["Ascending"]}}"#;

/// The longest token.
const TOKEN_BYTES_MAX: usize = 256 * 1024;

fn ranges() -> [KeyRange; 3] {
    [KeyRange::new("0", "", "40"), KeyRange::new("1", "40", "80"), KeyRange::new("2", "80", "FF")]
}

fn row(rid: &str, key: &str) -> Value {
    parse_str(&format!(r#"{{"_rid":"{rid}","orderByItems":[{{"item":"{key}"}}],"payload":"{key}"}}"#))
        .unwrap()
}

/// A merge with one page of each range. Each page has a row with a key of its own, and two rows
/// with a key that all ranges share.
fn merge_of(plan: &str, key: &str) -> Merge {
    let plan = MergePlan::parse(plan).unwrap();
    let mut merge = Merge::new(plan, QUERY, &ranges(), Settings::default()).unwrap();
    add_pages(&mut merge, key);
    merge
}

fn add_pages(merge: &mut Merge, key: &str) {
    for fetch in merge.next_fetches() {
        let id = &fetch.range_id;
        let rows = vec![
            row(&format!("first{id}"), &format!("a{id}")),
            row(&format!("second{id}"), &format!("b{key}")),
            row(&format!("third{id}"), &format!("b{key}")),
        ];
        merge.add_page(fetch.id, rows, Some(format!("more{id}"))).unwrap();
    }
}

/// Takes rows, which are texts. Returns the first two characters of each.
fn take(merge: &mut Merge, count: usize) -> Vec<String> {
    (0..count)
        .map(|_| match merge.next_row().unwrap() {
            NextRow::Row(Value::String(text)) => text[..2.min(text.len())].to_owned(),
            other => panic!("{other:?}"),
        })
        .collect()
}

fn resume(plan: &str, token: &str) -> Result<Merge, MergeError> {
    Merge::resume(MergePlan::parse(plan).unwrap(), QUERY, &ranges(), Settings::default(), token)
}

/// Story of a bug: the levels of the token around a sort key counted as levels of the key, and the token
/// of a merge was refused.
#[test]
fn a_token_with_a_deeply_nested_sort_key_is_accepted() {
    let key = format!("{}{}", "[".repeat(DEPTH_MAX), "]".repeat(DEPTH_MAX));
    let row = format!(r#"{{"_rid":"r","orderByItems":[{{"item":{key}}}],"payload":"p"}}"#);
    let row = parse_envelope(row.as_bytes(), 3).unwrap();
    let mut merge =
        Merge::new(MergePlan::parse(PLAN).unwrap(), QUERY, &ranges(), Settings::default()).unwrap();
    for fetch in merge.next_fetches() {
        merge.add_page(fetch.id, vec![row.clone(), row.clone()], None).unwrap();
    }
    assert_eq!(take(&mut merge, 1), ["p"]);
    let MergeToken::Resume(token) = merge.token() else { panic!("{merge:?}") };
    assert!(resume(PLAN, &token).is_ok());
}

#[test]
fn a_token_has_the_sort_keys_of_the_last_row_once() {
    let key = "x".repeat(10_000);
    for taken in 1..5 {
        let mut merge = merge_of(PLAN, &key);
        take(&mut merge, taken);
        let MergeToken::Resume(token) = merge.token() else { panic!("{:?}", merge.token()) };
        assert!(token.len() < 11_000, "{taken}: {} bytes", token.len());
        let mut resumed = resume(PLAN, &token).unwrap();
        add_pages(&mut resumed, &key);
        let mut all = merge_of(PLAN, &key);
        // After five rows the first range needs its next page.
        let expected = take(&mut all, 5).split_off(taken);
        assert_eq!(take(&mut resumed, 5 - taken), expected, "{taken}");
        assert_eq!(resumed.next_row(), Ok(NextRow::Pending));
    }
}

#[test]
fn a_token_that_would_be_too_long_is_reported_with_its_length() {
    let mut merge = merge_of(PLAN, &"x".repeat(TOKEN_BYTES_MAX));
    take(&mut merge, 3);
    assert!(matches!(merge.token(), MergeToken::Resume(_)), "the last row has a short key");
    take(&mut merge, 1);
    let MergeToken::TooLong { bytes } = merge.token() else { panic!("{:?}", merge.token()) };
    assert!(bytes > TOKEN_BYTES_MAX && bytes < 2 * TOKEN_BYTES_MAX, "{bytes}");
}

#[test]
fn a_long_value_of_distinct_is_remembered_by_its_hash() {
    const DISTINCT: &str = r#"{"queryInfo":{"distinctType":"Ordered","orderBy":["Ascending"]}}"#;
    let plan = || MergePlan::parse(DISTINCT).unwrap();
    let range = [KeyRange::new("0", "", "FF")];
    let long = "x".repeat(TOKEN_BYTES_MAX);
    let mut merge = Merge::new(plan(), QUERY, &range, Settings::default()).unwrap();
    for fetch in merge.next_fetches() {
        merge.add_page(fetch.id, vec![row("A", &long)], Some("more".to_owned())).unwrap();
    }
    take(&mut merge, 1);
    // Between two pages there is no sort key in the token.
    let MergeToken::Resume(token) = merge.token() else { panic!("{:?}", merge.token()) };
    assert!(token.len() < 300, "{token}");
    let mut resumed = Merge::resume(plan(), QUERY, &range, Settings::default(), &token).unwrap();
    for fetch in resumed.next_fetches() {
        assert_eq!(fetch.continuation.as_deref(), Some("more"));
        add_last_page(&mut resumed, &fetch, vec![row("B", &long), row("C", "y")]);
    }
    assert_eq!(take(&mut resumed, 1), ["y"], "the long value is not repeated");
    assert_eq!(resumed.next_row(), Ok(NextRow::Done));
}

fn add_last_page(merge: &mut Merge, fetch: &perihelion_query::merge::Fetch, rows: Vec<Value>) {
    merge.add_page(fetch.id, rows, None).unwrap();
}

/// Earlier releases wrote sort keys for each range of a token, and not once for the whole token.
#[test]
fn a_token_with_sort_keys_for_each_range_is_still_read() {
    let mut merge = merge_of(PLAN, "z");
    take(&mut merge, 4);
    let MergeToken::Resume(token) = merge.token() else { panic!("{:?}", merge.token()) };
    let earlier =
        token.replace(r#""keys":[["bz"]],"#, "").replace(r#""taken""#, r#""keys":[["bz"]],"taken""#);
    assert_ne!(earlier, token);
    let mut resumed = resume(PLAN, &earlier).unwrap();
    add_pages(&mut resumed, "z");
    assert_eq!(take(&mut resumed, 1), ["bz"]);
    assert_eq!(resumed.next_row(), Ok(NextRow::Pending), "the first range needs its next page");
    // A token without any sort keys is refused.
    let without = token.replace(r#""keys":[["bz"]],"#, "");
    assert!(matches!(resume(PLAN, &without), Err(MergeError::InvalidToken(_))));
}

#[test]
fn foreign_and_hostile_tokens_are_refused() {
    const TOP: &str = r#"{"queryInfo":{"orderBy":["Ascending"],"top":5,"offset":1}}"#;
    let mut merge = merge_of(TOP, "z");
    take(&mut merge, 2);
    let MergeToken::Resume(token) = merge.token() else { panic!("{:?}", merge.token()) };
    assert!(resume(TOP, &token).is_ok());
    let long = format!("{token}{}", " ".repeat(TOKEN_BYTES_MAX));
    for (hostile, reason) in [
        (token.replace(r#""take":3"#, r#""take":6"#), "it does not fit the query"),
        (token.replace(r#""take":3"#, r#""take":null"#), "it does not fit the query"),
        (token.replace(r#""skip":0"#, r#""skip":2"#), "it does not fit the query"),
        (token.replace(r#""skip":0"#, r#""skip":-1"#), "a part is missing or has the wrong form"),
        (token.replace(r#""skip":0"#, r#""skip":0,"last":1"#), "it does not fit the query"),
        (
            token.replace(r#""skip":0"#, r#""skip":0,"lastHash":"g""#),
            "a part is missing or has the wrong form",
        ),
        (token.replace(r#""keys":[["#, r#""keys":[["a"],["#), "it does not fit the query"),
        (token.replace(r#""min":"""#, r#""min":"zz""#), "a part is missing or has the wrong form"),
        (token.replace(r#""max":"FF""#, r#""max":"FFFF""#), "it belongs to a query over other keys"),
        (token.replace(r#""max":"40""#, r#""max":"90""#), "a part is missing or has the wrong form"),
        (long, "it is longer than any token"),
        ("[".repeat(10_000), "it is not valid JSON"),
        ("-RID:~abc#RT:1".to_owned(), "it is not valid JSON"),
        (r#"{"perihelion":7}"#.to_owned(), "another program or version wrote it"),
        ("null".to_owned(), "another program or version wrote it"),
    ] {
        assert_ne!(hostile, token, "{reason}");
        let error = resume(TOP, &hostile).map(|_| ()).unwrap_err();
        assert_eq!(error, MergeError::InvalidToken(reason), "{hostile:.300}");
    }
}

#[test]
fn a_token_of_another_scope_is_refused() {
    let mut merge = merge_of(PLAN, "z");
    take(&mut merge, 4);
    let MergeToken::Resume(token) = merge.token() else { panic!("{:?}", merge.token()) };
    let within = |scope| {
        let plan = MergePlan::parse(PLAN).unwrap();
        Merge::resume_within(plan, QUERY, scope, &ranges(), Settings::default(), &token).map(|_| ())
    };
    assert_eq!(within(("", "FF")), Ok(()));
    for scope in [("", "40"), ("40", "FF"), ("40", "80")] {
        let expected = MergeError::InvalidToken("it belongs to a query over other keys");
        assert_eq!(within(scope), Err(expected));
    }
}

/// Story of a bug: the token of a query over one range was accepted for the whole container, and the
/// result had only the rows of that range.
#[test]
fn a_token_of_one_range_does_not_continue_a_query_over_all_ranges() {
    let within = |scope| {
        let plan = MergePlan::parse(PLAN).unwrap();
        Merge::within(plan, QUERY, scope, &ranges(), Settings::default()).unwrap()
    };
    let mut merge = within(("40", "80"));
    add_pages(&mut merge, "z");
    take(&mut merge, 1);
    let MergeToken::Resume(token) = merge.token() else { panic!("{:?}", merge.token()) };
    let resume_within = |scope| {
        let plan = MergePlan::parse(PLAN).unwrap();
        Merge::resume_within(plan, QUERY, scope, &ranges(), Settings::default(), &token).map(|_| ())
    };
    assert_eq!(resume_within(("40", "80")), Ok(()));
    for scope in [("", "FF"), ("", "80"), ("40", "FF")] {
        assert_eq!(
            resume_within(scope),
            Err(MergeError::InvalidToken("it belongs to a query over other keys"))
        );
    }
}

/// Adds the only page of a merge over one range. For each number n in `arrays`, in this order, the
/// page has a row whose sort key and output are the array `[n]`.
fn merge_of_arrays(merge: Result<Merge, MergeError>, arrays: &[i64]) -> Merge {
    let mut merge = merge.unwrap();
    for fetch in merge.next_fetches() {
        let rows = arrays.iter().enumerate().map(|(rid, n)| {
            let text = format!(r#"{{"_rid":"{rid}","orderByItems":[{{"item":[{n}]}}],"payload":[{n}]}}"#);
            parse_str(&text).unwrap()
        });
        merge.add_page(fetch.id, rows.collect(), None).unwrap();
    }
    merge
}

/// The rows that are left, at most `count`.
fn take_arrays(merge: &mut Merge, count: usize) -> Vec<i64> {
    let mut taken = Vec::new();
    while taken.len() < count {
        match merge.next_row().unwrap() {
            NextRow::Row(Value::Array(items)) => taken.extend(items[0].as_i64()),
            NextRow::Done => break,
            other => panic!("{other:?}"),
        }
    }
    taken
}

/// Story of a bug: a partition does not sort arrays by their contents, but a resumed merge compared
/// the contents. So rows came again, and others were lost.
#[test]
fn a_merge_sorted_by_arrays_is_resumed_after_its_last_row() {
    let plan = || MergePlan::parse(PLAN).unwrap();
    let range = [KeyRange::new("0", "", "FF")];
    let arrays = [3, 1, 2, 1];
    for taken in 1..arrays.len() {
        let started = Merge::new(plan(), QUERY, &range, Settings::default());
        let mut merge = merge_of_arrays(started, &arrays);
        assert_eq!(take_arrays(&mut merge, taken), arrays[..taken]);
        let MergeToken::Resume(token) = merge.token() else { panic!("{:?}", merge.token()) };
        let resumed = Merge::resume(plan(), QUERY, &range, Settings::default(), &token);
        let mut merge = merge_of_arrays(resumed, &arrays);
        assert_eq!(take_arrays(&mut merge, 10), arrays[taken..], "after {taken} rows");
    }
}

/// Story of a bug: equal arrays are not neighbours among the sorted rows, and each of them was returned.
#[test]
fn a_sorted_distinct_returns_each_array_once() {
    let plan =
        MergePlan::parse(r#"{"queryInfo":{"orderBy":["Ascending"],"distinctType":"Ordered"}}"#).unwrap();
    let range = [KeyRange::new("0", "", "FF")];
    let started = Merge::new(plan, QUERY, &range, Settings::default());
    let mut merge = merge_of_arrays(started, &[3, 1, 3, 2, 1]);
    assert_eq!(take_arrays(&mut merge, 2), [3, 1]);
    // The token would need all arrays.
    assert_eq!(merge.token(), MergeToken::Unavailable);
    assert_eq!(take_arrays(&mut merge, 10), [2]);
}

/// Story of a bug: a container was deleted and created again, and the token of a query of the old
/// container was accepted. Rows before its position were missing in the result.
#[test]
fn a_token_of_another_container_is_refused() {
    let started = || {
        let plan = MergePlan::parse(PLAN).unwrap();
        Merge::new(plan, QUERY, &ranges(), Settings::default()).unwrap()
    };
    let mut merge = started().in_container("abc=").unwrap();
    add_pages(&mut merge, "");
    take(&mut merge, 2);
    let MergeToken::Resume(token) = merge.token() else { panic!() };
    let resumed =
        |container| resume(PLAN, &token).unwrap().in_container(container).map(|merge| merge.token());
    assert_eq!(resumed("abc=").unwrap(), MergeToken::Resume(token.clone()));
    assert_eq!(resumed("abd="), Err(MergeError::TokenOfAnotherContainer));
    // Earlier releases did not name the container.
    let earlier = token.replace(r#""container":"abc=","#, "");
    assert_ne!(earlier, token);
    assert!(resume(PLAN, &earlier).unwrap().in_container("abd=").is_ok());
    let malformed = token.replace(r#""container":"abc=","#, r#""container":7,"#);
    assert!(matches!(resume(PLAN, &malformed), Err(MergeError::InvalidToken(_))));
}
