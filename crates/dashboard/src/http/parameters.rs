//! `Parameters`: the query of an address, or the fields of a form. Both are percent-encoded pairs.
//!
//! A browser changes some characters of a hidden field before it sends the form, such as line breaks.
//! So the value of a field whose name ends with `*` is percent-encoded once more, as in `filename*`
//! of HTTP, and the field is known by its name without the star.

use crate::html::Encoded;

/// The most pairs. A page has fewer than twenty; the rest of a longer text is ignored.
const PAIRS_MAX: usize = 100;

/// Names with their values.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Parameters(Vec<(String, String)>);

impl Parameters {
    pub(crate) fn parse(text: &str) -> Parameters {
        let pairs = text.split('&').filter(|pair| !pair.is_empty()).take(PAIRS_MAX).map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (mut name, mut value) = (decode(name), decode(value));
            if name.ends_with('*') {
                name.pop();
                value = decode(&value);
            }
            (name, value)
        });
        Parameters(pairs.collect())
    }

    /// The value of a parameter; empty if it is missing.
    pub(crate) fn get(&self, name: &str) -> &str {
        let found = self.0.iter().find(|(key, _)| key == name);
        found.map_or("", |(_, value)| value.as_str())
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        !self.get(name).is_empty()
    }

    /// All parameters except this one as a text. Two addresses with the same parameters in the same
    /// order have the same text, however they are encoded. Empty parameters are left out.
    pub(crate) fn text_without(&self, name: &str) -> String {
        let pairs = self.0.iter().filter(|(key, value)| key != name && !value.is_empty());
        pairs.map(|(key, value)| format!("{}={}&", Encoded(key), Encoded(value))).collect()
    }

    /// The value of a parameter as a number; `None` if it is missing or is not a number.
    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        self.get(name).trim().parse().ok()
    }
}

/// Decodes percent signs and pluses. Bytes that are not valid UTF-8 become replacement characters.
fn decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let byte = match byte {
            b'+' => b' ',
            b'%' => {
                let mut ahead = rest.clone();
                let digits = ahead.next().and_then(hex).zip(ahead.next().and_then(hex));
                match digits {
                    Some((high, low)) => {
                        rest = ahead;
                        high * 16 + low
                    }
                    None => byte,
                }
            }
            _ => byte,
        };
        bytes.push(byte);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn hex(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_decoded_and_invalid_escapes_are_kept() {
        let parameters = Parameters::parse("a=1+2%203&b=%C3%A4&c=%zz%4&d&=x&a=second&e=%ff");
        assert_eq!(parameters.get("a"), "1 2 3");
        assert_eq!(parameters.get("b"), "ä");
        assert_eq!(parameters.get("c"), "%zz%4");
        assert_eq!(parameters.get("e"), "\u{fffd}");
        assert!(!parameters.has("d") && !parameters.has("missing"));
        assert_eq!(Parameters::parse("n=7&m=-1").number("n"), Some(7));
        assert_eq!(Parameters::parse("n=7&m=-1").number("m"), None);
    }

    #[test]
    fn a_value_whose_name_ends_with_a_star_is_decoded_twice() {
        let parameters = Parameters::parse("id*=a%250D%250A%25E2%2580%25AE%252B&key%2A=%2525&b=%2525");
        assert_eq!(parameters.get("id"), "a\r\n\u{202e}+");
        assert_eq!((parameters.get("key"), parameters.get("b")), ("%", "%25"));
    }
}
