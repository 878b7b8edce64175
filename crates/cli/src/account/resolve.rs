//! `Account`: the account that is meant. The decision is a pure function of the options, the
//! environment and the file.
//!
//! The first of options, environment and file that names an account decides. Parts of the other
//! two are not mixed in: an endpoint on the command line is never combined with a connection
//! string of the environment. The key is an exception: for an endpoint in an option, the key may
//! be in the environment. For an endpoint in the file, only the file or an option can give the
//! key. Otherwise a file that came with a cloned repository could make the user's key sign requests
//! to any host. Variables that name two accounts are refused, because it is not known which account
//! is meant. The names of the database and of the container are looked for separately.
//!
//! Entra ID is used if an option or the environment asks for it. It then replaces every key, except a
//! key that an option gives. The file can only say that its account needs Entra ID. Otherwise a file
//! that came with a cloned repository could make a command act as the user on an account that somebody
//! else chose.

use std::path::{Path, PathBuf};

use perihelion_wire::signature::EMULATOR_KEY;
use perihelion_wire::transport::Endpoint;

use super::file::{self, ConfigFile};
use super::{AccountArgs, NameArgs};
use crate::args::is_on;
use crate::exit::Failure;
use crate::names::{check_container, check_database};
use crate::secret::{FILE_BYTES_MAX, Secret};

/// The server of `perihelion dev`.
pub(crate) const LOCAL_ENDPOINT: &str = "http://127.0.0.1:8081/";

/// The database and the container if none are named. The provider has the same defaults.
const DEFAULT_NAME: &str = "duroxide";

/// The variables that hold a connection string.
const CONNECTION_STRINGS: [&str; 2] = ["AZURE_COSMOS_CONNECTION_STRING", "COSMOS_CONNECTION_STRING"];

/// The variables that hold an endpoint, each with the variable of its key.
const ENDPOINTS: [(&str, &str); 2] =
    [("COSMOS_ENDPOINT", "COSMOS_KEY"), ("COSMOSDB_ENDPOINT", "COSMOSDB_KEY")];

/// The ends of the host names of Azure accounts, one for each cloud of Azure.
const AZURE_HOSTS: [&str; 3] = [".documents.azure.com", ".documents.azure.us", ".documents.azure.cn"];

/// The variable that asks for Entra ID.
const ENTRA: &str = "PERIHELION_ENTRA";

/// The inputs of the decision besides the options: the environment and the file.
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
    /// A note for messages, such as `; container from /srv/perihelion.toml`: which names perihelion.toml
    /// gave, if another place named the account. Else empty.
    pub(crate) names_note: String,
}

/// Where an account is.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    /// An account, with the text of its connection string.
    ConnectionString(Secret),
    Endpoint {
        url: String,
        access: Access,
    },
    /// A data directory, for the engine in this process.
    Data(PathBuf),
}

/// How requests to an endpoint prove who sends them.
#[derive(Clone, Debug)]
pub(crate) enum Access {
    Key(Secret),
    /// A token of Entra ID.
    Entra,
    /// Nothing is given. Connecting fails.
    None,
}

