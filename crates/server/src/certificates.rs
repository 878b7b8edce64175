//! The server's own small certificate authority and its certificate.
//!
//! Made once, kept in a directory, reused at every start: who has trusted the
//! CA stays trusting, and a start does not pay for keys. Each identity is one
//! file of three parts (a few plain lines on what it is, the certificate, the
//! key), replaced whole by a rename, so that a reader never meets a
//! certificate beside another one's key. The plain lines hold the names and
//! the expiry, which spares the program an X.509 parser.
//!
//! What always holds: key files are private to their owner, the CA outlives
//! changes of names and of leaf certificates, and nothing here can keep the
//! server from starting except a name that no certificate can carry: where
//! the directory cannot be used, certificates live in memory and a warning
//! says so.

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

/// People add the CA to trust stores by hand; once per decade is often enough.
const CA_LIFE: Duration = DAY.saturating_mul(3652);

/// Platforms refuse leaf certificates over 398 days; with the backdating below
/// this stays under 397.
const LEAF_LIFE: Duration = DAY.saturating_mul(395);

/// A leaf with less than this left is replaced at the next start.
const LEAF_LIFE_LEFT_MIN: Duration = DAY.saturating_mul(30);

/// Clocks of clients and containers are off by hours.
const BACKDATED: Duration = DAY;

/// The CA certificate alone, for trust stores.
const CA_PUBLIC_FILE: &str = "ca.pem";
/// The CA certificate with its key.
const CA_FILE: &str = "ca-key.pem";
/// The server's certificate with its key.
const LEAF_FILE: &str = "leaf-key.pem";

/// In this order of preference.
const ALPN: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// Names that every leaf certificate carries.
const LOCAL_NAMES: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

/// A CA and a server certificate signed by it.
#[derive(Debug)]
pub struct Certificates {
    ca: Identity,
    leaf: Identity,
    home: Home,
}

/// Where certificates are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Home {
    Directory(PathBuf),
    /// For this process only.
    Memory,
}

impl Certificates {
    /// Loads what `directory` holds and makes what is missing, expiring or
    /// without one of `names`. Without a usable directory all of it is made
    /// anew, in memory.
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
                tracing::warn!(path = %path.display(), %error, "certificates cannot be kept; made for this run only");
                Certificates::in_memory(names, now)
            }
            other => other,
        }
    }

    fn in_memory(names: &Names, now: SystemTime) -> Result<Certificates, CertificateError> {
        let ca = new_ca(now)?;
        let leaf = new_leaf(&ca, names, now)?;
        Ok(Certificates { ca, leaf, home: Home::Memory })
    }

    fn in_directory(
        directory: &Path,
        names: &Names,
        now: SystemTime,
    ) -> Result<Certificates, CertificateError> {
        create_private_directory(directory).map_err(|error| file_error(directory, error))?;
        let ca = kept_ca(directory, now)?;
        let leaf = kept_leaf(directory, &ca, names, now)?;
        Ok(Certificates { ca, leaf, home: Home::Directory(directory.to_owned()) })
    }

    /// The CA certificate, as a trust store wants it.
    pub fn ca_pem(&self) -> &str {
        &self.ca.certificate
    }

    /// The SHA-256 of the CA certificate, in hexadecimal.
    pub fn ca_fingerprint(&self) -> Result<String, CertificateError> {
        let der = CertificateDer::from_pem_slice(self.ca.certificate.as_bytes())
            .map_err(|_| CertificateError::Damaged)?;
        Ok(hexadecimal(&Sha256::digest(&der)))
    }

    /// The file with the CA certificate alone, when there is one.
    pub fn ca_path(&self) -> Option<PathBuf> {
        match &self.home {
            Home::Directory(directory) => Some(directory.join(CA_PUBLIC_FILE)),
            Home::Memory => None,
        }
    }

    /// Where these certificates are kept.
    pub fn home(&self) -> &Home {
        &self.home
    }

    /// TLS 1.2 and 1.3, HTTP/2 and HTTP/1.1 by ALPN. The chain includes the
    /// CA, so that a client can fetch it from the handshake.
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

