//! `CrossInstance`: how the messages of a turn to other instances are written.

use std::fmt;
use std::str::FromStr;

/// How a turn sends messages to other instances: starts, results and cancellations of
/// sub-orchestrations, detached starts and events.
///
/// All three settings are equally safe, and providers with different settings may share a
/// container: each reads the documents that the others write.
///
/// | | requests for a turn with messages to other instances |
/// |---|---|
/// | `Outbox` | the commit, then one for each message, then one that removes the outbox |
/// | `Transaction` | the commit |
///
/// A transaction holds 100 operations and 2 MiB. A turn with more, with messages of more than
/// 256 KiB, or so large that its commit needs several requests, uses the outbox whatever the
/// setting is.
///
/// ```no_run
/// # async fn example() -> Result<(), duroxide::providers::ProviderError> {
/// use duroxide_cdb::{CosmosDBProvider, CrossInstance};
///
/// let store = CosmosDBProvider::builder()
///     .with_connection_string("AccountEndpoint=http://localhost:8081/;AccountKey=...")
///     .with_cross_instance(CrossInstance::Auto)
///     .open()
///     .await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CrossInstance {
    /// The commit writes the messages into an outbox in the sender's partition. They are
    /// delivered after the commit. The default when the provider connects to an account over the
    /// network.
    Outbox,
    /// The commit is one distributed transaction (`POST /operations/dtc`) that also creates the
    /// messages in the partitions of their receivers. Opening the provider fails if the account
    /// has no transactions.
    Transaction,
    /// `Transaction` if the account has transactions, else `Outbox`. The provider asks the
    /// service when it is opened, and writes a line to the log if the account has no
    /// transactions. If the service does not answer, the first turn finds out. The default for
    /// the engine in this process.
    Auto,
}

impl CrossInstance {
    const ALL: [CrossInstance; 3] = [CrossInstance::Outbox, CrossInstance::Transaction, CrossInstance::Auto];

    /// The name, as the environment variable and the command line have it.
    pub fn name(self) -> &'static str {
        match self {
            CrossInstance::Outbox => "outbox",
            CrossInstance::Transaction => "transaction",
            CrossInstance::Auto => "auto",
        }
    }

    /// The setting in the environment variable `COSMOS_CROSS_INSTANCE`, or `COSMOSDB_CROSS_INSTANCE`
    /// if that is not set; `None` if neither is. A blank variable counts as not set.
    pub(crate) fn from_environment() -> Result<Option<Self>, String> {
        Self::from_variables(|name| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned()))
    }

    fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Result<Option<Self>, String> {
        for name in ["COSMOS_CROSS_INSTANCE", "COSMOSDB_CROSS_INSTANCE"] {
            let Some(value) = variable(name).filter(|value| !value.trim().is_empty()) else { continue };
            return value
                .parse()
                .map(Some)
                .map_err(|error| format!("the environment variable {name}: {error}"));
        }
        Ok(None)
    }
}

impl fmt::Display for CrossInstance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for CrossInstance {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let found = CrossInstance::ALL.into_iter().find(|mode| mode.name().eq_ignore_ascii_case(text));
        found.ok_or_else(|| {
            let shown: String = text.chars().take(64).collect();
            format!("{shown:?} is not a way to send messages: write outbox, transaction or auto")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_variable_that_is_set_decides_and_a_wrong_value_is_named() {
        let read = |first: Option<&str>, second: Option<&str>| {
            let [first, second] = [first, second].map(|value| value.map(str::to_owned));
            CrossInstance::from_variables(|name| match name {
                "COSMOS_CROSS_INSTANCE" => first.clone(),
                _ => second.clone(),
            })
        };
        assert_eq!(read(None, None), Ok(None));
        assert_eq!(read(Some(" "), Some("Auto")), Ok(Some(CrossInstance::Auto)));
        assert_eq!(read(Some("transaction"), Some("nonsense")), Ok(Some(CrossInstance::Transaction)));
        let error = read(Some("dtc"), None).unwrap_err();
        assert!(
            error.contains("COSMOS_CROSS_INSTANCE") && error.contains("outbox, transaction or auto"),
            "{error}"
        );
    }
}