/// The place that named the account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Source {
    /// An option, such as `--endpoint`.
    Option(&'static str),
    /// A variable of the environment.
    Variable(&'static str),
    File(PathBuf),
    /// No place named an account. The account is the server of `perihelion dev` on this machine.
    Default,
}

impl Account {
    pub(crate) fn resolve(
        args: &AccountArgs,
        names: &NameArgs,
        around: &Surroundings<'_>,
    ) -> Result<Account, Failure> {
        let variable = |name: &str| (around.variable)(name).filter(|value| !value.trim().is_empty());
        let file = around.file.as_ref().map(|file| &file.account);
        let in_file = |choose: fn(&super::file::AccountSection) -> &Option<String>| {
            file.and_then(|section| choose(section).clone())
        };
        let (source, mut place) = match by_options(args)? {
            Some(named) => named,
            None => by_environment(&variable)?.map_or_else(|| by_file(around.file.as_ref()), Ok)?,
        };
        check_endpoint(&source, &place)?;
        let given_key = read_key(args.key.as_deref(), args.key_file.as_deref())?;
        check_credential(args, &source, &place, variable(ENTRA).as_deref())?;
        if let Place::Endpoint { url, access } = &mut place {
            let is_entra = args.entra || (source != Source::Default && variable(ENTRA).is_some_and(is_on));
            *access = match (given_key, is_entra) {
                (Some(key), _) => Access::Key(key),
                (None, true) => Access::Entra,
                (None, false) => found_access(&source, url, access, &variable)?,
            };
        }
        let database = names.database.clone().or_else(|| variable("COSMOS_DATABASE"));
        let container = names.container.clone().or_else(|| variable("COSMOS_CONTAINER"));
        let is_from_file = |name: &Option<String>, choose: fn(&file::AccountSection) -> &Option<String>| {
            name.is_none() && in_file(choose).is_some()
        };
        let from_file =
            [is_from_file(&database, |it| &it.database), is_from_file(&container, |it| &it.container)];
        let names_note = names_note(&source, around.file.as_ref(), from_file);
        Ok(Account {
            place,
            source,
            names_note,
            database: database
                .or_else(|| in_file(|it| &it.database))
                .unwrap_or_else(|| DEFAULT_NAME.to_owned()),
            container: container
                .or_else(|| in_file(|it| &it.container))
                .unwrap_or_else(|| DEFAULT_NAME.to_owned()),
        })
    }

    /// The account and the place that named it, for the messages of verbs that change something.
    pub(crate) fn described(&self) -> String {
        let kind = if self.is_data_directory() { "the data directory " } else { "" };
        format!("{kind}{}{}", self.display_name(), self.display_source())
    }

    /// Refuses names that no database and no container can have. For commands that use the names.
    pub(crate) fn check_names(&self) -> Result<(), Failure> {
        check_database(&self.database)?;
        check_container(&self.container)?;
        Ok(())
    }

    /// Whether the endpoint is an account of Azure, by its name.
    pub(crate) fn is_azure(&self) -> bool {
        let endpoint = self.place.endpoint();
        let is_of_azure = |host: &str| AZURE_HOSTS.iter().any(|suffix| host.ends_with(suffix));
        endpoint.is_some_and(|endpoint| is_of_azure(&endpoint.host().to_ascii_lowercase()))
    }

    /// Whether the account is a data directory. If so, only this command uses the directory: no server and
    /// no worker of another process is alive on it.
    pub(crate) fn is_data_directory(&self) -> bool {
        matches!(self.place, Place::Data(_))
    }

    /// Whether requests have a token of Entra ID.
    pub(crate) fn is_entra(&self) -> bool {
        matches!(self.place, Place::Endpoint { access: Access::Entra, .. })
    }

    /// Whether requests are made with a secret: a token of Entra ID, or a key that is not the
    /// emulators' well-known key.
    pub(crate) fn has_secret(&self) -> bool {
        let key = self.endpoint_and_key().and_then(|(_, key)| key);
        self.is_entra() || key.is_some_and(|key| key != EMULATOR_KEY)
    }

    /// The endpoint, and the key if there is one.
    pub(crate) fn endpoint_and_key(&self) -> Option<(&str, Option<&str>)> {
        match &self.place {
            Place::ConnectionString(text) => {
                let text = text.reveal();
                Some((part_of(text, "AccountEndpoint=")?, part_of(text, "AccountKey=")))
            }
            Place::Endpoint { url, access: Access::Key(key) } => Some((url, Some(key.reveal()))),
            Place::Endpoint { url, access: Access::Entra | Access::None } => Some((url, None)),
            Place::Data(_) => None,
        }
    }

    /// The account for messages: scheme, host and port, or the data directory. The text contains no
    /// secret, even if the given endpoint does.
    pub(crate) fn display_name(&self) -> String {
        match &self.place {
            Place::Data(path) => path.display().to_string(),
            Place::ConnectionString(_) | Place::Endpoint { .. } => self
                .place
                .endpoint()
                .map_or_else(|| "the account".to_owned(), |endpoint| endpoint.to_string()),
        }
    }

    /// The place that named the account, for messages.
    pub(crate) fn display_source(&self) -> String {
        format!(" ({})", self.source)
    }
}

impl std::fmt::Display for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Source::Option(name) | Source::Variable(name) => write!(f, "from {name}"),
            Source::File(path) => write!(f, "from {}", path.display()),
            Source::Default => f.write_str("the local default"),
        }
    }
}

impl Place {
    /// The endpoint; `None` for a data directory, and for a text that is not an endpoint.
    fn endpoint(&self) -> Option<Endpoint> {
        let text = match self {
            Place::ConnectionString(text) => part_of(text.reveal(), "AccountEndpoint=")?,
            Place::Endpoint { url, .. } => url,
            Place::Data(_) => return None,
        };
        Endpoint::parse(text).ok()
    }
}

