//! Tokens: the position of a change feed as text. The text is JSON with a version
//! number, so a later release can read it or refuse it with a clear error.

use serde::{Deserialize, Serialize};

use super::Mode;
use super::cursor::Cursor;
use crate::Error;

/// The version of tokens that this release reads and writes.
const VERSION: u32 = 1;

/// The contents of a token.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Token {
    version: u32,
    mode: Mode,
    /// The `_rid` of the container; absent when the feed had not been read yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    container: Option<String>,
    cursors: Vec<Cursor>,
}

impl Token {
    pub(super) fn new(mode: Mode, container: Option<&str>, cursors: Vec<Cursor>) -> Self {
        Token { version: VERSION, mode, container: container.map(str::to_owned), cursors }
    }

    pub(super) fn to_text(&self) -> String {
        serde_json::to_string(self).expect("texts and numbers can be written")
    }

    pub(super) fn parse(text: &str) -> Result<Self, Error> {
        #[derive(Deserialize)]
        struct Versioned {
            version: u32,
        }
        let invalid =
            |error: serde_json::Error| Error::input(format!("this is not a change feed token: {error}"));
        let Versioned { version } = serde_json::from_str(text).map_err(invalid)?;
        if version != VERSION {
            return Err(Error::input(format!(
                "this change feed token has version {version}; this client reads version {VERSION}"
            )));
        }
        serde_json::from_str(text).map_err(invalid)
    }

    /// The cursors, checked against the mode and the container of the feed.
    pub(super) fn cursors(self, mode: Mode, container: &str) -> Result<Vec<Cursor>, Error> {
        self.check(mode)?;
        if self.container.is_some_and(|own| own != container) {
            return Err(other_container_error());
        }
        Ok(self.cursors)
    }

    fn check(&self, mode: Mode) -> Result<(), Error> {
        if self.mode != mode {
            return Err(Error::input("this token comes from a change feed of the other mode"));
        }
        if self.cursors.is_empty() {
            return Err(Error::input("this change feed token has no position"));
        }
        Ok(())
    }
}

/// Whether this client can continue a feed of this mode at the token. The container is not
/// checked.
pub(crate) fn check_token(text: &str, mode: Mode) -> Result<(), Error> {
    Token::parse(text)?.check(mode)
}

/// The error for a position of another container.
pub(super) fn other_container_error() -> Error {
    Error::input(
        "the position belongs to another container: the container was deleted and created again, or the \
         token comes from another container. Start the change feed again",
    )
}
