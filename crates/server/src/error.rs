//! `StartError`: why a server or an embedded database did not start.

use std::fmt;
use std::io;
use std::path::Path;

use perihelion_engine::Refusal;
use perihelion_engine::storage::StoreError;

use crate::certificates::CertificateError;

/// Why a server or an embedded database did not start.
#[derive(Debug)]
pub struct StartError {
    kind: StartErrorKind,
    text: String,
}

/// The cause of a failed start of a server or an embedded database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartErrorKind {
    /// The data directory cannot be used, or belongs to other regions.
    DataDirectory,
    /// An address cannot be bound, or there are too few ports above the server's own for the regions.
    Address,
    /// The certificate cannot be made or read.
    Certificate,
    /// Anything else.
    Other,
}

impl StartError {
    /// The cause of the failed start.
    pub fn kind(&self) -> StartErrorKind {
        self.kind
    }

    pub(crate) fn store(error: StoreError) -> StartError {
        StartError { kind: StartErrorKind::DataDirectory, text: error.to_string() }
    }

    pub(crate) fn refused(refusal: Refusal) -> StartError {
        StartError { kind: StartErrorKind::DataDirectory, text: refusal.message }
    }

    pub(crate) fn directory(path: &Path, error: &io::Error) -> StartError {
        let text = format!("cannot use {}: {error}", path.display());
        StartError { kind: StartErrorKind::DataDirectory, text }
    }

    /// `list` is the list of regions in the directory; it is empty for one region.
    pub(crate) fn wrong_regions(directory: &Path, list: &str) -> StartError {
        let directory = directory.display();
        let text = if list.is_empty() {
            format!(
                "{directory} holds an account of one region: start without --regions, or in another directory"
            )
        } else {
            format!(
                "{directory} holds an account of the regions \"{list}\": start with exactly these, or in another directory"
            )
        };
        StartError { kind: StartErrorKind::DataDirectory, text }
    }

    /// `owner` is the owner that the store names, such as `East US of West US,East US`.
    pub(crate) fn wrong_store(region: &str, owner: &str) -> StartError {
        let text = format!(
            "the directory of region {region} holds the data of region {owner}: restore its own directory"
        );
        StartError { kind: StartErrorKind::DataDirectory, text }
    }

    pub(crate) fn too_few_ports(port: u16, regions: usize) -> StartError {
        let text = format!(
            "the {regions} regions need {regions} ports after {port}, and there are fewer: choose a lower port"
        );
        StartError { kind: StartErrorKind::Address, text }
    }

    pub(crate) fn too_few_public_ports(endpoint: &str, regions: usize) -> StartError {
        let text = format!(
            "the {regions} regions need {regions} ports after the port of the public endpoint {endpoint}, and there are fewer: give the endpoint a lower port"
        );
        StartError { kind: StartErrorKind::Other, text }
    }

    pub(crate) fn address(host: &str, port: u16, error: &io::Error) -> StartError {
        StartError { kind: StartErrorKind::Address, text: format!("cannot listen on {host}:{port}: {error}") }
    }

    pub(crate) fn certificate(error: CertificateError) -> StartError {
        StartError { kind: StartErrorKind::Certificate, text: error.to_string() }
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for StartError {}
