//! Request units: a model fitted to recorded charges of a hosted account, within
//! ten percent of each.
//!
//! A charge depends on the same quantities as in the service. The charge of a write depends
//! on the number of indexed values (terms). The charge of a query depends on the rows and
//! members that it returns, and on the documents that it reads without returning a row for
//! them. The charge of every successful operation on documents also depends on the bytes
//! beyond the first kilobyte (in a query, beyond one kilobyte per row). `docs/charges.md`
//! derives the constants. A test of the server compares the model with every recorded
//! charge.
//!
//! All constants and results of this module are in request units, unless a name says bytes.

/// A point read of up to one kilobyte.
const READ: f64 = 1.0;
/// Added to a read for each kilobyte beyond the first.
const READ_PER_KILOBYTE: f64 = 0.09;
/// A create without any indexed value.
const CREATE: f64 = 5.14;
/// Added to a create for each indexed value (a leaf of the document).
const PER_TERM: f64 = 0.381;
/// Added to a write for each kilobyte beyond the first.
const WRITE_PER_KILOBYTE: f64 = 0.45;
/// A replace without any indexed value.
const REPLACE: f64 = 8.38;
/// An upsert of an existing document, without any indexed value.
const UPSERT_EXISTING: f64 = 8.0;
/// A patch of a document without any indexed value.
const PATCH: f64 = 8.75;
/// Added to a write over an existing document for each indexed value of the old version
/// and for each indexed value of the new version, changed or not.
const REPLACED_TERM: f64 = 0.39;

/// Reading a document that does not exist.
pub const NOT_FOUND_READ: f64 = 1.0;
/// Deleting, replacing or patching a document that does not exist.
pub const NOT_FOUND_WRITE: f64 = 1.24;
/// Creating a document whose id exists.
pub const CONFLICT: f64 = 1.48;
/// Writing a document whose unique key exists.
pub const UNIQUE_CONFLICT: f64 = 1.94;
/// An operation whose precondition is not met.
pub const PRECONDITION_FAILED: f64 = 1.24;
/// Writing a document that is not acceptable.
pub const BAD_DOCUMENT: f64 = 1.24;
/// Creating a database or container, or replacing a container.
pub const METADATA_CREATE: f64 = 1.0;
/// Reading a database, container, offer or script, or replacing an offer.
pub const METADATA_READ: f64 = 2.0;
/// Deleting a database or container.
pub const METADATA_DELETE: f64 = 4.95;
/// Creating, replacing or deleting a script.
pub const SCRIPT_WRITE: f64 = 4.95;
/// A page of a list of resources.
pub const FEED: f64 = 2.0;
/// A page of the change feed, without the charge of its documents.
pub const CHANGE_FEED: f64 = 1.0;

/// The kilobytes beyond the first, as a fraction; 0 for up to one kilobyte.
fn kilobytes_over_one(bytes: usize) -> f64 {
    (bytes as f64 / 1024.0 - 1.0).max(0.0)
}

/// A point read.
pub fn read(bytes: usize) -> f64 {
    READ + READ_PER_KILOBYTE * kilobytes_over_one(bytes)
}

/// A create. `terms` is the number of indexed values.
pub fn create(terms: u32, bytes: usize) -> f64 {
    CREATE + PER_TERM * f64::from(terms) + WRITE_PER_KILOBYTE * kilobytes_over_one(bytes)
}

/// An upsert of an existing document.
pub fn upsert_existing(old_terms: u32, new_terms: u32, bytes: usize) -> f64 {
    UPSERT_EXISTING + terms_and_size(old_terms, new_terms, bytes)
}

/// A replace.
pub fn replace(old_terms: u32, new_terms: u32, bytes: usize) -> f64 {
    REPLACE + terms_and_size(old_terms, new_terms, bytes)
}

/// A patch.
pub fn patch(old_terms: u32, new_terms: u32, bytes: usize) -> f64 {
    PATCH + terms_and_size(old_terms, new_terms, bytes)
}

/// The part of the charge of a write over an existing document that depends on the
/// indexed values and the size of the document.
fn terms_and_size(old_terms: u32, new_terms: u32, bytes: usize) -> f64 {
    REPLACED_TERM * f64::from(old_terms + new_terms) + WRITE_PER_KILOBYTE * kilobytes_over_one(bytes)
}

/// A delete, which costs as much as creating the same document.
pub fn delete(terms: u32, bytes: usize) -> f64 {
    create(terms, bytes)
}

/// The documents that a query page read and the rows it returned.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct QueryWork {
    /// False for a query without FROM, which returns a constant.
    pub reads_documents: bool,
    /// Documents read.
    pub documents: u64,
    /// Rows returned.
    pub rows: u64,
    /// Members of the rows. A row that is a whole document counts as two members, a row
    /// that is not an object as one.
    pub members: u64,
    /// Bytes of the rows.
    pub bytes: usize,
}

/// A page of a query without FROM.
const QUERY_CONSTANT: f64 = 2.25;
/// A page of any other query, without the charge of its rows and of the documents that it read.
const QUERY: f64 = 2.79;
/// Added for each row.
const QUERY_PER_ROW: f64 = 0.0105;
/// Added for each member of a row.
const QUERY_PER_MEMBER: f64 = 0.0019;
/// Added for each document that was read and gave no row.
const QUERY_PER_MISS: f64 = 0.00004;
/// The bytes per row that cost nothing.
const QUERY_BYTES_PER_ROW_FREE: usize = 1024;
/// Added for each kilobyte beyond the free bytes of all rows.
const QUERY_PER_KILOBYTE: f64 = 0.04;

/// A page of a query.
pub fn query(work: QueryWork) -> f64 {
    if !work.reads_documents {
        return QUERY_CONSTANT;
    }
    let bytes_over = work.bytes.saturating_sub(work.rows as usize * QUERY_BYTES_PER_ROW_FREE);
    QUERY
        + QUERY_PER_ROW * work.rows as f64
        + QUERY_PER_MEMBER * work.members as f64
        + QUERY_PER_MISS * work.documents.saturating_sub(work.rows) as f64
        + QUERY_PER_KILOBYTE * bytes_over as f64 / 1024.0
}

/// A page of a change feed.
pub fn change_feed(documents: usize, bytes: usize) -> f64 {
    CHANGE_FEED + QUERY_PER_ROW * documents as f64 + READ_PER_KILOBYTE * kilobytes_over_one(bytes)
}

/// A charge as text: at most two decimal digits, as the service prints charges.
pub fn print(charge: f64) -> String {
    let hundredths = (charge * 100.0).round() as u64;
    let (whole, rest) = (hundredths / 100, hundredths % 100);
    match rest {
        0 => whole.to_string(),
        rest if rest.is_multiple_of(10) => format!("{whole}.{}", rest / 10),
        rest => format!("{whole}.{rest:02}"),
    }
}

#[cfg(test)]
mod tests {
    use super::print;

    #[test]
    fn charges_are_printed_with_at_most_two_decimal_digits() {
        for (charge, text) in
            [(1.0, "1"), (6.666, "6.67"), (12.5, "12.5"), (0.0, "0"), (2.05, "2.05"), (704.76, "704.76")]
        {
            assert_eq!(print(charge), text);
        }
    }
}
