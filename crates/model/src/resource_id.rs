//! Resource ids (`_rid`): nested binary ids in base64 with `-` for `/`.
//!
//! The id of a database has 4 bytes. The id of a container has 8 bytes: the id of the
//! database, then 4 bytes with the top bit set. By this bit SDKs distinguish a container
//! from a user. The id of a resource in a container has 16 bytes: the id of the
//! container, then a little-endian counter whose top nibble is the type of the resource.
//! `docs/cosmos.md` has the details (resources).

use base64::Engine as _;
use base64::alphabet::Alphabet;
use base64::engine::general_purpose::{GeneralPurpose, PAD};

/// The id of a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DatabaseRid(pub u32);

/// The id of a container, with the id of its database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContainerRid {
    /// The database of the container.
    pub database: DatabaseRid,
    /// The number of the container, without the top bit.
    pub number: u32,
}

/// The id of a user, with the id of its database. It has 8 bytes like the id of a container,
/// without the top bit of the last four.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UserRid {
    /// The database of the user.
    pub database: DatabaseRid,
    /// The number of the user, below 2^31.
    pub number: u32,
}

/// The largest counter in the id of a document. The four bits above it are the type of the resource.
pub const DOCUMENT_COUNTER_MAX: u64 = (1 << 60) - 1;

/// The type of a resource in a container: the top nibble of its counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChildKind {
    /// A document.
    Document,
    /// A partition key range.
    PartitionKeyRange,
    /// A user-defined function.
    UserDefinedFunction,
    /// A trigger.
    Trigger,
    /// A stored procedure.
    StoredProcedure,
}

/// The bit that marks a container.
const CONTAINER_BIT: u32 = 0x8000_0000;

impl DatabaseRid {
    /// The id as text.
    pub fn to_text(self) -> String {
        encode(&self.0.to_be_bytes())
    }

    /// Parses the text of an id; `None` when it is not the id of a database.
    pub fn parse(text: &str) -> Option<Self> {
        let bytes: [u8; 4] = decode(text)?.try_into().ok()?;
        Some(DatabaseRid(u32::from_be_bytes(bytes)))
    }
}

impl ContainerRid {
    /// The id as bytes.
    pub fn bytes(self) -> [u8; 8] {
        let mut bytes = [0; 8];
        bytes[..4].copy_from_slice(&self.database.0.to_be_bytes());
        bytes[4..].copy_from_slice(&(self.number | CONTAINER_BIT).to_be_bytes());
        bytes
    }

    /// The id as text.
    pub fn to_text(self) -> String {
        encode(&self.bytes())
    }

    /// Parses the text of an id; `None` when it is not the id of a container.
    pub fn parse(text: &str) -> Option<Self> {
        let bytes: [u8; 8] = decode(text)?.try_into().ok()?;
        let database = u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        let number = u32::from_be_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
        (number & CONTAINER_BIT != 0)
            .then_some(ContainerRid { database: DatabaseRid(database), number: number & !CONTAINER_BIT })
    }

    /// The id of a resource in this container. `number` is its counter.
    pub fn child(self, kind: ChildKind, number: u64) -> String {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.bytes());
        bytes[8..].copy_from_slice(&number.to_le_bytes());
        bytes[15] |= kind.nibble() << 4;
        encode(&bytes)
    }

    /// The counter in a document's id; `None` when it is not the id of a
    /// document of this container.
    pub fn parse_document(self, text: &str) -> Option<u64> {
        let bytes: [u8; 16] = decode(text)?.try_into().ok()?;
        document_counter_of(bytes).filter(|_| bytes[..8] == self.bytes())
    }
}

/// The counter in a document's id, whatever its container is; `None` when it is not the id of a
/// document.
pub fn document_counter(rid: &str) -> Option<u64> {
    document_counter_of(decode(rid)?.try_into().ok()?)
}

fn document_counter_of(bytes: [u8; 16]) -> Option<u64> {
    let [.., a, b, c, d, e, f, g, h] = bytes;
    let number = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
    (number <= DOCUMENT_COUNTER_MAX).then_some(number)
}

