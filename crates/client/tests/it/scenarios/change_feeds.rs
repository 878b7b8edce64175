//! Change feeds: complete, in order, resumable, across splits, with deletions.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use perihelion_client::{
    Batch, ChangeFeed, ChangeFeedOptions, ChangeKind, Container, ContainerProperties, ErrorKind,
};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::account::TestAccount;

#[derive(Debug, Clone, Deserialize)]
struct Document {
    id: String,
    pk: String,
    n: u32,
}

pub(crate) async fn scenario(account: &TestAccount) {
    every_change_comes_once_and_in_order(account).await;
    a_feed_reads_the_part_and_time_of_its_options(account).await;
    after_a_split_every_change_comes_once(account).await;
    a_feed_of_all_changes_has_versions_and_deletions(account).await;
}

/// Creates `count` documents in 8 partition keys. The ids and `n` of the documents count up from `from`.
async fn write(container: &Container, from: u32, count: u32) {
    for n in from..from + count {
        let key = format!("key-{}", n % 8);
        let document = json!({"id": n.to_string(), "pk": key, "n": n});
        container.create(key.as_str(), &document).await.unwrap();
    }
}

/// Reads all changes up to now.
async fn drain<T: DeserializeOwned>(feed: &mut ChangeFeed<T>) -> Vec<T> {
    let mut all = Vec::new();
    while let Some(page) = feed.next_page().await.unwrap() {
        assert!(!page.items.is_empty() && page.charge() > 0.0);
        all.extend(page.items);
    }
    all
}

fn numbers(documents: &[Document]) -> BTreeSet<u32> {
    documents.iter().map(|document| document.n).collect()
}

/// Checks that the changes of each partition key come in the order of their writes.
fn assert_in_order(documents: &[Document]) {
    let mut last: BTreeMap<&str, u32> = BTreeMap::new();
    for document in documents {
        let before = last.insert(&document.pk, document.n);
        assert!(before < Some(document.n), "{document:?} after {before:?}");
    }
}

async fn every_change_comes_once_and_in_order(account: &TestAccount) {
    let container = account.container(ContainerProperties::new("feed", "/pk")).await;
    write(&container, 0, 40).await;
    let mut feed = container.change_feed::<Document>(ChangeFeedOptions::from_beginning().with_max_items(3));
    let token_before_first_page = feed.token();
    let all = drain(&mut feed).await;
    assert_eq!((all.len(), numbers(&all)), (40, (0..40).collect()));
    assert_in_order(&all);
    assert!(feed.next_page().await.unwrap().is_none(), "the feed repeats a change");

    container.delete("key-0", "0").await.unwrap();
    container.upsert("key-1", &json!({"id": "1", "pk": "key-1", "n": 100})).await.unwrap();
    let mut resumed = container.change_feed::<Document>(ChangeFeedOptions::resume(feed.token()));
    let more = drain(&mut resumed).await;
    assert_eq!(more.iter().map(|document| (&*document.id, document.n)).collect::<Vec<_>>(), [("1", 100)]);
    assert_eq!(drain(&mut feed).await.len(), 1, "the first feed misses the upsert");

    let from_start = ChangeFeedOptions::resume(token_before_first_page);
    let again = drain(&mut container.change_feed::<Document>(from_start)).await;
    assert_eq!(again.len(), 39, "a token from before the first page does not start at the beginning");

    let mut stream = container.change_feed::<Document>(ChangeFeedOptions::from_beginning()).pages();
    let mut streamed = 0;
    while let Some(page) = stream.next().await {
        streamed += page.unwrap().items.len();
    }
    assert_eq!(streamed, 39);
    assert!(stream.into_feed().unwrap().next_page().await.unwrap().is_none());
}

