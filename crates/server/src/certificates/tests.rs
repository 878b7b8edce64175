//! Tests that certificates are reused and renewed and that their keys are private.
//! A test that stores certificates has its own temporary directory. The directory is
//! removed at the end of the test.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{RootCertStore, client::danger::ServerCertVerifier};

use super::*;

/// A directory for certificates, removed on drop.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let path = std::env::temp_dir().join(format!("perihelion-tls-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        Scratch(path)
    }

    fn load(&self, more: &[&str], now: SystemTime) -> Certificates {
        let names = Names::local_and(more.iter().copied());
        Certificates::load_or_create(Some(&self.0), &names, now).expect("certificates")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Verifies the leaf for `name` at `now`, like a client that trusts the CA.
fn verify(certificates: &Certificates, name: &str, now: SystemTime) -> Result<(), rustls::Error> {
    let der = |pem: &str| CertificateDer::from_pem_slice(pem.as_bytes()).expect("a PEM certificate");
    let mut roots = RootCertStore::empty();
    roots.add(der(certificates.ca_pem()))?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let verifier = rustls::client::WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
        .build()
        .expect("a verifier");
    let name = ServerName::try_from(name).expect("a name");
    let now = UnixTime::since_unix_epoch(now.duration_since(UNIX_EPOCH).expect("after 1970"));
    verifier.verify_server_cert(&der(&certificates.leaf.certificate), &[], &name, &[], now).map(|_| ())
}

/// Story of a weakness: users trust the CA, and it could sign certificates of every site. So a thief of
/// its key could pose as any site to them.
#[test]
fn a_ca_signs_only_the_names_of_its_server_and_private_names() {
    let (scratch, now) = (Scratch::new("constraints"), SystemTime::now());
    let first = scratch.load(&["db.example.com"], now);
    for name in ["localhost", "127.0.0.1", "::1", "db.example.com"] {
        verify(&first, name, now).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    // With a stolen CA key, a certificate of another site is signed. Clients refuse it.
    let forged = new_leaf(&first.ca, &Names::local_and(["bank.example.org"]), now).unwrap();
    let ca = Identity::from_text(&first.ca.to_text()).unwrap();
    let forged = Certificates { ca, leaf: forged, location: Location::Memory };
    assert!(verify(&forged, "bank.example.org", now).is_err());

    let private = scratch.load(&["db.example.com", "cosmos.internal", "10.1.2.3"], now);
    assert_eq!(private.ca_pem(), first.ca_pem(), "private names need no new CA");
    verify(&private, "cosmos.internal", now).unwrap();
    verify(&private, "10.1.2.3", now).unwrap();
    let more = scratch.load(&["cosmos"], now);
    assert_ne!(more.ca_pem(), first.ca_pem(), "a CA cannot sign a name that it was not made for");
    verify(&more, "cosmos", now).unwrap();
    assert_eq!(scratch.load(&["db.example.com"], now).ca_pem(), more.ca_pem(), "the old names are kept");
}

#[test]
fn a_client_that_trusts_the_ca_accepts_every_name_of_the_certificate() {
    let now = SystemTime::now();
    let names = Names::local_and(["cosmos.internal", "0.0.0.0", "10.1.2.3"]);
    let certificates = Certificates::load_or_create(None, &names, now).expect("certificates");
    assert_eq!(certificates.location(), &Location::Memory);
    for name in ["localhost", "127.0.0.1", "::1", "cosmos.internal", "10.1.2.3"] {
        verify(&certificates, name, now).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    assert!(verify(&certificates, "example.com", now).is_err());
    assert!(verify(&certificates, "localhost", now + DAY * 396).is_err());
    certificates.server_config().expect("a server configuration");
}

#[test]
fn certificates_are_reused_between_starts() {
    let scratch = Scratch::new("reuse");
    let now = SystemTime::now();
    let first = scratch.load(&[], now);
    let second = scratch.load(&[], now + DAY);
    assert_eq!(first.ca_pem(), second.ca_pem());
    assert_eq!(first.leaf.certificate, second.leaf.certificate);
    assert_eq!(second.location(), &Location::Directory(scratch.0.clone()));
    let public = std::fs::read_to_string(second.ca_path().expect("a path")).expect("the CA file");
    assert_eq!(public, first.ca_pem());
    assert!(!public.contains("PRIVATE KEY"));
    assert_eq!(first.ca_fingerprint().expect("a fingerprint").len(), 64);
}

#[test]
fn a_new_name_gives_a_new_leaf_under_the_same_ca() {
    let scratch = Scratch::new("names");
    let now = SystemTime::now();
    let first = scratch.load(&[], now);
    let second = scratch.load(&["cosmos.internal"], now);
    assert_eq!(first.ca_pem(), second.ca_pem());
    assert_ne!(first.leaf.certificate, second.leaf.certificate);
    verify(&second, "cosmos.internal", now).expect("the new name");
    let third = scratch.load(&[], now);
    assert_eq!(
        second.leaf.certificate, third.leaf.certificate,
        "a leaf with more names than needed is reused"
    );
}

#[test]
fn an_expiring_leaf_and_an_expiring_ca_are_renewed() {
    let scratch = Scratch::new("expiry");
    let now = SystemTime::now();
    let first = scratch.load(&[], now);
    let later = now + DAY * 366;
    let second = scratch.load(&[], later);
    assert_eq!(first.ca_pem(), second.ca_pem());
    assert_ne!(first.leaf.certificate, second.leaf.certificate);
    verify(&second, "localhost", later + DAY * 100).expect("the renewed leaf");
    let much_later = now + CA_LIFE - DAY;
    let third = scratch.load(&[], much_later);
    assert_ne!(first.ca_pem(), third.ca_pem());
    verify(&third, "localhost", much_later).expect("the leaf of the new CA");
}

#[test]
fn damaged_files_are_replaced() {
    let scratch = Scratch::new("damage");
    let now = SystemTime::now();
    scratch.load(&[], now);
    for file in [CA_FILE, LEAF_FILE, CA_PUBLIC_FILE] {
        for content in [&b""[..], b"names: x\nexpires: no", b"\xff\xfe"] {
            std::fs::write(scratch.0.join(file), content).expect("write");
            verify(&scratch.load(&[], now), "localhost", now).expect(file);
        }
    }
}

#[cfg(unix)]
#[test]
fn keys_are_private_to_their_owner() {
    use std::os::unix::fs::PermissionsExt;
    let mode = |path: &Path| std::fs::metadata(path).expect("metadata").permissions().mode() & 0o777;
    let scratch = Scratch::new("modes");
    scratch.load(&[], SystemTime::now());
    assert_eq!(mode(&scratch.0), 0o700);
    let leaf = scratch.0.join(LEAF_FILE);
    assert_eq!(mode(&leaf), 0o600);
    assert_eq!(mode(&scratch.0.join(CA_FILE)), 0o600);
    std::fs::set_permissions(&leaf, std::fs::Permissions::from_mode(0o644)).expect("chmod");
    scratch.load(&[], SystemTime::now());
    assert_eq!(mode(&leaf), 0o600);
}

#[test]
fn without_a_usable_directory_certificates_are_in_memory() {
    let scratch = Scratch::new("blocked");
    std::fs::write(&scratch.0, "a file in the way").expect("write");
    let certificates = scratch.load(&[], SystemTime::now());
    assert_eq!(certificates.location(), &Location::Memory);
    assert_eq!(certificates.ca_path(), None);
    let _ = std::fs::remove_file(&scratch.0);
}

#[test]
fn first_starts_at_the_same_time_agree_on_one_ca() {
    let scratch = Scratch::new("race");
    let now = SystemTime::now();
    let authorities: Vec<String> = std::thread::scope(|scope| {
        let starts: Vec<_> =
            (0..8).map(|_| scope.spawn(|| scratch.load(&[], now).ca_pem().to_owned())).collect();
        starts.into_iter().map(|start| start.join().expect("a start")).collect()
    });
    assert!(authorities.iter().all(|ca| *ca == authorities[0]));
}

#[test]
fn debug_output_shows_no_key() {
    let certificates =
        Certificates::load_or_create(None, &Names::local_and([]), SystemTime::now()).expect("certificates");
    assert!(!format!("{certificates:?}").contains("PRIVATE"));
}

#[test]
fn an_invalid_certificate_name_is_an_error_that_says_what_to_check() {
    let names = Names::local_and(["no\u{e9}l"]);
    let error = Certificates::load_or_create(None, &names, SystemTime::now()).expect_err("not ASCII");
    assert!(error.to_string().contains("additional names"), "{error}");
}

/// Platforms accept at most 398 days. One of these days is kept as a margin.
#[test]
fn a_leaf_certificate_is_valid_for_at_most_397_days() {
    assert!(LEAF_LIFE + BACKDATED <= Duration::from_secs(397 * 24 * 60 * 60));
}
