//! The audit checks through the HTTP API that after a kill:
//!
//! - Every document has its acknowledged state, deleted documents do not exist, and a
//!   batch in flight took effect as a whole or not at all.
//! - The change feed holds each changed document exactly once, at the LSN of its
//!   acknowledged write, in LSN order, and no page ends within one write.
//! - Queries that order or count documents agree with the acknowledged documents.
//! - LSNs and session tokens never go back, and no LSN is given out twice.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::net::SocketAddr;

use perihelion_model::json::{Style, Value, object, to_text};
use perihelion_testkit::Random;
use perihelion_testkit::http_client::{HttpClient, HttpRequest, HttpResponse};

use super::PARTITION_KEYS;
use super::journal::{AcknowledgedDocument, Change, Journal, Key, Position, own_members};
use super::writer::{DOCS, docs, partition_key};

/// The id of the counter document. Each partition has one, and all clients increment it.
pub(super) const COUNTER: &str = "counter";

/// How many documents of earlier runs each client reads again in a check.
const SAMPLE_DOCUMENTS: usize = 6;

/// Rows of a page of the change feed. They are few, so that some batches begin near
/// the end of a page.
const PAGE_ROWS: usize = 9;

/// Rows of a page when the whole change feed is read. They are more, for speed.
const PAGE_ROWS_OF_EVERYTHING: usize = 301;

/// The positions, etags and counters that all clients have seen in all runs until now.
#[derive(Default)]
pub(super) struct Audit {
    /// The counters as last read.
    counters: Vec<AcknowledgedDocument>,
    /// The newest LSN that was seen in each range, split ranges included.
    lsns: BTreeMap<String, u64>,
    /// The continuation of each range's change feed.
    feed_continuations: BTreeMap<String, String>,
    /// The positions of all acknowledged writes.
    positions: HashSet<Position>,
    /// The etags of all versions of documents.
    etags: HashSet<String>,
    /// The ranges that exist now.
    ranges: Vec<Range>,
}

#[derive(Clone, Debug)]
struct Range {
    id: String,
    /// The ranges from which this range was split, oldest first.
    parents: Vec<String>,
    lsn: u64,
}

impl Audit {
    pub(super) async fn create_counters(&mut self, client: &HttpClient) {
        for index in 0..PARTITION_KEYS {
            let partition = partition_key(index);
            let created =
                client.send(&docs("POST", "", &partition).json(&counter_document(&partition, 0))).await;
            let created = created.expect("an answer");
            assert_eq!(created.status, 201, "{}", created.text());
            let lsn = super::journal::position(&created).expect("a session token").1;
            self.counters.push(AcknowledgedDocument { body: created.json().expect("JSON"), lsn });
        }
        self.read_ranges(client).await.expect("ranges");
    }

    pub(super) fn range_count(&self) -> usize {
        self.ranges.len()
    }

    pub(super) fn random_range(&self, random: &mut Random) -> String {
        self.ranges[random.below(self.ranges.len() as u64) as usize].id.clone()
    }

    pub(super) fn document_count(&self, journals: &[Journal]) -> usize {
        journals.iter().map(|journal| journal.present.len()).sum::<usize>() + self.counters.len()
    }

