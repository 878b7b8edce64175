//! Signatures by master key, and the Authorization header.
//!
//! A client signs `verb\ntype\nlink\ndate\n\n` (verb, type and date in lower
//! case) with HMAC-SHA-256 under the account's key. Neither keys nor tokens
//! show in `Debug` or in errors; signatures are compared as raw bytes in
//! constant time; and no function here tells the caller which signature would
//! have been right.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, Mac};
use http::HeaderValue;
use sha2::Sha256;

use crate::path::{Resource, percent_decode};

/// The key of every Cosmos DB emulator, published by Microsoft. It protects
/// nothing and must only ever open a server bound to loopback.
pub const EMULATOR_KEY: &str =
    "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw==";

/// The longest Authorization value that is read. Entra ID tokens run to a few
/// kilobytes; headers are bounded at 64 KiB altogether.
pub const AUTHORIZATION_BYTES_MAX: usize = 32 * 1024;

/// An account's master key. Its bytes are cleared when dropped.
#[derive(Clone)]
pub struct MasterKey {
    bytes: Vec<u8>,
    /// The HMAC with the key worked in, from which every signature starts.
    keyed: Hmac<Sha256>,
}

/// The text is not a master key: base64 with padding, not empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BadKey;

impl std::fmt::Display for BadKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the master key must be standard base64 with padding, and not empty")
    }
}

impl std::error::Error for BadKey {}

/// The date that was signed, as sent. A client signs `x-ms-date`, or the
/// `Date` header on another line when it has no `x-ms-date`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignedDate<'a> {
    MsDate(&'a str),
    HttpDate(&'a str),
}

/// What a request's signature must cover.
#[derive(Debug, Clone, Copy)]
pub struct SignedRequest<'a> {
    /// The method, in any case.
    pub verb: &'a str,
    /// The path as it was sent, and what it was read as.
    pub path: &'a str,
    pub resource: &'a Resource,
    pub date: SignedDate<'a>,
}

impl MasterKey {
    pub fn from_base64(text: &str) -> Result<Self, BadKey> {
        match STANDARD.decode(text) {
            Ok(bytes) if !bytes.is_empty() => {
                let keyed = Hmac::new_from_slice(&bytes).map_err(|_| BadKey)?;
                Ok(MasterKey { bytes, keyed })
            }
            _ => Err(BadKey),
        }
    }

    /// The well-known key of the emulators.
    pub fn emulator() -> Self {
        Self::from_base64(EMULATOR_KEY).expect("the constant is valid base64")
    }

    pub fn is_emulator_key(&self) -> bool {
        *self == Self::emulator()
    }

    /// The key as text, for a connection string that its owner asked to see.
    pub fn reveal(&self) -> String {
        STANDARD.encode(&self.bytes)
    }

    /// The signature of one request.
    pub fn sign(&self, verb: &str, resource_type: &str, link: &str, date: SignedDate<'_>) -> [u8; 32] {
        self.mac(&string_to_sign(verb, resource_type, link, date)).finalize().into_bytes().into()
    }

    /// The Authorization value that a client sends with that signature.
    pub fn authorization(&self, verb: &str, resource_type: &str, link: &str, date: SignedDate<'_>) -> String {
        let signature = STANDARD.encode(self.sign(verb, resource_type, link, date));
        let escaped = signature.replace('+', "%2B").replace('/', "%2F").replace('=', "%3D");
        format!("type%3Dmaster%26ver%3D1.0%26sig%3D{escaped}")
    }

    /// The same as a header, for a client that signs every request: nothing is
    /// allocated but the header itself, which is marked sensitive. The date is
    /// the `x-ms-date` as it is sent, in lower case.
    pub fn authorization_header(
        &self,
        verb: &str,
        resource_type: &str,
        link: &str,
        date_in_lower_case: &str,
    ) -> HeaderValue {
        debug_assert!(!date_in_lower_case.bytes().any(|byte| byte.is_ascii_uppercase()));
        let mut mac = self.keyed.clone();
        update_in_lower_case(&mut mac, verb);
        mac.update(b"\n");
        update_in_lower_case(&mut mac, resource_type);
        for part in ["\n", link, "\n", date_in_lower_case, "\n\n"] {
            mac.update(part.as_bytes());
        }
        let mut header = header_with(&mac.finalize().into_bytes().into());
        header.set_sensitive(true);
        header
    }

