//! Addresses of proxies, the proxy of each endpoint, and that credentials are never shown.

use super::*;

fn endpoint(text: &str) -> Endpoint {
    Endpoint::parse(text).unwrap()
}

/// The proxies of an environment.
fn environment(variables: &[(&str, &str)]) -> Result<Proxies, BadHttpOptions> {
    environment::proxies(|name| {
        variables.iter().find(|(other, _)| *other == name).map(|(_, value)| (*value).to_owned())
    })
}

/// The address of the proxy to an endpoint.
fn proxy_to(proxies: &Proxies, to: &str) -> Option<String> {
    proxies.proxy_to(&endpoint(to)).unwrap().map(Proxy::to_string)
}

const ACCOUNT: &str = "https://shop.documents.azure.com";

#[test]
fn addresses_of_proxies_are_parsed() {
    for (text, shown) in [
        ("http://proxy.example:3128", "proxy.example:3128"),
        ("HTTP://proxy.example/", "proxy.example:80"),
        ("proxy.example:8080", "proxy.example:8080"),
        ("http://[::1]:3128", "[::1]:3128"),
        ("http://u:p@proxy.example:1", "proxy.example:1"),
    ] {
        assert_eq!(Proxy::parse(text).unwrap().to_string(), shown);
    }
    let proxy = Proxy::parse("http://us%20er:p%40ss:w@h:1").unwrap();
    // "us er:p@ss:w"
    assert_eq!(proxy.authorization.as_deref().map(String::as_str), Some("Basic dXMgZXI6cEBzczp3"));
}

#[test]
fn the_credentials_of_a_proxy_are_never_shown() {
    let proxy = Proxy::parse("http://user:s3cret@proxy.example:1").unwrap();
    let shown = format!("{proxy} {proxy:?} {:?}", ProxyChoice::Fixed(proxy.clone()));
    assert!(!shown.contains("s3cret") && !shown.contains("user:") && !shown.contains("Basic"), "{shown}");
    for bad in [
        "ftp://user:s3cret@proxy.example:1",
        "https://user:s3cret@proxy.example:1",
        "http://user:s3cret@",
        "http://user:s3cret@proxy.example:port",
        "http://user:s3cret@proxy.example:1/path",
        "http://user:s3cret%zz@proxy.example:1",
        "http://user:s3cret@proxy example",
        "",
    ] {
        let error = Proxy::parse(bad).unwrap_err();
        let text = format!("{error} {error:?}");
        assert!(text.contains("http://host:port") && !text.contains("s3cret"), "{text}");
        if !bad.is_empty() {
            let proxies = environment(&[("HTTPS_PROXY", bad)]).unwrap();
            let failure = proxies.proxy_to(&endpoint(ACCOUNT)).unwrap_err();
            assert_eq!((failure.kind, failure.sent), (FailureKind::Connect, Sent::No));
            let text = format!("{failure} {failure:?} {proxies:?}");
            assert!(text.contains("HTTPS_PROXY") && !text.contains("s3cret"), "{text}");
        }
    }
}

#[test]
fn the_variables_of_curl_choose_the_proxy_by_scheme() {
    let proxies = environment(&[("HTTPS_PROXY", "http://a:1"), ("http_proxy", "b:2")]).unwrap();
    assert_eq!(proxy_to(&proxies, ACCOUNT).as_deref(), Some("a:1"));
    assert_eq!(proxy_to(&proxies, "http://emulator.example:8081").as_deref(), Some("b:2"));
    let lower_wins = environment(&[("HTTPS_PROXY", "a:1"), ("https_proxy", "c:3")]).unwrap();
    assert_eq!(proxy_to(&lower_wins, ACCOUNT).as_deref(), Some("c:3"));
    assert_eq!(proxy_to(&lower_wins, "http://emulator.example:8081"), None);
    let all = environment(&[("ALL_PROXY", "d:4"), ("http_proxy", " ")]).unwrap();
    assert_eq!(proxy_to(&all, ACCOUNT).as_deref(), Some("d:4"));
    assert_eq!(proxy_to(&all, "http://emulator.example:8081").as_deref(), Some("d:4"));
    assert_eq!(environment(&[]).unwrap(), Proxies::default());
    // Without a proxy, the list of exceptions is not read.
    assert_eq!(environment(&[("NO_PROXY", "not a list:x")]).unwrap(), Proxies::default());
    // In a CGI program, `HTTP_PROXY` comes from a header of the client, so it is ignored.
    let cgi = environment(&[("HTTP_PROXY", "evil:1"), ("REQUEST_METHOD", "GET")]).unwrap();
    assert_eq!(proxy_to(&cgi, "http://emulator.example:8081"), None);
    let off =
        environment(&[("HTTPS_PROXY", "a:1"), ("AZURE_COSMOS_CONNECTION_POOL_IS_PROXY_ALLOWED", "false")]);
    assert_eq!(off.unwrap(), Proxies::default());
    let error = environment(&[("AZURE_COSMOS_CONNECTION_POOL_IS_PROXY_ALLOWED", "perhaps")]).unwrap_err();
    assert!(error.to_string().contains("true or false"), "{error}");
}

#[test]
fn hosts_of_no_proxy_and_this_machine_are_reached_directly() {
    let variables = [("HTTPS_PROXY", "a:1"), ("HTTP_PROXY", "a:1"), ("NO_PROXY", "azure.cn,10.0.0.0/8")];
    let proxies = environment(&variables).unwrap();
    for (to, is_proxied) in [
        (ACCOUNT, true),
        ("https://shop.documents.azure.cn", false),
        ("https://10.1.2.3:8081", false),
        ("http://11.1.2.3:8081", true),
        ("https://localhost:8081", false),
        ("http://127.0.0.1:8081", false),
        ("https://[::1]:8081", false),
    ] {
        assert_eq!(proxy_to(&proxies, to).is_some(), is_proxied, "{to}");
    }
}

/// All programs of a user share these variables.
#[test]
fn values_for_other_programs_do_not_hinder_endpoints_that_need_no_proxy() {
    let odd = "169.254/16,10.*,<local>,azure.cn";
    let proxies = environment(&[("HTTPS_PROXY", "a:1"), ("no_proxy", odd)]).unwrap();
    assert_eq!(proxy_to(&proxies, "https://shop.documents.azure.cn"), None);
    assert_eq!(proxy_to(&proxies, ACCOUNT).as_deref(), Some("a:1"));
    let socks = environment(&[("ALL_PROXY", "socks5://s:1"), ("NO_PROXY", "azure.cn")]).unwrap();
    for direct in ["https://localhost:8081", "https://shop.documents.azure.cn"] {
        assert_eq!(proxy_to(&socks, direct), None);
    }
    assert!(socks.proxy_to(&endpoint(ACCOUNT)).unwrap_err().to_string().contains("ALL_PROXY"));
}

#[test]
fn a_proxy_that_is_set_in_code_is_used_for_this_machine_too() {
    let proxy = Proxy::parse("proxy.example:1").unwrap().with_bypass("[::1]").unwrap();
    let proxies = Proxies::of(&proxy.into()).unwrap();
    assert!(proxy_to(&proxies, "https://localhost:8081").is_some());
    assert!(proxy_to(&proxies, "http://localhost:8081").is_some());
    assert!(proxy_to(&proxies, "https://[::1]:8081").is_none());
    assert_eq!(Proxies::of(&ProxyChoice::Off).unwrap(), Proxies::default());
}