    /// Checks a restarted server against the journals, and records in the journals
    /// which of the writes in flight took effect.
    pub(super) async fn check(
        &mut self,
        address: SocketAddr,
        journals: &mut Vec<Journal>,
        random: &mut Random,
        reads_everything: bool,
    ) -> Vec<String> {
        let mut violations: Vec<String> =
            journals.iter_mut().flat_map(|journal| journal.violations.drain(..)).collect();
        self.check_positions(journals, &mut violations);
        let client = HttpClient::new(address);
        let outcome = self.check_lsns(&client, &mut violations).await;
        violations.extend(outcome.err());

        let session_token = self.session_token();
        let mut readers = Vec::new();
        for journal in std::mem::take(journals) {
            let samples = if reads_everything { usize::MAX } else { SAMPLE_DOCUMENTS };
            let random = Random::new(random.bits());
            let (client, session_token) = (HttpClient::new(address), session_token.clone());
            let reader = ClientReader { client, journal, session_token };
            readers.push(tokio::spawn(reader.check(random, samples)));
        }
        for reader in readers {
            let (journal, reader_violations) = reader.await.expect("a reader ends without a panic");
            journals.push(journal);
            violations.extend(reader_violations);
        }
        journals.sort_by_key(|journal| journal.client);

        let outcome = self.check_counters(&client, journals, &mut violations).await;
        violations.extend(outcome.err());
        self.check_etags(journals, &mut violations);
        let outcome = self.check_feed(&client, journals, reads_everything, &mut violations).await;
        violations.extend(outcome.err());
        let outcome = self.check_counts(&client, journals, &mut violations).await;
        violations.extend(outcome.err());
        journals.iter_mut().for_each(|journal| journal.touched.clear());
        violations
    }

    /// Checks that no two writes have the same range and LSN.
    fn check_positions(&mut self, journals: &mut [Journal], violations: &mut Vec<String>) {
        for position in journals.iter_mut().flat_map(|journal| journal.positions.drain(..)) {
            let newest = self.lsns.entry(position.0.clone()).or_default();
            *newest = position.1.max(*newest);
            if !self.positions.insert(position.clone()) {
                violations.push(format!("LSN {} of range {} was given out twice", position.1, position.0));
            }
        }
    }

    /// Checks that no two versions of documents have the same etag.
    fn check_etags(&mut self, journals: &[Journal], violations: &mut Vec<String>) {
        for journal in journals {
            for acknowledged in journal.touched.iter().filter_map(|key| journal.present.get(key)) {
                let etag = acknowledged.body.get("_etag").and_then(Value::as_str).unwrap_or_default();
                if !self.etags.insert(etag.to_owned()) {
                    violations.push(format!("etag {etag} was given out twice"));
                }
            }
        }
    }

    /// A session token with all LSNs that were seen before the kill, split ranges included.
    fn session_token(&self) -> String {
        let tokens: Vec<String> = self.lsns.iter().map(|(range, lsn)| format!("{range}:-1#{lsn}")).collect();
        tokens.join(",")
    }

    async fn read_ranges(&mut self, client: &HttpClient) -> Result<(), String> {
        let answer = send_expecting_200(client, &HttpRequest::new("GET", "/dbs/d/colls/c/pkranges")).await?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let ranges = rows(&answer, "PartitionKeyRanges")?;
        self.ranges = ranges
            .iter()
            .map(|range| Range {
                id: range.get("id").map(text).unwrap_or_default(),
                parents: range
                    .get("parents")
                    .and_then(Value::as_array)
                    .unwrap_or_default()
                    .iter()
                    .map(text)
                    .collect(),
                lsn: range.get("lsn").and_then(Value::as_i64).unwrap_or_default() as u64,
            })
            .collect();
        Ok(())
    }

    /// Checks that no range is at a lower LSN than was seen before in the range or in a range
    /// from which it was split.
    async fn check_lsns(&mut self, client: &HttpClient, violations: &mut Vec<String>) -> Result<(), String> {
        self.read_ranges(client).await?;
        for range in &self.ranges {
            for id in range.parents.iter().chain([&range.id]) {
                let seen = self.lsns.get(id).copied().unwrap_or_default();
                if range.lsn < seen {
                    let Range { id: range, lsn, .. } = range;
                    violations.push(format!("range {range} is at LSN {lsn}, but {seen} was seen in {id}"));
                }
            }
        }
        for range in &self.ranges {
            self.lsns.insert(range.id.clone(), range.lsn);
        }
        Ok(())
    }

