//! A simulated disk whose power can fail, for `DiskStore::with_backend`.
//!
//! The disk holds a directory of files. Synced data is safe. Of unsynced data any
//! combination of 512-byte sectors may survive a cut, in whatever order the sectors were
//! written. A changed file length is safe only after a sync of the file. A created or
//! removed name is safe only after a sync of the directory. A cut strikes at a chosen
//! operation, even while a store is being opened or repaired. Every operation after the cut
//! fails until the power returns. A disk can also lie: it reports some syncs as done
//! without doing them. A test must notice that.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use perihelion_engine::storage::Directory;
use perihelion_testkit::Random;
use redb::StorageBackend;

const SECTOR_BYTES: usize = 512;

/// The disk. Clones are handles of the same disk, which outlives its stores.
#[derive(Debug, Clone)]
pub(crate) struct SimDisk(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    /// Every file that was created; its index is the file's number. A file without a name
    /// cannot be opened.
    files: Vec<Content>,
    /// The numbers of the files by name, as programs see the directory.
    names: BTreeMap<String, usize>,
    /// The numbers of the files by name, as the last sync of the directory left them.
    durable_names: BTreeMap<String, usize>,
    /// The changes from `durable_names` to `names`, oldest first.
    unsynced_names: Vec<(String, Option<usize>)>,
    power: Power,
    /// How many bytes may still be written to sectors that have no room yet, all files together;
    /// `None` for an endless disk. `set_len` takes no room: it leaves a hole, and the first write to
    /// each sector of the hole takes room.
    room: Option<usize>,
    /// Whether overwriting takes room too, as in a file system that copies a block before it
    /// changes the block.
    is_copy_on_write: bool,
    /// Whether there is no room for the name of a new file.
    refuses_names: bool,
    lies: Lies,
    random: Random,
}

/// One file's content.
#[derive(Debug, Default)]
struct Content {
    /// The synced content.
    durable: Vec<u8>,
    /// The content that reads see.
    live: Vec<u8>,
    /// The changes from `durable` to `live`, oldest first.
    unsynced: Vec<Change>,
    /// The sectors that were written and so have room.
    allocated: BTreeSet<usize>,
}

#[derive(Debug)]
enum Change {
    SetLen(usize),
    Write { offset: usize, data: Vec<u8> },
}

#[derive(Debug, PartialEq)]
enum Power {
    On,
    /// Fails after this many operations.
    FailsAfter(u64),
    Off,
}

/// Which syncs are reported as done without being done.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Lies {
    None,
    /// One in this many syncs of any file or of the directory.
    OneIn(u64),
    /// One in `one_in` syncs of the files whose names have this ending.
    About {
        ending: &'static str,
        one_in: u64,
    },
}

impl SimDisk {
    /// An empty disk. The seed determines its random decisions.
    pub(crate) fn new(seed: u64) -> SimDisk {
        SimDisk(Arc::new(Mutex::new(State {
            files: Vec::new(),
            names: BTreeMap::new(),
            durable_names: BTreeMap::new(),
            unsynced_names: Vec::new(),
            power: Power::On,
            room: None,
            is_copy_on_write: false,
            refuses_names: false,
            lies: Lies::None,
            random: Random::new(seed),
        })))
    }

    /// Makes the disk lie about one in `syncs` syncs, or never if `syncs` is 0.
    pub(crate) fn lying_one_in(self, syncs: u64) -> SimDisk {
        self.lying(if syncs == 0 { Lies::None } else { Lies::OneIn(syncs) })
    }

    pub(crate) fn lying(self, lies: Lies) -> SimDisk {
        self.state().lies = lies;
        self
    }

    /// Plans the cut: `operations` more writes, syncs, length changes and name
    /// changes succeed. The next operation fails.
    pub(crate) fn cut_power_after(&self, operations: u64) {
        self.state().power = Power::FailsAfter(operations);
    }

    /// Sets how many bytes may still be written to sectors that have no room yet, all files together.
    /// A write beyond that is written as far as there is room, and fails. `None` makes the disk
    /// endless.
    pub(crate) fn set_room(&self, bytes: Option<usize>) {
        self.state().room = bytes;
    }

    /// Sets whether overwriting takes room, too.
    pub(crate) fn copying_on_write(self, is_copy_on_write: bool) -> SimDisk {
        self.state().is_copy_on_write = is_copy_on_write;
        self
    }

    /// Sets whether there is no room for the name of a new file.
    pub(crate) fn refuse_names(&self, refuses_names: bool) {
        self.state().refuses_names = refuses_names;
    }

    pub(crate) fn has_power(&self) -> bool {
        self.state().power != Power::Off
    }

    /// The names of the files.
    pub(crate) fn names(&self) -> Vec<String> {
        self.state().names.keys().cloned().collect()
    }

