//! `Secret`: a secret text. A comparison takes the same time wherever the two texts differ.

use std::fmt;

/// The random bytes of a secret: more than anybody can guess.
const RANDOM_BYTES: usize = 32;

/// The shortest and the longest secret that a person may choose. The login form, which has at most
/// 4 KiB, has room for a secret whose characters are all percent-encoded.
const CHARS_MIN: usize = 16;
const CHARS_MAX: usize = 1_000;

/// A secret text of ASCII letters, digits and signs.
#[derive(Clone)]
pub(crate) struct Secret(String);

impl Secret {
    pub(crate) fn random() -> Result<Secret, getrandom::Error> {
        let mut bytes = [0; RANDOM_BYTES];
        getrandom::fill(&mut bytes)?;
        Ok(Secret(bytes.iter().map(|byte| format!("{byte:02x}")).collect()))
    }

    /// A secret that a person chose; `None` if it is too short or too long, or has a space or a
    /// character that is not ASCII.
    pub(crate) fn chosen(text: &str) -> Option<Secret> {
        let is_plain = text.chars().all(|character| character.is_ascii_graphic());
        ((CHARS_MIN..=CHARS_MAX).contains(&text.len()) && is_plain).then(|| Secret(text.to_owned()))
    }

    pub(crate) fn equals(&self, other: &str) -> bool {
        let (own, other) = (self.0.as_bytes(), other.as_bytes());
        let difference = own.iter().zip(other).fold(0, |difference, (one, two)| difference | (one ^ two));
        own.len() == other.len() && difference == 0
    }

    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_differ_and_equal_only_themselves() {
        let [one, two] = [(); 2].map(|()| Secret::random().unwrap());
        assert!(one.equals(one.reveal()) && !one.equals(two.reveal()));
        assert!(!one.equals("") && !one.equals(&one.reveal()[1..]));
        assert_eq!(one.reveal().len(), 64);
        assert!(Secret::chosen("short").is_none() && Secret::chosen("with spaces in between it").is_none());
        assert!(Secret::chosen("long-enough-for-a-token").is_some());
        let long = "%".repeat(CHARS_MAX);
        assert!(Secret::chosen(&long).is_some() && Secret::chosen(&(long + "%")).is_none());
    }
}