async fn a_feed_reads_the_part_and_time_of_its_options(account: &TestAccount) {
    let container = account.database.container("feed");
    let mut from_now = container.change_feed::<Document>(ChangeFeedOptions::from_now());
    assert!(from_now.next_page().await.unwrap().is_none());
    write(&container, 200, 8).await;
    assert_eq!(numbers(&drain(&mut from_now).await), (200..208).collect());

    let one_key = ChangeFeedOptions::from_beginning().in_partition("key-3");
    let of_key = drain(&mut container.change_feed::<Document>(one_key)).await;
    assert!(of_key.len() > 5 && of_key.iter().all(|document| document.pk == "key-3"));

    let mut of_ranges = Vec::new();
    for range in container.feed_ranges().await.unwrap() {
        let options = ChangeFeedOptions::from_beginning().in_range(range);
        of_ranges.extend(drain(&mut container.change_feed::<Document>(options)).await);
    }
    let all = drain(&mut container.change_feed::<Document>(ChangeFeedOptions::from_beginning())).await;
    assert_eq!((of_ranges.len(), numbers(&of_ranges)), (all.len(), numbers(&all)));

    // A feed range need not be a physical partition.
    let (mut of_parts, parts) = (Vec::new(), ["-0A", "0A-1B55", "1B55-FF"]);
    for part in parts {
        let options = ChangeFeedOptions::from_beginning().in_range(part.parse().unwrap());
        of_parts.extend(drain(&mut container.change_feed::<Document>(options)).await);
    }
    assert_eq!((of_parts.len(), numbers(&of_parts)), (all.len(), numbers(&all)));

    let long_ago = std::time::SystemTime::now() - Duration::from_secs(3600);
    let since = drain(&mut container.change_feed::<Document>(ChangeFeedOptions::from_time(long_ago))).await;
    assert_eq!(since.len(), all.len());

    let waiting = tokio::spawn(async move {
        from_now.wait_for_page(Duration::from_millis(5)).await.map(|page| numbers(&page.items))
    });
    write(&container, 300, 1).await;
    assert_eq!(waiting.await.unwrap().unwrap(), BTreeSet::from([300]));
}

async fn after_a_split_every_change_comes_once(account: &TestAccount) {
    let container = account.container(ContainerProperties::new("splitting", "/pk")).await;
    write(&container, 0, 64).await;
    let options = ChangeFeedOptions::from_beginning().with_max_items(2);
    let mut feed = container.change_feed::<Document>(options);
    let mut seen = feed.next_page().await.unwrap().unwrap().items;
    let token = feed.token();
    if !account.split(&container).await {
        return;
    }
    write(&container, 64, 64).await;
    seen.extend(feed.next_page().await.unwrap().unwrap().items);
    assert!(account.split(&container).await);
    seen.extend(drain(&mut feed).await);
    assert_eq!((seen.len(), numbers(&seen)), (128, (0..128).collect()));
    assert_in_order(&seen);

    let mut resumed = container.change_feed::<Document>(ChangeFeedOptions::resume(token));
    let rest = drain(&mut resumed).await;
    assert_eq!(rest.len(), 126, "the first page had two of 128 changes");

    let mut batch = Batch::new("key-0");
    for n in 200..210 {
        batch.create(&json!({"id": n.to_string(), "pk": "key-0", "n": n})).unwrap();
    }
    container.batch(batch).await.unwrap();
    let whole = feed.next_page().await.unwrap().unwrap();
    assert_eq!(whole.items.len(), 10, "the changes of a batch are not on one page");
    assert!(whole.range().is_some());
}

async fn a_feed_of_all_changes_has_versions_and_deletions(account: &TestAccount) {
    let container = account.container(ContainerProperties::new("versions", "/pk")).await;
    let refused = container.all_changes::<Document>(ChangeFeedOptions::from_beginning()).next_page().await;
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Input);
    let mut feed = container.all_changes::<Document>(ChangeFeedOptions::from_now());
    match feed.next_page().await {
        Ok(None) => {}
        // This is a live account without continuous backup, which the feed needs.
        Err(error) if error.status().is_some_and(|status| status.code == 400) => return,
        other => panic!("{other:?}"),
    }
    let document = |n: u32| json!({"id": "1", "pk": "k", "n": n});
    container.create("k", &document(1)).await.unwrap();
    container.replace("k", "1", &document(2)).await.unwrap();
    container.delete("k", "1").await.unwrap();
    let changes = drain(&mut feed).await;
    let kinds: Vec<ChangeKind> = changes.iter().map(|change| change.metadata.kind).collect();
    assert_eq!(kinds, [ChangeKind::Create, ChangeKind::Replace, ChangeKind::Delete]);
    assert_eq!(changes[1].current.as_ref().unwrap().n, 2);
    assert!(changes[2].current.is_none());
    assert_eq!(changes[2].previous.as_ref().unwrap().n, 2);
    assert!(changes[0].metadata.lsn < changes[2].metadata.lsn);

    let latest = container.change_feed::<Document>(ChangeFeedOptions::resume(feed.token())).next_page().await;
    assert_eq!(latest.unwrap_err().kind(), ErrorKind::Input, "a token of the other mode was accepted");
}
