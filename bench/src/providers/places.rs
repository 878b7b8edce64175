//! The places that are compared. A place is a provider together with where it stores its data:
//! a program (`bench/providers/`), a location that the program knows by name, and in some
//! places a server.

use std::path::{Path, PathBuf};

use clap::ValueEnum;

/// A provider and where it stores its data, in the order of the report's columns: the ceiling,
/// the peers, ours.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, ValueEnum)]
pub enum Place {
    /// A trivial provider in memory: the upper bound.
    Ceiling,
    /// duroxide's SQLite provider on a file.
    Sqlite,
    /// duroxide-pg on a local PostgreSQL.
    Postgres,
    /// duroxide-cdb 0.1.10 on our server, durable, over TLS.
    Published,
    /// Ours on the engine in its process, in memory.
    Memory,
    /// Ours on the engine in its process, durable.
    Durable,
    /// Ours on our server, durable, over TLS.
    Wire,
    /// Ours on our server, in memory, in clear.
    Clear,
}

/// The server that a place needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Needs {
    Nothing,
    Postgres,
    /// Ours on disk, reached over TLS.
    Durable,
    /// Ours in memory, reached in clear.
    Memory,
}

/// The program in `bench/providers/` that opens a provider.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Program {
    Peers,
    Published,
    Ours,
}

impl Place {
    pub const ALL: [Place; 8] = [
        Place::Ceiling,
        Place::Sqlite,
        Place::Postgres,
        Place::Published,
        Place::Memory,
        Place::Durable,
        Place::Wire,
        Place::Clear,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Place::Ceiling => "ceiling",
            Place::Sqlite => "sqlite",
            Place::Postgres => "postgres",
            Place::Published => "published",
            Place::Memory => "memory",
            Place::Durable => "durable",
            Place::Wire => "wire",
            Place::Clear => "clear",
        }
    }

    pub fn program(self) -> Program {
        match self {
            Place::Ceiling | Place::Sqlite | Place::Postgres => Program::Peers,
            Place::Published => Program::Published,
            Place::Memory | Place::Durable | Place::Wire | Place::Clear => Program::Ours,
        }
    }

    /// The location, as the program names it on its command line.
    pub fn location(self) -> &'static str {
        match self {
            Place::Ceiling | Place::Memory => "memory",
            Place::Sqlite => "sqlite",
            Place::Postgres => "postgres",
            Place::Durable => "durable",
            Place::Published | Place::Wire | Place::Clear => "wire",
        }
    }

    pub fn needs(self) -> Needs {
        match self {
            Place::Ceiling | Place::Sqlite | Place::Memory | Place::Durable => Needs::Nothing,
            Place::Postgres => Needs::Postgres,
            Place::Published | Place::Wire => Needs::Durable,
            Place::Clear => Needs::Memory,
        }
    }
}

impl Program {
    pub fn name(self) -> &'static str {
        match self {
            Program::Peers => "peers",
            Program::Published => "published",
            Program::Ours => "ours",
        }
    }

    pub fn directory(self) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("providers").join(self.name())
    }

    /// The argument of cargo that keeps the lock file unchanged. Ours has none: it depends on
    /// the crates of this checkout, whose dependencies change without its lock file.
    pub fn lock_arguments(self) -> &'static [&'static str] {
        match self {
            Program::Peers | Program::Published => &["--locked"],
            Program::Ours => &[],
        }
    }

    pub fn package(self) -> String {
        format!("perihelion-bench-provider-{}", self.name())
    }
}
