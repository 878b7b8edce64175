//! The server's certificate (the *leaf*) and the small certificate authority (the CA) that
//! signs it.
//!
//! Both are stored in a directory and reused at every start. So clients rarely need to trust a new
//! CA, and a start takes no time for new keys. Both are replaced some time before they expire.
//! The CA and the leaf have one file each, with three parts: a few plain lines, the certificate
//! and its key. A third file has the CA certificate alone. A file is always replaced as a whole,
//! so a reader never sees a certificate with the key of another certificate. The plain lines hold
//! the names, the expiry and the issuer, so the program needs no X.509 parser.
//!
//! What always holds: on Unix, key files are private to their owner. The CA is kept when the leaf
//! is replaced, and when names are added that the CA may sign. When the directory cannot be used,
//! the server warns, holds its certificates in memory and starts. A name that a certificate cannot
//! contain is an error.

mod constraints;

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use sha2::{Digest, Sha256};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// People add the CA to trust stores by hand, so it lasts ten years.
const CA_LIFE: Duration = DAY.saturating_mul(3652);

/// Platforms refuse leaf certificates that are valid for more than 398 days. With
/// [`BACKDATED`] this leaf is valid for 396 days.
const LEAF_LIFE: Duration = DAY.saturating_mul(395);

/// A leaf certificate that expires within this time is replaced at the next start.
const LEAF_LIFE_LEFT_MIN: Duration = DAY.saturating_mul(30);

/// Certificates are valid from this long before they are created, because the clocks
/// of clients and of Docker hosts may be off by hours.
const BACKDATED: Duration = DAY;

/// The CA certificate alone, for trust stores.
const CA_PUBLIC_FILE: &str = "ca.pem";
/// The CA certificate with its key.
const CA_FILE: &str = "ca-key.pem";
/// The server's certificate with its key.
const LEAF_FILE: &str = "leaf-key.pem";

/// The protocols for ALPN, in order of preference.
const ALPN: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// Names in every leaf certificate.
const LOCAL_NAMES: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

/// A CA and a server certificate signed by it.
#[derive(Debug)]
pub struct Certificates {
    ca: Identity,
    leaf: Identity,
    location: Location,
}

/// Where certificates are stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// In this directory.
    Directory(PathBuf),
    /// In memory, for this process only.
    Memory,
}

impl Certificates {
    /// Loads the certificates from `directory`, and replaces those that are missing,
    /// damaged or will expire soon: the CA if it would expire before a new leaf, the leaf if it
    /// expires within 30 days. The leaf is also replaced when it lacks one of `names` or another
    /// CA signed it. The CA is also replaced when it may not sign one of `names`. Without a usable
    /// directory the CA and the leaf are created in memory.
    pub fn load_or_create(
        directory: Option<&Path>,
        names: &Names,
        now: SystemTime,
    ) -> Result<Certificates, CertificateError> {
        let Some(directory) = directory else {
            return Certificates::in_memory(names, now);
        };
        match Certificates::in_directory(directory, names, now) {
            Err(CertificateError::File { path, error }) => {
                tracing::warn!(path = %path.display(), %error, "certificates cannot be stored; they are created for this run only");
                Certificates::in_memory(names, now)
            }
            other => other,
        }
    }

    fn in_memory(names: &Names, now: SystemTime) -> Result<Certificates, CertificateError> {
        let ca = new_ca(&names.0, now)?;
        let leaf = new_leaf(&ca, names, now)?;
        Ok(Certificates { ca, leaf, location: Location::Memory })
    }

    fn in_directory(
        directory: &Path,
        names: &Names,
        now: SystemTime,
    ) -> Result<Certificates, CertificateError> {
        create_private_directory(directory).map_err(|error| file_error(directory, error))?;
        let ca = load_or_create_ca(directory, names, now)?;
        let leaf = load_or_create_leaf(directory, &ca, names, now)?;
        Ok(Certificates { ca, leaf, location: Location::Directory(directory.to_owned()) })
    }

    /// The CA certificate as PEM, for a trust store.
    pub fn ca_pem(&self) -> &str {
        &self.ca.certificate
    }

    /// The SHA-256 of the CA certificate, in hexadecimal.
    pub fn ca_fingerprint(&self) -> Result<String, CertificateError> {
        let der = CertificateDer::from_pem_slice(self.ca.certificate.as_bytes())
            .map_err(|_| CertificateError::Damaged)?;
        Ok(hexadecimal(&Sha256::digest(&der)))
    }

