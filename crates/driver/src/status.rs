//! Statuses as the service gives them: an HTTP code and a sub-status. Each
//! number that the driver judges by is here once, under its name.

use std::fmt;

/// A status and its sub-status; 0 when the service sent none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Status {
    /// The HTTP status code.
    pub code: u16,
    /// `x-ms-substatus`.
    pub sub: u32,
}

macro_rules! statuses {
    ($($(#[$doc:meta])* $name:ident = $code:literal / $sub:literal;)*) => {
        $($(#[$doc])* pub const $name: Status = Status { code: $code, sub: $sub };)*
    };
}

statuses! {
    /// A batch of which an operation was refused, so that none was applied.
    MULTI_STATUS = 207 / 0;
    /// The resource is as the condition (`If-None-Match`) says.
    NOT_MODIFIED = 304 / 0;
    /// The body or a header is not acceptable.
    BAD_REQUEST = 400 / 0;
    /// The partition key in the header is not the document's.
    PARTITION_KEY_MISMATCH = 400 / 1001;
    /// The gateway will not run this query across partitions; it wants a plan.
    CROSS_PARTITION_QUERY_NOT_SERVABLE = 400 / 1004;
    /// The container of that name is another one than the client thinks.
    COLLECTION_RID_MISMATCH = 400 / 1024;
    /// The signature, the token or its lifetime is not accepted.
    UNAUTHORIZED = 401 / 0;
    /// This region does not take writes (any more).
    WRITE_FORBIDDEN = 403 / 3;
    /// This region does not (yet, or any more) know the account.
    DATABASE_ACCOUNT_NOT_FOUND = 403 / 1008;
    /// No such resource.
    NOT_FOUND = 404 / 0;
    /// This region has not yet seen what the session token asks for.
    READ_SESSION_NOT_AVAILABLE = 404 / 1002;
    /// The container (of that `_rid`) is gone.
    OWNER_RESOURCE_NOT_FOUND = 404 / 1003;
    /// The container is being created and cannot be read yet.
    COLLECTION_CREATE_IN_PROGRESS = 404 / 1013;
    /// The service gave up on the request in time.
    REQUEST_TIMEOUT = 408 / 0;
    /// The id, name or unique key is taken.
    CONFLICT = 409 / 0;
    /// The replica, partition or name cache is stale.
    GONE = 410 / 0;
    /// The name cache is stale: the container was recreated.
    NAME_CACHE_IS_STALE = 410 / 1000;
    /// The partition key range was split or merged.
    PARTITION_KEY_RANGE_GONE = 410 / 1002;
    /// A split is completing.
    COMPLETING_SPLIT = 410 / 1007;
    /// The partition is being moved.
    COMPLETING_PARTITION_MIGRATION = 410 / 1008;
    /// A condition (`If-Match`) does not hold.
    PRECONDITION_FAILED = 412 / 0;
    /// The request is larger than the service takes.
    TOO_LARGE = 413 / 0;
    /// A conflicting write is in progress: try again.
    RETRY_WITH = 449 / 0;
    /// The request rate is too large.
    TOO_MANY_REQUESTS = 429 / 3200;
    /// The replica is out of resources; another region may not be.
    SYSTEM_RESOURCE_UNAVAILABLE = 429 / 3092;
    /// The service failed.
    INTERNAL_SERVER_ERROR = 500 / 0;
    /// The service, or this part of it, is unavailable.
    SERVICE_UNAVAILABLE = 503 / 0;
}

impl Status {
    /// A status with its sub-status.
    pub const fn new(code: u16, sub: u32) -> Self {
        Status { code, sub }
    }

    /// Whether the operation did what it should: 2xx, or 304 to a condition.
    pub fn is_success(self) -> bool {
        (200..300).contains(&self.code) || self.code == 304
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
