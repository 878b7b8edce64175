//! The time to live of documents.

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// When the documents of a container expire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeToLive {
    /// Only documents with a member `ttl` expire.
    PerItem,
    /// Documents expire this many seconds after their last write. A document's own
    /// `ttl` has precedence.
    Seconds(u32),
}

/// The longest time to live that the service accepts.
const SECONDS_MAX: u32 = 2_147_483_647;

/// How the service writes [`TimeToLive::PerItem`].
const PER_ITEM: i64 = -1;

impl TimeToLive {
    /// A time to live, rounded down to whole seconds, at least one and at most 2,147,483,647.
    pub fn after(duration: Duration) -> Self {
        let seconds = u32::try_from(duration.as_secs()).unwrap_or(SECONDS_MAX);
        TimeToLive::Seconds(seconds.clamp(1, SECONDS_MAX))
    }
}

impl Serialize for TimeToLive {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_i64(match self {
            TimeToLive::PerItem => PER_ITEM,
            TimeToLive::Seconds(seconds) => i64::from(*seconds),
        })
    }
}

impl<'de> Deserialize<'de> for TimeToLive {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let seconds = i64::deserialize(deserializer)?;
        match u32::try_from(seconds) {
            Ok(seconds) => Ok(TimeToLive::Seconds(seconds)),
            Err(_) if seconds == PER_ITEM => Ok(TimeToLive::PerItem),
            Err(_) => Err(serde::de::Error::custom(format!("{seconds} is not a time to live"))),
        }
    }
}