    /// Checks that every acknowledged increment counts once, and an increment in flight
    /// at most once.
    async fn check_counters(
        &mut self,
        client: &HttpClient,
        journals: &mut [Journal],
        violations: &mut Vec<String>,
    ) -> Result<(), String> {
        for index in 0..PARTITION_KEYS {
            let partition = partition_key(index);
            let answer = send_expecting_200(client, &docs("GET", COUNTER, &partition)).await?;
            let count = count_in(&answer).ok_or_else(|| format!("counter {partition} has no count"))?;
            let sum = |counts: fn(&Journal) -> &[u64; PARTITION_KEYS]| -> u64 {
                journals.iter().map(|journal| counts(journal)[index]).sum()
            };
            let before = self.counters[index].body.get("count").and_then(Value::as_i64).unwrap_or_default();
            let least = before as u64 + sum(|journal| &journal.increments);
            let most = least + sum(|journal| &journal.increments_in_flight);
            if !(least..=most).contains(&count) {
                violations.push(format!("counter {partition} is {count}, not from {least} to {most}"));
            }
            for journal in journals.iter_mut() {
                journal.increments[index] = 0;
                journal.increments_in_flight[index] = 0;
            }
            self.counters[index] = AcknowledgedDocument { lsn: item_lsn(&answer), body: parse(&answer)? };
        }
        Ok(())
    }

    /// Checks that the change feeds of all ranges together hold each changed document once.
    async fn check_feed(
        &mut self,
        client: &HttpClient,
        journals: &[Journal],
        reads_everything: bool,
        violations: &mut Vec<String>,
    ) -> Result<(), String> {
        let mut expected: BTreeMap<Key, &AcknowledgedDocument> = BTreeMap::new();
        for journal in journals {
            let acknowledged = journal.present.iter();
            let acknowledged =
                acknowledged.filter(|(key, _)| reads_everything || journal.touched.contains(*key));
            expected.extend(acknowledged.map(|(key, acknowledged)| (key.clone(), acknowledged)));
        }
        let mut seen_keys = BTreeSet::new();
        for range in self.ranges.clone() {
            let start = if reads_everything { None } else { self.continuation_of(&range) };
            let rows_max = if reads_everything { PAGE_ROWS_OF_EVERYTHING } else { PAGE_ROWS };
            let mut reader = FeedReader { client, range: &range, last_lsn: 0, violations };
            let (documents, continuation) = reader.read_to_the_end(start, rows_max).await?;
            self.feed_continuations.insert(range.id.clone(), continuation);
            for document in documents {
                let key = key_of(&document);
                // The counters are checked separately.
                if key.1 == COUNTER {
                    continue;
                }
                match expected.get(&key) {
                    Some(acknowledged) => compare_in_feed(&key, acknowledged, &document, violations),
                    None => violations.push(format!("the feed holds {key:?}, which did not change")),
                }
                if !seen_keys.insert(key.clone()) {
                    violations.push(format!("the feed holds {key:?} twice"));
                }
            }
        }
        let missing = expected.keys().filter(|key| !seen_keys.contains(*key));
        violations.extend(missing.map(|key| format!("the feed has lost {key:?}")));
        Ok(())
    }

    /// The continuation of a range's feed. A child of a split starts with the
    /// continuation of its parent.
    fn continuation_of(&self, range: &Range) -> Option<String> {
        let mut ancestry = range.parents.iter().chain([&range.id]).rev();
        ancestry.find_map(|id| self.feed_continuations.get(id)).cloned()
    }

