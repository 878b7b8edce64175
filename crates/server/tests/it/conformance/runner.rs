//! Runs one case: the set-up step by step, then the request, then the comparison.
//! Each case has a database of its own, so several cases can run on one server at the
//! same time.

use std::time::Duration;

use perihelion_model::json::{self, Style, Value, object};
use perihelion_testkit::TestServer;
use perihelion_testkit::http_client::{HttpClient, HttpRequest, HttpResponse};

use super::case::{Body, Case, RecordedRequest, Saves, Source, Step};
use super::compare::differences;
use super::variables::Variables;

/// The number of creates in one seeding batch: the most that the service accepts.
const SEED_BATCH: i64 = 100;

/// The most times that a throttled request of the set-up is sent. A batch of the seeding
/// costs about 700 RU, so at 400 RU/s the next batch waits for nearly two seconds.
const THROTTLED_RETRIES_MAX: usize = 120;

/// Runs a case and returns its differences. A case without differences passes.
pub(super) async fn run(case: &Case, server: &TestServer) -> Vec<String> {
    let mut variables = Variables::default();
    variables.set("db", format!("db-{}", case.id));
    variables.set("coll", "coll1");
    let mut runner = Runner { client: server.http_client(), variables };
    for (index, step) in case.setup.iter().enumerate() {
        if let Err(error) = runner.set_up(step).await {
            return vec![format!("setup step {}: {error}", index + 1)];
        }
    }
    if case.repeat == 1 {
        return match runner.client.send(&runner.call(&case.request)).await {
            Ok(answer) => differences(&case.expect, &runner.variables, &answer),
            Err(error) => vec![error],
        };
    }
    runner.send_many_at_once(case, server).await
}

struct Runner {
    client: HttpClient,
    variables: Variables,
}

impl Runner {
    async fn set_up(&mut self, step: &Step) -> Result<(), String> {
        match step {
            Step::CreateDatabase { throughput } => {
                let body = object([("id", Value::from(self.variables.fill("{db}")))]);
                let call = HttpRequest::new("POST", "/dbs").json(&body);
                self.send_expecting(call.header("x-ms-offer-throughput", throughput.to_string()), 201)
                    .await
                    .map(drop)
            }
            Step::CreateContainer { body } => {
                let call = HttpRequest::new("POST", self.variables.fill("/dbs/{db}/colls"));
                self.send_expecting(call.json(&self.variables.fill_value(body)), 201).await.map(drop)
            }
            Step::CreateDocument { key, body, save } => {
                let call = self.post_documents(key).header("content-type", "application/json");
                let answer = self.send_expecting(call.body(self.body(body)), 201).await?;
                self.save(save, &answer)
            }
            Step::Batch { key, is_atomic, body } => {
                let body = self.variables.fill_value(body);
                self.batch(key, *is_atomic, &body).await
            }
            Step::Request { request, status, save } => {
                let answer = self.send_expecting(self.call(request), *status).await?;
                self.save(save, &answer)
            }
            Step::Seed { partitions, per_partition } => self.seed(*partitions, *per_partition).await,
            Step::Sleep { seconds } => {
                // The case needs a real wait: the time to live of an item must pass.
                tokio::time::sleep(Duration::from_secs(seconds.unsigned_abs())).await;
                Ok(())
            }
        }
    }

    /// A POST to the feed of documents.
    fn post_documents(&self, key: &Value) -> HttpRequest {
        HttpRequest::new("POST", self.variables.fill("/dbs/{db}/colls/{coll}/docs"))
            .header("x-ms-documentdb-partitionkey", json::to_text(key, Style::Point))
    }

    async fn batch(&self, key: &Value, is_atomic: bool, body: &Value) -> Result<(), String> {
        let call = self
            .post_documents(key)
            .header("x-ms-cosmos-is-batch-request", "True")
            .header("x-ms-cosmos-batch-atomic", if is_atomic { "True" } else { "False" })
            .json(body);
        self.send_expecting(call, 200).await.map(drop)
    }

