//! The account that a command works on. Every command finds it in the same way: by options, else
//! by the environment, else by the file `perihelion.toml`, else it is the server of
//! `perihelion dev` on this machine.
//!
//! The user may not have written the file, because a cloned repository can bring one. So a key of
//! the environment is never used for an account that the file names, and some commands do not read
//! the file. The file can also not make a command act with the user's identity of Entra ID.
//!
//! `AccountArgs` and `NameArgs` hold the options of the command line, `resolve` decides which
//! account they mean, `file` reads the configuration file, `connect` connects, `raw` sends
//! single requests, and `words` rewrites failures of the driver.

mod connect;
mod file;
mod raw;
mod resolve;
mod words;

use std::path::PathBuf;

use clap::Args;

pub(crate) use connect::{Connection, FORBIDDEN_ENTRA, KEYS_ARE_OFF};
pub(crate) use raw::{RawConnection, RawFailure, RawProof, RawRequest};
pub(crate) use resolve::{Account, Source};
pub(crate) use words::{in_own_words, tls_advice};

use self::file::ConfigFile;
use self::resolve::Surroundings;
use crate::exit::Failure;

/// The heading of these options in `--help`.
const HEADING: &str = "Account";

/// How an account is named, for the help of commands.
pub(crate) const HELP: &str = "\
The account is named by the options above, else by the environment:
AZURE_COSMOS_CONNECTION_STRING, COSMOS_CONNECTION_STRING, or COSMOS_ENDPOINT with
COSMOS_KEY; else by [account] in the file perihelion.toml of this directory or one
above it, with a key of that file or an option; else it is the server of `perihelion dev` on
this machine. The container is named by COSMOS_DATABASE and COSMOS_CONTAINER in the
environment. Variables that name two different accounts are refused.

With --entra the token is that of AZURE_TENANT_ID, AZURE_CLIENT_ID and
AZURE_CLIENT_SECRET; else of AZURE_FEDERATED_TOKEN_FILE; else of the managed identity
(IDENTITY_ENDPOINT, or the virtual machine's); else of the user of `az login`. The identity
needs a data role of the account: docs/azure.md.";

/// How an account is named, for the help of commands that do not read perihelion.toml.
pub(crate) const HELP_WITHOUT_FILE: &str = "\
The account is named by the options above, else by the environment:
AZURE_COSMOS_CONNECTION_STRING, COSMOS_CONNECTION_STRING, or COSMOS_ENDPOINT with
COSMOS_KEY; else it is the server of `perihelion dev` on this machine. The file
perihelion.toml is not read. Variables that name two different accounts are refused.";

// The account that a command connects to. Not a documentation comment: clap would show it
// as the help of the commands that flatten this struct.
#[derive(Clone, Default, Args)]
pub(crate) struct AccountArgs {
    /// The account's connection string, as the portal shows it. Other users of this machine
    /// can read a command line: prefer AZURE_COSMOS_CONNECTION_STRING or
    /// COSMOS_CONNECTION_STRING
    #[arg(long, value_name = "TEXT", global = true, help_heading = HEADING)]
    pub(crate) connection_string: Option<String>,

    /// The account's endpoint, in place of a connection string [env: COSMOS_ENDPOINT]
    #[arg(long, value_name = "URL", global = true, help_heading = HEADING)]
    pub(crate) endpoint: Option<String>,

    /// File with the account's key
    #[arg(long, value_name = "FILE", global = true, help_heading = HEADING)]
    pub(crate) key_file: Option<PathBuf>,

    /// The account's key. Other users of this machine can read a command line: prefer
    /// COSMOS_KEY or --key-file
    #[arg(long, value_name = "KEY", global = true, help_heading = HEADING)]
    pub(crate) key: Option<String>,

    /// Use a token of Entra ID in place of a key: of an application, a managed identity or
    /// `az login` [env: PERIHELION_ENTRA]
    #[arg(long, global = true, help_heading = HEADING)]
    pub(crate) entra: bool,

    /// A data directory in place of an account. No server may use it meanwhile
    #[arg(long, value_name = "DIR", global = true, help_heading = HEADING)]
    pub(crate) data: Option<PathBuf>,
}

// The container that a command works on.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct NameArgs {
    /// The database [env: COSMOS_DATABASE] [default: duroxide]
    #[arg(long, short = 'd', value_name = "NAME", global = true, help_heading = HEADING)]
    pub(crate) database: Option<String>,

    /// The container [env: COSMOS_CONTAINER] [default: duroxide]
    #[arg(long, short = 'c', value_name = "NAME", global = true, help_heading = HEADING)]
    pub(crate) container: Option<String>,
}

impl AccountArgs {
    /// Whether the command line has a key or --entra.
    pub(crate) fn has_credential(&self) -> bool {
        self.key.is_some() || self.key_file.is_some() || self.entra
    }

    /// The account that is meant, without options for the container.
    pub(crate) fn resolve(&self) -> Result<Account, Failure> {
        self.resolve_with(&NameArgs::default())
    }

    /// The account that is meant, without reading perihelion.toml.
    pub(crate) fn resolve_without_file(&self) -> Result<Account, Failure> {
        let around = Surroundings { variable: &variable, file: None };
        Account::resolve(self, &NameArgs::default(), &around)
    }

    /// The account and the container that are meant.
    pub(crate) fn resolve_with(&self, names: &NameArgs) -> Result<Account, Failure> {
        let file = match std::env::current_dir() {
            Ok(directory) => ConfigFile::find(&directory)?,
            // The working directory was removed, so it has no file.
            Err(_) => None,
        };
        Account::resolve(self, names, &Surroundings { variable: &variable, file })
    }
}

/// A variable of the environment.
fn variable(name: &str) -> Option<String> {
    std::env::var_os(name).map(|value| value.to_string_lossy().into_owned())
}

// A connection string may have been given as the endpoint, so the endpoint is hidden too.
impl std::fmt::Debug for AccountArgs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AccountArgs").finish_non_exhaustive()
    }
}
