//! The request body of a batch, its limits, and its responses.

use http::HeaderMap;
use perihelion_driver::diagnostics::Diagnostics;
use perihelion_driver::{Response, Status};
use serde_json::json;

use super::execute::read_response;
use super::*;

fn request_body(batch: &Batch) -> String {
    String::from_utf8(batch.body.clone()).unwrap() + "]"
}

fn etag() -> Etag {
    Etag::parse("\"1\"").unwrap()
}

fn response(code: u16, sub: u32, body: &'static str) -> Response {
    Response {
        status: Status::new(code, sub),
        headers: HeaderMap::new(),
        body: body.into(),
        diagnostics: Diagnostics::default(),
    }
}

#[test]
fn the_request_body_has_the_form_that_the_service_expects() {
    let mut batch = Batch::new("k");
    batch
        .create(&json!({"id": "a"}))
        .and_then(|batch| batch.replace_if_match("b", &json!({"id": "b"}), &etag()))
        .and_then(|batch| batch.read("c"))
        .and_then(|batch| batch.delete("d"))
        .and_then(|batch| batch.patch("e", &Patch::new().set("/n", 1)?))
        .and_then(|batch| batch.upsert(&json!({"id": "f"})))
        .unwrap();
    assert_eq!(
        request_body(&batch),
        concat!(
            r#"[{"operationType":"Create","resourceBody":{"id":"a"}},"#,
            r#"{"operationType":"Replace","id":"b","ifMatch":"\"1\"","resourceBody":{"id":"b"}},"#,
            r#"{"operationType":"Read","id":"c"},{"operationType":"Delete","id":"d"},"#,
            r#"{"operationType":"Patch","id":"e","resourceBody":{"operations":[{"op":"set","path":"/n","value":1}]}},"#,
            r#"{"operationType":"Upsert","resourceBody":{"id":"f"}}]"#
        )
    );
    assert_eq!((batch.len(), batch.bytes()), (6, request_body(&batch).len()));
}

#[test]
fn a_batch_cannot_hold_a_hundred_and_first_operation() {
    let mut batch = Batch::new("k");
    for n in 0..Batch::OPERATIONS_MAX {
        batch.read(&n.to_string()).unwrap();
    }
    let whole = request_body(&batch);
    assert!(batch.is_full());
    assert!(batch.read("one more").is_err());
    assert_eq!((batch.len(), request_body(&batch)), (100, whole));
}

#[test]
fn an_operation_that_does_not_fit_leaves_the_batch_as_it_was() {
    let mut batch = Batch::new("k");
    batch.create(&json!({"id": "a"})).unwrap();
    let before = request_body(&batch);
    let large = "x".repeat(Batch::BYTES_MAX);
    let error = batch.create(&json!({"id": "b", "text": large})).unwrap_err();
    assert!(error.message().contains("2097152"), "{error}");
    let unwritable: std::collections::HashMap<Vec<u8>, u8> = [(vec![1], 1)].into();
    assert!(batch.create(&unwritable).is_err());
    assert!(batch.delete("").is_err());
    assert!(batch.patch("a", &Patch::new()).is_err());
    assert_eq!((request_body(&batch), batch.len()), (before, 1));
    batch.read("a").unwrap();
    assert!(serde_json::from_str::<serde_json::Value>(&request_body(&batch)).is_ok());
}

#[test]
fn whether_a_batch_may_be_repeated_follows_from_its_operations() {
    let check = |add: &dyn Fn(&mut Batch), expected: Idempotency| {
        let mut batch = Batch::new("k");
        add(&mut batch);
        assert_eq!(batch.idempotency(), expected, "{}", request_body(&batch));
    };
    let document = json!({"id": "a"});
    check(&|batch| drop(batch.upsert(&document).and_then(|batch| batch.read("b"))), Idempotency::Idempotent);
    check(
        &|batch| drop(batch.upsert(&document).and_then(|batch| batch.delete("b"))),
        Idempotency::NotIdempotent,
    );
    check(
        &|batch| drop(batch.delete("b").and_then(|batch| batch.create(&document))),
        Idempotency::Conditional,
    );
    check(&|batch| drop(batch.delete_if_match("b", &etag())), Idempotency::Conditional);
    // A document that the batch both creates and deletes does not show whether the batch was
    // applied.
    check(
        &|batch| drop(batch.create(&document).and_then(|batch| batch.delete("a"))),
        Idempotency::NotIdempotent,
    );
    check(
        &|batch| drop(batch.delete("a").and_then(|batch| batch.create(&document))),
        Idempotency::NotIdempotent,
    );
    // The id `"c"` is escaped in the request body.
    let other = json!({"id": "\"c\""});
    check(
        &|batch| drop(batch.create(&document).unwrap().create(&other).unwrap().delete("a")),
        Idempotency::Conditional,
    );
    check(
        &|batch| drop(batch.create(&other).and_then(|batch| batch.delete("\"c\""))),
        Idempotency::NotIdempotent,
    );
    // An upsert ignores its etag if the document does not exist.
    check(&|batch| drop(batch.upsert_if_match(&document, &etag())), Idempotency::Conditional);
    check(
        &|batch| drop(batch.upsert_if_match(&document, &etag()).unwrap().delete("a")),
        Idempotency::NotIdempotent,
    );
    check(
        &|batch| drop(batch.delete("a").unwrap().upsert_if_match(&document, &etag())),
        Idempotency::NotIdempotent,
    );
    // Every version matches this etag.
    let any = Etag::parse("*").unwrap();
    let increment = Patch::new().increment("/n", 1).unwrap();
    check(&|batch| drop(batch.patch_if_match("b", &increment, &any)), Idempotency::NotIdempotent);
    check(&|batch| drop(batch.patch("b", &Patch::new().set("/n", 1).unwrap())), Idempotency::Idempotent);
    check(
        &|batch| drop(batch.patch("b", &Patch::new().increment("/n", 1).unwrap())),
        Idempotency::NotIdempotent,
    );
}

