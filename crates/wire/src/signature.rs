//! Signatures by master key, and the Authorization header.
//!
//! A client signs `verb\ntype\nlink\ndate\n\n` (verb, type and date in lower
//! case) with HMAC-SHA-256 and the account's key. Without an `x-ms-date` header it signs
//! `verb\ntype\nlink\n\ndate\n` with the `Date` header. `Debug` and errors show
//! neither keys nor tokens. Signatures are compared as raw bytes in constant
//! time. No error reveals the right signature.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, Mac};
use http::HeaderValue;
use sha2::Sha256;

use crate::path::{Resource, percent_decode};

/// The key of every Cosmos DB emulator, published by Microsoft. It protects
/// nothing; a server with this key must only listen on loopback.
pub const EMULATOR_KEY: &str =
    "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw==";

/// The resource type in the signature of a request to Perihelion's management interface. No
/// resource of the service has this type, so no other signature gives access to the interface.
pub const MANAGEMENT_TYPE: &str = "management";

/// The resource type in the signature of a resource token. No resource of the service has this
/// type, so no token is the signature of a request.
const TOKEN_TYPE: &str = "resourcetoken";

/// The longest Authorization value that is parsed. Entra ID tokens have a few
/// kilobytes; the server limits all headers together to 64 KiB.
pub const AUTHORIZATION_BYTES_MAX: usize = 32 * 1024;

/// An account's master key. Its bytes are cleared on drop. The state of the HMAC, which is
/// derived from these bytes, is not cleared.
#[derive(Clone)]
pub struct MasterKey {
    bytes: Vec<u8>,
    /// The HMAC initialised with the key; every signature starts from a copy.
    keyed_mac: Hmac<Sha256>,
}

/// The text is not a master key. A key is base64 with padding and is not empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BadKey;

impl std::fmt::Display for BadKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the master key must be standard base64 with padding, and not empty")
    }
}

impl std::error::Error for BadKey {}

/// The signed date, as it was sent. The two kinds of date are on different lines of
/// the signed text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignedDate<'a> {
    /// The `x-ms-date` header.
    MsDate(&'a str),
    /// The `Date` header, signed when there is no `x-ms-date`.
    HttpDate(&'a str),
}

/// The parts of a request that its signature covers.
#[derive(Debug, Clone, Copy)]
pub struct SignedRequest<'a> {
    /// The method, in any letter case.
    pub verb: &'a str,
    /// The path as it was sent.
    pub path: &'a str,
    /// The resource that the path was parsed to.
    pub resource: &'a Resource,
    /// The date as it was sent.
    pub date: SignedDate<'a>,
}

impl MasterKey {
    /// Decodes a key from base64.
    pub fn from_base64(text: &str) -> Result<Self, BadKey> {
        match STANDARD.decode(text) {
            Ok(bytes) if !bytes.is_empty() => {
                let keyed_mac = Hmac::new_from_slice(&bytes).map_err(|_| BadKey)?;
                Ok(MasterKey { bytes, keyed_mac })
            }
            _ => Err(BadKey),
        }
    }

    /// The well-known key of the emulators.
    pub fn emulator() -> Self {
        Self::from_base64(EMULATOR_KEY).expect("the constant is valid base64")
    }

    /// Whether this is the well-known key of the emulators.
    pub fn is_emulator_key(&self) -> bool {
        *self == Self::emulator()
    }

    /// The key as text, for a connection string that the user asked for.
    pub fn reveal(&self) -> String {
        STANDARD.encode(&self.bytes)
    }

    /// The signature of one request.
    pub fn sign(&self, verb: &str, resource_type: &str, link: &str, date: SignedDate<'_>) -> [u8; 32] {
        self.mac(&string_to_sign(verb, resource_type, link, date)).finalize().into_bytes().into()
    }

    /// The Authorization value with the signature of one request, percent-encoded.
    pub fn authorization(&self, verb: &str, resource_type: &str, link: &str, date: SignedDate<'_>) -> String {
        let signature = STANDARD.encode(self.sign(verb, resource_type, link, date));
        let escaped = signature.replace('+', "%2B").replace('/', "%2F").replace('=', "%3D");
        format!("type%3Dmaster%26ver%3D1.0%26sig%3D{escaped}")
    }

    /// The Authorization value with the signature of one request, as a header marked
    /// sensitive. For a client that signs every request: only the header is allocated. The
    /// date is the `x-ms-date` header in lower case.
    pub fn authorization_header(
        &self,
        verb: &str,
        resource_type: &str,
        link: &str,
        date_in_lower_case: &str,
    ) -> HeaderValue {
        debug_assert!(!date_in_lower_case.bytes().any(|byte| byte.is_ascii_uppercase()));
        let mut mac = self.keyed_mac.clone();
        update_in_lower_case(&mut mac, verb);
        mac.update(b"\n");
        update_in_lower_case(&mut mac, resource_type);
        for part in ["\n", link, "\n", date_in_lower_case, "\n\n"] {
            mac.update(part.as_bytes());
        }
        let mut header = authorization_value(&mac.finalize().into_bytes().into());
        header.set_sensitive(true);
        header
    }

