//! Tests of the transaction's wire form: both forms of the request, bad requests, the answer.

use bytes::Bytes;
use perihelion_model::json::{Value, parse_str};

use super::*;
use crate::status::{self, Status};

fn parse(header: Option<&str>, body: &str) -> Result<TransactionRequest, BadTransaction> {
    TransactionRequest::parse(header, body.as_bytes(), TransactionLimits::default())
}

/// A request with one operation that has these members.
fn one(members: &str) -> String {
    format!(
        r#"{{"operations":[{{"databaseName":"d","collectionName":"c","partitionKey":["a"],"id":"1",{members}}}]}}"#
    )
}

#[test]
fn the_shipped_form_and_the_form_of_the_design_document_are_the_same_transaction() {
    let shipped = r#"{"operations":[{"databaseName":"d","collectionName":"c","collectionResourceId":"CR","databaseResourceId":"DR",
        "id":"1","partitionKey":["a"],"index":0,"operationType":"Replace","resourceType":"Document",
        "resourceBody":{"id":"1"},"ifMatch":"e","sessionToken":"0:-1#5"}]}"#;
    let shipped = parse(Some(WRITE_OPERATION_TYPE), shipped).unwrap();
    let designed = r#"{"operationType":"Write","operations":[{"operationType":"Replace","databaseRid":"DR","containerRid":"CR",
        "partitionKey":"[\"a\"]","id":"1","resourceBody":{"id":"1"},"ifMatchEtag":"e","sessionToken":"0:-1#5"}]}"#;
    let mut designed = parse(None, designed).unwrap();
    assert_eq!(designed.operations[0].container.database_name, None);
    designed.operations[0].container.database_name = Some("d".to_owned());
    designed.operations[0].container.container_name = Some("c".to_owned());
    assert_eq!(shipped, designed);
    assert_eq!(shipped.kind, TransactionKind::Write);
}

