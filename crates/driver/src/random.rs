//! Random numbers: samples for jitter, and activity ids. Decisions take a sample as
//! an argument.

use http::HeaderValue;
use perihelion_model::uuid::Uuid;

/// A random sample: at least 0 and below 1.
pub(crate) fn sample() -> f64 {
    fastrand::f64()
}

/// The id of one request: a random UUID (version 4).
#[derive(Debug, Clone, Copy)]
pub(crate) struct ActivityId(Uuid);

/// A new activity id.
pub(crate) fn activity_id() -> ActivityId {
    ActivityId(Uuid::from_random(fastrand::u128(..)))
}

impl ActivityId {
    /// The id as a header. It is formatted on each call: only a failed request
    /// needs the header a second time, for its diagnostics.
    pub(crate) fn header(self) -> HeaderValue {
        HeaderValue::from_bytes(&self.0.text()).expect("hexadecimal digits and hyphens")
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn an_activity_id_is_a_version_4_uuid() {
        let id = super::activity_id().header();
        let text = id.to_str().unwrap();
        assert_eq!(text.len(), 36);
        assert_eq!(text.as_bytes()[14], b'4');
        assert!(b"89ab".contains(&text.as_bytes()[19]));
        assert_eq!(text.bytes().filter(|byte| *byte == b'-').count(), 4);
        assert_ne!(id, super::activity_id().header());
    }
}
