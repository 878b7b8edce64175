//! `Secret`: a text that is never shown, such as a key, and the files that hold one.

use std::io::{Error, ErrorKind, Read};
use std::path::Path;

/// The most bytes of a file with a key or with a token of the dashboard. It holds one short line; a
/// longer file is refused.
pub(crate) const FILE_BYTES_MAX: u64 = 4096;

/// A text that is never shown.
#[derive(Clone)]
pub(crate) struct Secret(String);

impl Secret {
    pub(crate) fn new(text: impl Into<String>) -> Secret {
        Secret(text.into())
    }

    /// Reads a file of at most `bytes_max` bytes, and removes white space at both ends of its text. `holds`
    /// says what such a file holds, for the error about a longer file.
    pub(crate) fn read_file(path: &Path, bytes_max: u64, holds: &str) -> std::io::Result<Secret> {
        let mut text = String::new();
        std::fs::File::open(path)?.take(bytes_max + 1).read_to_string(&mut text)?;
        if text.len() as u64 > bytes_max {
            let why = format!("it has more than {bytes_max} bytes; such a file holds {holds}");
            return Err(Error::new(ErrorKind::InvalidData, why));
        }
        Ok(Secret::new(text.trim()))
    }

    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("(hidden)")
    }
}
