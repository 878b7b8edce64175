//! `SignIn`: how a person gets the link that signs in to the dashboard. The link has the token behind
//! a `#`, so that no server or proxy sees it.
//!
//! A terminal shows the link. Otherwise standard output may be a log, which more people can read than
//! may use the account, so the link is in a file that only the user can read, and the log names the
//! file. The output of `perihelion server` always counts as a log: `docker run -t` keeps it too.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, IsTerminal, Write};
use std::path::{Path, PathBuf};

use perihelion_server::certificates;

use crate::exit::Failure;

/// The link, on the terminal or in a file.
pub(crate) enum SignIn {
    Shown(String),
    InFile(SignInFile),
}

/// A file with the link, readable by its owner alone. Dropping the `SignInFile` removes the file.
pub(crate) struct SignInFile {
    path: PathBuf,
}

impl SignIn {
    /// The way in which a command whose output is `is_log` tells the link.
    pub(crate) fn new(link: String, is_log: bool) -> Result<SignIn, Failure> {
        if !is_log && std::io::stdout().is_terminal() {
            return Ok(SignIn::Shown(link));
        }
        SignInFile::write(&directory(), &link).map(SignIn::InFile)
    }
}

/// The text after `Sign in` on standard output.
impl std::fmt::Display for SignIn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            SignIn::Shown(link) => f.write_str(link),
            SignIn::InFile(file) => write!(f, "the link is in the file {}", file.path.display()),
        }
    }
}

/// The user's cache, or the directory of temporary files if there is no cache.
fn directory() -> PathBuf {
    let cache = certificates::cache_directory().and_then(|tls| tls.parent().map(Path::to_owned));
    cache.unwrap_or_else(std::env::temp_dir)
}

impl SignInFile {
    /// Writes the file into the directory. Its name has the id of this process, which has one
    /// dashboard at most, so two processes do not overwrite each other's file.
    fn write(directory: &Path, link: &str) -> Result<SignInFile, Failure> {
        let path = directory.join(format!("perihelion-sign-in-{}.txt", std::process::id()));
        write_private(&path, link).map(|()| SignInFile { path: path.clone() }).map_err(|error| {
            Failure::runtime(format!("cannot write the dashboard's link to {}: {error}", path.display()))
                .with_advice("set XDG_CACHE_HOME to a directory in which this program may write")
        })
    }
}

impl Drop for SignInFile {
    fn drop(&mut self) {
        // A file that stays has the token of a dashboard that has ended.
        let _ = fs::remove_file(&self.path);
    }
}

/// Writes a new file that only its owner can read. A file of an earlier process with the same id is
/// removed first; a link that somebody else has put there is not followed.
fn write_private(path: &Path, link: &str) -> std::io::Result<()> {
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory)?;
    }
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        Err(_) | Ok(()) => {}
    }
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)?.write_all(format!("{link}\n").as_bytes())
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use perihelion_testkit::ScratchDirectory;

    use super::*;

    #[test]
    fn the_file_is_private_and_is_removed_with_its_value() {
        let scratch = ScratchDirectory::new();
        let other = scratch.path().join("other");
        fs::write(&other, "other").unwrap();
        // An earlier file, and a symbolic link to another file, are replaced and not written to.
        for before in [None, Some("file"), Some("link")] {
            let path = scratch.path().join(format!("perihelion-sign-in-{}.txt", std::process::id()));
            match before {
                None => {}
                Some("file") => fs::write(&path, "earlier, and longer than the link").unwrap(),
                Some(_) => symlink(&other, &path).unwrap(),
            }
            let file = SignInFile::write(scratch.path(), "http://a/#t").unwrap_or_else(|_| panic!("a file"));
            assert_eq!(fs::read_to_string(&path).unwrap(), "http://a/#t\n");
            assert_eq!(fs::symlink_metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
            drop(file);
            assert!(!path.exists(), "{before:?}");
        }
        assert_eq!(fs::read_to_string(&other).unwrap(), "other");
    }

    #[test]
    fn a_directory_that_cannot_be_written_to_is_named() {
        let Err(failure) = SignInFile::write(Path::new("/dev/null/x"), "http://a/#t0ken") else {
            panic!("it was written")
        };
        let text = format!("{failure:?}");
        assert!(text.contains("/dev/null/x/perihelion-sign-in-") && !text.contains("t0ken"), "{text}");
    }
}
