//! `perihelion cert`: shows the CA that signs the server's certificate, for
//! trust stores.
//!
//! With a data directory, the command shows the CA that the server has created there.
//! Without a data directory, it shows the CA in the user's cache. If that CA is missing, the
//! command creates it, so that a user can trust the CA before the first start.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime};

use clap::{Args, Subcommand};
use perihelion_server::certificates::{Certificates, Names};

use crate::exit::{self, Failure};
use crate::process::print;
use crate::settings::tls_directory;

/// The name of the CA certificate in a directory of certificates.
const CA_FILE: &str = "ca.pem";

/// Show the certificate authority that signs the server's certificate.
#[derive(Debug, Args)]
#[command(after_help = exit::HELP)]
pub(crate) struct CertArgs {
    #[command(subcommand)]
    command: CertCommand,
}

#[derive(Debug, Subcommand)]
enum CertCommand {
    /// Print the CA certificate (PEM), for a trust store
    Ca(CertLocation),
    /// Print the path of the CA certificate
    Path(CertLocation),
}

#[derive(Debug, Args)]
struct CertLocation {
    /// The server's data directory, if it has one
    #[arg(long, value_name = "DIR", env = "PERIHELION_DATA", hide_env_values = true)]
    data: Option<PathBuf>,
}

pub(crate) fn run(args: CertArgs, _started_at: Instant) -> Result<(), Failure> {
    match args.command {
        CertCommand::Ca(location) => print(&read_ca(&ca_path(location.data.as_deref())?)?),
        CertCommand::Path(location) => print(&format!("{}\n", ca_path(location.data.as_deref())?.display())),
    }
}

/// The path of the CA certificate. In a data directory the file may not exist yet.
fn ca_path(data: Option<&Path>) -> Result<PathBuf, Failure> {
    let no_cache =
        || Failure::runtime("there is no cache directory for certificates: set HOME or XDG_CACHE_HOME");
    let directory = tls_directory(data).ok_or_else(no_cache)?;
    if data.is_some() {
        // Only the server creates files in its data directory.
        return Ok(directory.join(CA_FILE));
    }
    let certificates =
        Certificates::load_or_create(Some(&directory), &Names::local_and([]), SystemTime::now())
            .map_err(Failure::runtime)?;
    let unusable = || Failure::runtime(format!("certificates cannot be stored in {}", directory.display()));
    certificates.ca_path().ok_or_else(unusable)
}

fn read_ca(path: &Path) -> Result<String, Failure> {
    std::fs::read_to_string(path).map_err(|error| {
        let message = format!("cannot read the CA certificate {}: {error}", path.display());
        match error.kind() {
            ErrorKind::NotFound => Failure::not_found(message)
                .with_advice("check --data; the server creates the CA when it starts with that directory"),
            _ => Failure::runtime(message),
        }
    })
}