    async fn seed(&self, partitions: i64, per_partition: i64) -> Result<(), String> {
        for partition in 0..partitions {
            let key = Value::from(format!("p{partition}"));
            for start in (0..per_partition).step_by(SEED_BATCH as usize) {
                let rows = start..per_partition.min(start + SEED_BATCH);
                let creates: Vec<Value> = rows.map(|row| seed_create(partition, row)).collect();
                self.batch(&Value::Array(vec![key.clone()]), true, &Value::Array(creates)).await?;
            }
        }
        Ok(())
    }

    /// Sends a request of the set-up, and retries while it is throttled, as every client
    /// does. Fails if the answer has another status.
    async fn send_expecting(&self, call: HttpRequest, status: u16) -> Result<HttpResponse, String> {
        for _ in 0..THROTTLED_RETRIES_MAX {
            let answer = self.client.send(&call).await?;
            if answer.status == 429 && status != 429 {
                let wait_ms = answer.header("x-ms-retry-after-ms").and_then(|text| text.parse().ok());
                tokio::time::sleep(Duration::from_millis(wait_ms.unwrap_or(1))).await;
                continue;
            }
            if answer.status != status {
                let body: String = answer.text().chars().take(160).collect();
                return Err(format!("status {}, not {status}: {}", answer.status, body.replace("\r\n", " ")));
            }
            return Ok(answer);
        }
        Err(format!("throttled {THROTTLED_RETRIES_MAX} times"))
    }

    fn save(&mut self, saves: &Saves, answer: &HttpResponse) -> Result<(), String> {
        for (name, source) in saves {
            let value = match source {
                Source::Header(header) => answer.header(header).map(str::to_owned),
                Source::Member(member) => {
                    let body = answer.json().map_err(|error| error.to_string())?;
                    body.get(member).and_then(Value::as_str).map(str::to_owned)
                }
            };
            self.variables.set(name, value.ok_or(format!("nothing to save as {name}"))?);
        }
        Ok(())
    }

    fn call(&self, recorded: &RecordedRequest) -> HttpRequest {
        let mut call = HttpRequest::new(&recorded.method, self.variables.fill(&recorded.path));
        for (name, value) in &recorded.headers {
            call = match value.as_str() {
                "omit" => call.omit(name),
                value => call.header(name, self.variables.fill(value)),
            };
        }
        call.body(self.body(&recorded.body))
    }

    fn body(&self, body: &Body) -> String {
        match body {
            Body::Empty => String::new(),
            Body::Json(value) => json::to_text(&self.variables.fill_value(value), Style::Point),
            Body::Raw(text) => self.variables.fill(text),
            Body::Repeat { prefix, filler, count, suffix } => {
                format!("{prefix}{}{suffix}", filler.repeat(*count))
            }
        }
    }

    /// Sends the request many times at the same time, each on its own connection. The case
    /// passes when one answer matches; otherwise the closest answer is shown.
    async fn send_many_at_once(&self, case: &Case, server: &TestServer) -> Vec<String> {
        let call = self.call(&case.request);
        let mut sent = tokio::task::JoinSet::new();
        for _ in 0..case.repeat {
            let (client, call) = (server.http_client(), call.clone());
            sent.spawn(async move { client.send(&call).await });
        }
        let compared = sent.join_all().await.into_iter().map(|answer| match answer {
            Ok(answer) => differences(&case.expect, &self.variables, &answer),
            Err(error) => vec![error],
        });
        compared.min_by_key(Vec::len).unwrap_or_else(|| vec!["the request was not sent".to_owned()])
    }
}

/// The operation of a batch that creates one seeded document.
fn seed_create(partition: i64, row: i64) -> Value {
    let document = object([
        ("id", Value::from(format!("rp{partition}-{row}"))),
        ("pk", Value::from(format!("p{partition}"))),
        ("n", Value::from(row)),
        ("grp", Value::from(row % 7)),
        ("txt", Value::from(format!("row {row}"))),
    ]);
    object([("operationType", Value::from("Create")), ("resourceBody", document)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_case_whose_request_is_never_sent_does_not_pass() {
        let case = r#"{"id":"none","setup":[],"request":{"method":"GET","path":"/","headers":{},"repeat":0},
            "expect":{"status":200,"headers":{},"body":{}}}"#;
        let case = Case::read(&json::parse_str(case).unwrap()).unwrap();
        let server = TestServer::on_socket(Default::default()).await;
        assert_eq!(run(&case, &server).await, ["the request was not sent"]);
        server.stop().await;
    }
}
