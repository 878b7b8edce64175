//! `Management`: the requests of checks to the server's management interface, for counters,
//! faults and splits.

use perihelion_interop_common::{Problem, manage};
use serde_json::{Value, json};

pub(crate) struct Management {
    port: u16,
}

impl Management {
    pub(crate) fn of(port: u16) -> Self {
        Self { port }
    }

    /// The number of requests of a kind that the server has answered.
    pub(crate) async fn request_count(&self, operation: &str) -> Result<u64, Problem> {
        let counters = manage(self.port, "GET", "counters", "").await?;
        Ok(counters["operations"][operation]["requests"].as_u64().unwrap_or(0))
    }

    /// Splits a range (a physical partition) of a container.
    pub(crate) async fn split(&self, container: &str, range: &str) -> Result<Value, Problem> {
        let body = json!({"database": "interop", "container": container, "range": range});
        manage(self.port, "POST", "split", &body.to_string()).await
    }

    /// Adds a fault rule.
    pub(crate) async fn inject(&self, fault: &Value) -> Result<Value, Problem> {
        manage(self.port, "POST", "faults", &fault.to_string()).await
    }

    /// Removes all faults.
    pub(crate) async fn clear_faults(&self) -> Result<Value, Problem> {
        manage(self.port, "DELETE", "faults", "").await
    }
}
