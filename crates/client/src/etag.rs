//! Etags: the version of a resource. An etag is stored as a header value, so that
//! the etag of a response becomes the condition of a request without a copy.

use std::fmt;

use http::HeaderValue;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::Error;

/// The version of a resource. It is opaque; equal etags of one resource mean
/// equal content.
///
/// A document has its etag in the member `_etag`, so a struct can have a field
/// for it:
///
/// ```
/// #[derive(serde::Deserialize)]
/// struct Order {
///     id: String,
///     #[serde(rename = "_etag")]
///     etag: Option<perihelion_client::Etag>,
/// }
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Etag(HeaderValue);

impl Etag {
    /// Parses an etag from its text, with the quotes.
    pub fn parse(text: &str) -> Result<Self, Error> {
        match HeaderValue::from_str(text) {
            Ok(value) if !text.is_empty() => Ok(Etag(value)),
            _ => Err(Error::input(format!("{text:?} is not an etag"))),
        }
    }

    /// The text, with the quotes.
    pub fn as_str(&self) -> &str {
        self.0.to_str().unwrap_or_default()
    }

    /// Whether this is `*`, which every version matches.
    pub(crate) fn is_any(&self) -> bool {
        self.0 == "*"
    }

    pub(crate) fn from_header(value: &HeaderValue) -> Option<Self> {
        value.to_str().is_ok_and(|text| !text.is_empty()).then(|| Etag(value.clone()))
    }

    pub(crate) fn header(&self) -> HeaderValue {
        self.0.clone()
    }
}

impl TryFrom<&str> for Etag {
    type Error = Error;

    fn try_from(text: &str) -> Result<Self, Error> {
        Etag::parse(text)
    }
}

impl fmt::Display for Etag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for Etag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Etag({})", self.as_str())
    }
}

impl Serialize for Etag {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Etag {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        Etag::parse(&text).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_etag_is_its_text_with_quotes() {
        let etag: Etag = serde_json::from_str(r#""\"0000-01\"""#).unwrap();
        assert_eq!(etag.as_str(), "\"0000-01\"");
        assert_eq!(etag, Etag::parse("\"0000-01\"").unwrap());
        assert_eq!(serde_json::to_string(&etag).unwrap(), r#""\"0000-01\"""#);
    }

    #[test]
    fn a_text_that_cannot_be_a_header_is_not_an_etag() {
        for text in ["", "a\nb"] {
            assert!(Etag::parse(text).is_err(), "{text:?}");
        }
    }
}
