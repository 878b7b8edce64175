//! Congestion control: how many requests of a bulk may be under way to one physical
//! partition. The limit grows by one after a round of answers without throttling, and is
//! halved when the service throttles or a request fails. Time is an argument, so that tests
//! need no clock.
//!
//! What always holds: the limit is at least one and at most its maximum.

use std::time::Duration;

use tokio::time::Instant;

/// The wait after throttling when the service does not say how long to wait.
const THROTTLE_WAIT: Duration = Duration::from_millis(100);

/// The longest wait that is taken from the service. A longer wait is shortened, because the
/// throughput of the container may be raised meanwhile.
const THROTTLE_WAIT_MAX: Duration = Duration::from_secs(15);

/// The waits after failures that are not throttling: the first, and the longest. They
/// double from failure to failure.
const FAILURE_WAIT: Duration = Duration::from_millis(50);
const FAILURE_WAIT_MAX: Duration = Duration::from_secs(5);

/// The state of one partition.
#[derive(Debug)]
pub(super) struct Congestion {
    /// How many requests may be under way.
    limit: u32,
    limit_max: u32,
    /// Answers without throttling since the limit last changed. Only the requests with which
    /// the limit was reached count.
    clean_answers: u32,
    /// Counts the times that the limit was halved. A request remembers the count when it is
    /// sent, so that the requests of one round halve the limit only once.
    epoch: u64,
    /// No request is sent before this time.
    paused_until: Option<Instant>,
    failures_in_a_row: u32,
}

/// The facts about a sent request that the congestion control needs when the request ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Permit {
    epoch: u64,
    /// Whether the limit was reached with this request.
    reaches_limit: bool,
}

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Signal {
    /// The service throttled no operation, and no operation is sent again after a failure.
    Clean,
    /// The service throttled the request, or some of its operations.
    Throttled {
        /// The wait that the service asks for.
        retry_after: Option<Duration>,
    },
    /// The request or some of its operations failed for another reason, and are sent again.
    Failed,
}

impl Congestion {
    /// Begins with a limit of one request. A bulk that began with many requests would be
    /// throttled at once wherever little throughput is provisioned.
    pub(super) fn new(limit_max: u32) -> Self {
        Congestion {
            limit: 1,
            limit_max: limit_max.max(1),
            clean_answers: 0,
            epoch: 0,
            paused_until: None,
            failures_in_a_row: 0,
        }
    }

    /// The permit for one more request; `None` when the partition must wait.
    pub(super) fn permit(&self, in_flight: u32, now: Instant) -> Option<Permit> {
        if in_flight >= self.limit || self.pause_end(now).is_some() {
            return None;
        }
        Some(Permit { epoch: self.epoch, reaches_limit: in_flight + 1 == self.limit })
    }

    /// When the pause of requests to this partition ends; `None` if requests may be sent now.
    pub(super) fn pause_end(&self, now: Instant) -> Option<Instant> {
        self.paused_until.filter(|end| *end > now)
    }

    /// How many requests may be under way.
    #[cfg(test)]
    pub(super) fn limit(&self) -> u32 {
        self.limit
    }

    /// Learns how a request ended.
    pub(super) fn record(&mut self, permit: Permit, signal: Signal, now: Instant) {
        match signal {
            Signal::Clean => self.record_clean(permit),
            Signal::Throttled { retry_after } => {
                // A wait of zero would send the request at once, and it would be throttled
                // again.
                let wait = retry_after.filter(|wait| !wait.is_zero()).unwrap_or(THROTTLE_WAIT);
                self.back_off(permit, wait.min(THROTTLE_WAIT_MAX), now);
            }
            Signal::Failed => {
                let doublings = self.failures_in_a_row.min(16);
                self.failures_in_a_row = self.failures_in_a_row.saturating_add(1);
                self.back_off(permit, FAILURE_WAIT.saturating_mul(1 << doublings).min(FAILURE_WAIT_MAX), now);
            }
        }
    }

    fn record_clean(&mut self, permit: Permit) {
        self.failures_in_a_row = 0;
        if !permit.reaches_limit || permit.epoch != self.epoch {
            return;
        }
        self.clean_answers = self.clean_answers.saturating_add(1);
        if self.clean_answers >= self.limit && self.limit < self.limit_max {
            self.limit += 1;
            self.clean_answers = 0;
        }
    }

