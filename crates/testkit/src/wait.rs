//! Waiting for a condition, up to a limit.

use std::time::Duration;

use tokio::time::Instant;

/// How often a condition is checked.
const INTERVAL: Duration = Duration::from_millis(20);

/// Checks a condition until it holds. Panics with `what` when it does not hold
/// within the limit.
pub async fn wait_until(what: &str, limit: Duration, mut condition: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + limit;
    while !condition().await {
        assert!(Instant::now() < deadline, "not within {limit:?}: {what}");
        tokio::time::sleep(INTERVAL).await;
    }
}
