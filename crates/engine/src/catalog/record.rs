//! Reading the members of a stored JSON record. A member that is missing or of
//! the wrong type gives `None`, which the reader of a record reports as damage.
//! `Throughput` reads a client's JSON with these functions too.

use perihelion_model::json::Value;

pub(super) fn u64_member(record: &Value, name: &str) -> Option<u64> {
    record.get(name)?.as_i64().and_then(|value| u64::try_from(value).ok())
}

pub(super) fn u32_member(record: &Value, name: &str) -> Option<u32> {
    u64_member(record, name).and_then(|value| u32::try_from(value).ok())
}

pub(super) fn text_member(record: &Value, name: &str) -> Option<String> {
    record.get(name)?.as_str().map(str::to_owned)
}
