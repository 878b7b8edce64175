//! The log in front of the data file, where a commit first becomes durable.
//!
//! Two files are used alternately. Commits are appended to the current file, each as one
//! record with one sync. When the current file is full (or earlier, after many
//! removals), commits continue at the beginning of the other file, whose records are all in the
//! data file by then. So an open store creates each file only once. Most records are written into blocks
//! that exist already, so that the sync has no metadata to write.
//!
//! The data file *covers* a sequence number when it contains every commit up to
//! that number. Always true: record `n + 1` is not written before record `n` is synced; a
//! record is not overwritten before the data file covers its number. So [`read`]
//! needs only the numbers: the intact records that the data file does not cover
//! follow each other without a gap, and a power cut can destroy only the last record.

use std::collections::BTreeMap;
use std::io;

use bytes::Bytes;
use redb::StorageBackend;

use super::LogLimits;
use super::directory::Directory;
use super::failure::Failure;
use super::record::{self, LoggedWrite, Record, SECTOR_BYTES};
use super::room::is_full;

/// The files' names in the data directory.
pub(super) const FILE_NAMES: [&str; 2] = ["perihelion-0.log", "perihelion-1.log"];

/// The file that [`Log::check_room`] writes and removes. A crash may leave it.
const ROOM_FILE_NAME: &str = "perihelion-room.tmp";

/// A new file is lengthened by this much at a time. Zeros are written, instead
/// of only setting the length, so that the blocks exist. With a larger step, the
/// commits that lengthen the file would be slower. With a smaller step, more commits would
/// lengthen the file.
const GROWTH_BYTES: u64 = 1024 * 1024;

/// The longest log file that is read. A log file is read into memory as a whole, and
/// no [`LogLimits`] in use allow a longer one.
const FILE_BYTES_MAX: u64 = 1024 * 1024 * 1024;

/// The log's files and the position of the next record.
#[derive(Debug)]
pub(super) struct Log {
    directory: Box<dyn Directory>,
    files: [Option<LogFile>; 2],
    limits: LogLimits,
    /// The index of the file to which records are appended.
    current: usize,
    /// The offset of the next record in the current file.
    position: u64,
    /// The number of writes in the records of the current file.
    writes: usize,
    /// Whether a refused record may be at the current position, because there was no room to
    /// erase it.
    has_refused: bool,
}

/// One of the two files.
#[derive(Debug)]
struct LogFile {
    file: Box<dyn StorageBackend>,
    /// The length of the file in bytes, with the zeros after the last record.
    len: u64,
}

impl Log {
    /// Opens the files that exist. The first record is written at the beginning of the first
    /// file. The data file must cover every record in both files.
    pub(super) fn open(directory: Box<dyn Directory>, limits: LogLimits) -> io::Result<Log> {
        let mut files = [None, None];
        for (name, slot) in FILE_NAMES.iter().zip(&mut files) {
            if let Some(file) = directory.open(name)? {
                let len = file.len()?;
                *slot = Some(LogFile { file, len });
            }
        }
        Ok(Log { directory, files, limits, current: 0, position: 0, writes: 0, has_refused: false })
    }

    /// Whether a record with this many bytes and writes may be appended to the current file.
    /// An empty file accepts any record.
    pub(super) fn has_room(&self, size: usize, writes: usize) -> bool {
        let is_empty = self.position == 0;
        let fits = self.position + size as u64 <= self.limits.file_bytes
            && self.writes + writes <= self.limits.file_writes;
        is_empty || fits
    }

    /// The part of the current file that is used, in bytes or in writes, whichever is more. 1 is a
    /// full file; a single record may be more.
    pub(super) fn fill(&self) -> f64 {
        let bytes = self.position as f64 / self.limits.file_bytes as f64;
        let writes = self.writes as f64 / self.limits.file_writes as f64;
        bytes.max(writes)
    }

    /// The number of bytes in the records of the current file.
    pub(super) fn bytes(&self) -> u64 {
        self.position
    }

