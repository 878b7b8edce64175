//! Proxies from environment variables, with the names that curl and Azure's SDKs read.
//!
//! The name in lower case wins over the name in upper case. `HTTP_PROXY` in upper case is
//! ignored in a CGI program (`REQUEST_METHOD` is set), where a client could set it with the
//! header `Proxy`.

use super::super::options::BadHttpOptions;
use super::bypass::Bypass;
use super::{Chosen, Proxies, Proxy};
use crate::variable::Variable;

/// The variable that says whether the other variables name proxies (`true` or `false`; default
/// true). Microsoft's driver reads the same variable.
const PROXY_ALLOWED: &str = "AZURE_COSMOS_CONNECTION_POOL_IS_PROXY_ALLOWED";

/// The proxies that an environment names. `lookup` returns the value of a variable.
pub(super) fn proxies(lookup: impl Fn(&str) -> Option<String>) -> Result<Proxies, BadHttpOptions> {
    let is_allowed =
        Variable::new(PROXY_ALLOWED, lookup(PROXY_ALLOWED)).boolean().map_err(BadHttpOptions::new)?;
    if is_allowed == Some(false) {
        return Ok(Proxies::default());
    }
    let is_cgi = lookup("REQUEST_METHOD").is_some();
    let all_schemes = first(&lookup, &["all_proxy", "ALL_PROXY"]);
    let https = first(&lookup, &["https_proxy", "HTTPS_PROXY"]).or(all_schemes.clone());
    let http_names: &[&str] = if is_cgi { &["http_proxy"] } else { &["http_proxy", "HTTP_PROXY"] };
    let http = first(&lookup, http_names).or(all_schemes);
    if https.is_none() && http.is_none() {
        return Ok(Proxies::default());
    }
    let bypass = match first(&lookup, &["no_proxy", "NO_PROXY"]) {
        Some((name, list)) => known_entries(name, &list),
        None => Bypass::default(),
    };
    let chosen = |variable: Option<(&str, String)>| match variable {
        None => Chosen::None,
        Some((name, text)) => match Proxy::parse(&text) {
            Ok(proxy) => Chosen::Proxy(proxy),
            Err(error) => Chosen::Bad(named(name, &error)),
        },
    };
    Ok(Proxies { https: chosen(https), http: chosen(http), bypass, includes_loopback: false })
}

/// The entries of `NO_PROXY` that can be read. The others are logged.
fn known_entries(name: &str, list: &str) -> Bypass {
    let (bypass, unknown) = Bypass::parse_known(list);
    if !unknown.is_empty() {
        tracing::warn!(variable = name, ?unknown, "entries that are not hosts are ignored");
    }
    bypass
}

/// The first of these variables that is set and not empty, with its name.
fn first<'a>(lookup: &impl Fn(&str) -> Option<String>, names: &[&'a str]) -> Option<(&'a str, String)> {
    let mut set = names.iter().filter_map(|name| Some((*name, lookup(name)?)));
    set.find(|(_, value)| !value.trim().is_empty())
}

/// The error with the name of its variable. The value is not shown, because it may hold a
/// password.
fn named(name: &str, error: &BadHttpOptions) -> BadHttpOptions {
    BadHttpOptions::new(format!("the environment variable {name}: {error}"))
}
