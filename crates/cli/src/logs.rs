//! Logs on standard error: those of the crates `perihelion…` at the chosen level, those of
//! all other crates never finer than `warn`. Libraries log headers at their finest levels,
//! and a header holds the client's signature.

use std::io::IsTerminal;

use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::args::Level;

/// The names of this program's crates start with this, except `duroxide_cdb`, whose logs are
/// limited like those of other libraries.
const CRATE_PREFIX: &str = "perihelion";

/// Starts logging. Does nothing when logging was started before.
pub(crate) fn start(level: Level) {
    let level = match level {
        Level::Off => LevelFilter::OFF,
        Level::Error => LevelFilter::ERROR,
        Level::Warn => LevelFilter::WARN,
        Level::Info => LevelFilter::INFO,
        Level::Debug => LevelFilter::DEBUG,
        Level::Trace => LevelFilter::TRACE,
    };
    let others = level.min(LevelFilter::WARN);
    let filter = Targets::new().with_default(others).with_target(CRATE_PREFIX, level);
    let color = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_ansi(color);
    let _ = tracing_subscriber::registry().with(lines).with(filter).try_init();
}