    /// Whether this key signed the request, under any link and type by which a
    /// known client signs this path.
    pub fn verify(&self, request: &SignedRequest<'_>, signature: &[u8]) -> bool {
        let is_signed = |resource_type: &str, link: &str| {
            let text = string_to_sign(request.verb, resource_type, link, request.date);
            self.mac(&text).verify_slice(signature).is_ok()
        };
        // Nearly every client signs the first link of all.
        let (resource_type, link) = (request.resource.resource_type(), request.resource.signing_link());
        if is_signed(resource_type, &link) {
            return true;
        }
        let links = request.resource.signing_links(request.path);
        let types = [Some(resource_type), request.resource.other_signing_type()];
        types
            .into_iter()
            .flatten()
            .any(|resource_type| links.iter().any(|link| is_signed(resource_type, link)))
    }

    fn mac(&self, text: &str) -> Hmac<Sha256> {
        let mut mac = self.keyed.clone();
        mac.update(text.as_bytes());
        mac
    }
}

/// The part of an Authorization value before a signature by master key.
const MASTER_PREFIX: &[u8; 34] = b"type%3Dmaster%26ver%3D1.0%26sig%3D";
/// 32 bytes in base64, padded.
const SIGNATURE_LETTERS: usize = 44;

/// Writes the Authorization value on the stack and copies it out once.
fn header_with(signature: &[u8; 32]) -> HeaderValue {
    let mut letters = [0; SIGNATURE_LETTERS];
    STANDARD.encode_slice(signature, &mut letters).expect("32 bytes are 44 letters");
    // At worst every letter is escaped, which makes it three.
    let mut text = [0; MASTER_PREFIX.len() + 3 * SIGNATURE_LETTERS];
    text[..MASTER_PREFIX.len()].copy_from_slice(MASTER_PREFIX);
    let mut end = MASTER_PREFIX.len();
    for letter in &letters {
        let escaped: &[u8] = match letter {
            b'+' => b"%2B",
            b'/' => b"%2F",
            b'=' => b"%3D",
            other => std::slice::from_ref(other),
        };
        text[end..end + escaped.len()].copy_from_slice(escaped);
        end += escaped.len();
    }
    HeaderValue::from_bytes(&text[..end]).expect("letters, digits and percent signs")
}

/// Works a text into the signature as if it were in lower case.
fn update_in_lower_case(mac: &mut Hmac<Sha256>, text: &str) {
    for chunk in text.as_bytes().chunks(16) {
        let mut lowered = [0; 16];
        let lowered = &mut lowered[..chunk.len()];
        lowered.copy_from_slice(chunk);
        lowered.make_ascii_lowercase();
        mac.update(lowered);
    }
}

/// Equal in constant time for keys of the same length.
impl PartialEq for MasterKey {
    fn eq(&self, other: &Self) -> bool {
        let difference = self.bytes.iter().zip(&other.bytes).fold(0, |sum, (a, b)| sum | (a ^ b));
        self.bytes.len() == other.bytes.len() && std::hint::black_box(difference) == 0
    }
}

impl Eq for MasterKey {}

impl Drop for MasterKey {
    fn drop(&mut self) {
        self.bytes.fill(0);
        // Keeps the compiler from leaving out a write that nobody reads.
        std::hint::black_box(&mut self.bytes);
    }
}

impl std::fmt::Debug for MasterKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("MasterKey(..)")
    }
}

