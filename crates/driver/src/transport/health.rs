//! Judges the health of one connection by its vital signs and those of the other connections to
//! the same endpoint. This module only decides; `supervise` acts.
//!
//! | sign | verdict |
//! |---|---|
//! | a ping has no pong within the ping timeout, and nothing else arrived meanwhile | break |
//! | requests are in flight, and nothing arrived for the read-hang limit, though a ping asked for a pong | break |
//! | as in the row above, but for half of the read-hang limit | suspect |
//! | five requests failed in a row, no whole answer for 2 s, and another connection works | retire |
//! | all connections have five failures in a row and no whole answer for 2 s | replace the oldest, as a probe |
//! | no request for the idle timeout, and the connection is not needed | retire |
//!
//! *Break* closes the connection at once. *Retire* takes it out of use: its requests end,
//! then it is closed. A *suspect* connection gets no requests until something arrives.
//!
//! While this process is short of CPU, a late answer does not show that the server is slow: the
//! process itself may be slow. So only idle connections are retired during that time
//! (`starvation`).

use std::time::Duration;

use super::slots::SlotsView;
use super::vitals::Vitals;
use tokio::time::Instant;

/// The failures in a row after which a connection may be replaced. The table above has the other
/// conditions.
pub(super) const FAILURES_MAX: u32 = 5;

/// A connection on which a whole answer arrived within this time is not replaced because of failures.
pub(super) const FAILURE_GRACE: Duration = Duration::from_secs(2);

/// The limits that a connection is judged by.
#[derive(Debug, Clone, Copy)]
pub(super) struct HealthLimits {
    pub(super) ping_timeout: Duration,
    pub(super) read_hang_limit: Duration,
    pub(super) idle_timeout: Duration,
}

impl HealthLimits {
    /// A busy connection that is silent for this long is pinged. The pong is due when the same time
    /// has passed once more.
    pub(super) fn ping_after(self) -> Duration {
        self.read_hang_limit / 4
    }
}

/// The vital signs of one connection at one moment.
#[derive(Debug, Clone, Copy)]
pub(super) struct Signs {
    /// The connections of an endpoint are numbered in the order in which they were opened.
    pub(super) number: u64,
    pub(super) in_flight: u32,
    /// The time since bytes arrived last.
    pub(super) silent_for: Duration,
    /// How long requests have been waiting without any bytes; zero without requests.
    pub(super) hung_for: Duration,
    /// How long a ping has been waiting for its pong; `None` when no ping waits.
    pub(super) ping_waiting_for: Option<Duration>,
    /// How long there was no request; zero with requests.
    pub(super) idle_for: Duration,
    /// The requests that failed since the last answer.
    pub(super) failures: u32,
    /// The time since the last answer, or since the connection was opened.
    pub(super) unanswered_for: Duration,
    pub(super) has_answered: bool,
}

impl Signs {
    pub(super) fn read(number: u64, slots: SlotsView, vitals: &Vitals, now: Instant) -> Self {
        let is_busy = slots.in_use > 0;
        Signs {
            number,
            in_flight: slots.in_use,
            silent_for: vitals.silent_for(now),
            hung_for: if is_busy { vitals.hung_for(now) } else { Duration::ZERO },
            ping_waiting_for: vitals.ping_waiting_for(now),
            idle_for: if is_busy { Duration::ZERO } else { vitals.idle_for(now) },
            failures: vitals.failures(),
            unanswered_for: vitals.unanswered_for(now),
            has_answered: vitals.has_answered(),
        }
    }

    fn is_failing(&self) -> bool {
        self.failures >= FAILURES_MAX && self.unanswered_for > FAILURE_GRACE
    }

    /// Whether requests on this connection are answered, while they fail on `other`.
    fn is_healthier_than(&self, other: &Signs) -> bool {
        self.failures < FAILURES_MAX && self.has_answered && self.unanswered_for < other.unanswered_for
    }
}

/// Why a connection is taken out of use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reason {
    PingUnanswered,
    ReadHang,
    /// Requests fail here, and are answered on other connections.
    Failing,
    /// Requests fail on all connections. This connection makes room for a new one.
    AllFailing,
    Idle,
    /// The server takes no more requests on this connection.
    GoingAway,
}

/// The verdict on a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Keep,
    /// Send no requests until something arrives.
    Suspect,
    /// Send no more requests, and close the connection when its requests have ended.
    Retire(Reason),
    /// Close the connection now.
    Break(Reason),
}

/// Judges a connection. `others` are the other connections to its endpoint. With
/// `is_starved`, this process is short of CPU.
pub(super) fn judge(this: &Signs, others: &[Signs], limits: HealthLimits, is_starved: bool) -> Verdict {
    if is_starved {
        return judge_idle(this, limits);
    }
    let ping_waiting = this.ping_waiting_for;
    if ping_waiting.is_some_and(|waiting| waiting >= limits.ping_timeout)
        && this.silent_for >= limits.ping_timeout
    {
        return Verdict::Break(Reason::PingUnanswered);
    }
    // The ping shows that the server is silent, and not only slow to answer the requests.
    let is_pong_due = ping_waiting.is_some_and(|waiting| waiting >= limits.ping_after());
    if this.hung_for >= limits.read_hang_limit && is_pong_due {
        return Verdict::Break(Reason::ReadHang);
    }
    if this.is_failing() {
        if others.iter().any(|other| other.is_healthier_than(this)) {
            return Verdict::Retire(Reason::Failing);
        }
        let is_oldest = others.iter().all(|other| other.number > this.number);
        if is_oldest && others.iter().all(Signs::is_failing) {
            return Verdict::Retire(Reason::AllFailing);
        }
    }
    if this.hung_for >= limits.read_hang_limit / 2 && is_pong_due {
        return Verdict::Suspect;
    }
    judge_idle(this, limits)
}

/// Retires a connection that had no request for the idle timeout. The caller checks whether
/// the connection is needed nevertheless.
fn judge_idle(this: &Signs, limits: HealthLimits) -> Verdict {
    if this.in_flight == 0 && this.idle_for >= limits.idle_timeout {
        return Verdict::Retire(Reason::Idle);
    }
    Verdict::Keep
}

#[cfg(test)]
mod tests;