/// Refuses a text that is not an endpoint. The error does not repeat the text, which may be a
/// connection string.
fn check_endpoint(source: &Source, place: &Place) -> Result<(), Failure> {
    match place {
        Place::Endpoint { .. } if place.endpoint().is_none() => Err(Failure::usage(
            format!("the endpoint ({source}) is not like https://shop.documents.azure.com/"),
            "a connection string goes into --connection-string or COSMOS_CONNECTION_STRING",
        )),
        Place::Endpoint { .. } | Place::ConnectionString(_) | Place::Data(_) => Ok(()),
    }
}

fn by_options(args: &AccountArgs) -> Result<Option<(Source, Place)>, Failure> {
    let named = |option, place| Ok(Some((Source::Option(option), place)));
    match (&args.connection_string, &args.endpoint, &args.data) {
        (None, None, None) => Ok(None),
        (Some(text), None, None) => named("--connection-string", Place::ConnectionString(Secret::new(text))),
        (None, Some(url), None) => {
            named("--endpoint", Place::Endpoint { url: url.clone(), access: Access::None })
        }
        (None, None, Some(path)) => named("--data", Place::Data(path.clone())),
        _ => Err(Failure::usage(
            "the account is named twice",
            "give one of --connection-string, --endpoint and --data",
        )),
    }
}

/// The account of the environment. If several variables name the same account, the first variable
/// counts.
fn by_environment(variable: &impl Fn(&str) -> Option<String>) -> Result<Option<(Source, Place)>, Failure> {
    let strings = CONNECTION_STRINGS
        .into_iter()
        .filter_map(|name| Some((name, Place::ConnectionString(Secret::new(variable(name)?)))));
    let endpoints = ENDPOINTS.into_iter().filter_map(|(name, key)| {
        let (url, key) = (variable(name)?, variable(key).map(Secret::new));
        Some((name, Place::Endpoint { url, access: key.map_or(Access::None, Access::Key) }))
    });
    let mut named = strings.chain(endpoints);
    let Some((first, place)) = named.next() else { return Ok(None) };
    match named.find(|(_, other)| other.endpoint() != place.endpoint()) {
        None => Ok(Some((Source::Variable(first), place))),
        Some((second, _)) => Err(Failure::usage(
            format!("{first} and {second} name two different accounts"),
            "unset one of them, or name the account with --endpoint, --connection-string or --data",
        )),
    }
}

