//! The lists: documents with an array each. A few lists are in use at a time, so that transactions
//! conflict. A list that has grown long is replaced by a new one, so that a read stays small.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use perihelion_client::Client;
use perihelion_testkit::Random;
use perihelion_testkit::history::{Element, Key, Outcome, Transaction};
use serde::{Deserialize, Serialize};

use crate::crashing::{Places, distinct_numbers};

/// How many lists are in use at a time.
const SLOTS: u32 = 8;

/// A list with this many elements is not used any more.
const LENGTH_MAX: usize = 24;

/// How many lists one transaction of [`Lists::read_all`] reads. `CrashingServer` starts the server
/// with this limit.
const READS_MAX: usize = 1000;

/// A list as it is stored.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct List {
    pub(super) id: String,
    pub(super) pk: String,
    pub(super) elements: Vec<Element>,
    /// A counter that a transaction increments if it only reads the list. The increment is a
    /// write, whose precondition is checked.
    #[serde(default)]
    pub(super) touched: u64,
}

/// Which lists are in use, and the clock of the history.
pub(super) struct Lists {
    clock: AtomicU64,
    /// How many lists of each slot are no longer in use. The list that is in use has the key
    /// `slot + SLOTS * generation`.
    generations: [AtomicU32; SLOTS as usize],
}

impl Lists {
    pub(super) async fn create(places: &Places) -> Lists {
        let lists =
            Lists { clock: AtomicU64::new(0), generations: std::array::from_fn(|_| AtomicU32::new(0)) };
        for slot in 0..SLOTS {
            assert!(create(places, slot).await, "a new list");
        }
        lists
    }

    /// The time of an event: later than all events that have a time already.
    pub(super) fn now(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    /// Some of the lists in use.
    pub(super) fn random_keys(&self, random: &mut Random, least: usize, most: usize) -> Vec<Key> {
        let slots = distinct_numbers(random, least, most, SLOTS);
        slots.into_iter().map(|slot| slot + SLOTS * self.generation(slot)).collect()
    }

    fn generation(&self, slot: u32) -> u32 {
        self.generations[slot as usize].load(Ordering::SeqCst)
    }

    /// Replaces a list by a new one if it is long and still in use. `list` has the elements that were read.
    pub(super) async fn retire_if_long(&self, places: &Places, key: Key, list: &[Element]) {
        let (slot, generation) = (key % SLOTS, key / SLOTS);
        if list.len() >= LENGTH_MAX
            && self.generation(slot) == generation
            && create(places, key + SLOTS).await
        {
            let generations = &self.generations[slot as usize];
            // Another client may have been faster.
            let _ =
                generations.compare_exchange(generation, generation + 1, Ordering::SeqCst, Ordering::SeqCst);
        }
    }

    /// Reads all lists that were ever in use, after all clients have ended.
    pub(super) async fn read_all(&self, client: &Client, places: &Places) -> Transaction {
        let last = |slot: u32| slot + SLOTS * self.generation(slot);
        let keys: Vec<Key> =
            (0..SLOTS).flat_map(|slot| (slot..=last(slot)).step_by(SLOTS as usize)).collect();
        let invoked_at = self.now();
        let mut reads = Vec::new();
        // If there are more lists than one transaction can read, several transactions read them,
        // and the history has them as one transaction. No client writes any more, so all of them
        // see the same state.
        for chunk in keys.chunks(READS_MAX) {
            let mut transaction = client.read_transaction().with_limits(false);
            for key in chunk {
                let (container, partition_key) = places.place(*key);
                transaction.read(container, partition_key, &key.to_string()).expect("a read");
            }
            let read = transaction.execute().await.expect("all lists");
            for (key, result) in chunk.iter().zip(&read) {
                reads.push((*key, result.value::<List>().expect("a list").elements));
            }
        }
        let completed_at = self.now();
        Transaction { reads, appends: Vec::new(), invoked_at, completed_at, outcome: Outcome::Committed }
    }
}

/// Creates an empty list, unless it exists. Returns whether the list is known to exist now.
async fn create(places: &Places, key: Key) -> bool {
    let (container, partition_key) = places.place(key);
    let (id, pk) = (key.to_string(), partition_key.to_owned());
    let list = List { id, pk, elements: Vec::new(), touched: 0 };
    match container.create(partition_key, &list).await {
        Ok(_) => true,
        Err(error) => error.is_conflict(),
    }
}
