//! Resends: whether a request is sent again on another connection after its connection ended.
//!
//! A request that was certainly not sent is sent on another connection. So is a read that was
//! sent, even if its connection ended because the peer violated the protocol. A write that may
//! have been sent is not sent again: only the caller knows whether the write may be repeated, and
//! a repeated write must not be hidden from the caller.

use perihelion_wire::transport::{Failure, FailureKind, Response, Sent};

use super::limits::{CONNECTIONS_TRIED_MAX, READ_RESENDS_MAX};
use super::transfer::Delivered;

/// How often one request failed, and how often it was sent again.
#[derive(Debug, Default)]
pub(crate) struct Resends {
    /// How often the request failed before it was sent.
    unsent: u32,
    /// How often the request failed after it was sent, or may have been.
    lost: u32,
    /// How often the request was sent again.
    count: u8,
}

impl Resends {
    /// Whether to send the request again after this result. `is_read` says that the request
    /// only reads.
    pub(crate) fn allow(&mut self, is_read: bool, result: &Result<Response, Failure>) -> bool {
        let Err(failure) = result else { return false };
        let is_closed = failure.kind == FailureKind::Closed;
        let is_allowed = match failure.sent {
            Sent::No => {
                self.unsent += 1;
                is_closed && self.unsent < CONNECTIONS_TRIED_MAX
            }
            Sent::Yes | Sent::Unknown => {
                self.lost += 1;
                let has_connection_ended = failure.incident.is_some()
                    && matches!(failure.kind, FailureKind::Closed | FailureKind::Protocol);
                has_connection_ended && is_read && self.lost <= READ_RESENDS_MAX
            }
        };
        if is_allowed {
            self.count = self.count.saturating_add(1);
            tracing::debug!(%failure, "a request is sent again on another connection");
        }
        is_allowed
    }

    /// The result of the request, with the number of resends in its transfer.
    pub(crate) fn add_count_to(&self, delivered: Delivered) -> Delivered {
        let transfer = delivered.transfer.map(|transfer| transfer.with_resends(self.count));
        Delivered { transfer, ..delivered }
    }
}