/// The text under the signature. The link is signed as given.
pub fn string_to_sign(verb: &str, resource_type: &str, link: &str, date: SignedDate<'_>) -> String {
    let (ms_date, http_date) = match date {
        SignedDate::MsDate(text) => (text, ""),
        SignedDate::HttpDate(text) => ("", text),
    };
    let mut text = String::with_capacity(64 + link.len());
    for (part, keeps_case) in
        [(verb, false), (resource_type, false), (link, true), (ms_date, false), (http_date, false)]
    {
        let start = text.len();
        text.push_str(part);
        if !keeps_case {
            text[start..].make_ascii_lowercase();
        }
        text.push('\n');
    }
    text
}

/// What an Authorization header claims, before anybody has checked it.
#[derive(Clone, PartialEq, Eq)]
pub enum Credentials {
    /// A signature by master key; the raw bytes, of any length.
    MasterKey { signature: Vec<u8> },
    /// A resource token, whole.
    ResourceToken(String),
    /// An Entra ID access token.
    EntraId(String),
}

/// The Authorization header has none of the forms the service knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BadCredentials;

impl std::fmt::Display for BadCredentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Authorization header doesn't confirm to the required format.")
    }
}

impl std::error::Error for BadCredentials {}

impl Credentials {
    /// Reads `type=...&ver=...&sig=...`, percent-encoded or not.
    pub fn parse(header: &str) -> Result<Self, BadCredentials> {
        if header.len() > AUTHORIZATION_BYTES_MAX {
            return Err(BadCredentials);
        }
        let text = percent_decode(header).ok_or(BadCredentials)?;
        // The signature comes last and is the only part that may hold '&' or '='.
        let (before, signature) = text.split_once("&sig=").ok_or(BadCredentials)?;
        let (kind, version) = match before.split_once('&') {
            Some((kind, version)) => (kind.strip_prefix("type="), version.strip_prefix("ver=")),
            None => (None, None),
        };
        if !matches!(version, Some("1.0" | "1")) || signature.is_empty() {
            return Err(BadCredentials);
        }
        match kind {
            Some("master") => {
                let signature = STANDARD.decode(signature).map_err(|_| BadCredentials)?;
                Ok(Credentials::MasterKey { signature })
            }
            Some("resource") => Ok(Credentials::ResourceToken(text.into_owned())),
            Some("aad") => Ok(Credentials::EntraId(signature.to_owned())),
            _ => Err(BadCredentials),
        }
    }
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Credentials::MasterKey { .. } => "MasterKey(..)",
            Credentials::ResourceToken(_) => "ResourceToken(..)",
            Credentials::EntraId(_) => "EntraId(..)",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path;

    /// The example of Microsoft's "Access control in the Azure Cosmos DB SQL
    /// API": key, request and signature.
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
    fn the_documented_example_verifies() {
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
        let mut request =
            SignedRequest { verb: "GET", path: "/dbs/ToDoList", resource: &resource, date: DATE };
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
    fn every_way_a_known_client_signs_is_accepted() {
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
    fn a_header_is_the_same_value_marked_sensitive() {
        let key = MasterKey::from_base64(DOCUMENTED_KEY).unwrap();
        let date = "thu, 27 apr 2017 00:51:12 gmt";
        // Enough links that each letter that is escaped occurs.
        for number in 0..100 {
            let link = format!("dbs/D{number}/colls/hé");
            for (verb, resource_type) in [("GET", "docs"), ("PATCH", "Docs"), ("a-long-and-Unusual-VERB", "")]
            {
                let header = key.authorization_header(verb, resource_type, &link, date);
                let text = key.authorization(verb, resource_type, &link, SignedDate::MsDate(date));
                assert_eq!(header.to_str().unwrap(), text);
                assert!(header.is_sensitive());
            }
        }
    }

    #[test]
    fn the_text_under_the_signature_lowers_all_but_the_link() {
        assert_eq!(
            string_to_sign("GET", "Docs", "dbs/D", SignedDate::MsDate("Thu, 1")),
            "get\ndocs\ndbs/D\nthu, 1\n\n"
        );
        assert_eq!(string_to_sign("GET", "", "", SignedDate::HttpDate("Thu, 1")), "get\n\n\n\nthu, 1\n");
    }

    #[test]
    fn headers_are_read_encoded_or_not() {
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
    fn keys_are_strict_base64_and_never_shown() {
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
}