/// Story of a bug: the arrays and objects around a document counted as its levels, so a document that
/// could be created alone was refused in a transaction. A document alone may have 128 levels.
#[test]
fn a_document_may_be_nested_as_deep_in_a_transaction_as_alone() {
    let create = |levels: usize| {
        let nested = format!("{}{}", "[".repeat(levels - 1), "]".repeat(levels - 1));
        one(&format!(r#""operationType":"Create","resourceBody":{{"id":"1","nested":{nested}}}"#))
    };
    assert!(parse(None, &create(128)).is_ok());
    assert_eq!(parse(None, &create(129)).unwrap_err().status.code, 400);
}

#[test]
fn the_kind_comes_from_the_header_else_from_the_body_else_from_the_operations() {
    let (read, write) = (r#""operationType":"Read""#, r#""operationType":"Delete""#);
    let with_body = |kind: &str, operation: &str| {
        one(operation).replacen('{', &format!(r#"{{"operationType":"{kind}","#), 1)
    };
    for (header, body, expected) in [
        (None, one(read), Ok(TransactionKind::Read)),
        (None, one(write), Ok(TransactionKind::Write)),
        (None, with_body("Read", read), Ok(TransactionKind::Read)),
        (None, with_body("Write", write), Ok(TransactionKind::Write)),
        (Some(READ_OPERATION_TYPE), with_body("Write", read), Ok(TransactionKind::Read)),
        (Some(WRITE_OPERATION_TYPE), with_body("Read", write), Ok(TransactionKind::Write)),
        (Some(WRITE_OPERATION_TYPE), one(read), Err(status::TRANSACTION_INVALID_OPERATION)),
        (None, with_body("Write", read), Err(status::TRANSACTION_INVALID_OPERATION)),
        (Some("Batch"), one(read), Err(status::TRANSACTION_INVALID_OPERATION)),
        (None, with_body("Abort", write), Err(status::TRANSACTION_INVALID_OPERATION)),
    ] {
        let found = parse(header, &body).map(|request| request.kind).map_err(|bad| bad.status);
        assert_eq!(found, expected, "{header:?} {body}");
    }
}

#[test]
fn bad_requests_have_the_sub_status_of_their_mistake() {
    use status::{TRANSACTION_INVALID_OPERATION as INVALID, TRANSACTION_NOT_PARSED as NOT_PARSED};
    let deep = format!("{}{}", "[".repeat(5000), "]".repeat(5000));
    for (body, expected) in [
        ("".to_owned(), NOT_PARSED),
        ("[]".to_owned(), NOT_PARSED),
        ("{".to_owned(), NOT_PARSED),
        (deep, NOT_PARSED),
        (r#"{"operations":{}}"#.to_owned(), NOT_PARSED),
        (r#"{"operations":[]}"#.to_owned(), NOT_PARSED),
        (r#"{"operations":[1]}"#.to_owned(), NOT_PARSED),
        (one(r#""x":1"#), NOT_PARSED),
        (one(r#""operationType":7"#), NOT_PARSED),
        (one(r#""operationType":"Execute""#), INVALID),
        (one(r#""operationType":"Create""#), NOT_PARSED),
        (one(r#""operationType":"Create","resourceBody":[]"#), NOT_PARSED),
        (one(r#""operationType":"Create","resourceBody":{"id":"2"}"#), INVALID),
        (one(r#""operationType":"Delete","resourceBody":{}"#), INVALID),
        (one(r#""operationType":"Delete","index":3"#), INVALID),
        (one(r#""operationType":"Delete","resourceType":"StoredProcedure""#), INVALID),
        (one(r#""operationType":"Delete","preTriggers":["t"]"#), INVALID),
        (one(r#""operationType":"Delete","ifMatch":1"#), NOT_PARSED),
        (one(r#""operationType":"Delete","ifMatch":"a","ifMatchEtag":"b""#), INVALID),
        (one(r#""operationType":"Delete""#).replace(r#"["a"]"#, "[]"), NOT_PARSED),
        (one(r#""operationType":"Delete""#).replace(r#"["a"]"#, r#""a""#), NOT_PARSED),
        (one(r#""operationType":"Delete""#).replace(r#""databaseName":"d","#, ""), NOT_PARSED),
        (one(r#""operationType":"Delete""#).replace(r#""id":"1","#, ""), NOT_PARSED),
        (one(r#""operationType":"Delete""#).replace(r#""1""#, &format!("\"{}\"", "x".repeat(1024))), INVALID),
    ] {
        let bad = parse(None, &body).unwrap_err();
        assert_eq!(bad.status, expected, "{}: {bad}", body.chars().take(200).collect::<String>());
        assert!(bad.reason.ends_with('.'), "{bad}");
    }
}

#[test]
fn a_transaction_beyond_a_limit_is_refused_and_one_at_the_limit_is_not() {
    let delete =
        r#"{"databaseName":"d","collectionName":"c","partitionKey":["a"],"id":"1","operationType":"Delete"}"#;
    let body = |count: usize| format!(r#"{{"operations":[{}]}}"#, vec![delete; count].join(","));
    assert_eq!(parse(None, &body(OPERATIONS_MAX)).unwrap().operations.len(), OPERATIONS_MAX);
    let refused = parse(None, &body(OPERATIONS_MAX + 1)).unwrap_err();
    assert_eq!(refused.status, status::TRANSACTION_TOO_MANY_OPERATIONS);
    let exact = body(2);
    let limits = |bytes| TransactionLimits { body_bytes_max: bytes, ..TransactionLimits::default() };
    assert!(TransactionRequest::parse(None, exact.as_bytes(), limits(exact.len())).is_ok());
    let refused = TransactionRequest::parse(None, exact.as_bytes(), limits(exact.len() - 1)).unwrap_err();
    assert_eq!(refused.status, status::TOO_LARGE);
}

#[test]
fn tokens_are_uuids_in_any_case_with_or_without_hyphens() {
    let token = IdempotencyToken::parse("0123ABCD-4567-89ab-cdef-0123456789AB").unwrap();
    assert_eq!(token.to_string(), "0123abcd-4567-89ab-cdef-0123456789ab");
    assert_eq!(IdempotencyToken::parse("0123abcd456789abcdef0123456789ab"), Some(token));
    assert_eq!(IdempotencyToken::from_bytes(token.to_bytes()), token);
    for text in
        ["", "0123abcd", "0123abcd-4567-89ab-cdef-0123456789ag", "0123abcd4567-89ab-cdef-0123456789ab-"]
    {
        assert_eq!(IdempotencyToken::parse(text), None, "{text}");
    }
}

#[test]
fn the_status_of_a_read_transaction_follows_from_its_reads() {
    let (ok, same, missing) = (status::OK, status::NOT_MODIFIED, status::NOT_FOUND);
    let bad = Status::new(400, 0);
    for (statuses, expected) in [
        (vec![ok, ok], status::OK),
        (vec![ok, same], status::MULTI_STATUS),
        (vec![same, same], status::TRANSACTION_ALL_UNCHANGED),
        (vec![ok, missing], missing),
        (vec![missing, same, missing], missing),
        (vec![missing, bad, ok], status::MULTI_STATUS),
        (vec![status::READ_SESSION_NOT_AVAILABLE, ok], status::READ_SESSION_NOT_AVAILABLE),
        // The sub-statuses differ, so the whole answer has none. With 404/1002 a client would send
        // the request again although an item is missing.
        (vec![status::READ_SESSION_NOT_AVAILABLE, missing], missing),
        (vec![missing, status::READ_SESSION_NOT_AVAILABLE], missing),
        (vec![status::OWNER_RESOURCE_NOT_FOUND, status::READ_SESSION_NOT_AVAILABLE], missing),
    ] {
        assert_eq!(status_of_read_transaction(&statuses), expected, "{statuses:?}");
    }
}

#[test]
fn a_long_diagnostic_is_cut() {
    let long = "ä".repeat(1_000_000);
    let body = print_answer(&[], AnswerMembers { diagnostic: Some(&long), ..AnswerMembers::default() });
    let printed = parse_str(&body).unwrap();
    let diagnostic = printed.get("diagnosticString").and_then(Value::as_str).unwrap();
    assert_eq!(diagnostic, "ä".repeat(DIAGNOSTIC_CHARACTERS_MAX));
}

#[test]
fn an_answer_lists_every_result_by_its_index() {
    let results = [
        OperationResult {
            status: status::OK,
            etag: Some("\"e\"".to_owned()),
            session_token: Some("0:-1#5".to_owned()),
            partition_key_range_id: Some(0),
            local_lsn: Some(5),
            request_charge: 6.666,
            body: Some(Bytes::from_static(br#"{"id":"1"}"#)),
        },
        OperationResult::failed(status::OPERATION_ROLLED_BACK, 1.0),
    ];
    assert_eq!(
        print_answer(&results, AnswerMembers { diagnostic: Some("a \"reason\""), is_retriable: false }),
        concat!(
            r#"{"isRetriable":false,"responseMode":"Standard","diagnosticString":"a \"reason\"","operationResponses":["#,
            r#"{"index":0,"statusCode":200,"subStatusCode":0,"eTag":"\"e\"","sessionToken":"0:-1#5","partitionKeyRangeId":"0","localLsn":5,"requestCharge":6.67,"isRetriable":false,"resourceBody":{"id":"1"}},"#,
            r#"{"index":1,"statusCode":453,"subStatusCode":5415,"requestCharge":1,"isRetriable":false}]}"#
        )
    );
}

#[test]
fn an_answer_has_its_response_mode_and_says_whether_the_transaction_may_be_repeated() {
    let results = [OperationResult::failed(status::RETRY_WITH, 0.0)];
    let printed = print_answer(&results, AnswerMembers { is_retriable: true, diagnostic: None });
    assert!(printed.starts_with(r#"{"isRetriable":true,"responseMode":"Standard","operationResponses":["#));
    let fast = in_fast_mode(&Bytes::from(printed.clone()));
    assert_eq!(fast, printed.replace(STANDARD_RESPONSE_MODE, FAST_RESPONSE_MODE).as_bytes());
    assert_eq!(in_fast_mode(&Bytes::new()), Bytes::new());
}
