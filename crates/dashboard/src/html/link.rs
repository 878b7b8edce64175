//! `Link`: an address within the dashboard, with its parameters encoded. A link always begins with
//! `/` or `#`, so it never leaves the dashboard.

use std::fmt;

/// An address within the dashboard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Link {
    path: &'static str,
    parameters: Vec<(&'static str, String)>,
    fragment: Option<String>,
}

/// A text that is printed percent-encoded, as letters, digits and a few signs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Encoded<'a>(pub(crate) &'a str);

impl fmt::Display for Encoded<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        encode(f, self.0)
    }
}

impl Link {
    pub(crate) fn to(path: &'static str) -> Link {
        debug_assert!(path.is_empty() || path.starts_with('/'));
        Link { path, parameters: Vec::new(), fragment: None }
    }

    /// A place on the same page.
    pub(crate) fn anchor(id: impl fmt::Display) -> Link {
        Link { path: "", parameters: Vec::new(), fragment: Some(id.to_string()) }
    }

    /// Adds a parameter. A parameter without a value is left out, which keeps addresses short.
    pub(crate) fn with(mut self, name: &'static str, value: impl fmt::Display) -> Link {
        let value = value.to_string();
        if !value.is_empty() {
            self.parameters.push((name, value));
        }
        self
    }
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.path)?;
        for (index, (name, value)) in self.parameters.iter().enumerate() {
            let separator = if index == 0 { '?' } else { '&' };
            write!(f, "{separator}{name}=")?;
            encode(f, value)?;
        }
        if let Some(fragment) = &self.fragment {
            f.write_str("#")?;
            encode(f, fragment)?;
        }
        Ok(())
    }
}

/// Percent-encodes everything except letters, digits and a few signs that mean nothing in a query.
fn encode(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' | b'/' | b':' | b'*' => {
                write!(f, "{}", char::from(byte))?;
            }
            _ => write!(f, "%{byte:02X}")?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_encoded_and_empty_parameters_are_left_out() {
        let link = Link::to("/workflows").with("filter", "name=a b&c").with("after", "").with("n", 7);
        assert_eq!(link.to_string(), "/workflows?filter=name%3Da%20b%26c&n=7");
        assert_eq!(Link::anchor("event-3").to_string(), "#event-3");
    }
}
