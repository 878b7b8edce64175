//! Options of the HTTP transport from environment variables. The names are those of Microsoft's
//! driver; the shorter ones are those of its specification. If two variables set the same
//! option, the variable that comes first in the table wins.
//!
//! | variable | sets | written as |
//! |---|---|---|
//! | `AZURE_COSMOS_CONNECTION_POOL_MAX_HTTP2_STREAMS_PER_CLIENT`, `AZURE_COSMOS_MAX_STREAMS_PER_CLIENT` | [`HttpOptions::streams_per_connection_max`] | 1 to 1000 |
//! | `AZURE_COSMOS_CONNECTION_POOL_MAX_HTTP2_CONNECTIONS_PER_ENDPOINT`, `AZURE_COSMOS_MAX_CLIENTS_PER_ENDPOINT` | [`HttpOptions::connections_max`] | 1 to 1024 |
//! | `AZURE_COSMOS_CONNECTION_POOL_MIN_HTTP2_CONNECTIONS_PER_ENDPOINT` | [`HttpOptions::connections_min`] | 1 to 1024 |
//! | `AZURE_COSMOS_CONNECTION_POOL_IDLE_HTTP2_CLIENT_TIMEOUT_MS` | [`HttpOptions::idle_timeout`] | milliseconds, 1000 or more |
//! | `AZURE_COSMOS_SHARD_IDLE_TIMEOUT_SECS` | [`HttpOptions::idle_timeout`] | seconds above 0 |
//! | `AZURE_COSMOS_CONNECTION_POOL_MAX_CONNECT_TIMEOUT_MS` | [`HttpOptions::connect_timeout`] | milliseconds, 100 or more |
//! | `AZURE_COSMOS_CONNECTION_POOL_HTTP2_KEEP_ALIVE_INTERVAL_MS` | [`HttpOptions::ping_interval`] | milliseconds, 100 or more |
//! | `AZURE_COSMOS_CONNECTION_POOL_HTTP2_KEEP_ALIVE_TIMEOUT_MS` | [`HttpOptions::ping_timeout`] | milliseconds, 100 or more |
//! | `AZURE_COSMOS_CONNECTION_POOL_READ_HANG_LIMIT_MS` | [`HttpOptions::read_hang_limit`] | milliseconds, 100 or more |
//! | `AZURE_COSMOS_EMULATOR_SERVER_CERT_VALIDATION_DISABLED` | [`HttpOptions::accept_unknown_loopback_certificates`] | `true`, `false` |
//!
//! A variable applies only if the application left the option at its default. Proxies have
//! variables of their own: see [`ProxyChoice::Environment`](super::ProxyChoice::Environment).

#[cfg(test)]
mod tests;

use super::options::{BadHttpOptions, HttpOptions};
use crate::variable::Variable;

/// The most streams that a variable may set for one connection. It is far above the 20 that the
/// service allows.
const STREAMS_MAX: usize = 1000;

/// The most connections to one endpoint that a variable may set. It is far above what a process
/// can use.
const CONNECTIONS_MAX: usize = 1024;

impl HttpOptions {
    /// Sets each option that is at its default to the value of its environment variable. `lookup`
    /// returns the value of a variable.
    pub(super) fn or_environment(
        self,
        lookup: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, BadHttpOptions> {
        self.read_environment(lookup).map_err(BadHttpOptions::new)
    }

    fn read_environment(mut self, lookup: impl Fn(&str) -> Option<String>) -> Result<Self, String> {
        let default = HttpOptions::default();
        let get = |name: &'static str| Variable::new(name, lookup(name));
        // The number in the variable `name`, or else in the variable with the short name.
        let count = |short: &'static str, name: &'static str, max: usize| {
            Ok::<_, String>(get(name).number(1..=max)?.or(get(short).number(1..=max)?))
        };
        let streams = count(
            "AZURE_COSMOS_MAX_STREAMS_PER_CLIENT",
            "AZURE_COSMOS_CONNECTION_POOL_MAX_HTTP2_STREAMS_PER_CLIENT",
            STREAMS_MAX,
        )?;
        let connections = count(
            "AZURE_COSMOS_MAX_CLIENTS_PER_ENDPOINT",
            "AZURE_COSMOS_CONNECTION_POOL_MAX_HTTP2_CONNECTIONS_PER_ENDPOINT",
            CONNECTIONS_MAX,
        )?;
        let connections_min = get("AZURE_COSMOS_CONNECTION_POOL_MIN_HTTP2_CONNECTIONS_PER_ENDPOINT")
            .number(1..=CONNECTIONS_MAX)?;
        let idle_seconds = get("AZURE_COSMOS_SHARD_IDLE_TIMEOUT_SECS").seconds()?;
        let idle =
            get("AZURE_COSMOS_CONNECTION_POOL_IDLE_HTTP2_CLIENT_TIMEOUT_MS").milliseconds_from(1000)?;
        let connect = get("AZURE_COSMOS_CONNECTION_POOL_MAX_CONNECT_TIMEOUT_MS").milliseconds_from(100)?;
        let ping_interval =
            get("AZURE_COSMOS_CONNECTION_POOL_HTTP2_KEEP_ALIVE_INTERVAL_MS").milliseconds_from(100)?;
        let ping_timeout =
            get("AZURE_COSMOS_CONNECTION_POOL_HTTP2_KEEP_ALIVE_TIMEOUT_MS").milliseconds_from(100)?;
        let read_hang = get("AZURE_COSMOS_CONNECTION_POOL_READ_HANG_LIMIT_MS").milliseconds_from(100)?;
        let accept_unknown = get("AZURE_COSMOS_EMULATOR_SERVER_CERT_VALIDATION_DISABLED").boolean()?;
        set_if_default(&mut self.streams_per_connection_max, default.streams_per_connection_max, streams);
        set_if_default(&mut self.connections_max, default.connections_max, connections);
        set_if_default(&mut self.connections_min, default.connections_min, connections_min);
        set_if_default(&mut self.idle_timeout, default.idle_timeout, idle.or(idle_seconds));
        set_if_default(&mut self.connect_timeout, default.connect_timeout, connect);
        set_if_default(&mut self.ping_interval, default.ping_interval, ping_interval.map(Some));
        set_if_default(&mut self.ping_timeout, default.ping_timeout, ping_timeout);
        set_if_default(&mut self.read_hang_limit, default.read_hang_limit, read_hang);
        let option = &mut self.accept_unknown_loopback_certificates;
        set_if_default(option, default.accept_unknown_loopback_certificates, accept_unknown);
        Ok(self)
    }
}

/// Sets an option to the value of a variable, if the option is at its default.
fn set_if_default<T: PartialEq>(option: &mut T, default: T, variable: Option<T>) {
    if let Some(value) = variable
        && *option == default
    {
        *option = value;
    }
}
