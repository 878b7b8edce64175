//! Distributed transactions of our client on the emulator inside the SDK's driver: another
//! implementation of the service than ours. Our server has no part in these checks.

use perihelion_client::{Container, Error, Patch, TransactionError, TransactionResults};
use serde_json::{Value, json};

use crate::check::{Outcome, Problem, checks, holds, required, same};
use crate::sdk_emulator::SdkEmulator;
use crate::world::World;

checks![
    a_commit_writes_everything,
    a_conflict_names_its_culprit,
    a_stale_etag_and_an_unmet_condition_abort,
    a_failed_read_is_promoted_and_withholds_the_others,
    unchanged_documents_are_recognised,
    a_replay_is_carried_out_again_by_the_emulator,
];

/// Our client and its two containers.
struct Fixture {
    client: perihelion_client::Client,
    a: Container,
    b: Container,
}

impl Fixture {
    async fn new() -> Result<Self, Problem> {
        let client = SdkEmulator::new()?.our_client().await?;
        let database = client.database("interop");
        Ok(Self { a: database.container("a"), b: database.container("b"), client })
    }

    /// A transaction that creates the document `1` with the key `x` in the container `a`, and the
    /// document `2` with the key `y` in the container `b`.
    fn two_creates(&self) -> Result<perihelion_client::DistributedWriteTransaction, Error> {
        let mut transaction = self.client.write_transaction();
        transaction.create(&self.a, "x", &json!({"id": "1", "pk": "x", "n": 1}))?.create(
            &self.b,
            "y",
            &json!({"id": "2", "pk": "y", "n": 2}),
        )?;
        Ok(transaction)
    }
}

fn statuses(results: &TransactionResults) -> Vec<(u16, u32)> {
    results.into_iter().map(|result| (result.status().code, result.status().sub)).collect()
}

/// The aborted transaction of a failure that has to be an abort.
fn aborted(
    result: Result<TransactionResults, TransactionError>,
) -> Result<Box<perihelion_client::AbortedTransaction>, Problem> {
    match result {
        Err(TransactionError::Aborted(aborted)) => Ok(aborted),
        other => Err(format!("not an abort: {other:?}").into()),
    }
}

async fn a_commit_writes_everything(_: &World) -> Outcome {
    let fixture = Fixture::new().await?;
    let done = fixture.two_creates()?.commit().await?;
    same!((done.status().code, statuses(&done)), (200, vec![(201, 0), (201, 0)]));
    for result in &done {
        holds!(result.etag().is_some() && result.charge() > 0.0);
        holds!(required(result.session_token(), "the session token")?.contains(':'));
    }
    same!(done.diagnostics().warnings().len(), 0);
    let mut reads = fixture.client.read_transaction();
    reads.read(&fixture.a, "x", "1")?.read(&fixture.b, "y", "2")?;
    let read = reads.execute().await?;
    same!(statuses(&read), vec![(200, 0), (200, 0)]);
    let numbers: Vec<Value> = read
        .into_iter()
        .map(|result| Ok(result.value::<Value>()?["n"].take()))
        .collect::<Result<_, Error>>()?;
    same!(numbers, vec![json!(1), json!(2)]);
    // The other verbs: the delete has a transaction of its own, and the rest share one transaction.
    let mut transaction = fixture.client.write_transaction();
    transaction
        .replace(&fixture.a, "x", "1", &json!({"id": "1", "pk": "x", "n": 3}))?
        .patch(&fixture.b, "y", "2", &Patch::new().increment("/n", 40)?)?
        .upsert(&fixture.b, "z", &json!({"id": "3", "pk": "z", "n": 5}))?;
    same!(statuses(&transaction.commit().await?), vec![(200, 0), (200, 0), (201, 0)]);
    let mut transaction = fixture.client.write_transaction();
    transaction.delete(&fixture.a, "x", "1")?;
    let deleted = transaction.commit().await?;
    same!(statuses(&deleted), vec![(204, 0)]);
    Ok(())
}

