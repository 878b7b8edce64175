//! `Account`: the account that is meant. The decision is a pure function of the options, the
//! environment and the file.
//!
//! What names the account is taken whole from the first of these that names one: options,
//! environment, file. So an endpoint on the command line never meets a connection string of the
//! environment. Only a missing key is looked for further on: with the endpoint in one place, the
//! key may be in the environment. Each name of a container is looked for by itself.

use std::io::Read;
use std::path::{Path, PathBuf};

use perihelion_wire::signature::EMULATOR_KEY;
use perihelion_wire::transport::Endpoint;

use super::file::ConfigFile;
use super::{AccountArgs, NameArgs};
use crate::exit::Failure;

/// The server of `perihelion dev`.
pub(crate) const LOCAL_ENDPOINT: &str = "http://127.0.0.1:8081/";

/// The database and the container of the provider.
const DEFAULT_NAME: &str = "duroxide";

/// The most bytes of a key file. A key file holds one short line; a longer file is refused.
const KEY_FILE_BYTES_MAX: u64 = 4096;

/// The variables that hold a connection string, the first one that is set wins.
const CONNECTION_STRINGS: [&str; 2] = ["AZURE_COSMOS_CONNECTION_STRING", "COSMOS_CONNECTION_STRING"];

/// The variables that hold an endpoint, each with that of its key.
const ENDPOINTS: [(&str, &str); 2] =
    [("COSMOS_ENDPOINT", "COSMOS_KEY"), ("COSMOSDB_ENDPOINT", "COSMOSDB_KEY")];

/// What the decision reads besides the options.
pub(crate) struct Surroundings<'a> {
    pub(crate) variable: &'a dyn Fn(&str) -> Option<String>,
    pub(super) file: Option<ConfigFile>,
}

/// The account and the container that are meant.
#[derive(Clone, Debug)]
pub(crate) struct Account {
    pub(crate) place: Place,
    pub(crate) source: Source,
    pub(crate) database: String,
    pub(crate) container: String,
}

/// Where an account is.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    /// An account, with the text of its connection string.
    ConnectionString(Secret),
    /// An account. Without a key, connecting fails.
    Endpoint { url: String, key: Option<Secret> },
    /// A data directory, for the engine in this process.
    Data(PathBuf),
}

/// What named the account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Source {
    Options,
    /// A variable of the environment.
    Variable(&'static str),
    File(PathBuf),
    /// Nothing: the server of `perihelion dev` on this machine.
    Default,
}

/// A text that is never shown.
#[derive(Clone)]
pub(crate) struct Secret(String);

impl Secret {
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("(hidden)")
    }
}

impl Account {
    pub(crate) fn resolve(
        typed: &AccountArgs,
        names: &NameArgs,
        around: &Surroundings<'_>,
    ) -> Result<Account, Failure> {
        let set = |name: &str| (around.variable)(name).filter(|value| !value.trim().is_empty());
        let key_in_environment = || ENDPOINTS.iter().find_map(|(_, key)| set(key));
        let file = around.file.as_ref().map(|file| &file.account);
        let in_file = |choose: fn(&super::file::AccountSection) -> &Option<String>| {
            file.and_then(|section| choose(section).clone())
        };
        let (source, mut place) = match by_options(typed)? {
            Some(place) => (Source::Options, place),
            None => by_environment(&set).map_or_else(|| by_file(around.file.as_ref()), Ok)?,
        };
        let typed_key = read_key(typed.key.as_deref(), typed.key_file.as_deref())?;
        match &mut place {
            Place::Endpoint { key, url } => {
                *key = typed_key
                    .or_else(|| key.take())
                    .or_else(|| key_in_environment().or_else(|| well_known_key(url)).map(Secret));
            }
            Place::ConnectionString(_) | Place::Data(_) if typed_key.is_some() => {
                return Err(Failure::usage(
                    "a key is given, and the account is not named by an endpoint",
                    "give --endpoint too, or leave --key and --key-file out",
                ));
            }
            Place::ConnectionString(_) | Place::Data(_) => {}
        }
        let database = names.database.clone().or_else(|| set("COSMOS_DATABASE"));
        let container = names.container.clone().or_else(|| set("COSMOS_CONTAINER"));
        Ok(Account {
            place,
            source,
            database: database
                .or_else(|| in_file(|it| &it.database))
                .unwrap_or_else(|| DEFAULT_NAME.to_owned()),
            container: container
                .or_else(|| in_file(|it| &it.container))
                .unwrap_or_else(|| DEFAULT_NAME.to_owned()),
        })
    }