    /// Checks the number of documents, in all partitions together and in each partition.
    async fn check_counts(
        &self,
        client: &HttpClient,
        journals: &[Journal],
        violations: &mut Vec<String>,
    ) -> Result<(), String> {
        let counted = query_all(client, "SELECT VALUE COUNT(1) FROM c", None).await?;
        let documents = self.document_count(journals) as u64;
        if counted != [Value::from(documents)] {
            violations.push(format!("a query counts {counted:?} documents, not {documents}"));
        }
        for index in 0..PARTITION_KEYS {
            let partition = partition_key(index);
            let counted = query_all(client, "SELECT VALUE COUNT(1) FROM c", Some(&partition)).await?;
            let keys = journals.iter().flat_map(|journal| journal.present.keys());
            // One more document is the counter of the partition.
            let documents = 1 + keys.filter(|(pk, _)| *pk == partition).count() as u64;
            if counted != [Value::from(documents)] {
                violations
                    .push(format!("{partition}: a query counts {counted:?} documents, not {documents}"));
            }
        }
        Ok(())
    }
}

/// Reads the change feed of one range and checks its order.
struct FeedReader<'a> {
    client: &'a HttpClient,
    range: &'a Range,
    last_lsn: u64,
    violations: &'a mut Vec<String>,
}

impl FeedReader<'_> {
    /// All documents after `start`, and the continuation at the end of the feed.
    async fn read_to_the_end(
        &mut self,
        start: Option<String>,
        rows_max: usize,
    ) -> Result<(Vec<Value>, String), String> {
        let mut documents = Vec::new();
        let mut continuation = start;
        loop {
            let mut call = HttpRequest::new("GET", DOCS)
                .header("a-im", "Incremental Feed")
                .header("x-ms-documentdb-partitionkeyrangeid", &self.range.id)
                .header("x-ms-max-item-count", rows_max.to_string());
            if let Some(etag) = &continuation {
                call = call.header("if-none-match", etag);
            }
            let answer = self.client.send(&call).await?;
            let etag = answer.header("etag").ok_or("a feed without an etag")?.to_owned();
            match answer.status {
                304 => return Ok((documents, etag)),
                200 => {}
                status => return Err(format!("the feed of {} answers {status}", self.range.id)),
            }
            let page = rows(&answer, "Documents")?;
            self.check_order(&page);
            documents.extend(page);
            continuation = Some(etag);
        }
    }

    /// Checks that LSNs never decrease, and that the first LSN of a page is greater than the
    /// last LSN of the page before. Otherwise the two pages would divide one write.
    fn check_order(&mut self, page: &[Value]) {
        for (row, document) in page.iter().enumerate() {
            let lsn = lsn_of(document);
            let is_in_order = if row == 0 { lsn > self.last_lsn } else { lsn >= self.last_lsn };
            if !is_in_order || lsn > self.range.lsn {
                let Range { id, lsn: newest, .. } = self.range;
                self.violations.push(format!(
                    "range {id} at LSN {newest}: the feed has {lsn} after {}, row {row} of a page",
                    self.last_lsn
                ));
            }
            self.last_lsn = lsn;
        }
    }
}

fn compare_in_feed(
    key: &Key,
    acknowledged: &AcknowledgedDocument,
    document: &Value,
    violations: &mut Vec<String>,
) {
    if lsn_of(document) != acknowledged.lsn {
        let (seen, acknowledged) = (lsn_of(document), acknowledged.lsn);
        violations.push(format!("{key:?} has LSN {seen} in the feed, not {acknowledged}"));
    }
    let mut members = document.clone();
    if let Value::Object(members) = &mut members {
        members.remove("_lsn");
    }
    if members != acknowledged.body {
        violations.push(format!(
            "the feed has {}, not {}",
            without_padding(document),
            without_padding(&acknowledged.body)
        ));
    }
}

/// Reads one client's documents.
struct ClientReader {
    client: HttpClient,
    journal: Journal,
    session_token: String,
}

impl ClientReader {
    /// Checks the documents that the client changed since the last check, and `samples` random
    /// documents of the client. Returns the journal and the violations.
    async fn check(mut self, mut random: Random, samples: usize) -> (Journal, Vec<String>) {
        let mut violations = Vec::new();
        let outcome = self.try_check(&mut random, samples, &mut violations).await;
        violations.extend(outcome.err());
        let client = self.journal.client;
        (self.journal, violations.into_iter().map(|text| format!("client {client}: {text}")).collect())
    }

