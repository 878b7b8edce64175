//! Deadlines of calls that send several requests. Each request has a timeout of its own,
//! which the driver applies.

use std::future::Future;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use crate::Error;

/// The time at which a call must end if it begins now and may take `limit`. `None` if there is
/// no limit, or if the time is beyond what the clock can hold.
pub(crate) fn from_now(limit: Option<Duration>) -> Option<Instant> {
    limit.and_then(|limit| Instant::now().checked_add(limit))
}

/// Waits for the result of a call, until the deadline at most. `what` names the call in the
/// error.
pub(crate) async fn within<T>(
    deadline: Option<Instant>,
    what: &str,
    call: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    let Some(deadline) = deadline else { return call.await };
    let time_was_up = || Error::timeout(format!("{what} did not end within its time limit"));
    // `timeout_at` polls the call at least once, even after the deadline, and the call would send
    // a request.
    if Instant::now() >= deadline {
        return Err(time_was_up());
    }
    timeout_at(deadline, call).await.unwrap_or_else(|_| Err(time_was_up()))
}