/// `$XDG_CACHE_HOME/perihelion/tls`, or the same under `~/.cache`.
pub fn cache_directory() -> Option<PathBuf> {
    let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".cache")))?;
    Some(cache.join("perihelion").join("tls"))
}

/// The names and addresses a certificate is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names(Vec<String>);

impl Names {
    /// This machine's local names, and `more` of them. The wildcard addresses
    /// are no names and are passed over.
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

    fn within(&self, others: &[String]) -> bool {
        self.0.iter().all(|name| others.contains(name))
    }
}

/// Why there are no certificates.
#[derive(Debug)]
#[non_exhaustive]
pub enum CertificateError {
    /// A file or directory could not be used.
    File {
        path: PathBuf,
        error: io::Error,
    },
    /// A name cannot stand in a certificate, or making one failed.
    Making(rcgen::Error),
    /// Our own certificate could not be read back.
    Damaged,
    Tls(rustls::Error),
}

impl std::fmt::Display for CertificateError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            CertificateError::File { path, error } => write!(f, "{}: {error}", path.display()),
            CertificateError::Making(error) => {
                write!(f, "the certificate could not be made: {error} (check the host and the extra names)")
            }
            CertificateError::Damaged => {
                f.write_str("a kept certificate is damaged; remove the tls directory and start again")
            }
            CertificateError::Tls(error) => write!(f, "the certificate was refused: {error}"),
        }
    }
}

impl std::error::Error for CertificateError {}

fn file_error(path: &Path, error: io::Error) -> CertificateError {
    CertificateError::File { path: path.to_owned(), error }
}

/// A certificate with its key, and what we must know of it.
struct Identity {
    names: Vec<String>,
    expires: u64,
    /// Identifies the key that signed, so that a leaf of an older CA is seen.
    issuer: String,
    certificate: String,
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

    /// `None` when the text is not one that we wrote.
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

    fn lasts(&self, now: SystemTime, at_least: Duration) -> bool {
        seconds(now).saturating_add(at_least.as_secs()) < self.expires
    }
}

fn new_ca(now: SystemTime) -> Result<Identity, CertificateError> {
    let key = KeyPair::generate().map_err(CertificateError::Making)?;
    let mut params = ca_params(&key);
    let expires = set_validity(&mut params, now, CA_LIFE);
    let certificate = params.self_signed(&key).map_err(CertificateError::Making)?;
    Ok(Identity {
        names: Vec::new(),
        expires,
        issuer: key_id(&key),
        certificate: certificate.pem(),
        key: key.serialize_pem(),
    })
}

/// Everything in the CA's certificate but its dates follows from its key, so
/// it can sign again after a restart without the certificate being parsed.
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
    let ca_key = KeyPair::from_pem(&ca.key).map_err(CertificateError::Making)?;
    let issuer = Issuer::new(ca_params(&ca_key), ca_key);
    let key = KeyPair::generate().map_err(CertificateError::Making)?;
    let mut params = CertificateParams::new(names.0.clone()).map_err(CertificateError::Making)?;
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, "Perihelion local server");
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    let expires = set_validity(&mut params, now, LEAF_LIFE);
    let certificate = params.signed_by(&key, &issuer).map_err(CertificateError::Making)?;
    Ok(Identity {
        names: names.0.clone(),
        expires,
        issuer: ca.issuer.clone(),
        certificate: certificate.pem(),
        key: key.serialize_pem(),
    })
}