    async fn try_check(
        &mut self,
        random: &mut Random,
        samples: usize,
        violations: &mut Vec<String>,
    ) -> Result<(), String> {
        let in_flight = std::mem::take(&mut self.journal.in_flight);
        if !in_flight.is_empty() {
            self.resolve_in_flight(in_flight, violations).await?;
        }
        let mut keys: BTreeSet<Key> = self.journal.touched.clone();
        let present: Vec<&Key> = self.journal.present.keys().collect();
        if samples >= present.len() {
            keys.extend(present.into_iter().cloned());
        } else {
            keys.extend((0..samples).map(|_| present[random.below(present.len() as u64) as usize].clone()));
        }
        for key in keys {
            let answer = self.read(&key).await?;
            let acknowledged = self.journal.present.get(&key);
            let expected = acknowledged.map(|acknowledged| (&acknowledged.body, acknowledged.lsn));
            let actual = if answer.status == 200 { Some(parse(&answer)?) } else { None };
            if actual.as_ref().map(|body| (body, item_lsn(&answer))) != expected {
                violations.push(format!(
                    "{key:?} is {} at {}, not {}",
                    actual.as_ref().map_or("absent".to_owned(), without_padding),
                    item_lsn(&answer),
                    acknowledged.map_or("absent".to_owned(), |acknowledged| format!(
                        "{} at {}",
                        without_padding(&acknowledged.body),
                        acknowledged.lsn
                    )),
                ));
            }
        }
        self.check_order(&partition_key(random.below(PARTITION_KEYS as u64) as usize), violations).await
    }

    /// Finds out whether the write in flight took effect, and checks that it did as a whole
    /// or not at all.
    async fn resolve_in_flight(
        &mut self,
        changes: Vec<Change>,
        violations: &mut Vec<String>,
    ) -> Result<(), String> {
        let mut current = Vec::new();
        for change in &changes {
            let answer = self.read(&change.key).await?;
            let body = if answer.status == 200 { Some(parse(&answer)?) } else { None };
            current.push((body, item_lsn(&answer)));
        }
        let has_state_before = |(change, (body, _)): (&Change, &(Option<Value>, u64))| {
            body.as_ref() == self.journal.present.get(&change.key).map(|acknowledged| &acknowledged.body)
        };
        let has_state_after = |(change, (body, _)): (&Change, &(Option<Value>, u64))| {
            body.as_ref().map(own_members) == change.body
        };
        if changes.iter().zip(&current).all(has_state_before) {
            return Ok(());
        }
        let lsns: BTreeSet<u64> =
            current.iter().filter(|(body, _)| body.is_some()).map(|(_, lsn)| *lsn).collect();
        if !changes.iter().zip(&current).all(has_state_after) || lsns.len() > 1 {
            let states = changes.iter().zip(&current).map(|pair| {
                let state = if has_state_before(pair) {
                    "not done"
                } else if has_state_after(pair) {
                    "done"
                } else {
                    "neither"
                };
                format!("{:?} {state} at {}", pair.0.key, pair.1.1)
            });
            violations
                .push(format!("part of a write took effect: {}", states.collect::<Vec<_>>().join(", ")));
        }
        for (change, (body, lsn)) in changes.into_iter().zip(current) {
            self.journal.record_state(change.key, body, lsn);
        }
        self.journal.took_effect += 1;
        Ok(())
    }

    async fn read(&self, key: &Key) -> Result<HttpResponse, String> {
        let call = docs("GET", &key.1, &key.0).header("x-ms-session-token", &self.session_token);
        let answer = self.client.send(&call).await?;
        match (answer.status, answer.header("x-ms-substatus").unwrap_or("0")) {
            (200, _) | (404, "0") => Ok(answer),
            (status, sub_status) => Err(format!("reading {key:?} was answered {status}/{sub_status}")),
        }
    }