    /// The endpoint, and the key if there is one.
    pub(crate) fn endpoint_and_key(&self) -> Option<(&str, Option<&str>)> {
        match &self.place {
            Place::ConnectionString(text) => {
                let text = text.reveal();
                Some((part_of(text, "AccountEndpoint=")?, part_of(text, "AccountKey=")))
            }
            Place::Endpoint { url, key } => Some((url, key.as_ref().map(Secret::reveal))),
            Place::Data(_) => None,
        }
    }

    /// The account for messages. It contains no secret.
    pub(crate) fn shown(&self) -> String {
        match &self.place {
            Place::Data(path) => path.display().to_string(),
            Place::ConnectionString(_) | Place::Endpoint { .. } => {
                self.endpoint_and_key().map_or("the account", |(endpoint, _)| endpoint).to_owned()
            }
        }
    }

    /// What named the account, for messages; empty for options.
    pub(crate) fn shown_source(&self) -> String {
        match &self.source {
            Source::Options => String::new(),
            Source::Variable(name) => format!(" (from {name})"),
            Source::File(path) => format!(" (from {})", path.display()),
            Source::Default => " (the default)".to_owned(),
        }
    }
}

fn by_options(typed: &AccountArgs) -> Result<Option<Place>, Failure> {
    match (&typed.connection_string, &typed.endpoint, &typed.data) {
        (None, None, None) => Ok(None),
        (Some(text), None, None) => Ok(Some(Place::ConnectionString(Secret(text.clone())))),
        (None, Some(url), None) => Ok(Some(Place::Endpoint { url: url.clone(), key: None })),
        (None, None, Some(path)) => Ok(Some(Place::Data(path.clone()))),
        _ => Err(Failure::usage(
            "the account is named twice",
            "give one of --connection-string, --endpoint and --data",
        )),
    }
}

fn by_environment(set: &impl Fn(&str) -> Option<String>) -> Option<(Source, Place)> {
    for name in CONNECTION_STRINGS {
        if let Some(text) = set(name) {
            return Some((Source::Variable(name), Place::ConnectionString(Secret(text))));
        }
    }
    ENDPOINTS.iter().find_map(|(name, key)| {
        let (url, key) = (set(name)?, set(key).map(Secret));
        Some((Source::Variable(name), Place::Endpoint { url, key }))
    })
}

/// The account of the file, or else the local server.
fn by_file(file: Option<&ConfigFile>) -> Result<(Source, Place), Failure> {
    let local = || Place::Endpoint { url: LOCAL_ENDPOINT.to_owned(), key: None };
    let Some(ConfigFile { path, account }) = file else { return Ok((Source::Default, local())) };
    let place = match (&account.connection_string, &account.endpoint, &account.data) {
        (None, None, None) => return Ok((Source::Default, local())),
        (Some(text), None, None) => Place::ConnectionString(Secret(text.clone())),
        (None, Some(url), None) => {
            let key = read_key(account.key.as_deref(), account.key_file.as_deref())?;
            Place::Endpoint { url: url.clone(), key }
        }
        (None, None, Some(data)) => Place::Data(data.clone()),
        _ => {
            return Err(Failure::usage(
                format!("{} names the account twice", path.display()),
                "give one of connection_string, endpoint and data",
            ));
        }
    };
    Ok((Source::File(path.clone()), place))
}

fn read_key(key: Option<&str>, file: Option<&Path>) -> Result<Option<Secret>, Failure> {
    match (key, file) {
        (None, None) => Ok(None),
        (Some(key), None) => Ok(Some(Secret(key.to_owned()))),
        (Some(_), Some(_)) => Err(Failure::usage("both a key and a key file are given", "give one of them")),
        (None, Some(path)) => read_key_file(path).map(Some).map_err(|error| {
            Failure::usage(format!("the key file {}: {error}", path.display()), "check the file's name")
        }),
    }
}

fn read_key_file(path: &Path) -> std::io::Result<Secret> {
    let mut text = String::new();
    std::fs::File::open(path)?.take(KEY_FILE_BYTES_MAX + 1).read_to_string(&mut text)?;
    if text.len() as u64 > KEY_FILE_BYTES_MAX {
        let why = format!("it has more than {KEY_FILE_BYTES_MAX} bytes; a key file holds one key in base64");
        return Err(std::io::Error::new(std::io::ErrorKind::InvalidData, why));
    }
    Ok(Secret(text.trim().to_owned()))
}

/// The emulators' well-known key, for an endpoint on this machine.
fn well_known_key(url: &str) -> Option<String> {
    let is_local = Endpoint::parse(url).is_ok_and(|endpoint| endpoint.is_loopback());
    is_local.then(|| EMULATOR_KEY.to_owned())
}

/// The part of a connection string with this name, which ends with `=`. Names may be in any
/// letter case.
fn part_of<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let named = |part: &&str| part.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name));
    text.split(';').map(str::trim).find(named).map(|part| &part[name.len()..])
}

#[cfg(test)]
mod tests;
