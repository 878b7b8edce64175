//! Connection strings in every usual form, and errors that do not repeat the key.

use super::*;
use perihelion_wire::signature::EMULATOR_KEY;

const KEY: &str = "dsZQi3KtZmCv1ljt3VNWNm7sQUF1y5rJfC6kv5JiwvW0EndXdDku/dkKBp8/ufDToSxLzR4y+O/0H/t4bQtVNw==";

#[test]
fn connection_strings_are_parsed_in_every_usual_form() {
    let shop = "https://shop.documents.azure.com:443";
    let local = "https://localhost:8081";
    for (text, endpoint, is_emulator, accepts_any_certificate) in [
        (format!("AccountEndpoint={shop}/;AccountKey={KEY};"), shop, false, false),
        (format!("AccountKey={KEY};AccountEndpoint={shop}"), shop, false, false),
        (format!(" accountendpoint = {shop}/ ;; ACCOUNTKEY= {KEY} ;;\n"), shop, false, false),
        (format!("Other=x;AccountEndpoint={shop}/;AccountKey={KEY};Database=y"), shop, false, false),
        (format!("AccountEndpoint={local}/;AccountKey={EMULATOR_KEY};"), local, true, true),
        (format!("AccountEndpoint={local}/;AccountKey={KEY};"), local, false, false),
        (format!("AccountEndpoint={shop}/;AccountKey={EMULATOR_KEY};"), shop, true, false),
        (
            format!(
                "AccountEndpoint={local}/;AccountKey={EMULATOR_KEY};DisableServerCertificateValidation=False;"
            ),
            local,
            true,
            false,
        ),
        (
            format!("AccountEndpoint={local};AccountKey={KEY};DisableServerCertificateValidation=True;"),
            local,
            false,
            true,
        ),
        (
            format!("AccountEndpoint={shop};AccountKey={KEY};disableservercertificatevalidation=false"),
            shop,
            false,
            false,
        ),
    ] {
        let read: ConnectionString = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(read.endpoint.to_string(), endpoint, "{text}");
        assert_eq!(read.credential.is_emulator(), is_emulator, "{text}");
        assert_eq!(read.accepts_any_certificate, accepts_any_certificate, "{text}");
        let shown = format!("{read:?}");
        assert!(!shown.contains(&KEY[..6]) && !shown.contains(&EMULATOR_KEY[..6]), "{shown}");
    }
}

#[test]
fn errors_do_not_repeat_the_connection_string() {
    let shop = "https://shop.documents.azure.com/";
    let start = &KEY[..20];
    for (text, expected_part) in [
        (String::new(), "no AccountEndpoint"),
        (KEY.to_owned(), "no AccountEndpoint"),
        (start.to_owned(), "not name=value"),
        (format!("AccountKey={KEY}"), "no AccountEndpoint"),
        (format!("AccountEndpoint={shop}"), "no AccountKey"),
        (format!("AccountEndpoint={KEY};AccountKey={shop}"), "AccountEndpoint must read"),
        (format!("AccountEndpoint=https://{start}@shop/;AccountKey={KEY}"), "AccountEndpoint must read"),
        (format!("AccountEndpoint={shop}?{start};AccountKey={KEY}"), "AccountEndpoint must read"),
        (format!("AccountEndpoint={shop};AccountKey={start}!"), "AccountKey must be"),
        (format!("AccountEndpoint={shop};AccountKey="), "AccountKey must be"),
        (format!("AccountEndpoint={shop};AccountKey={KEY};accountKEY={KEY}"), "AccountKey twice"),
        (
            format!("AccountEndpoint={shop};AccountKey={KEY};DisableServerCertificateValidation={start}"),
            "must be true or false",
        ),
        (
            format!("AccountEndpoint={shop};AccountKey={KEY};DisableServerCertificateValidation=true"),
            "only for a server on this machine",
        ),
    ] {
        let error = ConnectionString::parse(&text).unwrap_err();
        assert_eq!(error.kind(), crate::ErrorKind::Input, "{text}");
        let said = format!("{error} {error:?}");
        assert!(said.contains(expected_part), "{text}: {said}");
        assert!(!said.contains(&KEY[..6]), "{said}");
    }
}
