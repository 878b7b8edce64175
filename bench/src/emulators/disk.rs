//! The speed of the disk itself, to compare figures of durable stores with: the time
//! to append 4 KiB to a file and flush it, one after the other.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::time::Instant;

use crate::statistics::median;

/// Enough for a steady median, and under a second on any disk worth measuring.
const APPENDS: usize = 200;

/// The median over `APPENDS` appends, in milliseconds.
pub fn fdatasync_ms(directory: &Path) -> anyhow::Result<f64> {
    let path = directory.join("fdatasync");
    let mut file = File::create(&path)?;
    let mut times = Vec::with_capacity(APPENDS);
    for _ in 0..APPENDS {
        let started = Instant::now();
        file.write_all(&[7; 4096])?;
        file.sync_data()?;
        times.push(started.elapsed().as_secs_f64() * 1_000.0);
    }
    fs::remove_file(path)?;
    Ok(median(&times))
}