    /// Decides which unsynced data survived the cut, and restores the power.
    pub(crate) fn restore_power(&self) {
        let mut state = self.state();
        let state = &mut *state;
        for file in &mut state.files {
            let unsynced = std::mem::take(&mut file.unsynced);
            apply_survivors(&mut file.durable, &unsynced, &mut state.random);
            file.live = file.durable.clone();
        }
        let changes = std::mem::take(&mut state.unsynced_names);
        // The journal of a file system keeps the order of the changes, so the oldest ones
        // survive.
        let survivors = state.random.below(changes.len() as u64 + 1) as usize;
        for change in changes.into_iter().take(survivors) {
            change_name(&mut state.durable_names, change);
        }
        state.names = state.durable_names.clone();
        state.power = Power::On;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sets or removes the file of a name.
fn change_name(names: &mut BTreeMap<String, usize>, (name, file): (String, Option<usize>)) {
    match file {
        Some(file) => names.insert(name, file),
        None => names.remove(&name),
    };
}

/// Which unsynced changes of a file survive a cut. One variant is chosen for each file and
/// cut, so that the extremes and all mixtures occur.
enum Survival {
    All,
    Nothing,
    /// Each sector, and each change of the length, survives independently. The chance is this
    /// many eighths.
    Sectors(u64),
    /// Only this many of the oldest changes survive, as on a disk that writes in order.
    Oldest(usize),
}

/// Applies the unsynced changes that survive a cut.
fn apply_survivors(image: &mut Vec<u8>, unsynced: &[Change], random: &mut Random) {
    let survival = match random.below(6) {
        0 => Survival::All,
        1 => Survival::Nothing,
        2 => Survival::Oldest(random.below(unsynced.len() as u64 + 1) as usize),
        _ => Survival::Sectors(1 + random.below(7)),
    };
    for (age, change) in unsynced.iter().enumerate() {
        let mut survives = || match survival {
            Survival::All => true,
            Survival::Nothing => false,
            Survival::Sectors(chance) => random.below(8) < chance,
            Survival::Oldest(count) => age < count,
        };
        match change {
            Change::SetLen(len) => {
                if survives() {
                    image.resize(*len, 0);
                }
            }
            Change::Write { offset, data } => {
                for (at, sector) in sectors(*offset, data) {
                    // A sector beyond the end survives by making the file longer.
                    if survives() {
                        put(image, at, sector);
                    }
                }
            }
        }
    }
}

/// The parts of a write, divided at sector boundaries.
fn sectors(offset: usize, data: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let first = SECTOR_BYTES - offset % SECTOR_BYTES;
    let (head, tail) = data.split_at(first.min(data.len()));
    let tail = tail.chunks(SECTOR_BYTES).enumerate();
    let tail = tail.map(move |(at, piece)| (offset + first + at * SECTOR_BYTES, piece));
    std::iter::once((offset, head)).chain(tail)
}

/// Writes the data at an offset, and makes the image longer if necessary.
fn put(image: &mut Vec<u8>, offset: usize, data: &[u8]) {
    let end = offset + data.len();
    if end > image.len() {
        image.resize(end, 0);
    }
    image[offset..end].copy_from_slice(data);
}

fn no_power() -> io::Error {
    io::Error::other("the power is off")
}

impl State {
    /// Counts one operation. Fails when the power is off, or when the cut strikes this
    /// operation. The change that the cut strikes may be partly on the disk, so callers
    /// record a change as unsynced before they call this.
    fn count_operation(&mut self) -> Result<(), io::Error> {
        match self.power {
            Power::On => Ok(()),
            Power::Off => Err(no_power()),
            Power::FailsAfter(0) => {
                self.power = Power::Off;
                Err(no_power())
            }
            Power::FailsAfter(left) => {
                self.power = Power::FailsAfter(left - 1);
                Ok(())
            }
        }
    }

    /// The first bytes of a write: as many as there is room for. Takes this room.
    fn part_with_room<'d>(&mut self, file: usize, offset: usize, data: &'d [u8]) -> &'d [u8] {
        let allocated = &mut self.files[file].allocated;
        let mut written = 0;
        for (at, piece) in sectors(offset, data) {
            let sector = at / SECTOR_BYTES;
            let needs_room = self.is_copy_on_write || !allocated.contains(&sector);
            let bytes = match &mut self.room {
                Some(room) if needs_room => {
                    let bytes = piece.len().min(*room);
                    *room -= bytes;
                    bytes
                }
                _ => piece.len(),
            };
            if bytes > 0 {
                allocated.insert(sector);
            }
            written += bytes;
            if bytes < piece.len() {
                break;
            }
        }
        &data[..written]
    }