    /// Refuses if the disk has no room for this many bytes: writes them to a file, without a sync,
    /// and removes the file. This takes no time on the disk, because the file is removed before the
    /// operating system writes its blocks. It is not certain that the room is still there later.
    pub(super) fn check_room(&self, bytes: u64) -> Result<(), Failure> {
        let outcome = self.write_room_file(bytes);
        // A file that cannot be removed now is removed after the next check, or at the next start.
        let _ = remove_room_file(&*self.directory);
        match outcome {
            Err(error) if is_full(&error) => Err(Failure::full(&error)),
            // Without a file, as when the process has too many open files, the room is not known. The
            // commit then goes on.
            Ok(()) | Err(_) => Ok(()),
        }
    }

    fn write_room_file(&self, bytes: u64) -> io::Result<()> {
        let file = self.directory.create(ROOM_FILE_NAME)?;
        let zeros = vec![0; GROWTH_BYTES.min(bytes) as usize];
        let mut written = 0;
        while written < bytes {
            let len = (bytes - written).min(GROWTH_BYTES);
            file.write(written, &zeros[..len as usize])?;
            written += len;
        }
        Ok(())
    }

    /// Appends a record and returns when it is durable.
    ///
    /// A write for which the disk has no room is not fatal, unlike a failed sync: every earlier
    /// record is synced, so nothing that was acknowledged can be lost. The refused record is
    /// erased, now or before the next commit. A crash before that may leave the refused record
    /// whole; then it counts as committed, as after any write whose outcome is not known.
    pub(super) fn append(&mut self, record: &Record) -> Result<(), Failure> {
        debug_assert!(!self.has_refused, "a refused record is erased before the next commit");
        if let Err(error) = self.write(record) {
            if !is_full(&error) {
                return Err(error.into());
            }
            self.has_refused = true;
            self.erase_refused_record()?;
            return Err(Failure::full(&error));
        }
        self.current_file()?.file.sync_data()?;
        self.position += record.bytes.len() as u64;
        self.writes += record.entries.len();
        Ok(())
    }

    /// Writes a record at the current position, without a sync.
    fn write(&mut self, record: &Record) -> io::Result<()> {
        let (position, end) = (self.position, self.position + record.bytes.len() as u64);
        debug_assert!(position.is_multiple_of(SECTOR_BYTES as u64));
        let limit = self.limits.file_bytes;
        let file = self.current_file()?;
        file.file.write(position, &record.bytes)?;
        if end > file.len {
            let len = end.max((end + GROWTH_BYTES).min(limit));
            file.file.write(end, &vec![0; (len - end) as usize])?;
            file.len = len;
        }
        Ok(())
    }

    /// Erases the beginning of a refused record at the current position, which may have been
    /// written in part or whole. Must succeed before each commit, because the commit has the number
    /// of the refused record and may go to the other file. A file system that copies blocks before
    /// it changes them may have no room for this; then the commit is refused, too.
    pub(super) fn erase_refused_record(&mut self) -> Result<(), Failure> {
        if !self.has_refused {
            return Ok(());
        }
        // If the file could not be created, nothing was written.
        if let Some(file) = &self.files[self.current] {
            match file.file.write(self.position, &[0; SECTOR_BYTES]) {
                Ok(()) => file.file.sync_data()?,
                Err(error) if is_full(&error) => return Err(Failure::full(&error)),
                Err(error) => return Err(error.into()),
            }
        }
        self.has_refused = false;
        Ok(())
    }

    /// The file to which records are appended. Creates it if it does not exist, and makes
    /// its name durable.
    fn current_file(&mut self) -> io::Result<&mut LogFile> {
        let slot = &mut self.files[self.current];
        match slot {
            Some(file) => Ok(file),
            None => {
                let file = self.directory.create(FILE_NAMES[self.current])?;
                // After a failed sync the state of the disk is unknown, whatever the reason. So
                // this error must not count as a lack of room.
                self.directory.sync().map_err(io::Error::other)?;
                Ok(slot.insert(LogFile { file, len: 0 }))
            }
        }
    }

