//! Secret text: it is not printed, and its memory is cleared when it is dropped.
//!
//! The memory of a header that is made here is cleared in the same way. The cache and all requests
//! share the header of a token without copies, and the memory is cleared when the last of them
//! has dropped the header.

use std::fmt;

use bytes::Bytes;
use http::HeaderValue;
use perihelion_wire::signature::AUTHORIZATION_BYTES_MAX;
use zeroize::Zeroizing;

/// A secret text. `Debug` does not show it; its memory is cleared on drop.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Zeroizing<String>);

impl Secret {
    /// The secret text itself.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Secret(Zeroizing::new(text))
    }
}

impl From<&str> for Secret {
    fn from(text: &str) -> Self {
        Secret(Zeroizing::new(text.to_owned()))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// A sensitive header: the prefix, and then the secret without any change. `None` when the text
/// cannot be a header, or is longer than the service accepts.
pub(super) fn header(prefix: &str, secret: &str) -> Option<HeaderValue> {
    let mut text = Zeroizing::new(Vec::with_capacity(prefix.len() + secret.len()));
    text.extend_from_slice(prefix.as_bytes());
    text.extend_from_slice(secret.as_bytes());
    into_sensitive_header(text)
}

/// A sensitive header: the prefix, and then the secret, which this function percent-encodes. `None`
/// when the text is longer than the service accepts.
pub(super) fn encoded_header(prefix: &str, secret: &str) -> Option<HeaderValue> {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    // Sized for the worst case: a buffer that grows would leave copies of the secret
    // in memory.
    let mut text = Zeroizing::new(Vec::with_capacity(prefix.len() + 3 * secret.len()));
    text.extend_from_slice(prefix.as_bytes());
    for byte in secret.bytes() {
        // The characters that JavaScript's `encodeURIComponent` does not encode.
        if byte.is_ascii_alphanumeric() || b"-_.~!*'()".contains(&byte) {
            text.push(byte);
        } else {
            text.extend([b'%', HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 0xF)]]);
        }
    }
    into_sensitive_header(text)
}

fn into_sensitive_header(text: Zeroizing<Vec<u8>>) -> Option<HeaderValue> {
    if text.len() > AUTHORIZATION_BYTES_MAX {
        return None;
    }
    let mut header = HeaderValue::from_maybe_shared(Bytes::from_owner(text)).ok()?;
    header.set_sensitive(true);
    Some(header)
}
