//! The parser of answers, with answers of each kind of service, and with hostile ones.

use super::*;

fn parsed(text: &str, operations: usize) -> Option<Content> {
    parse(&Bytes::copy_from_slice(text.as_bytes()), operations)
}

/// The codes of the results; `None` if the answer does not have exactly one result for each
/// operation.
fn codes(text: &str, operations: usize) -> Option<Vec<u16>> {
    let results = parsed(text, operations)?.results?;
    Some(results.iter().map(|result| result.status.code).collect())
}

#[test]
fn results_are_put_in_the_order_of_the_operations() {
    let text = r#"{"operationResponses":[{"index":2,"statusCode":204},{"index":0,"statusCode":201},{"index":1,"statusCode":200}]}"#;
    assert_eq!(codes(text, 3), Some(vec![201, 200, 204]));
}

#[test]
fn a_result_has_its_members_in_any_letter_case() {
    for etag in ["eTag", "etag", "Etag", "ETag", "ETAG"] {
        let text = format!(
            r#"{{"isretriable":false,"OperationResponses":[{{"index":0,"StatusCode":200,"subStatusCode":5,"{etag}":"\"7\"",
            "sessionToken":"0:-1#5","partitionKeyRangeId":"0","requestCharge":1.5,"localLsn":9,"isRetriable":false,
            "resourceBody":{{"id":"1"}}}}]}}"#
        );
        let content = parsed(&text, 1).unwrap();
        let [result] = content.results.as_deref().unwrap() else { panic!("{content:?}") };
        let expected = OperationResult {
            status: Status::new(200, 5),
            etag: Some("\"7\"".to_owned()),
            session_token: Some("0:-1#5".to_owned()),
            range: Some("0".to_owned()),
            charge: 1.5,
            body: Bytes::from_static(br#"{"id":"1"}"#),
        };
        assert_eq!(*result, expected);
    }
}

