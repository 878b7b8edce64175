//! Logs on standard error. The crates `perihelion…` log at the chosen level. All other
//! crates log at most at the level `warn`: libraries log headers at their finest levels,
//! and a header holds the client's signature.

use std::io::IsTerminal;

use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::args::Level;

/// The names of this program's crates start with this prefix. The exception is
/// `duroxide_cdb`: its logs are limited like the logs of other libraries.
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
    let level_of_others = level.min(LevelFilter::WARN);
    let filter = Targets::new().with_default(level_of_others).with_target(CRATE_PREFIX, level);
    let has_color = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    // If a line cannot be written, `tracing_subscriber` would report this with `eprintln!`, which
    // would panic.
    let layer = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(has_color)
        .log_internal_errors(false);
    let _ = tracing_subscriber::registry().with(layer).with(filter).try_init();
}
