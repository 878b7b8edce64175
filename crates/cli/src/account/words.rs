//! Failures of the driver in the words of the command line. The driver advises a programmer, who has
//! its options; a person with this program has options of the command line and the environment.

use std::path::Path;

/// Advice of the driver, and what a person with this program does instead.
const ADVICE: [(&str, &str); 5] = [
    (
        "use https, or allow it with HttpOptions::with_allow_cleartext",
        "use https: without TLS only the emulators' well-known key is used",
    ),
    (
        "add that authority with HttpOptions::with_ca_pem or SSL_CERT_FILE",
        "set SSL_CERT_FILE to that authority",
    ),
    (
        ", or accept it with HttpOptions::with_accept_unknown_loopback_certificates if this is a local emulator",
        "",
    ),
    (", set SSL_CERT_FILE, or give a CA with HttpOptions::with_ca_pem", ", or set SSL_CERT_FILE"),
    ("HttpOptions::", "the option "),
];

/// A text of the driver without its Rust interface.
pub(crate) fn in_own_words(text: &str) -> String {
    ADVICE.iter().fold(text.to_owned(), |text, (programmer, person)| text.replace(programmer, person))
}

/// What to do about a failure of TLS; `None` if the text is about something else.
pub(crate) fn tls_advice(text: &str) -> Option<String> {
    let is_about_names = text.contains("not valid for name");
    let is_about_trust = text.contains("not trusted") || text.contains("no trusted certificates");
    let missing = std::env::var_os("SSL_CERT_FILE").filter(|file| !Path::new(file).is_file());
    match missing {
        _ if is_about_names => Some(
            "use a host name that the certificate has; our server gets another name with --tls-name NAME"
                .to_owned(),
        ),
        Some(file) if is_about_trust => Some(format!(
            "SSL_CERT_FILE names {}, which does not exist: set it to the file of the authority",
            Path::new(&file).display()
        )),
        None if is_about_trust => Some(
            "set SSL_CERT_FILE to the authority that signed the certificate; `perihelion cert ca` prints that of \
             our server, with --data DIR if the server has a data directory"
                .to_owned(),
        ),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_the_driver_lose_their_rust_names() {
        let text = "a: not connecting without TLS to another machine; \
                    use https, or allow it with HttpOptions::with_allow_cleartext";
        let expected = "a: not connecting without TLS to another machine; \
                        use https: without TLS only the emulators' well-known key is used";
        assert_eq!(in_own_words(text), expected);
        assert_eq!(in_own_words("x"), "x");
    }

    #[test]
    fn a_wrong_name_and_an_unknown_authority_have_different_advice() {
        let name = tls_advice("invalid peer certificate: certificate not valid for name \"db\"");
        assert!(name.is_some_and(|advice| advice.contains("--tls-name")));
        let authority = tls_advice("signed by an authority that is not trusted here");
        assert!(authority.is_some_and(|advice| advice.contains("SSL_CERT_FILE")));
        assert_eq!(tls_advice("no connection"), None);
    }
}
