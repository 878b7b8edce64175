//! A notice to the person on call: written at once, and then at most once a minute, however
//! often its reason occurs.

use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

use crate::sync::lock;

/// The shortest time between two lines of the same notice.
const INTERVAL: Duration = Duration::from_secs(60);

/// One kind of notice.
#[derive(Debug, Default)]
pub(crate) struct Notice {
    last: Mutex<Option<Instant>>,
}

impl Notice {
    /// Whether the notice is to be written now. If so, the next one is due a minute later.
    pub(crate) fn is_due(&self) -> bool {
        let (mut last, now) = (lock(&self.last), Instant::now());
        let is_due = last.is_none_or(|last| last + INTERVAL <= now);
        if is_due {
            *last = Some(now);
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_notice_is_written_at_once_and_then_once_a_minute() {
        let notice = Notice::default();
        let mut written = 0;
        for _ in 0..600 {
            written += u32::from(notice.is_due());
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        assert_eq!(written, 5, "in five minutes");
    }
}
