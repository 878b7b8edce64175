//! Whole requests to an account in this process. An input is the text of a request: a line with
//! the verb and the path, headers, an empty line, and the body.
//!
//! What always holds: every request has an answer, no answer is 500 or 503, and the continuation
//! token of an answer can be sent back. Some changed forms of each token are sent too; they may be
//! refused.

use std::time::{Duration, Instant};

use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use perihelion_server::{AuthMode, Embedded, EmbeddedOptions, Keys, MasterKey};
use perihelion_wire::transport::{Request, Response, Route, Transport};
use tokio::runtime::Runtime;

use perihelion_testkit::Random;

use super::{Subject, bytes_of};
use crate::mutate::mutate;

/// After this many requests a new account replaces the old one, so that the stored data stays
/// small.
const REQUESTS_PER_ACCOUNT: u64 = 500;

/// How many changed forms of each continuation token are sent.
const CHANGED_TOKENS: usize = 3;

/// The longest time that one request may take.
const TIME_MAX: Duration = Duration::from_secs(30);

pub(super) const WORDS: &[&str] = &[
    "x-ms-continuation: ",
    "x-ms-max-item-count: 1",
    "x-ms-max-item-count: -1",
    "x-ms-session-token: 0:-1#99",
    "x-ms-documentdb-query-enablecrosspartition: True",
    "x-ms-documentdb-isquery: True",
    "x-ms-documentdb-partitionkey: [\"a\"]",
    "x-ms-documentdb-partitionkey: []",
    "x-ms-documentdb-partitionkeyrangeid: 1",
    "A-IM: Incremental Feed",
    "If-None-Match: *",
    "If-Match: \"x\"",
    "x-ms-start-epk: 05",
    "x-ms-end-epk: FF",
    "x-ms-read-key-type: EffectivePartitionKeyRange",
    "x-ms-cosmos-is-batch-request: True",
    "x-ms-cosmos-batch-atomic: True",
    "x-ms-documentdb-is-upsert: True",
    "ORDER BY c.n",
    "GROUP BY c.n",
    "DISTINCT",
    "\"ttl\":0",
    "\"operationType\":\"Upsert\"",
    "null",
    "/docs",
    "/colls",
    "x-ms-documentdb-responsecontinuationtokenlimitinkb: 1",
    "x-ms-cosmos-query-version: 1.4",
    "Prefer: return=minimal",
    "x-ms-cosmos-is-query-plan-request: True",
    "x-ms-documentdb-populatequerymetrics: True",
];

