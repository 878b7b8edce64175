//! `Connection`: a client of the account, or of the engine in this process on a data directory.

use std::path::Path;
use std::sync::Arc;

use perihelion_client::{Client, Credential, Error, ErrorKind};
use perihelion_server::check::data_directories;
use perihelion_server::{Embedded, EmbeddedOptions};

use super::resolve::{Access, Account, Place, Source};
use super::words::{in_own_words, tls_advice};
use crate::entra::Entra;
use crate::exit::Failure;

/// A connected client. `close` closes the engine, if there is one.
pub(crate) struct Connection {
    pub(crate) client: Client,
    engine: Option<Embedded>,
}

impl Connection {
    /// Opens the engine in this process with these options, and connects a client to it.
    pub(crate) async fn in_process(options: EmbeddedOptions) -> Result<Connection, Failure> {
        let engine = Embedded::open(options).await.map_err(|error| Failure::start(&error))?;
        let client = Client::over(&engine.endpoint(), engine.transport()).await;
        Ok(Connection { client: client.map_err(Failure::runtime)?, engine: Some(engine) })
    }

    pub(crate) async fn close(self) {
        if let Some(engine) = self.engine {
            engine.close().await;
        }
    }
}

impl Account {
    /// Connects to the account. An empty directory becomes a data directory, for a command that makes
    /// its own containers.
    pub(crate) async fn connect_or_create(&self) -> Result<Connection, Failure> {
        match &self.place {
            Place::Data(path) if is_empty_directory(path) => {
                Connection::in_process(EmbeddedOptions::default().with_data(path)).await
            }
            _ => self.connect().await,
        }
    }

    /// Connects to the account.
    pub(crate) async fn connect(&self) -> Result<Connection, Failure> {
        let connected = match &self.place {
            Place::Data(path) => return open_data(path).await,
            Place::ConnectionString(text) => {
                Client::builder().with_connection_string(text.reveal()).connect().await
            }
            Place::Endpoint { url, access: Access::Key(key) } => {
                let credential = Credential::key(key.reveal())
                    .map_err(|error: Error| Failure::usage(error, "check COSMOS_KEY, --key-file or --key"))?;
                Client::with_credential(url, credential).await
            }
            Place::Endpoint { url, access: Access::Entra } => {
                Client::with_credential(url, Credential::token_source(Arc::new(Entra::of_process()))).await
            }
            Place::Endpoint { access: Access::None, .. } => return Err(self.no_credential()),
        };
        let client = connected.map_err(|error| match &self.place {
            Place::ConnectionString(_) if error.kind() == ErrorKind::Input => {
                let text = error.to_string();
                Failure::usage(
                    format!("cannot use the connection string ({}): {}", self.source, first_line(&text)),
                    "copy it from the portal, or from the banner of `perihelion dev`, and quote it: it has semicolons",
                )
            }
            _ => self.connect_failed(&error),
        })?;
        Ok(Connection { client, engine: None })
    }

    /// Connects, runs `work` and closes the connection.
    pub(crate) async fn run<R>(
        &self,
        work: impl AsyncFnOnce(&Client) -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        let connection = self.connect().await?;
        let result = work(&connection.client).await;
        connection.close().await;
        result
    }

    /// The failure of an account for which neither a key nor Entra ID is given.
    fn no_credential(&self) -> Failure {
        let key = match &self.source {
            Source::File(_) => {
                "write key_file into the file, or give --key-file; COSMOS_KEY is not used for an account that \
                 a file names"
            }
            Source::Option(_) | Source::Variable(_) | Source::Default => {
                "set COSMOS_KEY or --key-file, or COSMOS_CONNECTION_STRING in place of endpoint and key"
            }
        };
        let entra = match self.is_azure() {
            true => "; if the account has no keys, give --entra to use Entra ID (`az login`)",
            false => "",
        };
        let account = format!("{}{}", self.display_name(), self.display_source());
        let message = format!("the key of the account {account} is not given");
        Failure::usage(message, &format!("{key}{entra}"))
    }

    /// The failure to connect: to which account, the likely reason, and what to do.
    fn connect_failed(&self, error: &Error) -> Failure {
        let advice = match (&self.source, error.status().map(|status| status.code)) {
            _ if error.kind() == ErrorKind::Credential && self.is_entra() => {
                "`perihelion doctor` checks the identity; docs/cli.md has the places that tokens come from"
            }
            (_, Some(401 | 403)) if error.message().contains(KEYS_ARE_OFF) => {
                "the account has no keys: give --entra to use Entra ID (`az login`)"
            }
            (_, Some(401)) if self.is_entra() => {
                "check that the identity is of the account's tenant; `perihelion doctor` shows the identity"
            }
            (_, Some(403)) if self.is_entra() => FORBIDDEN_ENTRA,
            (Source::Default, None) => {
                "start a server with `perihelion dev`, or name an account: --endpoint, COSMOS_ENDPOINT, \
                 AZURE_COSMOS_CONNECTION_STRING or perihelion.toml"
            }
            (_, Some(401)) => "check the key, and that this machine's clock is right",
            (_, Some(403)) => "the account refuses this key or this machine; check the account's firewall",
            (_, Some(404)) => "the server at this endpoint is not a Cosmos DB account; check the endpoint",
            (_, Some(_)) => "the account answered, but not as expected; try again later",
            (_, None) => "check the endpoint, and that this machine reaches it",
        };
        let text = error.to_string();
        let message = format!(
            "cannot connect to the account {}{}: {}",
            self.display_name(),
            self.display_source(),
            in_own_words(first_line(&text))
        );
        Failure::runtime(message).with_advice(tls_advice(&text).as_deref().unwrap_or(advice))
    }
}

/// A part of the service's message for an account whose keys are turned off (`disableLocalAuth`).
pub(crate) const KEYS_ARE_OFF: &str = "Local Authorization is disabled";

/// What to do if the service refuses an identity. Roles of Azure Resource Manager, such as
/// Contributor, permit no access to data.
pub(crate) const FORBIDDEN_ENTRA: &str = "give the identity the data role Cosmos DB Built-in Data Contributor on the account (docs/provider.md has \
     the command), and check the account's firewall";

/// Opens an existing data directory with the engine in this process.
async fn open_data(path: &Path) -> Result<Connection, Failure> {
    if !path.is_dir() {
        return Err(Failure::no_data_directory(path));
    }
    // The engine would make a new database in a directory that was named by mistake.
    let directories = data_directories(path)
        .map_err(|error| Failure::data(format!("cannot read {}: {error}", path.display())))?;
    if directories.is_empty() {
        return Err(Failure::no_server_data(path));
    }
    Connection::in_process(EmbeddedOptions::default().with_data(path)).await
}

fn is_empty_directory(path: &Path) -> bool {
    std::fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none())
}

/// The first line of a message. The other lines of the service's messages are details of the
/// request.
pub(super) fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}
