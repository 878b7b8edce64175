//! The incidents of one endpoint. When a server restarts, all its connections end at about
//! the same time; for the circuit breakers this is one event, and not one for each request
//! that was in flight.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use perihelion_wire::transport::Incident;
use tokio::time::Instant;

/// Connections that end within this time belong to one incident. A server that ends every
/// new connection is so counted once a second.
const TOGETHER: Duration = Duration::from_secs(1);

/// The last incident, and when it began.
#[derive(Debug, Default)]
pub(super) struct Incidents(Mutex<Option<(Instant, Incident)>>);

impl Incidents {
    /// The incident of a connection that ends now.
    pub(super) fn at(&self, now: Instant) -> Incident {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match *last {
            Some((began, incident)) if now.saturating_duration_since(began) < TOGETHER => incident,
            Some(_) | None => {
                let incident = Incident::next();
                *last = Some((now, incident));
                incident
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_that_end_together_are_one_incident() {
        let (incidents, now) = (Incidents::default(), Instant::now());
        let first = incidents.at(now);
        assert_eq!(incidents.at(now + TOGETHER / 2), first);
        // Counted from the first connection, so that a server that ends connections all the
        // time is not one incident for ever.
        let second = incidents.at(now + TOGETHER);
        assert_ne!(second, first);
        assert_ne!(Incidents::default().at(now), second, "another endpoint");
    }
}
