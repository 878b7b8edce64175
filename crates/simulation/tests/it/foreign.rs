//! What one process writes while another is busy with the same instance. The
//! busy one has all it needs in its memory, and must look at the partition all
//! the same.

use std::sync::Arc;
use std::time::Duration;

use crate::ledger::Ledger;
use crate::network::Role;
use crate::process::{Settings, Slot, User, worker};
use crate::weather::{Plan, Storm};
use crate::world::{self, Program};

/// When the workflow is told to stop: polls have become rare by then.
const BUSY_FOR: Duration = Duration::from_secs(4);

/// Within this it must have heard: a poll comes round every 1.8 seconds, and a
/// few turns may pass until the one that reads.
const HEARD_WITHIN: Duration = Duration::from_millis(2500);

/// How long a request and its answer take at most: turns follow each other
/// without a gap, and there are not too many of them.
const LATENCY_MS: u64 = 30;

/// How often the user looks whether it was heard.
const GLANCE: Duration = Duration::from_millis(20);

/// A run that takes longer hangs.
const TIME: Duration = Duration::from_secs(60);

/// How long it took until an event of another process was heard.
fn heard_after(seed: u64, dispatchers: usize, workers: usize) -> Option<Duration> {
    world::play(seed, 1, |world| {
        let ledger = Ledger::default();
        for _ in 0..workers {
            let settings = Settings { dispatchers, workers: 3, ..Settings::default() };
            world.add(Role::Worker, 0, Duration::ZERO, worker(settings, ledger.clone(), &Slot::empty()));
        }
        world.network().plan(Plan::Storm(Box::new(Storm::slow(seed, LATENCY_MS))));
        let heard = Slot::empty();
        world.add(Role::User, 0, Duration::ZERO, user(&heard));
        world.run(TIME, |_| heard.is_full());
        heard.take()
    })
}

/// Starts a busy workflow, tells it to stop, and waits for it.
fn user(heard: &Slot<Duration>) -> Program {
    let heard = heard.clone();
    Arc::new(move |site| {
        let heard = heard.clone();
        Box::pin(async move {
            let user = User::open(site).await;
            user.client.start_orchestration("busy", "Busy", "busy").await.expect("it is started");
            tokio::time::sleep(BUSY_FOR).await;
            user.client.raise_event("busy", "stop", "enough").await.expect("it is told");
            let told = tokio::time::Instant::now();
            while user.state("busy").await["status"] != "Completed" {
                tokio::time::sleep(GLANCE).await;
            }
            heard.put(told.elapsed());
        })
    })
}

#[test]
fn a_busy_instance_hears_what_another_process_tells_it() {
    for (dispatchers, workers) in [(1, 1), (2, 1), (2, 2)] {
        for seed in 0..2 {
            let heard = heard_after(seed, dispatchers, workers);
            let run = format!("{dispatchers} dispatchers, {workers} processes, seed {seed}: {heard:?}");
            println!("{run}");
            assert!(heard.is_some_and(|after| after <= HEARD_WITHIN), "{run}");
        }
    }
}
