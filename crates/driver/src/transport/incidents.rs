//! The incidents of one endpoint and of one connection. When a server restarts, all its
//! connections end at about the same time; for the circuit breakers this is one event, and
//! not one for each request that was in flight.

use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use perihelion_wire::transport::Incident;
use tokio::time::Instant;

use super::vitals::Vitals;

/// Connections that end, or are found to be silent, within this time belong to one incident. So a
/// server that ends every new connection counts once a second.
const SAME_INCIDENT_WITHIN: Duration = Duration::from_secs(1);

/// The last incident, and when it began.
#[derive(Debug, Default)]
pub(super) struct Incidents(Mutex<Option<(Instant, Incident)>>);

impl Incidents {
    /// The incident of a connection that ends now, or is found to be silent.
    pub(super) fn at(&self, now: Instant) -> Incident {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match *last {
            Some((began, incident)) if now.saturating_duration_since(began) < SAME_INCIDENT_WITHIN => {
                incident
            }
            Some(_) | None => {
                let incident = Incident::next();
                *last = Some((now, incident));
                incident
            }
        }
    }
}

/// The incidents of one connection.
#[derive(Debug, Default)]
pub(super) struct ShardIncidents {
    /// The incident by which the connection has ended, or is taken to have ended.
    end: OnceLock<Incident>,
    /// The incident of the last silence, and when the connection was found to be silent.
    silence: Mutex<Option<(Instant, Incident)>>,
}

impl ShardIncidents {
    /// The incident of a connection that has ended. Connections to one endpoint that end together
    /// have the same incident.
    pub(super) fn end(&self, endpoint: &Incidents, now: Instant) -> Incident {
        *self.end.get_or_init(|| endpoint.at(now))
    }

    /// The incident of a connection on which nothing arrives though requests wait. The incident is
    /// the same until something arrives. A connection that stays open may be silent again later,
    /// which is another incident.
    pub(super) fn silence(&self, endpoint: &Incidents, vitals: &Vitals, now: Instant) -> Incident {
        if let Some(end) = self.end.get() {
            return *end;
        }
        let mut silence = self.silence.lock().unwrap_or_else(PoisonError::into_inner);
        match *silence {
            Some((found_at, incident)) if !vitals.has_arrival_since(found_at) => incident,
            Some(_) | None => {
                let incident = endpoint.at(now);
                *silence = Some((now, incident));
                incident
            }
        }
    }

    /// Records that the connection is closed because it is silent. Its requests fail in the same
    /// incident as the requests that gave up before.
    pub(super) fn end_by_silence(&self, endpoint: &Incidents, vitals: &Vitals, now: Instant) {
        let silence = self.silence(endpoint, vitals, now);
        self.end.get_or_init(|| silence);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A connection stays open and is silent twice, minutes apart. Then the server restarts,
    /// and all its connections end together.
    #[test]
    fn two_silences_are_two_incidents_and_connections_that_end_together_share_one() {
        let (endpoint, start) = (Incidents::default(), Instant::now());
        let (first, second) = (ShardIncidents::default(), ShardIncidents::default());
        let vitals = Vitals::new(start);
        let at = |seconds| start + Duration::from_secs(seconds);
        let silence = first.silence(&endpoint, &vitals, at(10));
        assert_eq!(first.silence(&endpoint, &vitals, at(16)), silence, "nothing has arrived since");
        vitals.record_arrival(at(20));
        let later = first.silence(&endpoint, &vitals, at(300));
        assert_ne!(later, silence);
        vitals.record_arrival(at(310));
        let end = second.end(&endpoint, at(600));
        assert_eq!(first.end(&endpoint, at(600)), end, "one restart is one incident");
        assert_eq!(first.silence(&endpoint, &vitals, at(601)), end, "the connection has ended");
    }

    #[test]
    fn a_connection_that_is_closed_for_its_silence_has_one_incident() {
        let (endpoint, start) = (Incidents::default(), Instant::now());
        let (incidents, vitals) = (ShardIncidents::default(), Vitals::new(start));
        let silence = incidents.silence(&endpoint, &vitals, start);
        incidents.end_by_silence(&endpoint, &vitals, start + Duration::from_secs(5));
        assert_eq!(incidents.end(&endpoint, start + Duration::from_secs(5)), silence);
    }

    #[test]
    fn connections_that_end_together_are_one_incident() {
        let (incidents, now) = (Incidents::default(), Instant::now());
        let first = incidents.at(now);
        assert_eq!(incidents.at(now + SAME_INCIDENT_WITHIN / 2), first);
        // Counted from the first connection, so that a server that ends connections all the
        // time is not one incident forever.
        let second = incidents.at(now + SAME_INCIDENT_WITHIN);
        assert_ne!(second, first);
        assert_ne!(Incidents::default().at(now), second, "another endpoint");
    }
}