    fn back_off(&mut self, permit: Permit, wait: Duration, now: Instant) {
        if permit.epoch == self.epoch {
            self.limit = (self.limit / 2).max(1);
            self.epoch += 1;
            self.clean_answers = 0;
        }
        let end = now + wait;
        self.paused_until = Some(self.paused_until.map_or(end, |until| until.max(end)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const THROTTLED: Signal = Signal::Throttled { retry_after: Some(Duration::from_millis(10)) };

    /// Sends as many requests as the limit allows, and answers each with `signal`. Returns the
    /// new limit.
    fn round(congestion: &mut Congestion, signal: Signal, now: Instant) -> u32 {
        let mut permits = Vec::new();
        while let Some(permit) = congestion.permit(permits.len() as u32, now) {
            permits.push(permit);
        }
        // A request takes the place of each answered request, as long as the round lasts.
        for _ in 0..permits.len() {
            let in_flight = permits.len() as u32 - 1;
            congestion.record(permits.remove(0), signal, now);
            permits.extend(congestion.permit(in_flight, now));
        }
        congestion.limit()
    }

    #[tokio::test(start_paused = true)]
    async fn the_limit_grows_by_about_one_per_round_up_to_its_maximum() {
        let (mut congestion, now) = (Congestion::new(4), Instant::now());
        let mut limits = vec![congestion.limit()];
        for _ in 0..12 {
            let before = congestion.limit();
            let after = round(&mut congestion, Signal::Clean, now);
            assert!(after <= before + 1, "{before} became {after} in one round");
            limits.push(after);
        }
        assert_eq!((limits[0], limits[12]), (1, 4), "{limits:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn throttling_halves_the_limit_once_per_round_and_pauses() {
        let (mut congestion, now) = (Congestion::new(8), Instant::now());
        while round(&mut congestion, Signal::Clean, now) < 8 {}
        let permits: Vec<Permit> = (0..8).filter_map(|sent| congestion.permit(sent, now)).collect();
        permits.iter().for_each(|permit| congestion.record(*permit, THROTTLED, now));
        assert_eq!((permits.len(), congestion.limit()), (8, 4));
        assert_eq!(congestion.permit(0, now), None);
        let after = now + Duration::from_millis(10);
        assert!(congestion.permit(3, after).is_some());
        assert!(congestion.permit(4, after).is_none());
        for _ in 0..5 {
            let permit = congestion.permit(0, now + Duration::from_secs(1)).unwrap();
            congestion.record(permit, THROTTLED, now);
        }
        assert_eq!(congestion.limit(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_of_zero_and_a_very_long_wait_are_replaced() {
        let now = Instant::now();
        for (retry_after, expected) in [
            (Some(Duration::ZERO), THROTTLE_WAIT),
            (None, THROTTLE_WAIT),
            (Some(Duration::MAX), THROTTLE_WAIT_MAX),
        ] {
            let mut congestion = Congestion::new(8);
            let permit = congestion.permit(0, now).unwrap();
            congestion.record(permit, Signal::Throttled { retry_after }, now);
            assert_eq!(congestion.pause_end(now), Some(now + expected));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_waits_after_failures_double_until_an_answer_comes() {
        let now = Instant::now();
        let mut congestion = Congestion::new(8);
        let permit = congestion.permit(0, now).unwrap();
        let mut wait_after = |signal| {
            congestion.paused_until = None;
            congestion.record(permit, signal, now);
            congestion.pause_end(now).map(|end| end - now)
        };
        assert_eq!(wait_after(Signal::Failed), Some(FAILURE_WAIT));
        assert_eq!(wait_after(Signal::Failed), Some(FAILURE_WAIT * 2));
        assert_eq!(wait_after(Signal::Clean), None);
        assert_eq!(wait_after(Signal::Failed), Some(FAILURE_WAIT));
        for _ in 0..40 {
            wait_after(Signal::Failed);
        }
        assert_eq!(wait_after(Signal::Failed), Some(FAILURE_WAIT_MAX));
    }
}
