//! `perihelion cert`: the CA behind the server's certificate, for trust stores.
//!
//! Without a data directory the CA in the user's cache is meant, and made if
//! it is not there yet: one may trust it before the first start.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use perihelion_server::certificates::{Certificates, Names};

use crate::args::{CertArgs, CertCommand};
use crate::exit::Failure;
use crate::settings::tls_directory;

/// The name of the CA certificate in a directory of certificates.
const CA_FILE: &str = "ca.pem";

pub(crate) fn run(typed: CertArgs) -> Result<(), Failure> {
    match typed.what {
        CertCommand::Ca(place) => print(&read(&ca_path(place.data.as_deref())?)?),
        CertCommand::Path(place) => print(&format!("{}\n", ca_path(place.data.as_deref())?.display())),
    }
}

fn ca_path(data: Option<&Path>) -> Result<PathBuf, Failure> {
    let nowhere =
        || Failure::runtime("there is no cache directory for certificates: set HOME or XDG_CACHE_HOME");
    let directory = tls_directory(data).ok_or_else(nowhere)?;
    if data.is_some() {
        // A data directory belongs to the server; only it creates things there.
        return Ok(directory.join(CA_FILE));
    }
    let certificates =
        Certificates::load_or_create(Some(&directory), &Names::local_and([]), SystemTime::now())
            .map_err(Failure::runtime)?;
    let unusable = || Failure::runtime(format!("no certificates can be kept in {}", directory.display()));
    certificates.ca_path().ok_or_else(unusable)
}

fn read(path: &Path) -> Result<String, Failure> {
    std::fs::read_to_string(path).map_err(|error| {
        let path = path.display();
        Failure::runtime(format!("{path}: {error} (a server makes the CA when it starts on that directory)"))
    })
}

fn print(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(Failure::runtime)
}