    /// Whether this key signed the request, with any link and type that a known
    /// client signs for this path.
    pub fn verify(&self, request: &SignedRequest<'_>, signature: &[u8]) -> bool {
        let is_signed = |resource_type: &str, link: &str| {
            let text = string_to_sign(request.verb, resource_type, link, request.date);
            self.mac(&text).verify_slice(signature).is_ok()
        };
        // Nearly every client signs the first link.
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

    /// Whether this key signed a request to Perihelion's management interface. The signed
    /// resource type is [`MANAGEMENT_TYPE`], and the signed link is the path without the slashes at
    /// its ends.
    pub fn verify_management(&self, verb: &str, path: &str, date: SignedDate<'_>, signature: &[u8]) -> bool {
        let text = string_to_sign(verb, MANAGEMENT_TYPE, path.trim_matches('/'), date);
        self.mac(&text).verify_slice(signature).is_ok()
    }

    /// The signature of a resource token with this content.
    pub fn sign_token(&self, content: &str) -> [u8; 32] {
        self.sign("", TOKEN_TYPE, content, SignedDate::MsDate(""))
    }

    /// Whether this key signed a resource token with this content.
    pub fn verify_token(&self, content: &str, signature: &[u8]) -> bool {
        let text = string_to_sign("", TOKEN_TYPE, content, SignedDate::MsDate(""));
        self.mac(&text).verify_slice(signature).is_ok()
    }

    fn mac(&self, text: &str) -> Hmac<Sha256> {
        let mut mac = self.keyed_mac.clone();
        mac.update(text.as_bytes());
        mac
    }
}

/// The part of an Authorization value before a signature by master key.
const MASTER_PREFIX: &[u8; 34] = b"type%3Dmaster%26ver%3D1.0%26sig%3D";
/// The number of characters of a signature: 32 bytes in base64 with padding.
const SIGNATURE_CHARACTERS: usize = 44;

/// The Authorization value of a signature. It is built on the stack and copied once.
fn authorization_value(signature: &[u8; 32]) -> HeaderValue {
    let mut encoded = [0; SIGNATURE_CHARACTERS];
    STANDARD.encode_slice(signature, &mut encoded).expect("32 bytes are 44 characters of base64");
    // In the worst case every character is escaped and takes three bytes.
    let mut text = [0; MASTER_PREFIX.len() + 3 * SIGNATURE_CHARACTERS];
    text[..MASTER_PREFIX.len()].copy_from_slice(MASTER_PREFIX);
    let mut end = MASTER_PREFIX.len();
    for character in &encoded {
        let escaped: &[u8] = match character {
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

/// Updates the HMAC with the text in lower case. The text is copied to the stack in small pieces,
/// so that nothing is allocated.
fn update_in_lower_case(mac: &mut Hmac<Sha256>, text: &str) {
    for chunk in text.as_bytes().chunks(16) {
        let mut lowered = [0; 16];
        let lowered = &mut lowered[..chunk.len()];
        lowered.copy_from_slice(chunk);
        lowered.make_ascii_lowercase();
        mac.update(lowered);
    }
}

/// The comparison takes constant time for keys of the same length.
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
        // Without this the compiler may remove the write above.
        std::hint::black_box(&mut self.bytes);
    }
}

impl std::fmt::Debug for MasterKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("MasterKey(..)")
    }
}

/// The text that is signed. The link keeps its letter case.
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

/// The parsed Authorization header, not yet verified.
#[derive(Clone, PartialEq, Eq)]
pub enum Credentials {
    /// A signature by master key.
    MasterKey {
        /// The raw bytes, of any length.
        signature: Vec<u8>,
    },
    /// The whole text of a resource token.
    ResourceToken(String),
    /// An Entra ID access token.
    EntraId(String),
}

/// The Authorization header has none of the known forms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BadCredentials;

impl std::fmt::Display for BadCredentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The service's message, with its spelling mistake ("confirm").
        f.write_str("Authorization header doesn't confirm to the required format.")
    }
}

impl std::error::Error for BadCredentials {}

impl Credentials {
    /// Parses `type=...&ver=...&sig=...`, percent-encoded or not. The type is `master`,
    /// `resource` or `aad`, the version 1.0 or 1.
    pub fn parse(header: &str) -> Result<Self, BadCredentials> {
        if header.len() > AUTHORIZATION_BYTES_MAX {
            return Err(BadCredentials);
        }
        let text = percent_decode(header).ok_or(BadCredentials)?;
        // The signature is the last part. It may contain '&' and '=' itself.
        let (before, signature) = text.split_once("&sig=").ok_or(BadCredentials)?;
        let (scheme, version) = match before.split_once('&') {
            Some((scheme, version)) => (scheme.strip_prefix("type="), version.strip_prefix("ver=")),
            None => (None, None),
        };
        if !matches!(version, Some("1.0" | "1")) || signature.is_empty() {
            return Err(BadCredentials);
        }
        match scheme {
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
mod tests;
