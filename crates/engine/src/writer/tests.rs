//! Tests of the writer: jobs that panic.

use perihelion_testkit::ScratchDirectory;

use super::*;
use crate::storage::{DiskStore, MemoryStore};

fn put(transaction: &mut Transaction<'_>, name: &str) -> Result<(), Refusal> {
    transaction.put(keys::named_value(name), name.as_bytes().to_vec());
    Ok(())
}

/// Story of a bug: a panic in a job ended the writer's thread, and every later write was
/// refused.
#[tokio::test]
async fn a_job_that_panics_is_undone_and_later_writes_succeed() {
    let scratch = ScratchDirectory::new();
    let stores: [Box<dyn Store>; 2] =
        [Box::new(MemoryStore::new()), Box::new(DiskStore::open(scratch.path()).unwrap())];
    for store in stores {
        let handle = StoreHandle::open(store, Clock::system(), None).unwrap();
        let panicking = handle.write(|transaction| -> Result<(), Refusal> {
            put(transaction, "undone")?;
            panic!("a defect, for a test")
        });
        let (panicked, written) =
            tokio::join!(panicking, handle.write(|transaction| put(transaction, "kept")));
        assert_eq!(panicked.unwrap_err().status, 500);
        written.unwrap();
        handle.write(|transaction| put(transaction, "later")).await.unwrap();
        assert_eq!(handle.failure(), None);
        let view = handle.view().unwrap();
        for (name, is_there) in [("undone", false), ("kept", true), ("later", true)] {
            assert_eq!(view.get(&keys::named_value(name)).unwrap().is_some(), is_there, "{name}");
        }
    }
}
