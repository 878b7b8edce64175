//! `ConfigFile`: the file `perihelion.toml` of the working directory, or of the nearest
//! directory above it that has one.
//!
//! ```toml
//! [account]
//! endpoint = "https://shop.documents.azure.com/"   # or connection_string, or data
//! key_file = "secrets/shop.key"                    # in the directory of this file, or below
//!                                                  # or key, or entra = true (see docs/cli.md)
//! database = "shop"
//! container = "workflows"
//! ```

use std::io::Read;
use std::path::{Component, Path, PathBuf};

use serde::Deserialize;

use crate::exit::Failure;

/// The name of the file.
const NAME: &str = "perihelion.toml";

/// The most bytes of the file. The file names one account, so a longer file is not a
/// configuration file.
const FILE_BYTES_MAX: u64 = 64 * 1024;

/// The refusal of a `key_file` outside the directory of the configuration file. A cloned repository can
/// bring a `perihelion.toml`. It must not make this program use any other file of the user as the key for
/// an endpoint that somebody else chose.
pub(super) const KEY_FILE_OUTSIDE: &str = "key_file must lie in the directory of this file, or below";

const ADVICE: &str = "docs/cli.md, section \"The account\", shows what the file may have";

/// The contents of the file, with its path.
#[derive(Debug, Default)]
pub(super) struct ConfigFile {
    pub(super) path: PathBuf,
    pub(super) account: AccountSection,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Sections {
    #[serde(default)]
    account: AccountSection,
}

/// The section `[account]`. Paths are relative to the directory of the file.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AccountSection {
    pub(super) connection_string: Option<String>,
    pub(super) endpoint: Option<String>,
    pub(super) key: Option<String>,
    pub(super) key_file: Option<PathBuf>,
    #[serde(default)]
    pub(super) entra: bool,
    pub(super) data: Option<PathBuf>,
    pub(super) database: Option<String>,
    pub(super) container: Option<String>,
}

impl std::fmt::Debug for AccountSection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AccountSection").finish_non_exhaustive()
    }
}

impl ConfigFile {
    /// The file of this directory or of the nearest one above it; `None` if there is none.
    pub(super) fn find(directory: &Path) -> Result<Option<ConfigFile>, Failure> {
        let paths = directory.ancestors().map(|directory| directory.join(NAME));
        let found = paths.into_iter().find(|path| path.is_file());
        found.map(|path| ConfigFile::read(&path)).transpose()
    }

    fn read(path: &Path) -> Result<ConfigFile, Failure> {
        let failed = |why: String| Failure::usage(format!("{}: {why}", path.display()), ADVICE);
        let mut text = String::new();
        let file = std::fs::File::open(path).map_err(|error| failed(error.to_string()))?;
        let read = file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text);
        read.map_err(|error| failed(error.to_string()))?;
        if text.len() as u64 > FILE_BYTES_MAX {
            return Err(failed(format!("it has more than {FILE_BYTES_MAX} bytes")));
        }
        ConfigFile::parse(&text, path).map_err(failed)
    }

    /// Parses the text of the file at `path`. The error names the line and never shows the whole line,
    /// which may have a key.
    pub(super) fn parse(text: &str, path: &Path) -> Result<ConfigFile, String> {
        let sections: Sections = toml::from_str(text).map_err(|error: toml::de::Error| {
            let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
            format!("line {}: {}", before.matches('\n').count() + 1, error.message())
        })?;
        let mut account = sections.account;
        let directory = path.parent().unwrap_or(Path::new(""));
        if account.key_file.as_deref().is_some_and(|key_file| !stays_below(key_file)) {
            return Err(KEY_FILE_OUTSIDE.to_owned());
        }
        for relative in [&mut account.key_file, &mut account.data].into_iter().flatten() {
            *relative = directory.join(&relative);
        }
        Ok(ConfigFile { path: path.to_owned(), account })
    }
}

/// Whether a path, as it is written, is relative and does not leave its directory.
fn stays_below(path: &Path) -> bool {
    path.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_file_outside_the_directory_is_refused() {
        for outside in ["/etc/key", "../key", "a/../../key"] {
            let text = format!("[account]\nendpoint = \"https://a/\"\nkey_file = \"{outside}\"\n");
            let error = ConfigFile::parse(&text, Path::new("/srv/x/perihelion.toml")).unwrap_err();
            assert_eq!(error, KEY_FILE_OUTSIDE, "{outside}");
        }
    }

    #[test]
    fn paths_are_relative_to_the_file() {
        let text = "[account]\nendpoint = \"https://a/\"\nkey_file = \"k\"\ndata = \"/d\"\n";
        let file = ConfigFile::parse(text, Path::new("/srv/x/perihelion.toml")).unwrap();
        assert_eq!(file.account.key_file.as_deref(), Some(Path::new("/srv/x/k")));
        assert_eq!(file.account.data.as_deref(), Some(Path::new("/d")));
    }

    #[test]
    fn a_mistake_is_named_with_its_line_and_without_the_key() {
        for (text, expected) in [
            ("[account]\nkey = \"c2VjcmV0\"\nendpont = \"x\"\n", "line 3: unknown field `endpont`"),
            ("[acount]\n", "line 1: unknown field `acount`"),
            ("[account]\nkey = c2VjcmV0\n", "line 2: "),
            ("[account]\nkey = 7\n", "line 2: invalid type: integer `7`, expected a string"),
        ] {
            let error = ConfigFile::parse(text, Path::new("perihelion.toml")).unwrap_err();
            assert!(error.starts_with(expected), "{error}");
            assert!(!error.contains("c2VjcmV0"), "{error}");
        }
    }
}
