//! The authorization header of each kind of credential. No error and no `Debug` text shows a secret.

use super::*;
use perihelion_wire::signature::{EMULATOR_KEY, SignedDate};

const DATE: &str = "thu, 27 apr 2017 00:51:12 gmt";

async fn header_of(credential: &Credential) -> HeaderValue {
    let date = HeaderValue::from_static(DATE);
    let (signed, deadline) = (("docs", "dbs/D/colls/C/docs/1"), Instant::now());
    let header = credential.authorize(&Method::PATCH, signed, &date, "scope", deadline).await;
    let header = header.unwrap();
    assert!(header.is_sensitive());
    assert_eq!(format!("{header:?}"), "Sensitive");
    header
}

#[tokio::test]
async fn a_key_signs_what_the_server_checks() {
    let header = header_of(&Credential::key(EMULATOR_KEY).unwrap()).await;
    let expected = MasterKey::emulator().authorization(
        "patch",
        "docs",
        "dbs/D/colls/C/docs/1",
        SignedDate::MsDate(DATE),
    );
    assert_eq!(header, expected);
    assert_eq!(header, header_of(&Credential::emulator()).await);
}

#[tokio::test]
async fn a_resource_token_is_always_sent_encoded() {
    let encoded = "type%3Dresource%26ver%3D1%26sig%3Dab%2Fc%3D%3D%3Bde%2Bf%3B";
    for given in ["type=resource&ver=1&sig=ab/c==;de+f;", encoded, " type=resource&ver=1&sig=ab/c==;de+f;\n"]
    {
        assert_eq!(header_of(&Credential::resource_token(given).unwrap()).await, encoded, "{given}");
    }
}

#[tokio::test]
async fn a_token_is_sent_in_the_form_that_the_server_parses() {
    struct Fixed;
    impl TokenSource for Fixed {
        fn token<'a>(&'a self, scope: &'a str) -> TokenFuture<'a> {
            assert_eq!(scope, "scope");
            let expires_on = SystemTime::now() + std::time::Duration::from_secs(3600);
            Box::pin(async move { Ok(AccessToken::new("eyJ0.a-b_c.d=e", expires_on)) })
        }
    }
    let header = header_of(&Credential::token_source(Arc::new(Fixed))).await;
    assert_eq!(header, "type%3Daad%26ver%3D1.0%26sig%3DeyJ0.a-b_c.d%3De");
    let read = Credentials::parse(header.to_str().unwrap());
    assert_eq!(read, Ok(Credentials::EntraId("eyJ0.a-b_c.d=e".to_owned())));
}

#[test]
fn a_bad_credential_is_refused_and_does_not_appear_in_the_error() {
    let refusals = [
        Credential::key(""),
        Credential::key("c2VjcmV"),
        Credential::key("secret!!"),
        Credential::resource_token("secret"),
        Credential::resource_token("type=master&ver=1.0&sig=c2VjcmV0"),
        Credential::resource_token("type=resource&ver=1&sig="),
        Credential::resource_token(&format!("type=resource&ver=1&sig={}", "=".repeat(16 * 1024))),
    ];
    for refusal in refusals {
        let error = refusal.unwrap_err();
        assert_eq!(error.kind(), crate::ErrorKind::Input);
        assert!(!format!("{error} {error:?}").contains("sec"), "{error}");
        // "c2V" is the beginning of "secret" in base64.
        assert!(!format!("{error} {error:?}").contains("c2V"), "{error}");
    }
}

#[test]
fn debug_shows_the_kind_and_no_secret() {
    let key = Credential::key(EMULATOR_KEY).unwrap();
    let resource = Credential::resource_token("type=resource&ver=1&sig=hidden").unwrap();
    let token = AccessToken::new("hidden", SystemTime::UNIX_EPOCH);
    let shown = format!("{key:?} {resource:?} {token:?}");
    assert!(shown.starts_with("Credential(master key) Credential(resource token) AccessToken"), "{shown}");
    assert!(!shown.contains("hidden") && !shown.contains(&EMULATOR_KEY[..8]), "{shown}");
    assert_eq!((key.is_emulator(), resource.is_emulator()), (true, false));
}

#[test]
fn the_default_scope_is_the_host_of_the_account() {
    let account = Endpoint::parse("https://shop.documents.azure.com:443/").unwrap();
    assert_eq!(scope_of(&account, None), "https://shop.documents.azure.com/.default");
    assert_eq!(
        scope_of(&account, Some("https://cosmos.azure.com/.default")),
        "https://cosmos.azure.com/.default"
    );
}
