//! The management interface of a [`TestServer`]: faults, splits, counters,
//! outages of regions (`docs/management.md`).

use http::Method;
use serde_json::{Value, json};

use crate::http_client::HttpRequest;
use crate::server::{Host, TestServer};

/// The sums over all requests that a server has counted.
#[derive(Debug)]
pub struct RequestCounts {
    /// Requests of all operations.
    pub requests: u64,
    /// Their request units.
    pub request_units: f64,
    /// The counts of each operation.
    pub operations: Value,
}

impl TestServer {
    /// Sends a management request. Returns the status and the body of the response. `path`
    /// follows `/_perihelion/` in the URL, and `body` is JSON or empty. An empty response body
    /// is returned as null, and a body that is not JSON as a string.
    pub async fn try_manage(&self, method: Method, path: &str, body: &str) -> (u16, Value) {
        let (status, body) = match self.host() {
            Host::InProcess(embedded) => {
                let response = embedded.manage(method, path, body).await;
                let response = response.unwrap_or_else(|failure| panic!("{path}: {failure:?}"));
                (response.status().as_u16(), response.into_body())
            }
            Host::Socket(_) => {
                let request = HttpRequest::new(method.as_str(), format!("/_perihelion/{path}"));
                let request = request.omit("authorization").body(body.to_owned());
                let response = self.http_client().send(&request).await;
                let response = response.unwrap_or_else(|error| panic!("{path}: {error}"));
                (response.status, response.body)
            }
        };
        let text = || Value::String(String::from_utf8_lossy(&body).into_owned());
        (
            status,
            if body.is_empty() {
                Value::Null
            } else {
                serde_json::from_slice(&body).unwrap_or_else(|_| text())
            },
        )
    }

    /// Sends a management request that must succeed. Returns the body of the response.
    pub async fn manage(&self, method: Method, path: &str, body: &str) -> Value {
        let (status, response) = self.try_manage(method, path, body).await;
        assert!((200..300).contains(&status), "{path} {body}: {status} {response}");
        response
    }

    /// Adds a fault rule.
    pub async fn fault(&self, rule: &str) {
        self.manage(Method::POST, "faults", rule).await;
    }

    /// Removes all fault rules.
    pub async fn clear_faults(&self) {
        self.manage(Method::DELETE, "faults", "").await;
    }

    /// The server's counters: requests, request units and statuses by operation.
    pub async fn counters(&self) -> Value {
        self.manage(Method::GET, "counters", "").await
    }

    /// Sets all counters to zero.
    pub async fn reset_counters(&self) {
        self.manage(Method::DELETE, "counters", "").await;
    }

    /// The sums over all operations.
    pub async fn request_counts(&self) -> RequestCounts {
        let mut counters = self.counters().await;
        RequestCounts {
            requests: counters["requests"].as_u64().expect("a counter of requests"),
            request_units: counters["requestUnits"].as_f64().expect("a counter of request units"),
            operations: counters["operations"].take(),
        }
    }

    /// How many requests of an operation the server has counted.
    pub async fn requests(&self, operation: &str) -> u64 {
        self.counters().await["operations"][operation]["requests"].as_u64().unwrap_or(0)
    }

    /// Splits a physical partition of a container: the one with this range id, or the first
    /// if `range` is `None`.
    pub async fn split(&self, database: &str, container: &str, range: Option<&str>) {
        let mut body = json!({ "database": database, "container": container });
        if let Some(range) = range {
            body["range"] = range.into();
        }
        self.manage(Method::POST, "split", &body.to_string()).await;
    }

    /// Sends a management request about one region, such as `regions/offline`.
    pub async fn manage_region(&self, path: &str, region: &str) {
        self.manage(Method::POST, path, &json!({ "region": region }).to_string()).await;
    }

    /// Waits until every region that is not cut off from replication has applied what the other
    /// regions had written before this call.
    pub async fn wait_for_replication(&self) {
        self.manage(Method::POST, "replication/wait", "{}").await;
    }
}