    fn check_power(&self) -> Result<(), io::Error> {
        if self.power == Power::Off { Err(no_power()) } else { Ok(()) }
    }

    /// Whether the disk lies about this sync of a file, or of the directory (`None`).
    fn lies_about(&mut self, file: Option<usize>) -> bool {
        match self.lies {
            Lies::None => false,
            Lies::OneIn(syncs) => self.random.one_in(syncs),
            Lies::About { ending, one_in } => {
                let is_affected =
                    |(name, number): (&String, &usize)| Some(*number) == file && name.ends_with(ending);
                self.names.iter().any(is_affected) && self.random.one_in(one_in)
            }
        }
    }
}

/// An open file.
#[derive(Debug)]
struct SimFile {
    disk: SimDisk,
    number: usize,
}

impl Directory for SimDisk {
    fn open(&self, name: &str) -> io::Result<Option<Box<dyn StorageBackend>>> {
        let state = self.state();
        state.check_power()?;
        let file = state.names.get(name).map(|number| SimFile { disk: self.clone(), number: *number });
        Ok(file.map(|file| Box::new(file) as Box<dyn StorageBackend>))
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn StorageBackend>> {
        if let Some(file) = self.open(name)? {
            return Ok(file);
        }
        let mut state = self.state();
        if state.refuses_names {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let number = state.files.len();
        state.files.push(Content::default());
        state.unsynced_names.push((name.to_string(), Some(number)));
        state.count_operation()?;
        state.names.insert(name.to_string(), number);
        Ok(Box::new(SimFile { disk: self.clone(), number }))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut state = self.state();
        state.check_power()?;
        if !state.names.contains_key(name) {
            return Err(io::ErrorKind::NotFound.into());
        }
        state.unsynced_names.push((name.to_string(), None));
        state.count_operation()?;
        if let Some(number) = state.names.remove(name) {
            let freed = std::mem::take(&mut state.files[number].allocated).len() * SECTOR_BYTES;
            state.room = state.room.map(|room| room + freed);
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.state();
        state.check_power()?;
        state.count_operation()?;
        if state.lies_about(None) {
            return Ok(());
        }
        let state = &mut *state;
        for change in state.unsynced_names.drain(..) {
            change_name(&mut state.durable_names, change);
        }
        Ok(())
    }
}

impl StorageBackend for SimFile {
    fn len(&self) -> Result<u64, io::Error> {
        let state = self.disk.state();
        state.check_power()?;
        Ok(state.files[self.number].live.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), io::Error> {
        let state = self.disk.state();
        state.check_power()?;
        let (offset, live) = (offset as usize, &state.files[self.number].live);
        let bytes = live.get(offset..offset + out.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        out.copy_from_slice(bytes);
        Ok(())
    }

    fn set_len(&self, len: u64) -> Result<(), io::Error> {
        let mut state = self.disk.state();
        state.check_power()?;
        state.files[self.number].unsynced.push(Change::SetLen(len as usize));
        state.count_operation()?;
        let file = &mut state.files[self.number];
        file.live.resize(len as usize, 0);
        file.allocated.split_off(&(len as usize).div_ceil(SECTOR_BYTES));
        Ok(())
    }

    fn sync_data(&self) -> Result<(), io::Error> {
        let mut state = self.disk.state();
        state.check_power()?;
        state.count_operation()?;
        if state.lies_about(Some(self.number)) {
            return Ok(());
        }
        let Content { durable, unsynced, .. } = &mut state.files[self.number];
        for change in unsynced.drain(..) {
            match change {
                Change::SetLen(len) => durable.resize(len, 0),
                Change::Write { offset, data } => put(durable, offset, &data),
            }
        }
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), io::Error> {
        let len = data.len();
        let mut state = self.disk.state();
        state.check_power()?;
        let data = state.part_with_room(self.number, offset as usize, data);
        let change = Change::Write { offset: offset as usize, data: data.to_vec() };
        state.files[self.number].unsynced.push(change);
        state.count_operation()?;
        put(&mut state.files[self.number].live, offset as usize, data);
        if data.len() < len { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }
}

#[test]
fn sectors_cover_a_write_exactly() {
    for (offset, len) in [(0, 0), (0, 512), (0, 513), (511, 1), (511, 2), (700, 2000), (1024, 1024)] {
        let data: Vec<u8> = (0..len).map(|byte| byte as u8).collect();
        let mut whole = vec![0; offset + len];
        for (at, piece) in sectors(offset, &data) {
            assert!(piece.is_empty() || at / SECTOR_BYTES == (at + piece.len() - 1) / SECTOR_BYTES);
            whole[at..at + piece.len()].copy_from_slice(piece);
        }
        assert_eq!(whole[offset..], data);
    }
}
