//! Tests of the access to the management interface, with peers that a test on one machine
//! cannot have over a socket.

use http::Request;
use perihelion_wire::date;
use perihelion_wire::signature::{MANAGEMENT_TYPE, MasterKey, SignedDate};

use super::*;
use crate::options::AuthMode;

/// In seconds since 1970.
const NOW: u64 = 1_800_000_000;
/// The key of the account, in base64.
const OWN_KEY: &str = "bm90IGEgc2VjcmV0";

/// The status of a `POST reset`: 200 when it is accepted.
fn status_of(mode: AuthMode, peer: &str, headers: &[(&str, &str)]) -> u16 {
    let key = MasterKey::from_base64(OWN_KEY).unwrap();
    let authenticator = Authenticator { mode, keys: vec![key], allows_unsigned_account_read: true };
    let request = Request::post("/_perihelion/reset");
    let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    let (parts, ()) = request.body(()).unwrap().into_parts();
    let origin = Origin::of_peer(peer.parse().unwrap());
    check(&parts, origin, &authenticator, NOW).map_or_else(|refusal| refusal.status, |()| 200)
}

/// Story of a bug: the interface trusted the `Host` header. When a `dev` server listened on an
/// address that other machines reach, every client that sent `Host: localhost` could delete its data.
#[test]
fn a_host_header_does_not_make_a_foreign_client_local() {
    let local = [("host", "localhost:8081")];
    for peer in ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"] {
        assert_eq!(status_of(AuthMode::Key, peer, &local), 200, "{peer}");
    }
    for peer in ["192.0.2.7", "172.17.0.1", "2001:db8::1", "::ffff:192.0.2.7"] {
        // A weak mode gives everyone access to the data, not to the management interface.
        for mode in [AuthMode::Key, AuthMode::Any, AuthMode::Off] {
            assert_eq!(status_of(mode, peer, &local), 403, "{peer} {mode:?}");
        }
    }
}

#[test]
fn a_request_from_a_proxy_or_a_web_page_is_not_local() {
    for (name, value) in [
        ("x-forwarded-for", "192.0.2.7"),
        ("forwarded", "for=192.0.2.7"),
        ("x-real-ip", "192.0.2.7"),
        ("via", "1.1 proxy"),
        ("origin", "http://localhost:8081"),
    ] {
        let headers = [("host", "localhost:8081"), (name, value)];
        assert_eq!(status_of(AuthMode::Key, "127.0.0.1", &headers), 403, "{name}");
    }
    assert_eq!(status_of(AuthMode::Key, "127.0.0.1", &[("host", "rebound.example")]), 403);
    assert_eq!(status_of(AuthMode::Key, "127.0.0.1", &[]), 403);
}

#[test]
fn a_valid_signature_is_accepted_from_everywhere_and_a_wrong_signature_never() {
    let signed = |key: &str, verb: &str, link: &str, seconds: u64| {
        let date = date::format(seconds);
        let key = MasterKey::from_base64(key).unwrap();
        let authorization = key.authorization(verb, MANAGEMENT_TYPE, link, SignedDate::MsDate(&date));
        status_of_signed(&authorization, &date)
    };
    assert_eq!(signed(OWN_KEY, "post", "_perihelion/reset", NOW), 200);
    assert_eq!(signed(OWN_KEY, "post", "_perihelion/counters", NOW), 401, "another path");
    assert_eq!(signed(OWN_KEY, "get", "_perihelion/reset", NOW), 401, "another verb");
    assert_eq!(signed("YW5vdGhlcg==", "post", "_perihelion/reset", NOW), 401, "another key");
    assert_eq!(signed(OWN_KEY, "post", "_perihelion/reset", NOW - 3600), 403, "an old date");
    let entra_token = "type%3Daad%26ver%3D1.0%26sig%3DeyJ0";
    assert_eq!(status_of_signed(entra_token, &date::format(NOW)), 401, "an Entra ID token");
}

/// The status for a peer elsewhere, in the mode that accepts every request for data.
fn status_of_signed(authorization: &str, date: &str) -> u16 {
    let headers = [("host", "db:8081"), ("authorization", authorization), ("x-ms-date", date)];
    status_of(AuthMode::Off, "192.0.2.7", &headers)
}