    /// The file with the CA certificate alone; `None` in memory.
    pub fn ca_path(&self) -> Option<PathBuf> {
        match &self.location {
            Location::Directory(directory) => Some(directory.join(CA_PUBLIC_FILE)),
            Location::Memory => None,
        }
    }

    /// Where these certificates are stored.
    pub fn location(&self) -> &Location {
        &self.location
    }

    /// The TLS configuration: TLS 1.2 and 1.3, HTTP/2 and HTTP/1.1 by ALPN. The
    /// chain includes the CA, so that a client can take it from the handshake.
    pub fn server_config(&self) -> Result<Arc<ServerConfig>, CertificateError> {
        let chain = [&self.leaf, &self.ca]
            .map(|identity| CertificateDer::from_pem_slice(identity.certificate.as_bytes()))
            .into_iter()
            .collect::<Result<Vec<_>, _>>()
            .map_err(|_| CertificateError::Damaged)?;
        let key =
            PrivateKeyDer::from_pem_slice(self.leaf.key.as_bytes()).map_err(|_| CertificateError::Damaged)?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key))
            .map_err(CertificateError::Tls)?;
        config.alpn_protocols = ALPN.iter().map(|protocol| protocol.to_vec()).collect();
        Ok(Arc::new(config))
    }
}

/// The directory of the certificates in the user's cache:
/// `$XDG_CACHE_HOME/perihelion/tls`, or `~/.cache/perihelion/tls`. `None` when neither
/// `XDG_CACHE_HOME` nor `HOME` is an absolute path.
pub fn cache_directory() -> Option<PathBuf> {
    let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".cache")))?;
    Some(cache.join("perihelion").join("tls"))
}

/// The names and addresses in a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names(Vec<String>);

impl Names {
    /// The local names of this machine, and `more` names. The unspecified addresses (`0.0.0.0`
    /// and `::`) are skipped, because they do not name a machine.
    pub fn local_and<'a>(more: impl IntoIterator<Item = &'a str>) -> Names {
        let mut names: Vec<String> = LOCAL_NAMES.map(str::to_owned).to_vec();
        for name in more {
            let name = match name.parse::<IpAddr>() {
                Ok(address) if address.is_unspecified() => continue,
                Ok(address) => address.to_string(),
                Err(_) => name.to_ascii_lowercase(),
            };
            if !names.contains(&name) {
                names.push(name);
            }
        }
        Names(names)
    }

    fn are_all_in(&self, others: &[String]) -> bool {
        self.0.iter().all(|name| others.contains(name))
    }
}

/// Why certificates could not be loaded or created.
#[derive(Debug)]
#[non_exhaustive]
pub enum CertificateError {
    /// A file or directory could not be used.
    File {
        /// The file or directory.
        path: PathBuf,
        /// The error of the operating system.
        error: io::Error,
    },
    /// The certificate could not be created, perhaps because of one of its names.
    Creation(rcgen::Error),
    /// A stored certificate could not be read back.
    Damaged,
    /// The TLS library refused the certificate.
    Tls(rustls::Error),
}

impl std::fmt::Display for CertificateError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            CertificateError::File { path, error } => write!(f, "{}: {error}", path.display()),
            CertificateError::Creation(error) => {
                write!(
                    f,
                    "the certificate could not be created: {error} (check the host and the additional names)"
                )
            }
            CertificateError::Damaged => {
                f.write_str("a stored certificate is damaged; remove the tls directory and start again")
            }
            CertificateError::Tls(error) => write!(f, "the TLS library refused the certificate: {error}"),
        }
    }
}

impl std::error::Error for CertificateError {}

fn file_error(path: &Path, error: io::Error) -> CertificateError {
    CertificateError::File { path: path.to_owned(), error }
}

/// A certificate with its key, its names and its expiry.
struct Identity {
    /// In a leaf: its names. In a CA: the names that the CA may sign in addition to names and
    /// addresses that only exist in private networks ([`constraints`]). Empty for a CA of an earlier
    /// version, which may sign every name.
    names: Vec<String>,
    /// In seconds since 1970.
    expires: u64,
    /// The id of the key that signed the certificate: the SHA-256 of the public key. A leaf
    /// whose issuer differs from the CA's issuer was signed by another CA.
    issuer: String,
    /// As PEM.
    certificate: String,
    /// As PEM.
    key: String,
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Identity")
            .field("names", &self.names)
            .field("expires", &self.expires)
            .field("issuer", &self.issuer)
            .finish_non_exhaustive()
    }
}

