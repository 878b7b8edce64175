//! `AccountArgs`: the options of commands that connect to an account, and the connection.

use clap::Args;
use perihelion_client::{Client, Credential, Error};

use crate::exit::Failure;

// The account that a command connects to. Not a documentation comment: clap would show it
// as the help of the commands that flatten this struct.
#[derive(Clone, Args)]
pub(crate) struct AccountArgs {
    /// The account's connection string, as the portal shows it. Other users of
    /// this machine can read a command line: prefer the variable
    #[arg(long, value_name = "TEXT", env = "COSMOS_CONNECTION_STRING", hide_env_values = true)]
    connection_string: Option<String>,

    /// The account's endpoint, in place of a connection string
    #[arg(long, value_name = "URL", env = "COSMOS_ENDPOINT", hide_env_values = true)]
    endpoint: Option<String>,

    /// The account's key, with --endpoint; prefer the variable
    #[arg(long, value_name = "KEY", env = "COSMOS_KEY", hide_env_values = true)]
    key: Option<String>,
}

impl AccountArgs {
    /// Whether any part of an account is given.
    pub(crate) fn is_given(&self) -> bool {
        self.connection_string.is_some() || self.endpoint.is_some() || self.key.is_some()
    }

    /// The account's endpoint, for messages. It contains no secret.
    pub(crate) fn shown_endpoint(&self) -> &str {
        let in_text = self.connection_string.as_deref();
        let in_text = in_text.map(|text| part_of(text, "AccountEndpoint=").unwrap_or("the account"));
        in_text.or(self.endpoint.as_deref()).unwrap_or("the account")
    }

    /// The endpoint and the key that were given; `None` for a part that was not given. A
    /// connection string wins over an endpoint and a key.
    pub(crate) fn endpoint_and_key(&self) -> (Option<&str>, Option<&str>) {
        match &self.connection_string {
            Some(text) => (part_of(text, "AccountEndpoint="), part_of(text, "AccountKey=")),
            None => (self.endpoint.as_deref(), self.key.as_deref()),
        }
    }

    /// Connects to the account. A connection string wins over an endpoint.
    pub(crate) async fn connect(&self) -> Result<Client, Failure> {
        let connected = match (&self.connection_string, &self.endpoint, &self.key) {
            (Some(text), _, _) => Client::builder().with_connection_string(text).connect().await,
            (None, Some(endpoint), Some(key)) => {
                let credential = Credential::key(key)
                    .map_err(|error: Error| Failure::usage(error, "check --key or COSMOS_KEY"))?;
                Client::with_credential(endpoint, credential).await
            }
            (None, Some(_), None) => {
                return Err(Failure::usage(
                    "the account's key is not given",
                    "set COSMOS_KEY, or COSMOS_CONNECTION_STRING in place of endpoint and key",
                ));
            }
            (None, None, _) => {
                return Err(Failure::usage(
                    "no account is given",
                    "set COSMOS_CONNECTION_STRING, or COSMOS_ENDPOINT and COSMOS_KEY",
                ));
            }
        };
        connected.map_err(|error| Failure::runtime(format!("cannot connect to the account: {error}")))
    }
}

/// The part of a connection string with this name, which ends with `=`. Names may be in any
/// letter case.
fn part_of<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let named = |part: &&str| part.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name));
    text.split(';').map(str::trim).find(named).map(|part| &part[name.len()..])
}

impl std::fmt::Debug for AccountArgs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AccountArgs").field("endpoint", &self.shown_endpoint()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_show_the_endpoint_and_never_the_key() {
        let check = |text: Option<&str>, endpoint: Option<&str>, expected: &str| {
            let [connection_string, endpoint] = [text, endpoint].map(|text| text.map(str::to_owned));
            let account = AccountArgs { connection_string, endpoint, key: Some("c2VjcmV0".to_owned()) };
            assert_eq!(account.shown_endpoint(), expected);
            assert!(!format!("{account:?}").contains("c2VjcmV0"), "{account:?}");
        };
        check(Some("AccountKey=c2VjcmV0; accountendpoint=https://shop/;"), None, "https://shop/");
        check(Some("AccountKey=c2VjcmV0"), Some("https://other/"), "the account");
        check(None, Some("https://shop/"), "https://shop/");
        check(None, None, "the account");
    }
}