#[test]
fn the_error_names_the_operation_that_caused_the_refusal() {
    let mut batch = Batch::new("k");
    batch.read("a").and_then(|batch| batch.delete("b")).and_then(|batch| batch.read("c")).unwrap();
    let refused = response(
        207,
        0,
        r#"[{"statusCode":424,"requestCharge":1},{"statusCode":412,"requestCharge":1.24},{"statusCode":424,"requestCharge":0}]"#,
    );
    let error = read_response(&batch.operations, refused).unwrap_err();
    assert_eq!(error.operation_index(), Some(1));
    assert!(error.is_precondition_failed());
    assert!(error.to_string().contains("delete `b`"), "{error}");
}

#[test]
fn the_refused_operation_gets_the_sub_status_of_the_response() {
    let mut batch = Batch::new("k");
    batch.create(&json!({"id": "a", "pk": "other"})).unwrap();
    let refused = response(207, 1001, r#"[{"statusCode":400,"requestCharge":1.24}]"#);
    let error = read_response(&batch.operations, refused).unwrap_err();
    assert_eq!(error.status(), Some(Status::new(400, 1001)));
}

#[test]
fn results_have_etags_and_documents() {
    let mut batch = Batch::new("k");
    batch.read("a").and_then(|batch| batch.delete("b")).unwrap();
    let body = r#"[{"statusCode":200,"requestCharge":1,"eTag":"\"7\"","resourceBody":{"id":"a"}},{"statusCode":204,"requestCharge":5}]"#;
    let results = read_response(&batch.operations, response(200, 0, body)).unwrap();
    let [read, deleted] = results.results() else { panic!("{results:?}") };
    assert_eq!(read.etag().map(Etag::as_str), Some("\"7\""));
    assert_eq!(read.value::<serde_json::Value>().unwrap(), json!({"id": "a"}));
    assert_eq!((deleted.status().code, deleted.charge()), (204, 5.0));
    assert!(deleted.value::<serde_json::Value>().is_err());
}

#[test]
fn a_response_without_one_readable_result_per_operation_is_an_error() {
    let mut batch = Batch::new("k");
    batch.read("a").unwrap();
    for body in ["[]", "{}", "", r#"[{"statusCode":"x"}]"#] {
        assert!(read_response(&batch.operations, response(200, 0, body)).is_err(), "{body}");
    }
}

#[test]
fn a_batch_of_writes_whose_results_cannot_be_read_is_ambiguous() {
    let mut batch = Batch::new("k");
    batch.read("a").and_then(|batch| batch.create(&json!({"id": "b"}))).unwrap();
    let one = r#"[{"statusCode":201,"requestCharge":1}]"#;
    for body in ["", "[", "[]", "{}", one, r#"[{"statusCode":200},{"statusCode":"x"}]"#] {
        let error = read_response(&batch.operations, response(200, 0, body)).unwrap_err();
        assert!(error.is_ambiguous() && error.is_transient(), "{body}: {error}");
    }
}

#[test]
fn a_batch_of_reads_is_never_ambiguous() {
    let mut batch = Batch::new("k");
    batch.read("a").unwrap();
    let error = read_response(&batch.operations, response(200, 0, "[]")).unwrap_err();
    assert!(!error.is_ambiguous(), "{error}");
}

#[test]
fn a_batch_result_without_a_charge_is_accepted() {
    let mut batch = Batch::new("k");
    batch.create(&json!({"id": "a"})).unwrap();
    let body = r#"[{"statusCode":201,"subStatusCode":null,"requestCharge":null,"eTag":null}]"#;
    let results = read_response(&batch.operations, response(200, 0, body)).unwrap();
    assert_eq!((results.results()[0].status().code, results.results()[0].charge()), (201, 0.0));
}
