//! `perihelion dev`: a server for the person at the keyboard.

use std::time::Instant;

use super::serve::serve;
use crate::args::ServeArgs;
use crate::exit::Failure;
use crate::settings::{Mode, Settings};

pub(crate) fn run(typed: ServeArgs, begun: Instant) -> Result<(), Failure> {
    serve(Settings::resolve(typed, Mode::Dev)?, begun)
}
