//! duroxide's own harnesses, as they come with the crate, with its defaults:
//! 20 workflows at once of 5 activities of 10 ms, and 5 at once with payloads
//! of 10 to 100 KB.

use std::sync::Arc;

use duroxide::provider_stress_tests::large_payload::{
    LargePayloadConfig, run_large_payload_test_with_config,
};
use duroxide::provider_stress_tests::parallel_orchestrations::{
    ProviderStressFactory, run_parallel_orchestrations_test_with_config,
};
use duroxide::provider_stress_tests::{StressTestConfig, StressTestResult};
use duroxide::providers::Provider;
use serde_json::{Value, json};

use crate::Problem;

/// The harness asks for a provider once; it is the one that is open.
struct Opened(Arc<dyn Provider>);

#[async_trait::async_trait]
impl ProviderStressFactory for Opened {
    async fn create_provider(&self) -> Arc<dyn Provider> {
        Arc::clone(&self.0)
    }
}

pub(crate) async fn stress(
    provider: Arc<dyn Provider>,
    dispatchers: usize,
    seconds: u64,
) -> Result<Value, Problem> {
    let config = StressTestConfig {
        duration_secs: seconds,
        orch_concurrency: dispatchers,
        worker_concurrency: dispatchers,
        ..StressTestConfig::default()
    };
    let result = run_parallel_orchestrations_test_with_config(&Opened(provider), config).await;
    figures(result.map_err(|error| error.to_string())?)
}

pub(crate) async fn payload(
    provider: Arc<dyn Provider>,
    dispatchers: usize,
    seconds: u64,
) -> Result<Value, Problem> {
    let mut config = LargePayloadConfig::default();
    config.base.duration_secs = seconds;
    (config.base.orch_concurrency, config.base.worker_concurrency) = (dispatchers, dispatchers);
    let result = run_large_payload_test_with_config(&Opened(provider), config).await;
    figures(result.map_err(|error| error.to_string())?)
}

/// A peer's lost workflows are part of its figures; that none was completed is
/// a broken run.
fn figures(result: StressTestResult) -> Result<Value, Problem> {
    if result.completed == 0 {
        return Err(format!("none of {} workflows was completed", result.launched).into());
    }
    Ok(json!({
        "perSecond": result.orch_throughput,
        "completed": result.completed,
        "failed": result.launched - result.completed,
    }))
}
