//! The speed of the disk itself, for comparison with the figures of durable servers: the time
//! to append 4 KiB to a file and flush it.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::time::Instant;

use crate::statistics::median;

/// The number of appends: enough for a steady median, and quick on any disk worth measuring.
const APPENDS: usize = 200;

/// The median time of an append with its flush, in milliseconds.
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
