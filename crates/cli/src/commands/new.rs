//! `perihelion new`: writes a small project with a worker that runs against `perihelion dev`. The
//! files are in `templates/app`.

use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;

use crate::exit::{self, Failure};
use crate::output::text::escaped;
use crate::process::{print, tell};

const EXAMPLES: &str = "\
Examples:
  perihelion new my-app                      then: cd my-app && cargo run
  perihelion new my-app --path ~/perihelion  uses the provider of this checkout

The provider, duroxide-cdb, is not on crates.io in this version. Without --path the project uses
the checkout from which this program was built, if that is still there, and else names the version.";

/// Write a small project with a worker for workflows
#[derive(Clone, Debug, Args)]
#[command(after_help = format!("{EXAMPLES}\n\n{}", exit::HELP))]
pub(crate) struct NewArgs {
    /// The directory to create. Its last part is the name of the package
    #[arg(value_name = "DIR")]
    directory: PathBuf,

    /// A checkout of Perihelion, whose provider the project uses
    #[arg(long, value_name = "CHECKOUT")]
    path: Option<PathBuf>,
}

/// The checkout from which this program was built.
const BUILT_FROM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// The provider in a checkout.
const PROVIDER: &str = "crates/provider";

/// The version of the provider that this program was built with.
const PROVIDER_VERSION: &str = "0.1.11";

/// The files of the project: where each goes, and its text.
const FILES: [(&str, &str); 4] = [
    ("Cargo.toml", include_str!("../../templates/app/Cargo.toml.txt")),
    ("src/main.rs", include_str!("../../templates/app/main.rs")),
    ("README.md", include_str!("../../templates/app/README.md")),
    (".gitignore", include_str!("../../templates/app/gitignore.txt")),
];

pub(crate) fn run(args: NewArgs, _started_at: Instant) -> Result<(), Failure> {
    let name = package_name(&args.directory)?;
    let source = ProviderSource::find(args.path.as_deref())?;
    check_empty(&args.directory)?;
    for (file, template) in FILES {
        let text = template
            .replace("@name@", &name)
            .replace("@note@", source.note())
            .replace("@source@", &source.dependency());
        write(&args.directory.join(file), &text)?;
    }
    let directory = escaped(&args.directory.display().to_string());
    if matches!(source, ProviderSource::Version) {
        tell(format_args!(
            "duroxide-cdb {PROVIDER_VERSION} is not on crates.io yet: give --path CHECKOUT to build now"
        ));
    }
    print(&format!(
        "wrote {directory}: a worker with the workflow `order`\n  perihelion dev                 in one terminal\n  \
         cd {directory} && cargo run    in another\n  README.md has the next steps\n"
    ))
}

/// The name of the package: the last part of the directory.
fn package_name(directory: &Path) -> Result<String, Failure> {
    let name = directory.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let is_good = name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'));
    match is_good {
        true => Ok(name.to_owned()),
        false => Err(Failure::usage(
            format!("{} cannot be the name of a package", escaped(&format!("{name:?}"))),
            "begin with a letter, and use letters, digits, - and _",
        )),
    }
}

/// Refuses a directory with files, so that no file is overwritten.
fn check_empty(directory: &Path) -> Result<(), Failure> {
    let is_empty = match std::fs::read_dir(directory) {
        Ok(mut entries) => entries.next().is_none(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => true,
        Err(error) => return Err(Failure::runtime(format!("{}: {error}", directory.display()))),
    };
    match is_empty {
        true => Ok(()),
        false => Err(Failure::usage(
            format!("the directory {} is not empty", directory.display()),
            "name another directory; nothing was written",
        )),
    }
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    let written = std::fs::create_dir_all(path.parent().unwrap_or(Path::new("")))
        .and_then(|()| std::fs::write(path, text));
    written.map_err(|error| Failure::runtime(format!("cannot write {}: {error}", path.display())))
}

/// Where the project gets the provider from.
enum ProviderSource {
    /// The directory of the crate.
    Path(PathBuf),
    /// crates.io.
    Version,
}

impl ProviderSource {
    /// The source: the checkout that the command line names, else the checkout of this program,
    /// else crates.io.
    fn find(named_checkout: Option<&Path>) -> Result<ProviderSource, Failure> {
        let provider = |checkout: &Path| {
            let path = checkout.join(PROVIDER).canonicalize().ok()?;
            path.join("Cargo.toml").is_file().then_some(path)
        };
        match named_checkout {
            None => Ok(provider(Path::new(BUILT_FROM)).map_or(ProviderSource::Version, ProviderSource::Path)),
            Some(checkout) => provider(checkout).map(ProviderSource::Path).ok_or_else(|| {
                Failure::not_found(format!(
                    "{} is not a checkout of Perihelion: it has no {PROVIDER}/Cargo.toml",
                    checkout.display()
                ))
            }),
        }
    }

    /// The source as a member of the dependency in Cargo.toml. A JSON string is also a TOML string.
    fn dependency(&self) -> String {
        match self {
            ProviderSource::Path(path) => {
                format!("path = {}", serde_json::Value::from(path.display().to_string()))
            }
            ProviderSource::Version => format!("version = \"{PROVIDER_VERSION}\""),
        }
    }

    fn note(&self) -> &'static str {
        match self {
            ProviderSource::Path(_) => {
                "# From a checkout of Perihelion: this version is not on crates.io yet. Without default features\n\
                 # the crate is a client only; with them the database can also run inside this process."
            }
            ProviderSource::Version => {
                "# This version is not on crates.io yet: until then, write path = \"…/perihelion/crates/provider\"\n\
                 # in place of the version."
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_named_version_is_the_version_of_the_provider() {
        let manifest = include_str!("../../../provider/Cargo.toml");
        assert!(manifest.contains(&format!("\nversion = \"{PROVIDER_VERSION}\"\n")));
    }

    #[test]
    fn only_a_name_that_cargo_accepts_becomes_a_package_name() {
        for (directory, expected) in [
            ("my-app", Some("my-app")),
            ("/tmp/a/app_2", Some("app_2")),
            ("2app", None),
            ("a b", None),
            ("..", None),
        ] {
            let name = package_name(Path::new(directory)).ok();
            assert_eq!(name.as_deref(), expected, "{directory}");
        }
    }
}
