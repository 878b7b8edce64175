//! Signatures of requests: Microsoft's example, all forms that clients sign, and bad headers and
//! keys.

use super::*;
use crate::path;

/// Key, request and signature of the example in Microsoft's "Access control
/// in the Azure Cosmos DB SQL API".
const DOCUMENTED_KEY: &str =
    "dsZQi3KtZmCv1ljt3VNWNm7sQUF1y5rJfC6kv5JiwvW0EndXdDku/dkKBp8/ufDToSxLzR4y+O/0H/t4bQtVNw==";
const DOCUMENTED_HEADER: &str =
    "type%3dmaster%26ver%3d1.0%26sig%3dc09PEVJrgp2uQRkr934kFbTqhByc7TVr3OHyqlu%2bc%2bc%3d";
const DATE: SignedDate<'_> = SignedDate::MsDate("Thu, 27 Apr 2017 00:51:12 GMT");

fn signature_in(header: &str) -> Vec<u8> {
    match Credentials::parse(header) {
        Ok(Credentials::MasterKey { signature }) => signature,
        other => panic!("{other:?}"),
    }
}

fn verifies(key: &MasterKey, verb: &str, path: &str, header: &str) -> bool {
    let resource = path::parse(path).unwrap();
    let request = SignedRequest { verb, path, resource: &resource, date: DATE };
    key.verify(&request, &signature_in(header))
}

#[test]
fn microsofts_documented_signature_verifies() {
    let key = MasterKey::from_base64(DOCUMENTED_KEY).unwrap();
    assert!(verifies(&key, "GET", "/dbs/ToDoList", DOCUMENTED_HEADER));
    assert!(verifies(&key, "get", "/dbs/ToDoList/", DOCUMENTED_HEADER));
    let header = key.authorization("GET", "dbs", "dbs/ToDoList", DATE);
    assert_eq!(header.to_lowercase(), DOCUMENTED_HEADER.to_lowercase());
}

#[test]
fn another_key_verb_path_or_date_does_not_verify() {
    let key = MasterKey::from_base64(DOCUMENTED_KEY).unwrap();
    assert!(!verifies(&MasterKey::emulator(), "GET", "/dbs/ToDoList", DOCUMENTED_HEADER));
    assert!(!verifies(&key, "PUT", "/dbs/ToDoList", DOCUMENTED_HEADER));
    assert!(!verifies(&key, "GET", "/dbs/todolist", DOCUMENTED_HEADER));
    assert!(!verifies(&key, "GET", "/dbs/ToDoList/colls", DOCUMENTED_HEADER));
    let resource = path::parse("/dbs/ToDoList").unwrap();
    let mut request = SignedRequest { verb: "GET", path: "/dbs/ToDoList", resource: &resource, date: DATE };
    let signature = signature_in(DOCUMENTED_HEADER);
    assert!(key.verify(&request, &signature));
    assert!(!key.verify(&request, &signature[..31]));
    assert!(!key.verify(&request, &[]));
    request.date = SignedDate::MsDate("Thu, 27 Apr 2017 00:51:13 GMT");
    assert!(!key.verify(&request, &signature));
    request.date = SignedDate::HttpDate("Thu, 27 Apr 2017 00:51:12 GMT");
    assert!(!key.verify(&request, &signature));
}

#[test]
fn every_link_and_type_that_a_known_client_signs_is_accepted() {
    let key = MasterKey::emulator();
    for (path, resource_type, link) in [
        ("/dbs/D/colls/C/docs/h%C3%A9%20l", "docs", "dbs/D/colls/C/docs/hé l"),
        ("/dbs/D/colls/C/docs/h%C3%A9%20l", "docs", "dbs/D/colls/C/docs/h%C3%A9%20l"),
        ("/dbs/D/colls/C/docs/", "docs", "dbs/D/colls/C"),
        ("/dbs/q5ZfAA==/colls/q5ZfAL-Rc0A=/docs", "docs", "q5zfal-rc0a="),
        ("/dbs/q5ZfAA==/colls/q5ZfAL-Rc0A=/docs", "docs", "dbs/q5ZfAA==/colls/q5ZfAL-Rc0A="),
        ("/offers/AbC1", "offers", "abc1"),
        ("/offers/AbC1", "offers", "offers/abc1"),
        ("/", "", ""),
        ("/dbs/D/colls/C/operations/partitionkeydelete/", "partitionKey", "dbs/D/colls/C"),
        ("/dbs/D/colls/C/operations/partitionkeydelete", "colls", "dbs/D/colls/C"),
    ] {
        let header = key.authorization("POST", resource_type, link, DATE);
        assert!(verifies(&key, "post", path, &header), "{path} signed as {link}");
    }
    assert!(!verifies(&key, "post", "/dbs/D", &key.authorization("POST", "dbs", "dbs/d", DATE)));
}

