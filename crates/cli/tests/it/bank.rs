//! The bank: sixteen clients move money between a thousand accounts in eight partitions and
//! three containers, with distributed transactions of the client library. Meanwhile the real
//! program is killed and answers are lost ([`crate::crashing`]).
//!
//! Invariants:
//!
//! - Every read transaction over all accounts has the same total, and no account is overdrawn.
//! - Every token has one outcome. A token that is sent again, also by another client after kills,
//!   has the same statuses and etags.
//! - In the end every balance is the sum of the transfers that were committed. So no transfer is
//!   applied twice or lost, and a transfer that was aborted or not processed has changed nothing.
//!
//! `BANK_SECONDS=600 BANK_SEED=7 cargo test --release -p perihelion bank` sets the length of the
//! load and the seed. The seed fixes the random numbers of each client and the times between kills.
//! The transfers also depend on the outcomes before them, and so on the machine.

mod teller;
mod transfer;

use std::sync::Arc;
use std::time::Duration;

use perihelion_client::{Client, TransactionError};
use perihelion_testkit::Random;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use self::teller::{Counts, Record, Teller};
use crate::crashing::{CrashingServer, Places};
use crate::kills::setting;

const CLIENTS: usize = 16;

/// Clients that read all accounts, again and again.
const AUDITORS: usize = 2;

const ACCOUNTS: u32 = 1000;
/// The balance of each account at the start.
const BALANCE: i64 = 100;
const TOTAL: i64 = ACCOUNTS as i64 * BALANCE;

/// An account as it is stored.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Account {
    id: String,
    pk: String,
    balance: i64,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_total_of_all_accounts_never_changes_and_every_token_has_one_outcome() {
    let (seconds, seed) = (setting("BANK_SECONDS", 30), setting("BANK_SEED", 1));
    println!("BANK_SECONDS={seconds} BANK_SEED={seed}");
    let mut random = Random::new(seed);
    let server = CrashingServer::start(random.bits());
    let client = server.client().await;
    let places = Places::create(&client).await;
    open_accounts(&client, &places).await;

    let end = Instant::now() + Duration::from_secs(seconds);
    let mut tellers = Vec::new();
    for _ in 0..CLIENTS {
        let client = server.client().await;
        let teller = Teller::new(places.for_client(&client), client, Random::new(random.bits()));
        tellers.push(tokio::spawn(teller.work_until(end)));
    }
    let mut auditors = Vec::new();
    for _ in 0..AUDITORS {
        let client = server.client().await;
        auditors.push(tokio::spawn(audit_until(places.for_client(&client), client, end)));
    }
    let mut server = server.crash_until(end).await;
    let (mut records, mut counts) = (Vec::new(), Counts::default());
    for teller in tellers {
        let (sent, counted) = teller.await.expect("a teller ends without a panic");
        records.extend(sent);
        counts.add(&counted);
    }
    let mut audits = 0;
    for auditor in auditors {
        audits += auditor.await.expect("an auditor ends without a panic");
    }

    // After this crash, all answers to replayed tokens are recovered from the data directory.
    server.crash();
    let records = replay_all(&server, &places, records).await;
    check_balances(&balances(&client, &places).await.expect("a read"), &records);
    println!("{counts:?}");
    println!(
        "{:?}, {audits} reads of all accounts, {} tokens replayed at the end",
        server.events,
        records.len()
    );
    check_counts(&server, &counts, audits);
}

/// Fails if too few of the events happened. The test would then prove little.
fn check_counts(server: &CrashingServer, counts: &Counts, audits: u64) {
    let events = &server.events;
    assert!(events.kills > 2 && events.lost_answers > 2, "{events:?}");
    assert!(counts.committed > 200 && counts.conflicts > 2 && audits > 10, "{counts:?}, {audits} audits");
    assert!(counts.sent_again > 2 && counts.replayed > 2, "{counts:?}");
}

/// Opens all accounts in one transaction. It has more operations than the client library allows by
/// default.
async fn open_accounts(client: &Client, places: &Places) {
    let mut opening = client.write_transaction().with_limits(false);
    for number in 0..ACCOUNTS {
        let (container, key) = places.place(number);
        let account = Account { id: number.to_string(), pk: key.to_owned(), balance: BALANCE };
        opening.create(container, key, &account).expect("an account");
    }
    opening.commit().await.expect("a commit");
}

/// The balances of all accounts from one snapshot.
async fn balances(client: &Client, places: &Places) -> Result<Vec<i64>, TransactionError> {
    let mut reads = client.read_transaction().with_limits(false);
    for number in 0..ACCOUNTS {
        let (container, key) = places.place(number);
        reads.read(container, key, &number.to_string()).expect("a read");
    }
    let read = reads.execute().await?;
    Ok(read.into_iter().map(|result| result.value::<Account>().expect("an account").balance).collect())
}

/// Reads all accounts until the time is up. Returns how often that succeeded.
async fn audit_until(places: Places, client: Client, end: Instant) -> u64 {
    let mut audits = 0;
    while Instant::now() < end {
        match balances(&client, &places).await {
            Ok(balances) => {
                assert_eq!(balances.iter().sum::<i64>(), TOTAL, "money was made or lost");
                assert!(balances.iter().all(|balance| *balance >= 0), "an account is overdrawn");
                audits += 1;
            }
            // The server is down, or a fault rule refused the read.
            Err(TransactionError::Failed(_)) => {}
            Err(other) => panic!("a read of all accounts: {other}"),
        }
    }
    audits
}

/// Sends every token again from new clients, except the tokens that were given up. Returns the
/// records, with the outcome of each token that was sent.
async fn replay_all(server: &CrashingServer, places: &Places, records: Vec<Record>) -> Vec<Record> {
    let share = records.len().div_ceil(CLIENTS).max(1);
    let records = Arc::new(records);
    let mut replays = Vec::new();
    for client_number in 0..CLIENTS {
        let client = server.client().await;
        let (places, records) = (places.for_client(&client), Arc::clone(&records));
        replays.push(tokio::spawn(async move {
            let mut decided = Vec::new();
            for record in records.iter().skip(client_number * share).take(share) {
                decided.push(record.replay(&client, &places).await);
            }
            decided
        }));
    }
    let mut decided = Vec::new();
    for replay in replays {
        decided.extend(replay.await.expect("every token has one outcome"));
    }
    decided
}

fn check_balances(found: &[i64], records: &[Record]) {
    let mut expected = vec![BALANCE; ACCOUNTS as usize];
    let committed = records.iter().filter(|record| record.is_committed());
    for change in committed.flat_map(|record| &record.transfer.changes) {
        expected[change.account as usize] += change.amount;
    }
    assert_eq!(found, expected, "the balances are not the sums of the committed transfers");
    assert_eq!(found.iter().sum::<i64>(), TOTAL);
}