async fn a_conflict_names_its_culprit(_: &World) -> Outcome {
    let fixture = Fixture::new().await?;
    fixture.two_creates()?.commit().await?;
    let mut transaction = fixture.client.write_transaction();
    transaction.create(&fixture.a, "w", &json!({"id": "new", "pk": "w"}))?.create(
        &fixture.b,
        "y",
        &json!({"id": "2", "pk": "y"}),
    )?;
    let aborted = aborted(transaction.commit().await)?;
    same!(statuses(aborted.results()), vec![(453, 5415), (409, 0)]);
    same!(aborted.culprits().map(|(index, _)| index).collect::<Vec<_>>(), vec![1]);
    same!((aborted.status().code, aborted.is_retriable(), aborted.next_token()), (409, false, None));
    let mut reads = fixture.client.read_transaction();
    reads.read(&fixture.a, "w", "new")?;
    holds!(Error::from(required(reads.execute().await.err(), "the failure")?).is_not_found());
    Ok(())
}

async fn a_stale_etag_and_an_unmet_condition_abort(_: &World) -> Outcome {
    let fixture = Fixture::new().await?;
    let done = fixture.two_creates()?.commit().await?;
    let seen = required(done.results()[0].etag(), "the etag")?.clone();
    let mut transaction = fixture.client.write_transaction();
    transaction.replace_if_match(&fixture.a, "x", "1", &json!({"id": "1", "pk": "x", "n": 7}), &seen)?;
    same!(statuses(&transaction.commit().await?), vec![(200, 0)]);
    let mut transaction = fixture.client.write_transaction();
    transaction.replace_if_match(&fixture.a, "x", "1", &json!({"id": "1", "pk": "x", "n": 8}), &seen)?;
    same!(aborted(transaction.commit().await)?.status().code, 412);
    let mut transaction = fixture.client.write_transaction();
    let patch = Patch::new().increment("/n", 1)?.with_condition("from c where c.n = 99");
    transaction.patch(&fixture.b, "y", "2", &patch)?;
    let unmet = aborted(transaction.commit().await)?;
    same!((unmet.status().code, unmet.status().sub), (412, 1110));
    Ok(())
}

async fn a_failed_read_is_promoted_and_withholds_the_others(_: &World) -> Outcome {
    let fixture = Fixture::new().await?;
    fixture.two_creates()?.commit().await?;
    let mut reads = fixture.client.read_transaction();
    reads.read(&fixture.a, "x", "1")?.read(&fixture.b, "y", "no")?;
    let failed = aborted(reads.execute().await)?;
    same!((failed.results().status().code, failed.status().code), (404, 404));
    same!(
        failed.results().into_iter().map(|result| result.status().code).collect::<Vec<_>>(),
        vec![424, 404]
    );
    holds!(failed.results().results()[0].body().is_empty());
    same!(failed.culprits().map(|(index, _)| index).collect::<Vec<_>>(), vec![1]);
    Ok(())
}

/// The emulator answers 304 when all documents are unchanged, as the service once did. Our server
/// answers 200/5425, because HTTP layers drop the body of a 304.
async fn unchanged_documents_are_recognised(_: &World) -> Outcome {
    let fixture = Fixture::new().await?;
    let done = fixture.two_creates()?.commit().await?;
    let seen = done
        .results()
        .iter()
        .map(|result| required(result.etag(), "the etag").cloned())
        .collect::<Result<Vec<_>, _>>()?;
    let mut reads = fixture.client.read_transaction();
    reads.read_if_changed(&fixture.a, "x", "1", &seen[0])?.read(&fixture.b, "y", "2")?;
    let read = reads.execute().await?;
    same!((read.status().code, statuses(&read)), (207, vec![(304, 0), (200, 0)]));
    let mut reads = fixture.client.read_transaction();
    reads.read_if_changed(&fixture.a, "x", "1", &seen[0])?.read_if_changed(&fixture.b, "y", "2", &seen[1])?;
    let read = reads.execute().await?;
    same!((read.status().code, read.into_iter().all(|result| result.is_unchanged())), (304, true));
    Ok(())
}

/// The emulator keeps no ledger of tokens. So it carries out a replayed transaction again, and
/// here it finds its own documents in the way. Our server gives the original answer.
async fn a_replay_is_carried_out_again_by_the_emulator(_: &World) -> Outcome {
    let fixture = Fixture::new().await?;
    let transaction = fixture.two_creates()?;
    let done = transaction.commit().await?;
    same!(done.idempotency_token(), transaction.idempotency_token());
    let again = aborted(transaction.commit().await)?;
    same!(statuses(again.results()), vec![(409, 0), (409, 0)]);
    Ok(())
}
