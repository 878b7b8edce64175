//! `SignIn`: how a person gets the link that signs in to the dashboard. The link has the token behind
//! a `#`, so that no server or proxy sees it.
//!
//! A terminal shows the link. Other output may be kept in a log, and people who may not use the account
//! may be able to read the log. So the link is then in a file that only the user can read, and the output
//! names the file. The output of `perihelion server` always counts as a log: Docker keeps it even if it
//! is a terminal (`docker run -t`).

use std::collections::hash_map::RandomState;
use std::fs::{self, File, OpenOptions};
use std::hash::{BuildHasher, Hasher};
use std::io::{IsTerminal, Write};
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
    /// The way in which a command tells the link. With `is_log` its output counts as a log even on a
    /// terminal.
    pub(crate) fn new(link: String, is_log: bool) -> Result<SignIn, Failure> {
        if !is_log && std::io::stdout().is_terminal() {
            return Ok(SignIn::Shown(link));
        }
        SignInFile::write(&directories(), &link).map(SignIn::InFile)
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

/// The directories for the file: the user's cache, and if the program cannot write there (the home
/// directory of a system user, for example), the directory of temporary files.
fn directories() -> Vec<PathBuf> {
    let cache = certificates::cache_directory().and_then(|tls| tls.parent().map(Path::to_owned));
    cache.into_iter().chain([std::env::temp_dir()]).collect()
}

impl SignInFile {
    /// Writes the file into the first of these directories in which that succeeds. The file's name has
    /// the id of this process, so that a person finds it, and a random part, so that nobody else can
    /// make a file with this name in advance.
    fn write(directories: &[PathBuf], link: &str) -> Result<SignInFile, Failure> {
        let random = RandomState::new().build_hasher().finish();
        let name = format!("perihelion-sign-in-{}-{random:016x}.txt", std::process::id());
        let mut reasons = Vec::new();
        for directory in directories {
            let path = directory.join(&name);
            match SignInFile::write_to(&path, link) {
                Ok(file) => return Ok(file),
                Err(error) => reasons.push(format!("{}: {error}", path.display())),
            }
        }
        Err(Failure::runtime(format!("cannot write the dashboard's link to a file: {}", reasons.join("; ")))
            .with_advice("set XDG_CACHE_HOME or TMPDIR to a directory in which this program may write"))
    }

    /// Writes a new file that only its owner can read. A file or a symbolic link that exists already is
    /// neither followed nor removed.
    fn write_to(path: &Path, link: &str) -> std::io::Result<SignInFile> {
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory)?;
        }
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let file = options.open(path)?;
        SignInFile::fill(path, file, link)
    }

    /// Writes the link into the new file. If that fails, on a full disk for example, the file is
    /// removed.
    fn fill(path: &Path, mut file: File, link: &str) -> std::io::Result<SignInFile> {
        let sign_in_file = SignInFile { path: path.to_owned() };
        file.write_all(format!("{link}\n").as_bytes())?;
        Ok(sign_in_file)
    }
}

impl Drop for SignInFile {
    fn drop(&mut self) {
        // A file that stays has the token of a dashboard that has ended.
        let _ = fs::remove_file(&self.path);
    }
}

#[cfg(all(test, unix))]
mod tests {
    use std::io::ErrorKind;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use perihelion_testkit::ScratchDirectory;

    use super::*;

    #[test]
    fn the_file_is_private_and_is_removed_on_drop() {
        let scratch = ScratchDirectory::new();
        let directories = [scratch.path().join("new")];
        let file = SignInFile::write(&directories, "http://a/#t").unwrap_or_else(|_| panic!("a file"));
        let path = file.path.clone();
        assert_eq!(path.parent(), Some(directories[0].as_path()));
        assert_eq!(fs::read_to_string(&path).unwrap(), "http://a/#t\n");
        assert_eq!(fs::symlink_metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        drop(file);
        assert!(!path.exists());
    }

    /// In the directory of temporary files anybody can make a file or a link.
    #[test]
    fn a_file_of_somebody_else_is_neither_followed_nor_removed() {
        let scratch = ScratchDirectory::new();
        let (other, link) = (scratch.path().join("other"), scratch.path().join("link"));
        fs::write(&other, "other").unwrap();
        symlink(&other, &link).unwrap();
        for path in [&other, &link] {
            let error = SignInFile::write_to(path, "http://a/#t").err().expect("it is not written");
            assert_eq!(error.kind(), ErrorKind::AlreadyExists);
        }
        assert_eq!(fs::read_to_string(&link).unwrap(), "other");
    }

    #[test]
    fn a_file_that_cannot_be_filled_is_removed() {
        let scratch = ScratchDirectory::new();
        let path = scratch.path().join("file");
        fs::write(&path, "").unwrap();
        let read_only = File::open(&path).unwrap();
        assert!(SignInFile::fill(&path, read_only, "http://a/#t").is_err());
        assert!(!path.exists());
    }

    /// Story of a bug: the dashboard of a user without a home directory did not start.
    #[test]
    fn the_next_directory_is_used_if_the_first_cannot_be_written_to() {
        let scratch = ScratchDirectory::new();
        let directories = [PathBuf::from("/dev/null/x"), scratch.path().to_owned()];
        let file = SignInFile::write(&directories, "http://a/#t").unwrap_or_else(|_| panic!("a file"));
        assert_eq!(file.path.parent(), Some(scratch.path()));
    }

    #[test]
    fn directories_that_cannot_be_written_to_are_named() {
        let directories = ["/dev/null/x", "/dev/null/y"].map(PathBuf::from);
        let Err(failure) = SignInFile::write(&directories, "http://a/#t0ken") else {
            panic!("it was written")
        };
        let text = failure.message();
        for directory in ["/dev/null/x", "/dev/null/y"] {
            assert!(text.contains(&format!("{directory}/perihelion-sign-in-")), "{text}");
        }
        assert!(!text.contains("t0ken"), "{text}");
        assert!(failure.advice().is_some_and(|advice| advice.contains("XDG_CACHE_HOME")));
    }
}