impl Identity {
    fn to_text(&self) -> String {
        let Identity { names, expires, issuer, certificate, key } = self;
        let names = names.join(" ");
        format!("names: {names}\nexpires: {expires}\nissuer: {issuer}\n{certificate}{key}")
    }

    /// Parses the text of [`Identity::to_text`]; `None` when the text is damaged.
    fn from_text(text: &str) -> Option<Identity> {
        let field = |name| text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        let key_at = text.find("-----BEGIN PRIVATE KEY-----")?;
        let certificate_at = text.find("-----BEGIN CERTIFICATE-----").filter(|at| *at < key_at)?;
        let identity = Identity {
            names: field("names:")?.split(' ').filter(|name| !name.is_empty()).map(str::to_owned).collect(),
            expires: field("expires:")?.parse().ok()?,
            issuer: field("issuer:")?.to_owned(),
            certificate: text[certificate_at..key_at].to_owned(),
            key: text[key_at..].to_owned(),
        };
        CertificateDer::from_pem_slice(identity.certificate.as_bytes()).ok()?;
        KeyPair::from_pem(&identity.key).ok()?;
        Some(identity)
    }

    fn is_valid_for(&self, at_least: Duration, now: SystemTime) -> bool {
        unix_seconds(now).saturating_add(at_least.as_secs()) < self.expires
    }
}

fn new_ca(names: &[String], now: SystemTime) -> Result<Identity, CertificateError> {
    let key = KeyPair::generate().map_err(CertificateError::Creation)?;
    let mut params = ca_params(&key);
    // Names that cannot be in a certificate are refused here: the constraints do not check them.
    CertificateParams::new(names.to_vec()).map_err(CertificateError::Creation)?;
    params.name_constraints = Some(constraints::for_names(names));
    let expires = set_validity(&mut params, now, CA_LIFE);
    let certificate = params.self_signed(&key).map_err(CertificateError::Creation)?;
    Ok(Identity {
        names: names.to_vec(),
        expires,
        issuer: key_id(&key),
        certificate: certificate.pem(),
        key: key.serialize_pem(),
    })
}

/// The parameters of the CA certificate that follow from its key: all but the dates and the names
/// that the CA may sign. They are enough to sign a leaf, so the CA can sign after a restart
/// without parsing its certificate.
fn ca_params(key: &KeyPair) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, "Perihelion");
    let name = format!("Perihelion local CA {}", &key_id(key)[..8]);
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

fn new_leaf(ca: &Identity, names: &Names, now: SystemTime) -> Result<Identity, CertificateError> {
    let ca_key = KeyPair::from_pem(&ca.key).map_err(CertificateError::Creation)?;
    let issuer = Issuer::new(ca_params(&ca_key), ca_key);
    let key = KeyPair::generate().map_err(CertificateError::Creation)?;
    let mut params = CertificateParams::new(names.0.clone()).map_err(CertificateError::Creation)?;
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, "Perihelion local server");
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    let expires = set_validity(&mut params, now, LEAF_LIFE);
    let certificate = params.signed_by(&key, &issuer).map_err(CertificateError::Creation)?;
    Ok(Identity {
        names: names.0.clone(),
        expires,
        issuer: ca.issuer.clone(),
        certificate: certificate.pem(),
        key: key.serialize_pem(),
    })
}

/// Sets the dates and returns the expiry in seconds since 1970.
fn set_validity(params: &mut CertificateParams, now: SystemTime, life: Duration) -> u64 {
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    let starts = unix_seconds(now).saturating_sub(BACKDATED.as_secs());
    let expires = unix_seconds(now) + life.as_secs();
    params.not_before = epoch + Duration::from_secs(starts);
    params.not_after = epoch + Duration::from_secs(expires);
    expires
}

