//! The error of a merge.

/// Why a merge failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MergeError {
    /// The plan is malformed; the text says where.
    InvalidPlan(&'static str),
    /// The plan needs a feature that the merge does not support.
    Unsupported(String),
    /// The continuation token is malformed, or no merge with this plan can have made it.
    InvalidToken(&'static str),
    /// The continuation token belongs to another query, or the plan had another statement for
    /// the partitions when the token was made.
    TokenOfAnotherQuery,
    /// The continuation token belongs to another container, or to an earlier container of the same
    /// name.
    TokenOfAnotherContainer,
    /// A row does not have the form of the rows of the plan's statement.
    UnexpectedRow(&'static str),
    /// The reported fetch is not in flight.
    UnknownFetch,
    /// The caller's ranges do not cover all keys, or one of them has no keys or only keys of the
    /// ranges before it: the caller's list is stale or wrong.
    RangesDoNotCover {
        /// The lowest key to cover (inclusive).
        min: String,
        /// The highest key to cover (exclusive).
        max: String,
    },
    /// A range, and the ranges that replaced it, were gone too often.
    GoneTooOften {
        /// The lowest key of the range (inclusive).
        min: String,
        /// The highest key of the range (exclusive).
        max: String,
    },
    /// The merge needs more memory than a query may use.
    TooLarge(&'static str),
}

impl std::fmt::Display for MergeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            MergeError::InvalidPlan(what) => write!(f, "the query plan cannot be read: {what}"),
            MergeError::Unsupported(what) => {
                write!(f, "the query needs {what}, which the client cannot merge across partitions")
            }
            MergeError::InvalidToken(what) => write!(f, "the continuation token cannot be used: {what}"),
            MergeError::TokenOfAnotherQuery => {
                f.write_str("the continuation token cannot be used: it belongs to another query")
            }
            MergeError::TokenOfAnotherContainer => f.write_str(
                "the continuation token cannot be used: it belongs to another container, or to one that was deleted and created again. Begin the query again without a token",
            ),
            MergeError::UnexpectedRow(what) => {
                write!(f, "a partition returned a row that does not fit the query plan: {what}")
            }
            MergeError::UnknownFetch => f.write_str("a page was reported for a fetch that is not in flight"),
            MergeError::RangesDoNotCover { min, max } => {
                write!(f, "the partition key ranges do not cover [{min}, {max}); refresh the list of ranges")
            }
            MergeError::GoneTooOften { min, max } => {
                write!(f, "the partition key range of [{min}, {max}) is gone on every attempt")
            }
            MergeError::TooLarge(what) => {
                write!(f, "the query holds {what} in memory; narrow its filter")
            }
        }
    }
}

impl std::error::Error for MergeError {}