/// Sets the dates and returns the later one in seconds since 1970.
fn set_validity(params: &mut CertificateParams, now: SystemTime, life: Duration) -> u64 {
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    let starts = seconds(now).saturating_sub(BACKDATED.as_secs());
    let expires = seconds(now) + life.as_secs();
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

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// The CA of this directory. Two processes that start at once agree on one:
/// the first file linked into place wins, and the other process reads it.
fn kept_ca(directory: &Path, now: SystemTime) -> Result<Identity, CertificateError> {
    let path = directory.join(CA_FILE);
    let found = read_identity(&path)?;
    let replace = !matches!(found, Found::Nothing);
    let ca = match found.whole().filter(|ca| ca.lasts(now, LEAF_LIFE)) {
        Some(ca) => ca,
        None => {
            let made = new_ca(now)?;
            let placed = place(&path, &made.to_text(), replace).map_err(|error| file_error(&path, error))?;
            if placed { made } else { read_identity(&path)?.whole().ok_or(CertificateError::Damaged)? }
        }
    };
    let public = directory.join(CA_PUBLIC_FILE);
    if fs::read_to_string(&public).ok().as_deref() != Some(ca.certificate.as_str()) {
        place(&public, &ca.certificate, true).map_err(|error| file_error(&public, error))?;
    }
    Ok(ca)
}

fn kept_leaf(
    directory: &Path,
    ca: &Identity,
    names: &Names,
    now: SystemTime,
) -> Result<Identity, CertificateError> {
    let path = directory.join(LEAF_FILE);
    let usable = |leaf: &Identity| {
        leaf.issuer == ca.issuer && leaf.lasts(now, LEAF_LIFE_LEFT_MIN) && names.within(&leaf.names)
    };
    if let Some(leaf) = read_identity(&path)?.whole().filter(usable) {
        return Ok(leaf);
    }
    let leaf = new_leaf(ca, names, now)?;
    place(&path, &leaf.to_text(), true).map_err(|error| file_error(&path, error))?;
    Ok(leaf)
}

/// What stands in an identity's place.
enum Found {
    Nothing,
    /// A file that we did not write, or not to its end.
    Damaged,
    Whole(Box<Identity>),
}

impl Found {
    fn whole(self) -> Option<Identity> {
        match self {
            Found::Whole(identity) => Some(*identity),
            Found::Nothing | Found::Damaged => None,
        }
    }
}

fn read_identity(path: &Path) -> Result<Found, CertificateError> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Found::Nothing),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => String::new(),
        Err(error) => return Err(file_error(path, error)),
    };
    make_private(path);
    if let Some(identity) = Identity::from_text(&text) {
        return Ok(Found::Whole(Box::new(identity)));
    }
    tracing::warn!(path = %path.display(), "a kept certificate is damaged and will be replaced");
    Ok(Found::Damaged)
}

/// Puts a file in its place whole: written beside it, synced, then moved.
/// Without `replace` an existing file stays, and the answer is `false`.
fn place(path: &Path, text: &str, replace: bool) -> io::Result<bool> {
    static COUNTER: AtomicU32 = AtomicU32::new(0);
    let count = COUNTER.fetch_add(1, Ordering::Relaxed);
    let temporary = path.with_extension(format!("{}-{count}.tmp", std::process::id()));
    let moved = write_private(&temporary, text).and_then(|()| {
        if replace {
            return fs::rename(&temporary, path).map(|()| true);
        }
        match fs::hard_link(&temporary, path) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            // A file system without links: the race is then not decided.
            Err(_) => fs::rename(&temporary, path).map(|()| true),
        }
    });
    // Already gone after a rename; a leftover is harmless either way.
    let _ = fs::remove_file(&temporary);
    moved
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

/// Takes a key file that others can read away from them, and says so: the key
/// may have been read already.
#[cfg(unix)]
fn make_private(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    let Ok(metadata) = fs::metadata(path) else { return };
    if metadata.permissions().mode() & 0o077 == 0 {
        return;
    }
    let closed = fs::set_permissions(path, fs::Permissions::from_mode(0o600)).is_ok();
    tracing::warn!(path = %path.display(), closed, "a key file was readable by others; delete it to have a new key");
}

#[cfg(not(unix))]
fn make_private(_path: &Path) {}

#[cfg(test)]
mod tests;
