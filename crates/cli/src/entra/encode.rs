//! Percent-encoding for forms, queries and headers.

/// The text with every byte encoded that is not a letter, a digit or one of `-_.~`.
pub(super) fn encoded(text: &str) -> String {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    let mut encoded = String::with_capacity(3 * text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            let digits = [HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 0xF)]];
            encoded.extend(['%', char::from(digits[0]), char::from(digits[1])]);
        }
    }
    encoded
}

/// The pairs as a form or as the query of a URL.
pub(super) fn form(pairs: &[(&str, &str)]) -> String {
    let pairs: Vec<String> = pairs.iter().map(|(name, value)| format!("{name}={}", encoded(value))).collect();
    pairs.join("&")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_has_every_special_character_encoded() {
        let pairs = [("scope", "https://a/.default"), ("secret", "a+b&c=d e~é")];
        assert_eq!(form(&pairs), "scope=https%3A%2F%2Fa%2F.default&secret=a%2Bb%26c%3Dd%20e~%C3%A9");
    }
}
