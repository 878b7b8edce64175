//! A disk whose power can fail, for `DiskStore::with_backend`.
//!
//! What is synced is safe. What is not may, after a cut, be there or not, in
//! any combination of 512-byte sectors, whatever order it was written in; a
//! changed file length likewise. A cut strikes at a chosen operation, also
//! while a store is being opened or repaired, and every operation after it
//! fails until the power returns. A disk can also be told to lie: to answer
//! some syncs without doing them, which a test must notice.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redb::StorageBackend;

use crate::dice::Dice;

const SECTOR: usize = 512;

/// The disk. Clones are the same disk; it outlives the stores opened on it.
#[derive(Debug, Clone)]
pub(crate) struct SimDisk(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    /// What a cut cannot take.
    durable: Vec<u8>,
    /// What reads see.
    live: Vec<u8>,
    /// What leads from `durable` to `live`, oldest first.
    unsynced: Vec<Change>,
    power: Power,
    /// One sync in so many is answered without being done; 0 for an honest disk.
    lies_one_in: u64,
    dice: Dice,
}

#[derive(Debug)]
enum Change {
    SetLen(usize),
    Write { offset: usize, data: Vec<u8> },
}

#[derive(Debug, PartialEq)]
enum Power {
    On,
    /// Fails at the operation after so many.
    FailsAfter(u64),
    Off,
}

impl SimDisk {
    /// An empty disk; everything it leaves to chance comes from the seed.
    pub(crate) fn new(seed: u64) -> SimDisk {
        SimDisk(Arc::new(Mutex::new(State {
            durable: Vec::new(),
            live: Vec::new(),
            unsynced: Vec::new(),
            power: Power::On,
            lies_one_in: 0,
            dice: Dice::new(seed),
        })))
    }

    pub(crate) fn lying_one_in(self, syncs: u64) -> SimDisk {
        self.state().lies_one_in = syncs;
        self
    }

    /// Plans the cut: `operations` more writes, syncs and length changes
    /// succeed, the next one does not.
    pub(crate) fn cut_power_after(&self, operations: u64) {
        self.state().power = Power::FailsAfter(operations);
    }

    pub(crate) fn has_power(&self) -> bool {
        self.state().power != Power::Off
    }

    /// Decides what the cut left on the disk, and switches it on again.
    pub(crate) fn restore_power(&self) {
        let mut state = self.state();
        let state = &mut *state;
        let unsynced = std::mem::take(&mut state.unsynced);
        leave(&mut state.durable, &unsynced, &mut state.dice);
        state.live = state.durable.clone();
        state.power = Power::On;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How much of the unsynced survives; one mood per cut, so that the extremes
/// and the mixtures all occur.
enum Mood {
    All,
    Nothing,
    /// Each sector by itself, with this chance in eight.
    Sectors(u64),
    /// The oldest changes only, as on a disk that writes in order.
    Oldest(usize),
}

fn leave(image: &mut Vec<u8>, unsynced: &[Change], dice: &mut Dice) {
    let mood = match dice.roll(6) {
        0 => Mood::All,
        1 => Mood::Nothing,
        2 => Mood::Oldest(dice.roll(unsynced.len() as u64 + 1) as usize),
        _ => Mood::Sectors(1 + dice.roll(7)),
    };
    for (age, change) in unsynced.iter().enumerate() {
        let mut survives = || match mood {
            Mood::All => true,
            Mood::Nothing => false,
            Mood::Sectors(chance) => dice.roll(8) < chance,
            Mood::Oldest(count) => age < count,
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

/// The pieces of a write, cut where the disk's sectors are.
fn sectors(offset: usize, data: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let first = SECTOR - offset % SECTOR;
    let (head, tail) = data.split_at(first.min(data.len()));
    let tail = tail.chunks(SECTOR).enumerate();
    std::iter::once((offset, head)).chain(tail.map(move |(at, piece)| (offset + first + at * SECTOR, piece)))
}

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
    /// Counts one operation. The one that the cut strikes may still leave its
    /// traces, so it is recorded as unsynced and then fails.
    fn step(&mut self) -> Result<(), io::Error> {
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

    fn check_power(&self) -> Result<(), io::Error> {
        if self.power == Power::Off { Err(no_power()) } else { Ok(()) }
    }
}

impl StorageBackend for SimDisk {
    fn len(&self) -> Result<u64, io::Error> {
        let state = self.state();
        state.check_power()?;
        Ok(state.live.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), io::Error> {
        let state = self.state();
        state.check_power()?;
        let offset = offset as usize;
        let bytes = state.live.get(offset..offset + out.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        out.copy_from_slice(bytes);
        Ok(())
    }

    fn set_len(&self, len: u64) -> Result<(), io::Error> {
        let mut state = self.state();
        state.check_power()?;
        state.unsynced.push(Change::SetLen(len as usize));
        state.step()?;
        state.live.resize(len as usize, 0);
        Ok(())
    }

    fn sync_data(&self) -> Result<(), io::Error> {
        let mut state = self.state();
        state.check_power()?;
        state.step()?;
        let lies = state.lies_one_in;
        if lies > 0 && state.dice.one_in(lies) {
            return Ok(());
        }
        let state = &mut *state;
        for change in state.unsynced.drain(..) {
            match change {
                Change::SetLen(len) => state.durable.resize(len, 0),
                Change::Write { offset, data } => put(&mut state.durable, offset, &data),
            }
        }
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), io::Error> {
        let mut state = self.state();
        state.check_power()?;
        state.unsynced.push(Change::Write { offset: offset as usize, data: data.to_vec() });
        state.step()?;
        put(&mut state.live, offset as usize, data);
        Ok(())
    }
}

#[test]
fn sectors_cover_a_write_exactly() {
    for (offset, len) in [(0, 0), (0, 512), (0, 513), (511, 1), (511, 2), (700, 2000), (1024, 1024)] {
        let data: Vec<u8> = (0..len).map(|byte| byte as u8).collect();
        let mut whole = vec![0; offset + len];
        for (at, piece) in sectors(offset, &data) {
            assert!(piece.is_empty() || at / SECTOR == (at + piece.len() - 1) / SECTOR);
            whole[at..at + piece.len()].copy_from_slice(piece);
        }
        assert_eq!(whole[offset..], data);
    }
}