impl UserRid {
    /// The id as text.
    pub fn to_text(self) -> String {
        encode(&self.bytes())
    }

    /// Parses the text of an id; `None` when it is not the id of a user.
    pub fn parse(text: &str) -> Option<Self> {
        Self::from_bytes(decode(text)?.try_into().ok()?)
    }

    /// The id of a permission of this user: 16 bytes, the user's id first.
    pub fn permission(self, number: u32) -> String {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.bytes());
        bytes[8..].copy_from_slice(&u64::from(number).to_le_bytes());
        encode(&bytes)
    }

    /// The user in the id of a permission; `None` when it is not the id of a permission.
    pub fn of_permission(text: &str) -> Option<Self> {
        let bytes: [u8; 16] = decode(text)?.try_into().ok()?;
        let [a, b, c, d, e, f, g, h, ..] = bytes;
        Self::from_bytes([a, b, c, d, e, f, g, h])
    }

    fn bytes(self) -> [u8; 8] {
        let mut bytes = [0; 8];
        bytes[..4].copy_from_slice(&self.database.0.to_be_bytes());
        bytes[4..].copy_from_slice(&(self.number & !CONTAINER_BIT).to_be_bytes());
        bytes
    }

    fn from_bytes([a, b, c, d, e, f, g, h]: [u8; 8]) -> Option<Self> {
        let number = u32::from_be_bytes([e, f, g, h]);
        let database = DatabaseRid(u32::from_be_bytes([a, b, c, d]));
        (number & CONTAINER_BIT == 0).then_some(UserRid { database, number })
    }
}

impl ChildKind {
    fn nibble(self) -> u8 {
        match self {
            ChildKind::Document => 0,
            ChildKind::PartitionKeyRange => 5,
            ChildKind::UserDefinedFunction => 6,
            ChildKind::Trigger => 7,
            ChildKind::StoredProcedure => 8,
        }
    }
}

/// The base64 engine with `-` for `/`.
const ENGINE: GeneralPurpose = {
    const LETTERS: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+-";
    match Alphabet::new(LETTERS) {
        Ok(alphabet) => GeneralPurpose::new(&alphabet, PAD),
        Err(_) => panic!("64 different letters are an alphabet"),
    }
};

fn encode(bytes: &[u8]) -> String {
    ENGINE.encode(bytes)
}

fn decode(text: &str) -> Option<Vec<u8>> {
    /// The longest id has 16 bytes, 24 characters.
    const CHARACTERS_MAX: usize = 24;
    if text.len() > CHARACTERS_MAX {
        return None;
    }
    ENGINE.decode(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_begins_with_the_id_of_its_parent_and_parses_back() {
        let database = DatabaseRid(0x1234_5678);
        let container = ContainerRid { database, number: 7 };
        assert_eq!(DatabaseRid::parse(&database.to_text()), Some(database));
        assert_eq!(ContainerRid::parse(&container.to_text()), Some(container));
        let document = container.child(ChildKind::Document, 258);
        assert_eq!(container.parse_document(&document), Some(258));
        assert!(document.ends_with("CAQAAAAAAAA=="), "{document}");
        assert!(container.child(ChildKind::PartitionKeyRange, 1).ends_with("UA=="));
        assert_eq!(container.parse_document("nonsense"), None);
        assert_eq!(database.to_text().len(), 8);
        assert_eq!(container.to_text().len(), 12);
    }

    #[test]
    fn the_id_of_a_user_is_not_the_id_of_a_container() {
        let user = UserRid { database: DatabaseRid(0x1234_5678), number: 7 };
        assert_eq!(UserRid::parse(&user.to_text()), Some(user));
        assert_eq!(UserRid::of_permission(&user.permission(9)), Some(user));
        assert_ne!(user.permission(9), user.permission(10));
        let container = ContainerRid { database: user.database, number: 7 };
        assert_eq!(UserRid::parse(&container.to_text()), None);
        assert_eq!(UserRid::of_permission(&container.child(ChildKind::Document, 1)), None);
        assert_eq!(ContainerRid::parse(&user.to_text()), None);
    }
}