#[test]
fn an_answer_without_exactly_one_result_for_each_operation_has_no_results() {
    for (text, operations) in [
        (r#"{"operationResponses":[]}"#, 1),
        (r#"{"operationResponses":[{"index":0,"statusCode":200}]}"#, 2),
        (r#"{"operationResponses":[{"index":0,"statusCode":200},{"index":1,"statusCode":200}]}"#, 1),
        (r#"{"operationResponses":[{"index":0,"statusCode":200},{"index":0,"statusCode":200}]}"#, 2),
        (r#"{"operationResponses":[{"index":0,"statusCode":200},{"index":2,"statusCode":200}]}"#, 2),
        (r#"{"operationResponses":[{"index":-1,"statusCode":200}]}"#, 1),
        (r#"{"operationResponses":[{"index":18446744073709551616,"statusCode":200}]}"#, 1),
        (r#"{"operationResponses":[{"statusCode":200}]}"#, 1),
        (r#"{"operationResponses":[{"index":0}]}"#, 1),
        (r#"{"operationResponses":[{"index":0,"statusCode":"200"}]}"#, 1),
        (r#"{"operationResponses":[{"index":0,"statusCode":20}]}"#, 1),
        (r#"{"operationResponses":[{"index":0,"statusCode":70000}]}"#, 1),
        (r#"{"operationResponses":[7]}"#, 1),
        (r#"{"operationResponses":{"index":0,"statusCode":200}}"#, 1),
        (r#"{"operationResponses":null}"#, 1),
        (r#"{"isRetriable":false}"#, 1),
    ] {
        let content = parsed(text, operations).unwrap_or_else(|| panic!("{text}"));
        assert_eq!(content.results, None, "{text}");
    }
}

#[test]
fn a_body_of_another_program_is_not_an_answer() {
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    for text in [
        "",
        " ",
        "null",
        "7",
        "[]",
        "{}",
        "<html>busy</html>",
        r#"{"code":"503","message":"busy"}"#,
        r#"{"operationResponses":[{"index":0,"statusCode":200}]"#,
        r#"{"operationResponses":[]} trailing"#,
        deep.as_str(),
    ] {
        assert_eq!(parsed(text, 1), None, "{}", text.chars().take(80).collect::<String>());
    }
    assert_eq!(parse(&Bytes::from_static(b"{\"isRetriable\":\xFF}"), 1), None);
}

#[test]
fn bad_optional_members_do_not_hide_the_outcome() {
    let text = r#"{"isRetriable":"perhaps","responseMode":7,"diagnosticString":{},"operationResponses":[
        {"index":0,"statusCode":201,"subStatusCode":"x","eTag":5,"sessionToken":[],"partitionKeyRangeId":{},
         "requestCharge":"much","resourceBody":null},
        {"index":1,"statusCode":204,"subStatusCode":null,"requestCharge":-1}]}"#;
    let content = parsed(text, 2).unwrap();
    let results = content.results.unwrap();
    assert_eq!(results[0], OperationResult::of_status(Status::new(201, 0)));
    assert_eq!(results[1], OperationResult::of_status(Status::new(204, 0)));
    assert_eq!(
        (content.is_retriable, content.mode, content.diagnostic),
        (false, ResponseMode::Standard, None)
    );
}

#[test]
fn deep_and_long_documents_stay_unparsed() {
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let text = format!(
        r#"{{"operationResponses":[{{"index":0,"statusCode":200,"resourceBody":{deep},"x":{deep}}}]}}"#
    );
    let results = parsed(&text, 1).unwrap().results.unwrap();
    assert_eq!(results[0].body.len(), deep.len());
}

#[test]
fn more_results_than_operations_are_not_collected() {
    let result = r#"{"index":0,"statusCode":200}"#;
    let text = format!(r#"{{"operationResponses":[{}]}}"#, vec![result; 200_000].join(","));
    assert_eq!(parsed(&text, 2).unwrap().results, None);
}

#[test]
fn a_session_token_without_a_range_gets_the_range_of_its_result() {
    for (token, range, expected) in [
        (r#""-1#5""#, r#""3""#, Some("3:-1#5")),
        (r#""-1#5""#, "3", Some("3:-1#5")),
        (r#""2:-1#5""#, r#""3""#, Some("2:-1#5")),
        (r#""-1#5""#, "null", Some("-1#5")),
        ("null", r#""3""#, None),
    ] {
        let text = format!(
            r#"{{"operationResponses":[{{"index":0,"statusCode":200,"sessionToken":{token},"partitionKeyRangeId":{range}}}]}}"#
        );
        let results = parsed(&text, 1).unwrap().results.unwrap();
        assert_eq!(results[0].session_token.as_deref(), expected, "{text}");
    }
}

#[test]
fn the_mode_and_the_diagnostic_text_are_read() {
    let long = "x".repeat(5000);
    let text = format!(r#"{{"isRetriable":true,"responseMode":"FastResponse","diagnosticString":"{long}"}}"#);
    let content = parsed(&text, 1).unwrap();
    assert_eq!((content.is_retriable, content.mode), (true, ResponseMode::Fast));
    assert_eq!(content.diagnostic.map(|text| text.len()), Some(DIAGNOSTIC_CHARACTERS_MAX));
    for mode in ["Standard", "Later"] {
        let text = format!(r#"{{"isRetriable":true,"responseMode":"{mode}"}}"#);
        assert_eq!(parsed(&text, 1).unwrap().mode, ResponseMode::Standard);
    }
}

/// 424 and 453 are the statuses of operations that did not fail by themselves. Other statuses from 400
/// on, except 452, are failures of the operation itself.
#[test]
fn a_multi_status_becomes_the_status_of_the_first_operation_that_failed_by_itself() {
    // The status of the answer, the statuses of the results, and the status of the transaction.
    for (status, results, expected) in [
        (207, vec![424, 404, 412], 404),
        (207, vec![453, 424, 409], 409),
        (207, vec![200, 304], 207),
        (207, vec![200, 424], 424),
        (200, vec![200, 409], 200),
        (404, vec![404, 424], 404),
    ] {
        let list: Vec<OperationResult> =
            results.iter().map(|code| OperationResult::of_status(Status::new(*code, 0))).collect();
        assert_eq!(promoted_status(Status::new(status, 0), &list).code, expected, "{status} {results:?}");
    }
}
