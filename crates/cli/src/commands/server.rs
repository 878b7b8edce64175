//! `perihelion server`: a server for other programs, by itself or in place of
//! the official emulator image.

use std::time::Instant;

use super::serve::serve;
use crate::args::ServerArgs;
use crate::exit::Failure;
use crate::image;
use crate::settings::{Mode, Settings};

pub(crate) fn run(typed: ServerArgs, begun: Instant) -> Result<(), Failure> {
    let mut wanted = typed.serve;
    let notes = image::adopt(&mut wanted, &typed.image, |name| std::env::var(name).ok())?;
    for note in notes {
        eprintln!("perihelion: {note}");
    }
    serve(Settings::resolve(wanted, Mode::Server)?, begun)
}