    /// Switches to the beginning of the other file. The data file must cover every
    /// record in that file.
    pub(super) fn switch(&mut self) {
        self.current = 1 - self.current;
        self.restart();
    }

    /// Goes back to the beginning of the current file. The data file must cover every
    /// record in it.
    pub(super) fn restart(&mut self) {
        (self.position, self.writes) = (0, 0);
    }

    /// Removes the files. The data file must cover every record in them.
    pub(super) fn remove(&mut self) -> io::Result<()> {
        if self.files.iter().all(Option::is_none) {
            return Ok(()); // Nothing was committed.
        }
        for (name, slot) in FILE_NAMES.iter().zip(&mut self.files) {
            if let Some(file) = slot.take() {
                drop(file);
                self.directory.remove(name)?;
            }
        }
        self.restart();
        self.directory.sync()
    }
}

/// The commits of the log that the data file does not cover.
#[derive(Debug, Default)]
pub(super) struct Replay {
    /// The sequence number of the last commit in the log or in the data file.
    pub(super) sequence: u64,
    /// The writes of the commits, oldest first.
    pub(super) entries: Vec<LoggedWrite>,
}

/// Removes the file of a check for room, if there is one.
pub(super) fn remove_room_file(directory: &dyn Directory) -> io::Result<()> {
    let exists = directory.open(ROOM_FILE_NAME)?.is_some();
    if exists { directory.remove(ROOM_FILE_NAME) } else { Ok(()) }
}

/// Reads the commits of the log that the data file does not cover. `covered` is the
/// last sequence number that the data file covers. Changes no file.
pub(super) fn read(directory: &dyn Directory, instance: u64, covered: u64) -> Result<Replay, Failure> {
    let mut found = BTreeMap::new();
    for name in FILE_NAMES {
        if let Some(file) = directory.open(name)? {
            collect(&*file, name, instance, covered, &mut found)?;
        }
    }
    let mut replay = Replay { sequence: covered, entries: Vec::new() };
    for (sequence, entries) in found {
        if sequence != replay.sequence + 1 {
            let missing = replay.sequence + 1;
            return Err(Failure::damaged(format!(
                "its log lacks commit {missing} and has commit {sequence}, so it is damaged or a file is missing"
            )));
        }
        replay.sequence = sequence;
        replay.entries.extend(entries);
    }
    Ok(replay)
}

/// Adds to `found` the writes of the records in a log file that the data file does not
/// cover, by sequence number.
fn collect(
    file: &dyn StorageBackend,
    name: &str,
    instance: u64,
    covered: u64,
    found: &mut BTreeMap<u64, Vec<LoggedWrite>>,
) -> Result<(), Failure> {
    let bytes = read_whole(file, name)?;
    if record::parse_at(&bytes, 0, None).is_some_and(|first| first.instance != instance) {
        return Err(Failure::damaged(format!("{name} is the log of another data file")));
    }
    let mut offset = 0;
    while offset < bytes.len() {
        let Some(record) = record::parse_at(&bytes, offset, Some(instance)) else {
            offset += SECTOR_BYTES;
            continue;
        };
        offset += record.size();
        if record.sequence <= covered {
            continue; // The data file covers this record. A later record will overwrite it.
        }
        let entries = record.entries().ok_or_else(|| {
            Failure::damaged(format!("commit {} in {name} has inconsistent lengths", record.sequence))
        })?;
        if found.insert(record.sequence, entries).is_some() {
            return Err(Failure::damaged(format!("commit {} is in its log twice", record.sequence)));
        }
    }
    Ok(())
}

/// Reads a whole log file. Refuses a file that is longer than [`FILE_BYTES_MAX`].
fn read_whole(file: &dyn StorageBackend, name: &str) -> Result<Bytes, Failure> {
    let len = file.len()?;
    if len > FILE_BYTES_MAX {
        return Err(Failure::damaged(format!("{name} is longer than any log that perihelion writes")));
    }
    let mut bytes = vec![0; len as usize];
    file.read(0, &mut bytes)?;
    Ok(bytes.into())
}