fn key_id(key: &KeyPair) -> String {
    hexadecimal(&Sha256::digest(key.public_key_raw()))
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unix_seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Loads the CA of a directory, or creates a CA when it is missing, damaged, would expire before a
/// new leaf, or may not sign one of the names. Two processes that create a missing CA at the same
/// time agree on one CA: the first file that is linked into place wins, and the other process reads
/// it. Two processes that replace a CA at the same time may use different CAs until the next start.
fn load_or_create_ca(directory: &Path, names: &Names, now: SystemTime) -> Result<Identity, CertificateError> {
    let path = directory.join(CA_FILE);
    let stored = read_identity(&path)?;
    let may_replace = !matches!(stored, IdentityFile::Missing);
    let stored = stored.into_valid();
    let mut permitted = names.0.clone();
    if let Some(ca) = &stored
        && !constraints::permit_all(&ca.names, names.0.iter().map(String::as_str))
    {
        permitted.extend(ca.names.iter().filter(|name| !names.0.contains(name)).cloned());
        tracing::warn!(path = %path.display(), ?names, "a new CA is created, because the old CA may not sign these names; trust the new CA in place of the old CA");
    }
    let is_usable = |ca: &Identity| {
        ca.is_valid_for(LEAF_LIFE, now)
            && constraints::permit_all(&ca.names, names.0.iter().map(String::as_str))
    };
    let ca = match stored.filter(is_usable) {
        Some(ca) => ca,
        None => {
            let new = new_ca(&permitted, now)?;
            let is_written = write_atomically(&path, &new.to_text(), may_replace)
                .map_err(|error| file_error(&path, error))?;
            if is_written {
                new
            } else {
                read_identity(&path)?.into_valid().ok_or(CertificateError::Damaged)?
            }
        }
    };
    let public_path = directory.join(CA_PUBLIC_FILE);
    if fs::read_to_string(&public_path).ok().as_deref() != Some(ca.certificate.as_str()) {
        write_atomically(&public_path, &ca.certificate, true)
            .map_err(|error| file_error(&public_path, error))?;
    }
    Ok(ca)
}

fn load_or_create_leaf(
    directory: &Path,
    ca: &Identity,
    names: &Names,
    now: SystemTime,
) -> Result<Identity, CertificateError> {
    let path = directory.join(LEAF_FILE);
    let is_usable = |leaf: &Identity| {
        leaf.issuer == ca.issuer
            && leaf.is_valid_for(LEAF_LIFE_LEFT_MIN, now)
            && names.are_all_in(&leaf.names)
    };
    if let Some(leaf) = read_identity(&path)?.into_valid().filter(is_usable) {
        return Ok(leaf);
    }
    let leaf = new_leaf(ca, names, now)?;
    write_atomically(&path, &leaf.to_text(), true).map_err(|error| file_error(&path, error))?;
    Ok(leaf)
}

/// The content of an identity's file.
enum IdentityFile {
    Missing,
    /// A file that was not written by this program, or not completely.
    Damaged,
    Valid(Box<Identity>),
}

impl IdentityFile {
    fn into_valid(self) -> Option<Identity> {
        match self {
            IdentityFile::Valid(identity) => Some(*identity),
            IdentityFile::Missing | IdentityFile::Damaged => None,
        }
    }
}

fn read_identity(path: &Path) -> Result<IdentityFile, CertificateError> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(IdentityFile::Missing),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => String::new(),
        Err(error) => return Err(file_error(path, error)),
    };
    make_private(path);
    if let Some(identity) = Identity::from_text(&text) {
        return Ok(IdentityFile::Valid(Box::new(identity)));
    }
    tracing::warn!(path = %path.display(), "the stored certificate is damaged and will be replaced");
    Ok(IdentityFile::Damaged)
}

/// Writes a file atomically: it is written under another name, synced, and moved or
/// linked to its place. If `may_replace` is false, an existing file stays as it is. Returns whether
/// the text was written.
fn write_atomically(path: &Path, text: &str, may_replace: bool) -> io::Result<bool> {
    static COUNTER: AtomicU32 = AtomicU32::new(0);
    let count = COUNTER.fetch_add(1, Ordering::Relaxed);
    let temporary = path.with_extension(format!("{}-{count}.tmp", std::process::id()));
    let outcome = write_private(&temporary, text).and_then(|()| {
        if may_replace {
            return fs::rename(&temporary, path).map(|()| true);
        }
        match fs::hard_link(&temporary, path) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            // The file system has no hard links. On such a system two processes that start at the
            // same time may use different CAs.
            Err(_) => fs::rename(&temporary, path).map(|()| true),
        }
    });
    // After a rename there is no temporary file. A temporary file that cannot be removed is
    // harmless.
    let _ = fs::remove_file(&temporary);
    outcome
}

fn write_private(path: &Path, text: &str) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

fn create_private_directory(path: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

/// If other users have any right to a key file, makes the file private and warns: these
/// users may have read the key already.
#[cfg(unix)]
fn make_private(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    let Ok(metadata) = fs::metadata(path) else { return };
    if metadata.permissions().mode() & 0o077 == 0 {
        return;
    }
    let is_private_now = fs::set_permissions(path, fs::Permissions::from_mode(0o600)).is_ok();
    tracing::warn!(path = %path.display(), is_private_now, "other users could read a key file; delete it to get a new key");
}

#[cfg(not(unix))]
fn make_private(_path: &Path) {}

#[cfg(test)]
mod tests;
