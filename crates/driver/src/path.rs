//! Builds the paths of resources from names.

use std::borrow::Cow;
use std::fmt::Write;

use bytes::Bytes;
use http::uri::PathAndQuery;

/// Converts text to a path. All names in the text must already be percent-encoded.
pub(crate) fn to_path(text: impl Into<String>) -> PathAndQuery {
    PathAndQuery::from_maybe_shared(Bytes::from(text.into())).expect("names are percent-encoded")
}

/// Percent-encodes one segment of a path. Characters that RFC 3986 allows in a segment stay as
/// they are.
pub(crate) fn percent_encode(name: &str) -> Cow<'_, str> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~!*'()@:$&+,;=".contains(&byte);
    if name.bytes().all(is_plain) {
        return name.into();
    }
    // Room for eight encoded bytes: each becomes two bytes longer.
    let mut encoded = String::with_capacity(name.len() + 16);
    for byte in name.bytes() {
        if is_plain(byte) {
            encoded.push(byte as char);
        } else {
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded.into()
}