pub(super) fn examples() -> Vec<Vec<u8>> {
    let query = "x-ms-documentdb-isquery: True\nContent-Type: application/query+json\n\
                 x-ms-documentdb-query-enablecrosspartition: True\nx-ms-max-item-count: 2";
    let queries = [
        "SELECT * FROM c",
        "SELECT c.n, COUNT(1) AS k FROM c GROUP BY c.n",
        "SELECT DISTINCT VALUE c.s FROM c",
        "SELECT * FROM c WHERE c.n > 1 ORDER BY c.n DESC, c.s ASC",
        "SELECT VALUE x FROM c JOIN x IN c.list OFFSET 1 LIMIT 3",
        "SELECT VALUE AVG(c.n) FROM c WHERE c.pk = 'a'",
    ];
    let queries = queries.map(|text| {
        format!("POST /dbs/d/colls/c/docs\n{query}\n\n{{\"query\":\"{text}\",\"parameters\":[]}}")
    });
    let mut examples: Vec<Vec<u8>> = queries.into_iter().map(String::into_bytes).collect();
    examples.extend(bytes_of(&[
        "GET /dbs/d/colls/c/docs/1\nx-ms-documentdb-partitionkey: [\"a\"]\n\n",
        "POST /dbs/d/colls/c/docs\nx-ms-documentdb-partitionkey: [\"a\"]\n\n{\"id\":\"new\",\"pk\":\"a\",\"n\":[1,{}],\"ttl\":5}",
        "PUT /dbs/d/colls/c/docs/1\nx-ms-documentdb-partitionkey: [\"a\"]\n\n{\"id\":\"1\",\"pk\":\"a\",\"s\":\"other\"}",
        "PATCH /dbs/d/colls/c/docs/1\nx-ms-documentdb-partitionkey: [\"a\"]\n\n{\"operations\":[{\"op\":\"incr\",\"path\":\"/n\",\"value\":1}]}",
        "DELETE /dbs/d/colls/c/docs/2\nx-ms-documentdb-partitionkey: [\"b\"]\n\n",
        "POST /dbs/d/colls/c/docs\nx-ms-cosmos-is-batch-request: True\nx-ms-cosmos-batch-atomic: True\nx-ms-documentdb-partitionkey: [\"a\"]\n\n[{\"operationType\":\"Create\",\"resourceBody\":{\"id\":\"b1\",\"pk\":\"a\"}},{\"operationType\":\"Read\",\"id\":\"1\"},{\"operationType\":\"Patch\",\"id\":\"1\",\"resourceBody\":{\"operations\":[{\"op\":\"set\",\"path\":\"/n\",\"value\":2}]}},{\"operationType\":\"Delete\",\"id\":\"b1\"}]",
        "GET /dbs/d/colls/c/docs\nA-IM: Incremental Feed\nx-ms-documentdb-partitionkeyrangeid: 0\nx-ms-max-item-count: 1\n\n",
        "GET /dbs/d/colls/c/docs\nA-IM: Full-Fidelity Feed\nIf-None-Match: \"3\"\nx-ms-documentdb-partitionkeyrangeid: 1\n\n",
        "GET /dbs/d/colls/c/docs\nx-ms-max-item-count: 1\n\n",
        "POST /dbs/d/colls\n\n{\"id\":\"other\",\"partitionKey\":{\"paths\":[\"/a\",\"/b\"],\"kind\":\"MultiHash\",\"version\":2},\"uniqueKeyPolicy\":{\"uniqueKeys\":[{\"paths\":[\"/x\"]}]},\"indexingPolicy\":{\"compositeIndexes\":[[{\"path\":\"/a\",\"order\":\"ascending\"},{\"path\":\"/b\",\"order\":\"descending\"}]]},\"defaultTtl\":10}",
        "GET /dbs/d/colls/c/pkranges\n\n",
        "GET /offers\n\n",
        "POST /operations/dtc\nx-ms-cosmos-idempotency-token: 00000000-0000-4000-8000-000000000001\n\n{\"operations\":[{\"operationType\":\"Upsert\",\"databaseName\":\"d\",\"collectionName\":\"c\",\"partitionKey\":[\"a\"],\"id\":\"t\",\"resourceBody\":{\"id\":\"t\",\"pk\":\"a\"}}]}",
        "POST /dbs/d/colls/c/operations/partitionkeydelete\nx-ms-documentdb-partitionkey: [\"b\"]\n\n",
        "POST /dbs/d/colls/c/sprocs\n\n{\"id\":\"p\",\"body\":\"function () {}\"}",
        "GET /\n\n",
    ]));
    examples
}

pub(super) fn subject() -> Subject {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let (mut account, mut requests) = (None, 0);
    Box::new(move |input| {
        let Some(request) = parse(input) else { return };
        if requests % REQUESTS_PER_ACCOUNT == 0
            && let Some(old) = account.replace(runtime.block_on(open()))
        {
            runtime.block_on(old.close());
        }
        requests += 1;
        let account = account.as_ref().expect("opened at the first request");
        check(&runtime, account, request);
    })
}

/// Sends a request. If the answer has a continuation token, also sends the request for the next
/// page, and requests with changed forms of the token.
fn check(runtime: &Runtime, account: &Embedded, request: ParsedRequest) {
    let answer = send(runtime, account, &request);
    let status = answer.status().as_u16();
    let body = String::from_utf8_lossy(answer.body()).into_owned();
    assert!(!matches!(status, 500 | 503), "{status}: {body}");
    if let Some(token) = answer.headers().get("x-ms-continuation") {
        let mut next = request;
        let mut random = Random::new(seed_of(&body));
        for _ in 0..CHANGED_TOKENS {
            let changed = mutate(&mut random, &[token.as_bytes().to_vec()], &[]);
            let Ok(changed) = HeaderValue::from_bytes(&changed) else { continue };
            next.headers.insert("x-ms-continuation", changed.clone());
            let status = send(runtime, account, &next).status().as_u16();
            assert!(!matches!(status, 500 | 503), "{status} for the continuation token {changed:?}");
        }
        next.headers.insert("x-ms-continuation", token.clone());
        let answer = send(runtime, account, &next);
        let status = answer.status().as_u16();
        assert!(
            status < 400,
            "{status} for a continuation token that the account returned: {:?}",
            answer.body()
        );
    }
}

