//! Why a merge cannot go on.

/// What went wrong between a plan, its pages and a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MergeError {
    /// The plan is not one; the text says which member is wrong.
    InvalidPlan(&'static str),
    /// The plan asks for something that this merge does not do.
    Unsupported(String),
    /// The continuation token is not ours, or belongs to another query.
    InvalidToken(&'static str),
    /// A row does not have the form that the plan's statement gives it.
    UnexpectedRow(&'static str),
    /// The page answers no fetch that is under way.
    UnknownFetch,
    /// The ranges at hand do not cover `min..max`: the caller's list is stale.
    RangesDoNotCover { min: String, max: String },
    /// The range of a fetch went away again and again.
    GoneTooOften { min: String, max: String },
    /// The answer needs more memory at once than any query may have.
    TooLarge(&'static str),
}

impl std::fmt::Display for MergeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            MergeError::InvalidPlan(what) => write!(f, "the query plan cannot be read: {what}"),
            MergeError::Unsupported(what) => {
                write!(f, "the query needs {what}, which cannot be merged across partitions here")
            }
            MergeError::InvalidToken(what) => write!(f, "the continuation token cannot be used: {what}"),
            MergeError::UnexpectedRow(what) => {
                write!(f, "a partition answered a row that does not fit the query plan: {what}")
            }
            MergeError::UnknownFetch => f.write_str("a page arrived that was not asked for"),
            MergeError::RangesDoNotCover { min, max } => {
                write!(f, "no partition key ranges cover [{min}, {max}); refresh the list of ranges")
            }
            MergeError::GoneTooOften { min, max } => {
                write!(f, "the partition key range of [{min}, {max}) is gone whenever it is asked")
            }
            MergeError::TooLarge(what) => {
                write!(f, "the query holds {what} in memory; narrow its filter")
            }
        }
    }
}

impl std::error::Error for MergeError {}
