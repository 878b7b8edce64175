//! Statuses of the service: an HTTP status code together with the sub-status
//! of the `x-ms-substatus` header. Client and server use these constants, so
//! that each number is written once and has a name.

use std::fmt;

/// An HTTP status code and its sub-status. The sub-status is 0 when the
/// response has no `x-ms-substatus` header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Status {
    /// The HTTP status code.
    pub code: u16,
    /// The value of `x-ms-substatus`, or 0.
    pub sub: u32,
}

macro_rules! statuses {
    ($($(#[$doc:meta])* $name:ident = $code:literal / $sub:literal;)*) => {
        $($(#[$doc])* pub const $name: Status = Status { code: $code, sub: $sub };)*
    };
}

statuses! {
    /// The operation succeeded.
    OK = 200 / 0;
    /// Every read of a distributed read transaction found its item unchanged: each result
    /// has status 304. The whole answer has 200, because HTTP layers drop the body of a 304.
    TRANSACTION_ALL_UNCHANGED = 200 / 5425;
    /// The operation created a resource.
    CREATED = 201 / 0;
    /// The operation succeeded and the response has no body: a delete.
    NO_CONTENT = 204 / 0;
    /// An operation of a batch was refused. In an atomic batch, no operation was applied. In a
    /// bulk request, the other operations may have been applied. In a distributed read transaction:
    /// some items are unchanged, or reads failed with different codes.
    MULTI_STATUS = 207 / 0;
    /// The resource still has the etag of `If-None-Match`.
    NOT_MODIFIED = 304 / 0;
    /// The body or a header is not acceptable.
    BAD_REQUEST = 400 / 0;
    /// The partition key in the header differs from the key in the document.
    PARTITION_KEY_MISMATCH = 400 / 1001;
    /// The gateway does not run this query across partitions; the client has
    /// to fetch a query plan and merge the partitions' results itself.
    CROSS_PARTITION_QUERY_NOT_SERVABLE = 400 / 1004;
    /// The container has a `_rid` other than the one that the client sent: it was recreated.
    COLLECTION_RID_MISMATCH = 400 / 1024;
    /// The body of a distributed transaction cannot be read, or has no operations.
    TRANSACTION_NOT_PARSED = 400 / 5405;
    /// This account has no distributed transactions, for example because it has several write
    /// regions.
    TRANSACTIONS_DISABLED = 400 / 5406;
    /// A distributed transaction has too many operations.
    TRANSACTION_TOO_MANY_OPERATIONS = 400 / 5407;
    /// A distributed write transaction has no idempotency token, or the token is not a UUID.
    TRANSACTION_TOKEN_MISSING = 400 / 5408;
    /// The host of the request does not name an account.
    TRANSACTION_ACCOUNT_NAME_INVALID = 400 / 5409;
    /// An operation does not fit its distributed transaction, or the idempotency token
    /// was used for another transaction.
    TRANSACTION_INVALID_OPERATION = 400 / 5410;
    /// The signature or token is wrong or has expired.
    UNAUTHORIZED = 401 / 0;
    /// The request is authentic but not allowed.
    FORBIDDEN = 403 / 0;
    /// This region does not accept writes (any more).
    WRITE_FORBIDDEN = 403 / 3;
    /// This region does not know the account (yet, or any more).
    DATABASE_ACCOUNT_NOT_FOUND = 403 / 1008;
    /// The resource does not exist.
    NOT_FOUND = 404 / 0;
    /// This region has not yet applied the writes that the session token names.
    READ_SESSION_NOT_AVAILABLE = 404 / 1002;
    /// The container that the request names does not exist (any more).
    OWNER_RESOURCE_NOT_FOUND = 404 / 1003;
    /// The container is being created and cannot be read yet.
    COLLECTION_CREATE_IN_PROGRESS = 404 / 1013;
    /// The resource does not support the HTTP method.
    METHOD_NOT_ALLOWED = 405 / 0;
    /// The service did not finish the request in time.
    REQUEST_TIMEOUT = 408 / 0;
    /// The id, name or unique key exists already.
    CONFLICT = 409 / 0;
    /// The client's knowledge of the replica, partition or name is stale.
    GONE = 410 / 0;
    /// The client's name cache is stale: the container was recreated.
    NAME_CACHE_IS_STALE = 410 / 1000;
    /// The partition key range was split or merged.
    PARTITION_KEY_RANGE_GONE = 410 / 1002;
    /// A split of the partition is completing.
    COMPLETING_SPLIT = 410 / 1007;
    /// The partition is being moved.
    COMPLETING_PARTITION_MIGRATION = 410 / 1008;
    /// The etag of `If-Match` or another precondition does not hold.
    PRECONDITION_FAILED = 412 / 0;
    /// The document does not meet the condition of a patch.
    PATCH_CONDITION_NOT_MET = 412 / 1110;
    /// The request is larger than the service accepts.
    TOO_LARGE = 413 / 0;
    /// In a bulk request: the answer was full, and this operation was not carried out.
    RESPONSE_FULL = 413 / 3402;
    /// The request URL is longer than the server accepts.
    URI_TOO_LONG = 414 / 0;
    /// This operation of a batch was not tried, or was undone, because another operation
    /// failed. In a distributed read transaction: another read failed.
    FAILED_DEPENDENCY = 424 / 0;
    /// The request rate is too large.
    TOO_MANY_REQUESTS = 429 / 3200;
    /// The replica is out of resources; another region may have resources.
    SYSTEM_RESOURCE_UNAVAILABLE = 429 / 3092;
    /// The request has more or longer headers than the server accepts.
    HEADERS_TOO_LARGE = 431 / 0;
    /// A conflicting write is in progress; the client should try again.
    RETRY_WITH = 449 / 0;
    /// Another request with the same idempotency token is still running; the client should
    /// send the same request again.
    TRANSACTION_IN_PROGRESS = 449 / 5352;
    /// A distributed write transaction was aborted and wrote nothing. Each operation has its own
    /// result.
    TRANSACTION_ABORTED = 452 / 5421;
    /// This operation of a distributed write transaction was undone, because another
    /// operation failed. Only the result of an operation has this status, never a whole answer.
    OPERATION_ROLLED_BACK = 453 / 5415;
    /// The coordinator of distributed transactions cannot read or write its ledger.
    TRANSACTION_LEDGER_FAILED = 500 / 5411;
    /// The coordinator of distributed transactions cannot read the account.
    TRANSACTION_ACCOUNT_FAILED = 500 / 5412;
    /// The coordinator of distributed transactions cannot reach a partition.
    TRANSACTION_DISPATCH_FAILED = 500 / 5413;
    /// The service failed.
    INTERNAL_SERVER_ERROR = 500 / 0;
    /// The service, or the part of it that the request needs, is unavailable.
    SERVICE_UNAVAILABLE = 503 / 0;
}

impl Status {
    /// A status with its sub-status.
    pub const fn new(code: u16, sub: u32) -> Self {
        Status { code, sub }
    }

    /// Whether the operation succeeded: a 2xx code (207 too), or 304 as the result of a
    /// condition.
    pub fn is_success(self) -> bool {
        (200..300).contains(&self.code) || self.code == NOT_MODIFIED.code
    }
}

/// A code without a sub-status.
impl From<u16> for Status {
    fn from(code: u16) -> Self {
        Status { code, sub: 0 }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.sub {
            0 => write!(f, "{}", self.code),
            sub => write!(f, "{}/{sub}", self.code),
        }
    }
}