/// A seed that follows from the answer, so that an input that runs again sends the same tokens.
fn seed_of(body: &str) -> u64 {
    body.bytes().fold(0, |seed, byte| seed.wrapping_mul(31).wrapping_add(u64::from(byte)))
}

fn send(runtime: &Runtime, account: &Embedded, request: &ParsedRequest) -> Response {
    let ParsedRequest { method, target, headers, body } = request;
    let request = Request {
        endpoint: account.endpoint(),
        method: method.clone(),
        target: target.clone(),
        headers: headers.clone(),
        body: body.clone(),
        deadline: Instant::now() + TIME_MAX,
        route: Route::default(),
    };
    runtime.block_on(account.transport().send(request)).expect("an answer in time")
}

struct ParsedRequest {
    method: Method,
    target: PathAndQuery,
    headers: HeaderMap,
    body: Bytes,
}

fn parse(input: &[u8]) -> Option<ParsedRequest> {
    let split = input.windows(2).position(|pair| pair == b"\n\n").unwrap_or(input.len());
    let (head, body) = input.split_at(split);
    let mut lines = head.split(|byte| *byte == b'\n');
    let first = std::str::from_utf8(lines.next()?).ok()?;
    let (method, path) = first.split_once(' ')?;
    let mut headers = HeaderMap::new();
    headers.insert("x-ms-version", HeaderValue::from_static("2020-07-15"));
    for line in lines {
        let Some(colon) = line.iter().position(|byte| *byte == b':') else { continue };
        let name = HeaderName::from_bytes(line[..colon].trim_ascii());
        let value = HeaderValue::from_bytes(line[colon + 1..].trim_ascii());
        if let (Ok(name), Ok(value)) = (name, value) {
            headers.insert(name, value);
        }
    }
    Some(ParsedRequest {
        method: Method::from_bytes(method.as_bytes()).ok()?,
        target: path.trim().parse().ok()?,
        headers,
        body: Bytes::copy_from_slice(body.get(2..).unwrap_or_default()),
    })
}

/// An account with a database, a container of two ranges, and a few documents.
async fn open() -> Embedded {
    let keys = Keys { primary: MasterKey::emulator() };
    let options = EmbeddedOptions::default().with_partitions(2).with_auth(AuthMode::Off, keys);
    let account = Embedded::open(options).await.expect("an account in memory");
    let container =
        r#"{"id":"c","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2},"defaultTtl":-1}"#;
    let setup =
        [("POST /dbs\n\n{\"id\":\"d\"}".to_owned(), 201), (format!("POST /dbs/d/colls\n\n{container}"), 201)];
    let documents = (1..=9).map(|number| {
        let key = ["a", "b", "c"][number % 3];
        let document = format!(
            "{{\"id\":\"{number}\",\"pk\":\"{key}\",\"n\":{},\"s\":\"text {}\",\"list\":[{number},null]}}",
            number / 2,
            number % 4
        );
        (format!("POST /dbs/d/colls/c/docs\nx-ms-documentdb-partitionkey: [\"{key}\"]\n\n{document}"), 201)
    });
    for (text, status) in setup.into_iter().chain(documents) {
        let ParsedRequest { method, target, headers, body } = parse(text.as_bytes()).expect("a constant");
        let deadline = Instant::now() + TIME_MAX;
        let (endpoint, route) = (account.endpoint(), Route::default());
        let request = Request { endpoint, method, target, headers, body, deadline, route };
        let answer = account.transport().send(request).await.expect("an answer");
        assert_eq!(answer.status().as_u16(), status, "{text}: {:?}", answer.body());
    }
    account
}
