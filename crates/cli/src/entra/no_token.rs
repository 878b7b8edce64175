//! `NoToken`: the error if no token could be obtained. Its text is one line, because the messages of
//! commands show only the first line of an error.

use super::TokenOrigin;

/// Why no token could be obtained, and an advice.
#[derive(Debug)]
pub(crate) struct NoToken {
    why: String,
    advice: String,
}

impl NoToken {
    /// The failure of one place that tokens come from.
    pub(super) fn new(
        origin: TokenOrigin,
        why: impl std::fmt::Display,
        advice: impl Into<String>,
    ) -> NoToken {
        NoToken { why: format!("{origin}: {why}"), advice: advice.into() }
    }

    /// This failure, after another place has said that it has no identity.
    pub(super) fn after(self, origin: TokenOrigin, why_no_identity: &str) -> NoToken {
        NoToken { why: format!("{origin}: {why_no_identity}; {}", self.why), advice: self.advice }
    }

    pub(crate) fn why(&self) -> &str {
        &self.why
    }

    pub(crate) fn advice(&self) -> &str {
        &self.advice
    }
}

impl std::fmt::Display for NoToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "no token of Entra ID: {}. {}", self.why, self.advice)
    }
}