    /// Checks that a query for which the server builds an index returns this client's
    /// documents of one partition in the order of their versions.
    async fn check_order(&self, partition: &str, violations: &mut Vec<String>) -> Result<(), String> {
        let client = self.journal.client;
        let text = format!("SELECT VALUE c.version FROM c WHERE c.client = {client} ORDER BY c.version DESC");
        let versions = query_all(&self.client, &text, Some(partition)).await?;
        let own = self.journal.present.iter().filter(|((pk, _), _)| pk == partition);
        let mut expected: Vec<i64> =
            own.filter_map(|(_, acknowledged)| acknowledged.body.get("version")?.as_i64()).collect();
        expected.sort_unstable_by_key(|version| std::cmp::Reverse(*version));
        if versions.iter().map(Value::as_i64).collect::<Option<Vec<i64>>>().as_ref() != Some(&expected) {
            violations.push(format!("{partition} ordered by version: {versions:?}, not {expected:?}"));
        }
        Ok(())
    }
}

pub(super) fn counter_document(partition: &str, count: u64) -> Value {
    object([("id", COUNTER.into()), ("pk", partition.into()), ("count", count.into())])
}

/// The count of a counter that was read.
pub(super) fn count_in(answer: &HttpResponse) -> Option<u64> {
    answer.json().ok()?.get("count")?.as_i64().and_then(|count| u64::try_from(count).ok())
}

/// Reads all rows of a query, page by page, over one partition or over all partitions.
async fn query_all(client: &HttpClient, text: &str, partition: Option<&str>) -> Result<Vec<Value>, String> {
    let mut all_rows = Vec::new();
    let mut continuation = None::<String>;
    loop {
        let body = to_text(&object([("query", text.into())]), Style::Point);
        let mut call = match partition {
            Some(partition) => docs("POST", "", partition),
            None => {
                HttpRequest::new("POST", DOCS).header("x-ms-documentdb-query-enablecrosspartition", "true")
            }
        };
        call = call.header("content-type", "application/query+json").body(body);
        if let Some(token) = &continuation {
            call = call.header("x-ms-continuation", token);
        }
        let answer = send_expecting_200(client, &call).await?;
        all_rows.extend(rows(&answer, "Documents")?);
        continuation = answer.header("x-ms-continuation").map(str::to_owned);
        if continuation.is_none() {
            return Ok(all_rows);
        }
    }
}

async fn send_expecting_200(client: &HttpClient, call: &HttpRequest) -> Result<HttpResponse, String> {
    let answer = client.send(call).await?;
    match answer.status {
        200 => Ok(answer),
        status => Err(format!("{call:?} was answered {status}: {}", answer.text())),
    }
}

fn parse(answer: &HttpResponse) -> Result<Value, String> {
    answer.json().map_err(|error| format!("{}: {error}", answer.text()))
}

fn rows(answer: &HttpResponse, member: &str) -> Result<Vec<Value>, String> {
    let body = parse(answer)?;
    let rows = body.get(member).and_then(Value::as_array);
    rows.map(<[Value]>::to_vec).ok_or_else(|| format!("no {member} in {}", answer.text()))
}

fn item_lsn(answer: &HttpResponse) -> u64 {
    answer.header("x-ms-item-lsn").and_then(|lsn| lsn.parse().ok()).unwrap_or_default()
}

fn lsn_of(document: &Value) -> u64 {
    document.get("_lsn").and_then(Value::as_i64).unwrap_or_default() as u64
}

fn key_of(document: &Value) -> Key {
    let text = |name: &str| document.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    (text("pk"), text("id"))
}

/// A document as text, with the length of its padding instead of the padding.
fn without_padding(document: &Value) -> String {
    let mut short = document.clone();
    if let Value::Object(members) = &mut short
        && let Some(padding) = members.get_mut("padding")
    {
        *padding = format!("{} bytes", padding.as_str().map_or(0, str::len)).into();
    }
    to_text(&short, Style::Point)
}