/// The account of the file, or else the local server.
fn by_file(file: Option<&ConfigFile>) -> Result<(Source, Place), Failure> {
    let local = || Place::Endpoint { url: LOCAL_ENDPOINT.to_owned(), access: Access::None };
    let Some(ConfigFile { path, account }) = file else { return Ok((Source::Default, local())) };
    if account.entra && account.endpoint.is_none() {
        return Err(Failure::usage(
            format!("{} has entra = true, and no endpoint", path.display()),
            "name the account with endpoint; a connection string has a key",
        ));
    }
    let place = match (&account.connection_string, &account.endpoint, &account.data) {
        (None, None, None) => return Ok((Source::Default, local())),
        (Some(text), None, None) => Place::ConnectionString(Secret::new(text)),
        (None, Some(url), None) => {
            check_key_file(path, account.key_file.as_deref())?;
            let key = read_key(account.key.as_deref(), account.key_file.as_deref())?;
            let access = match (key, account.entra) {
                (Some(_), true) => {
                    return Err(Failure::usage(
                        format!("{} has a key, and entra = true", path.display()),
                        "leave one of them out",
                    ));
                }
                (Some(key), false) => Access::Key(key),
                (None, true) => Access::Entra,
                (None, false) => Access::None,
            };
            Place::Endpoint { url: url.clone(), access }
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

/// The note [`Account::names_note`]. `from_file` says whether the file gave the database, and whether it
/// gave the container.
fn names_note(source: &Source, file: Option<&ConfigFile>, from_file: [bool; 2]) -> String {
    let what = match from_file {
        [true, true] => "database and container",
        [true, false] => "database",
        [false, true] => "container",
        [false, false] => return String::new(),
    };
    match (source, file) {
        (Source::File(_), _) | (_, None) => String::new(),
        (_, Some(file)) => format!("; {what} from {}", file.path.display()),
    }
}

/// Refuses a key file that a symbolic link puts outside the directory of `perihelion.toml`. A key
/// file that does not exist is reported when it is read.
fn check_key_file(path: &Path, key_file: Option<&Path>) -> Result<(), Failure> {
    let directory = path.parent().unwrap_or(Path::new("")).canonicalize();
    let (Ok(directory), Some(Ok(real))) = (directory, key_file.map(Path::canonicalize)) else {
        return Ok(());
    };
    if real.starts_with(&directory) {
        return Ok(());
    }
    let advice = "move the key there, or give --key-file";
    Err(Failure::usage(format!("{}: {}", path.display(), file::KEY_FILE_OUTSIDE), advice))
}

fn read_key(key: Option<&str>, file: Option<&Path>) -> Result<Option<Secret>, Failure> {
    match (key, file) {
        (None, None) => Ok(None),
        (Some(key), None) => Ok(Some(Secret::new(key))),
        (Some(_), Some(_)) => Err(Failure::usage("both a key and a key file are given", "give one of them")),
        (None, Some(path)) => {
            Secret::read_file(path, FILE_BYTES_MAX, "one key in base64").map(Some).map_err(|error| {
                Failure::usage(format!("the key file {}: {error}", path.display()), "check the file's name")
            })
        }
    }
}

/// Refuses an option with a key beside `--entra`, and either of them for an account that is not named
/// by an endpoint. `entra_variable` is the value of `PERIHELION_ENTRA`. It is refused only for a
/// connection string.
fn check_credential(
    args: &AccountArgs,
    source: &Source,
    place: &Place,
    entra_variable: Option<&str>,
) -> Result<(), Failure> {
    let has_key = args.key.is_some() || args.key_file.is_some();
    if has_key && args.entra {
        return Err(Failure::usage("both a key and --entra are given", "give one of them"));
    }
    if args.entra && *source == Source::Default {
        return Err(Failure::usage(
            "--entra is given, and no account",
            "name the account with --endpoint or COSMOS_ENDPOINT",
        ));
    }
    match place {
        Place::Endpoint { .. } => Ok(()),
        Place::ConnectionString(_) | Place::Data(_) if has_key => Err(Failure::usage(
            "a key is given, and the account is not named by an endpoint",
            "give --endpoint too, or leave --key and --key-file out",
        )),
        Place::ConnectionString(_) | Place::Data(_) if args.entra => Err(Failure::usage(
            "--entra is given, and the account is not named by an endpoint",
            "name it with --endpoint or COSMOS_ENDPOINT; a connection string has a key",
        )),
        Place::ConnectionString(_) if entra_variable.is_some_and(is_on) => Err(Failure::usage(
            format!("{ENTRA} asks for Entra ID, and the connection string ({source}) has a key"),
            "name the account with --endpoint or COSMOS_ENDPOINT, or unset the variable",
        )),
        Place::ConnectionString(_) | Place::Data(_) => Ok(()),
    }
}

/// How requests to an endpoint prove who sends them: by the key beside the endpoint (in `given`), else by
/// the key of the environment (not for an endpoint in the file), else by the well-known key (only for an
/// endpoint on this machine). If `given` is Entra ID, a file asked for it, and that is refused.
fn found_access(
    source: &Source,
    url: &str,
    given: &Access,
    variable: &impl Fn(&str) -> Option<String>,
) -> Result<Access, Failure> {
    let may_use_environment = !matches!(source, Source::File(_));
    let in_environment = || ENDPOINTS.iter().find_map(|(_, key)| variable(key));
    match given {
        Access::Key(_) => Ok(given.clone()),
        Access::Entra => {
            let account = Endpoint::parse(url).map_or_else(|_| "its account".to_owned(), |it| it.to_string());
            Err(Failure::usage(
                format!("{account} ({source}) needs Entra ID, and a file cannot decide to use your identity"),
                &format!("if you trust the file, give --entra or set {ENTRA}=1; else give --endpoint"),
            ))
        }
        Access::None => {
            let key = may_use_environment.then(in_environment).flatten().or_else(|| well_known_key(url));
            Ok(key.map_or(Access::None, |key| Access::Key(Secret::new(key))))
        }
    }
}

/// The emulators' well-known key, for an endpoint on this machine.
fn well_known_key(url: &str) -> Option<String> {
    let is_local = Endpoint::parse(url).is_ok_and(|endpoint| endpoint.is_loopback());
    is_local.then(|| EMULATOR_KEY.to_owned())
}

/// The value of the part of a connection string with this name. `name` includes the `=`. Names may be
/// in any letter case.
fn part_of<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let named = |part: &&str| part.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name));
    text.split(';').map(str::trim).find(named).map(|part| &part[name.len()..])
}

#[cfg(test)]
mod tests;
