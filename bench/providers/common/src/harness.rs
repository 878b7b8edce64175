//! duroxide's own stress harnesses. The caller sets the duration and the number of
//! dispatchers, which is also the number of workers. Everything else is the default of the
//! harness: 20 concurrent workflows of 5 activities of 10 ms, or 5 concurrent workflows with
//! payloads of 10 to 100 KB.

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

/// Gives the harness the provider that is already open.
struct Opened(Arc<dyn Provider>);

#[async_trait::async_trait]
impl ProviderStressFactory for Opened {
    async fn create_provider(&self) -> Arc<dyn Provider> {
        Arc::clone(&self.0)
    }
}

/// Runs the harness of concurrent workflows.
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

/// Runs the harness of large payloads.
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

/// The figures of a run. `failed` counts every workflow that was launched and not completed.
/// The harness's own `failed` leaves out the workflows that it stopped waiting for. Such
/// workflows do not fail the run: how many of them a provider loses is part of the
/// comparison. A run without a completed workflow is an error.
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
