//! The type of a document: the member `type` that every document has and
//! queries filter by. Only the marker of a migration and the layout version of the container
//! have types that are not listed here.
//!
//! A new document type is a new variant here. Code that treats documents by
//! type matches without a wildcard arm, so the compiler names each place that
//! has to decide. Queries name a type by its stored string.

use serde::de::{Deserialize, Deserializer, Error};
use serde::ser::{Serialize, Serializer};

/// The type of a document.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(crate) enum DocumentType {
    /// The state document, or a chunk of history: both have `eventData`.
    #[default]
    History,
    /// The state document of a deleted instance: a tombstone.
    Deleted,
    /// An execution that is no longer current.
    Execution,
    /// A message to an instance.
    Message,
    /// An activity to run.
    Activity,
    /// The tombstone of a cancelled activity.
    Cancelled,
    /// Activities and messages of one turn, to be unpacked.
    Bundle,
    /// Messages of one turn to other instances.
    Outbox,
    /// A bundle or outbox before its commit.
    Staged,
    /// A part of a text that is too large for its document.
    Part,
    /// A list of documents that can be removed once it is due.
    Garbage,
    /// A document that keeps the garbage record of staged documents from being created twice.
    StagingGuard,
    /// The lease of an activity session.
    Session,
    /// A deletion of several instances.
    Deletion,
    /// The heartbeat of a process.
    Heartbeat,
    /// The list of the live processes.
    Roster,
    /// A queue document that could not be read. It is kept for a person to look at.
    Unreadable,
}

impl DocumentType {
    const ALL: [DocumentType; 17] = [
        Self::History,
        Self::Deleted,
        Self::Execution,
        Self::Message,
        Self::Activity,
        Self::Cancelled,
        Self::Bundle,
        Self::Outbox,
        Self::Staged,
        Self::Part,
        Self::Garbage,
        Self::StagingGuard,
        Self::Session,
        Self::Deletion,
        Self::Heartbeat,
        Self::Roster,
        Self::Unreadable,
    ];

    /// The stored form. It never changes, even if the variant gets a better name.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::History => "history",
            Self::Deleted => "deleted",
            Self::Execution => "execution",
            Self::Message => "orch_queue",
            Self::Activity => "worker_queue",
            Self::Cancelled => "cancelled",
            Self::Bundle => "bundle",
            Self::Outbox => "outbox",
            Self::Staged => "staged",
            Self::Part => "part",
            Self::Garbage => "litter",
            Self::StagingGuard => "fence",
            Self::Session => "session",
            Self::Deletion => "deletion",
            Self::Heartbeat => "node",
            Self::Roster => "roster",
            Self::Unreadable => "unreadable",
        }
    }

    /// The type of a document that is not decoded yet; `None` if it is missing or unknown.
    pub(crate) fn of(document: &serde_json::Value) -> Option<Self> {
        document["type"].as_str().and_then(Self::parse)
    }

    /// Reads `type` of a document that another program may have written: a type
    /// that is not known here is `None`.
    pub(crate) fn if_known<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Self>, D::Error> {
        Ok(Self::parse(&<std::borrow::Cow<'de, str>>::deserialize(deserializer)?))
    }

    fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|document_type| document_type.as_str() == text)
    }
}

impl Serialize for DocumentType {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for DocumentType {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| Error::custom(format!("unknown document type '{text}'")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_is_read_back_from_its_stored_form() {
        for document_type in DocumentType::ALL {
            let json = serde_json::json!({ "type": document_type });
            assert_eq!(DocumentType::of(&json), Some(document_type));
            assert_eq!(serde_json::from_value::<DocumentType>(json["type"].clone()).unwrap(), document_type);
        }
        assert!(serde_json::from_value::<DocumentType>("instance".into()).is_err());
    }
}
