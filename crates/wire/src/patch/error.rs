//! The errors of a patch, with the service's messages.

use perihelion_model::json::DEPTH_MAX;

use super::OPERATIONS_MAX;

/// Why a patch is refused. `Display` is the message for the body of the 400.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PatchError {
    /// The body is not a patch.
    Syntax,
    /// There are more than [`OPERATIONS_MAX`] operations.
    TooManyOperations,
    /// An operation changes the system property of this name, or a part of it.
    SystemProperty(String),
    /// An operation changes the partition key. The engine reports this, because
    /// it knows the key's paths; see [`Patch::touches`](super::Patch::touches).
    PartitionKey,
    /// An operation cannot be applied to the document.
    Operation {
        /// The number of the operation, from 1.
        number: usize,
        /// Why it cannot be applied.
        reason: Reason,
    },
}

/// Why one operation cannot be applied. The strings are paths or segments of paths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    /// The parent of the node is missing or a scalar.
    NoParent {
        /// Whether the operation is `add` or `move`; the message depends on it.
        is_add: bool,
        /// The first path segment that is missing or a scalar.
        beyond: String,
    },
    /// `replace` of a node that does not exist.
    ReplacedAbsent(String),
    /// `remove` or `move` of a node that does not exist, or whose parent does not exist.
    RemovedAbsent(String),
    /// An array index that is out of bounds or not an index.
    IndexOutOfBounds(String),
    /// `incr` of a value that is not a number, or a sum out of range.
    NotANumber(String),
    /// A node is moved into itself.
    MovedIntoItself,
    /// The result would be deeper than a document may be.
    TooDeep,
}

impl std::fmt::Display for PatchError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            PatchError::Syntax => f.write_str("Invalid patch request: check syntax of patch specification."),
            PatchError::TooManyOperations => {
                write!(f, "The number of patch operations cannot exceed '{OPERATIONS_MAX}'.")
            }
            PatchError::SystemProperty(name) => {
                write!(f, "Invalid patch request: Cannot patch system property {name}.")
            }
            PatchError::PartitionKey => {
                f.write_str("Invalid patch request: Cannot patch the partition key of a document.")
            }
            PatchError::Operation { number, reason } => write!(f, "For Operation({number}): {reason}"),
        }
    }
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Reason::NoParent { is_add, beyond } => write!(
                f,
                "{} Operation can only create a child object of an existing node(array or object) and \
                 cannot create path recursively, no path found beyond: '{beyond}'.",
                if *is_add { "Add" } else { "Given" }
            ),
            Reason::ReplacedAbsent(path) => write!(f, "Node({path}) to be replaced is absent."),
            Reason::RemovedAbsent(path) => write!(
                f,
                "Node({path}) to be removed is absent. Note: it may also have been removed earlier in the \
                 transaction."
            ),
            Reason::IndexOutOfBounds(token) => {
                write!(f, "Index({token}) to operate on is out of array bounds.")
            }
            Reason::NotANumber(path) => write!(f, "Node({path}) is not a number."),
            Reason::MovedIntoItself => {
                f.write_str("The path of a move operation cannot be a child of its from path.")
            }
            Reason::TooDeep => write!(f, "The document would nest deeper than {DEPTH_MAX} levels."),
        }
    }
}

impl std::error::Error for PatchError {}
