//! `UnknownMembers`: the members of a document that this version does not know. A later version
//! has written them. They are kept when this version reads the document and writes it back
//! whole, so that old and new processes can share a container.
//!
//! Members that begin with `_` belong to the service and are not kept. Only members at the top
//! level of a document are kept, not members of the objects in it. So a later version must add
//! its members at the top level.

use std::fmt;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde::ser::{Serialize, Serializer};
use serde_json::{Map, Value};

/// The unknown members of a document. A field of this type is flattened. It comes last, because it
/// takes all members that the fields before it have left.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct UnknownMembers(Map<String, Value>);

impl Serialize for UnknownMembers {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for UnknownMembers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(MembersVisitor)
    }
}

struct MembersVisitor;

impl<'de> Visitor<'de> for MembersVisitor {
    type Value = UnknownMembers;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<UnknownMembers, A::Error> {
        let mut unknown = Map::new();
        while let Some(name) = members.next_key::<String>()? {
            if name.starts_with('_') {
                members.next_value::<IgnoredAny>()?;
            } else {
                unknown.insert(name, members.next_value()?);
            }
        }
        Ok(UnknownMembers(unknown))
    }
}

#[cfg(test)]
mod tests {
    use crate::documents::State;

    #[test]
    fn unknown_members_of_a_state_are_written_back_and_those_of_the_service_are_not() {
        let stored = serde_json::json!({
            "id": "i", "instanceId": "a", "type": "history", "execution": 3, "seq": 7,
            "later": { "x": [1] }, "_ts": 5, "_etag": "e",
        });
        let state: State = serde_json::from_value(stored).unwrap();
        assert_eq!((state.execution.number, state.commit_number), (3, 7));
        let written = serde_json::to_value(&state).unwrap();
        assert_eq!(written["later"], serde_json::json!({ "x": [1] }));
        assert!(written.get("_ts").is_none() && written.get("_etag").is_none());
        let again: State = serde_json::from_value(written.clone()).unwrap();
        assert_eq!(serde_json::to_value(&again).unwrap(), written);
    }
}
