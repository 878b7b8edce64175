//! Short texts: session tokens, partition keys, `_rid`s, paths, dates and credentials. Every
//! input is given to all of their parsers.

use perihelion_model::partition_key::{EffectiveKey, KeyPath, PartitionKey};
use perihelion_model::resource_id::{ContainerRid, DatabaseRid};
use perihelion_model::{etag, session_token};
use perihelion_wire::signature::{Credentials, MasterKey};
use perihelion_wire::transaction::IdempotencyToken;
use perihelion_wire::{date, path};

use super::bytes_of;

pub(super) fn examples() -> Vec<Vec<u8>> {
    bytes_of(&[
        "0:-1#5#1=7#2=-1,12:3#99",
        "1:17",
        r#"["a",1.5,null,{},true]"#,
        "AAAAAA==",
        "AAAAAAAAAAA=",
        "/dbs/d/colls/c%20x/docs/%C3%A9?x=1",
        "/dbs/AAAAAA==/colls/AAAAAAAAAAA=/sprocs/p",
        "/operations/dtc",
        "Thu, 27 Apr 2017 00:51:12 GMT",
        "type%3dmaster%26ver%3d1.0%26sig%3dabc%2b%3d",
        "type=aad&ver=1.0&sig=a.b.c",
        "\"00000000-0000-0000-0000-000000000000\"",
        "05C1CFFFFFFFF8",
        "/a/\"b c\"/?",
        "/'x'/y",
    ])
}

pub(super) fn run(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    if let Some(tokens) = session_token::parse(&text) {
        for token in &tokens {
            let (one, other) = (&token.progress, &tokens[0].progress);
            let mut merged = one.clone();
            merged.merge(other);
            assert!(merged.covers(one) && merged.covers(other), "{merged} misses {one} or {other}");
        }
    }
    session_token::split(&text).for_each(|part| drop(session_token::parse_part(part)));
    if let Some(key) = PartitionKey::from_header(&text) {
        let again = PartitionKey::from_header(&key.to_header());
        assert_eq!(again.as_ref(), Some(&key), "a printed partition key is another key");
        let _ = key.logical_hash();
    }
    let _ = (DatabaseRid::parse(&text), KeyPath::parse(&text), EffectiveKey::from_hex(&text));
    if let Some(container) = ContainerRid::parse(&text) {
        let _ = container.parse_document(&text);
        assert_eq!(ContainerRid::parse(&container.to_text()), Some(container));
    }
    if let Ok(resource) = path::parse(&text) {
        let _ = (resource.signing_links(&text), resource.resource_type(), resource.is_feed());
    }
    if let Some(seconds) = date::parse(&text) {
        assert_eq!(date::parse(&date::format(seconds)), Some(seconds));
    }
    let _ = (Credentials::parse(&text), MasterKey::from_base64(&text), IdempotencyToken::parse(&text));
    let _ = etag::matches(&text, "\"x\"");
}