#[test]
fn authorization_header_equals_the_authorization_text_and_is_sensitive() {
    let key = MasterKey::from_base64(DOCUMENTED_KEY).unwrap();
    let date = "thu, 27 apr 2017 00:51:12 gmt";
    // 100 links, so that every escaped character occurs in some signature.
    for number in 0..100 {
        let link = format!("dbs/D{number}/colls/hé");
        for (verb, resource_type) in [("GET", "docs"), ("PATCH", "Docs"), ("a-long-and-Unusual-VERB", "")] {
            let header = key.authorization_header(verb, resource_type, &link, date);
            let text = key.authorization(verb, resource_type, &link, SignedDate::MsDate(date));
            assert_eq!(header.to_str().unwrap(), text);
            assert!(header.is_sensitive());
        }
    }
}

#[test]
fn the_signed_text_is_in_lower_case_except_for_the_link() {
    assert_eq!(
        string_to_sign("GET", "Docs", "dbs/D", SignedDate::MsDate("Thu, 1")),
        "get\ndocs\ndbs/D\nthu, 1\n\n"
    );
    assert_eq!(string_to_sign("GET", "", "", SignedDate::HttpDate("Thu, 1")), "get\n\n\n\nthu, 1\n");
}

#[test]
fn authorization_headers_are_parsed_percent_encoded_or_plain() {
    let plain = "type=master&ver=1.0&sig=c09PEVJrgp2uQRkr934kFbTqhByc7TVr3OHyqlu+c+c=";
    assert_eq!(signature_in(plain), signature_in(DOCUMENTED_HEADER));
    assert_eq!(
        Credentials::parse("type%3Daad%26ver%3D1.0%26sig%3Da.b-c_d.e"),
        Ok(Credentials::EntraId("a.b-c_d.e".to_owned()))
    );
    assert_eq!(
        Credentials::parse("type=resource&ver=1&sig=abc==;def;"),
        Ok(Credentials::ResourceToken("type=resource&ver=1&sig=abc==;def;".to_owned()))
    );
    for header in [
        "",
        "type=master",
        "type=master&ver=1.0",
        "type=master&ver=1.0&sig=",
        "type=master&ver=2.0&sig=AAAA",
        "type=master&ver=1.0&sig=not base64",
        "type=other&ver=1.0&sig=AAAA",
        "ver=1.0&type=master&sig=AAAA",
        "Bearer abc",
        "%",
        "%ff",
        &"x".repeat(AUTHORIZATION_BYTES_MAX + 1),
    ] {
        assert_eq!(Credentials::parse(header), Err(BadCredentials), "{header}");
    }
}

#[test]
fn keys_are_strict_base64_and_debug_output_hides_them() {
    assert!(MasterKey::emulator().is_emulator_key());
    assert!(!MasterKey::from_base64(DOCUMENTED_KEY).unwrap().is_emulator_key());
    assert_eq!(MasterKey::emulator().reveal(), EMULATOR_KEY);
    for text in ["", "AAA", "AAAA ", "AA-_", "AAAA\n", "A===", "AB=="] {
        assert_eq!(MasterKey::from_base64(text), Err(BadKey), "{text:?}");
    }
    assert_eq!(format!("{:?}", MasterKey::emulator()), "MasterKey(..)");
    let token = Credentials::parse("type=aad&ver=1.0&sig=secret").unwrap();
    assert_eq!(format!("{token:?}"), "EntraId(..)");
}
