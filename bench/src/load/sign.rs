//! Signatures with the master key, as cheap as a client can make them. The HMAC state with the
//! key is computed once and cloned, and the date header changes once a second. Each client
//! has its own signer.

use std::time::{Duration, Instant, SystemTime};

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use hmac::{Hmac, Mac};
use sha2::Sha256;

/// How long a date is reused. The service accepts dates that are up to 15 minutes off.
const DATE_LIFETIME: Duration = Duration::from_secs(1);
/// Base64 of the 32 bytes of a SHA-256.
const SIGNATURE_CHARACTERS: usize = 44;

#[derive(Clone)]
pub struct Signer {
    /// The HMAC state after the key.
    keyed_state: Hmac<Sha256>,
    /// The date as it is sent.
    date: String,
    /// The same date as it is signed: in lower case.
    signed_date: String,
    dated_at: Instant,
    authorization: String,
}

/// The values of two headers, valid until the next signature.
pub struct Signature<'a> {
    pub date: &'a str,
    pub authorization: &'a str,
}

impl Signer {
    pub fn new(key: &str) -> anyhow::Result<Self> {
        let keyed_state = Hmac::<Sha256>::new_from_slice(&BASE64.decode(key)?)?;
        let (date, signed_date) = date_now();
        Ok(Self { keyed_state, date, signed_date, dated_at: Instant::now(), authorization: String::new() })
    }

    /// Signs one request. `verb` and `resource_type` are in lower case. `link` has the case of
    /// the path.
    pub fn sign(&mut self, verb: &str, resource_type: &str, link: &str) -> anyhow::Result<Signature<'_>> {
        if self.dated_at.elapsed() > DATE_LIFETIME {
            (self.date, self.signed_date) = date_now();
            self.dated_at = Instant::now();
        }
        let mut mac = self.keyed_state.clone();
        for part in [verb, "\n", resource_type, "\n", link, "\n", &self.signed_date, "\n\n"] {
            mac.update(part.as_bytes());
        }
        let mut signature = [0; SIGNATURE_CHARACTERS];
        BASE64.encode_slice(mac.finalize().into_bytes(), &mut signature)?;
        self.authorization.clear();
        self.authorization.push_str("type%3Dmaster%26ver%3D1.0%26sig%3D");
        for character in signature {
            match character {
                b'+' => self.authorization.push_str("%2B"),
                b'/' => self.authorization.push_str("%2F"),
                b'=' => self.authorization.push_str("%3D"),
                other => self.authorization.push(char::from(other)),
            }
        }
        Ok(Signature { date: &self.date, authorization: &self.authorization })
    }
}

/// The current date as it is sent, and as it is signed.
fn date_now() -> (String, String) {
    let date = httpdate::fmt_http_date(SystemTime::now());
    let signed = date.to_ascii_lowercase();
    (date, signed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documented_example_signs_as_published() {
        // The worked example in the REST documentation's "Access control" page.
        let key = "dsZQi3KtZmCv1ljt3VNWNm7sQUF1y5rJfC6kv5JiwvW0EndXdDku/dkKBp8/ufDToSxLzR4y+O/0H/t4bQtVNw==";
        let mut signer = Signer::new(key).expect("a valid key");
        signer.signed_date = "thu, 27 apr 2017 00:51:12 gmt".into();
        let signature = signer.sign("get", "dbs", "dbs/ToDoList").expect("a signature");
        assert_eq!(
            signature.authorization,
            "type%3Dmaster%26ver%3D1.0%26sig%3Dc09PEVJrgp2uQRkr934kFbTqhByc7TVr3OHyqlu%2Bc%2Bc%3D"
        );
    }
}
