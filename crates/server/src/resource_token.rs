//! `ResourceToken`: the token of a permission, `type=resource&ver=1&sig=SIGNATURE;CONTENT;`.
//!
//! The content is the `_rid` of the permission and the time at which the token expires, in
//! base64. The token does not say what the permission allows: the server reads the permission
//! for each request, so that a deleted permission allows nothing.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use perihelion_wire::signature::MasterKey;

const PREFIX: &str = "type=resource&ver=1&sig=";

/// A parsed token, not yet verified.
pub(crate) struct ResourceToken {
    /// The `_rid` of the permission.
    pub(crate) permission: String,
    /// When the token expires, in seconds since 1970.
    pub(crate) expires_at: u64,
    content: String,
    signature: Vec<u8>,
}

impl ResourceToken {
    /// The text of a token.
    pub(crate) fn print(permission: &str, expires_at: u64, key: &MasterKey) -> String {
        let content = STANDARD.encode(format!("{permission}.{expires_at}"));
        format!("{PREFIX}{};{content};", STANDARD.encode(key.sign_token(&content)))
    }

    /// Parses the text of a token; `None` when it has another form.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let parts = text.strip_prefix(PREFIX).or_else(|| text.strip_prefix("type=resource&ver=1.0&sig="))?;
        let (signature, content) = parts.split_once(';')?;
        let content = content.strip_suffix(';').unwrap_or(content);
        let signature = STANDARD.decode(signature).ok()?;
        let decoded = String::from_utf8(STANDARD.decode(content).ok()?).ok()?;
        let (permission, expires_at) = decoded.rsplit_once('.')?;
        Some(ResourceToken {
            permission: permission.to_owned(),
            expires_at: expires_at.parse().ok()?,
            content: content.to_owned(),
            signature,
        })
    }

    pub(crate) fn is_signed_with(&self, key: &MasterKey) -> bool {
        key.verify_token(&self.content, &self.signature)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_valid_only_with_its_own_content_and_key() {
        let key = MasterKey::emulator();
        let text = ResourceToken::print("rid==", 1000, &key);
        let token = ResourceToken::parse(&text).expect("its own form");
        assert_eq!((token.permission.as_str(), token.expires_at), ("rid==", 1000));
        assert!(token.is_signed_with(&key));
        assert!(!token.is_signed_with(&MasterKey::from_base64("AAAA").expect("a key")));
        let later = STANDARD.encode("rid==.2000");
        let (signature, _) = text.split_once(';').expect("a signature");
        let forged = ResourceToken::parse(&format!("{signature};{later};")).expect("the same form");
        assert!(!forged.is_signed_with(&key));
        for bad in [
            "",
            "type=resource&ver=1&sig=",
            "type=resource&ver=1&sig=AA==;!;",
            "type=master&ver=1&sig=AA==;AA==;",
        ] {
            assert!(ResourceToken::parse(bad).is_none(), "{bad}");
        }
    }
}
