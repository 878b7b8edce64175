//! Pages with continuation tokens and etags that no correct service sends: tokens that are empty,
//! tokens that are not ASCII, and tokens that never lead to the last page.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use http::{HeaderValue, Method};
use perihelion_client::{ChangeFeedOptions, Client, Container, ContainerProperties, ErrorKind, Query};
use perihelion_server::{EmbeddedOptions, InProcess};
use perihelion_testkit::TestServer;
use perihelion_wire::headers;
use perihelion_wire::transport::{Failure, Request, Response, Transport};
use serde_json::{Value, json};

/// Edits a page. The number says how many pages were edited before.
type PageEdit = fn(u64, &mut Response);

/// Edits the pages of the list of physical partitions if `is_for_ranges`, or else the pages of
/// queries and change feeds of documents.
struct OddPages {
    server: InProcess,
    edit: PageEdit,
    is_for_ranges: bool,
    /// The number of pages that were edited.
    pages: Arc<AtomicU64>,
}

impl Transport for OddPages {
    async fn send(&self, mut request: Request) -> Result<Response, Failure> {
        let is_feed = request.method == Method::GET && request.target.path().ends_with("/docs");
        let is_query = request.headers.get("x-ms-documentdb-isquery").is_some()
            || request
                .headers
                .get(headers::CONTENT_TYPE)
                .is_some_and(|kind| kind == "application/query+json");
        let is_ranges = request.target.path().ends_with("/pkranges");
        // The server does not know the tokens. Without a token it sends the first page again.
        request.headers.remove(headers::CONTINUATION);
        let mut response = self.server.send(request).await?;
        if is_ranges == self.is_for_ranges && (is_ranges || is_feed || is_query) {
            (self.edit)(self.pages.fetch_add(1, Ordering::Relaxed), &mut response);
        }
        Ok(response)
    }
}

/// A container with eight documents of different partition keys, and the number of pages that were edited.
async fn orders(edit: PageEdit) -> (TestServer, Container, Arc<AtomicU64>) {
    let (server, orders, pages) = empty_orders(edit, false).await;
    for n in 0..8 {
        let key = format!("key-{n}");
        orders.create(key.as_str(), &json!({"id": n.to_string(), "pk": key, "n": n})).await.unwrap();
    }
    (server, orders, pages)
}

/// An empty container, and the number of pages that were edited.
async fn empty_orders(edit: PageEdit, is_for_ranges: bool) -> (TestServer, Container, Arc<AtomicU64>) {
    let server = TestServer::in_process(EmbeddedOptions::default().with_partitions(2)).await;
    let pages = Arc::new(AtomicU64::new(0));
    let transport =
        OddPages { server: server.embedded().transport(), edit, is_for_ranges, pages: Arc::clone(&pages) };
    let client = Client::over(&server.endpoint(), transport).await.unwrap();
    let shop = client.create_database_if_missing("shop").await.unwrap();
    let orders = shop.create_container_if_missing(&ContainerProperties::new("orders", "/pk")).await.unwrap();
    (server, orders, pages)
}

fn in_partition() -> Query {
    Query::new("SELECT * FROM c").in_partition("key-1")
}

fn merged() -> Query {
    Query::new("SELECT * FROM c ORDER BY c.n")
}

fn set_continuation(response: &mut Response, token: HeaderValue) {
    response.headers_mut().insert(headers::CONTINUATION, token);
}

fn without_rows(response: &mut Response) {
    *response.body_mut() = Bytes::from_static(br#"{"Documents":[],"_count":0}"#);
}

#[tokio::test(start_paused = true)]
async fn an_empty_continuation_token_means_the_last_page() {
    let (_server, orders, _) = orders(|_, page| set_continuation(page, HeaderValue::from_static(""))).await;
    for (query, rows) in [(in_partition(), 1), (merged(), 8)] {
        let all =
            tokio::time::timeout(std::time::Duration::from_secs(60), orders.query::<Value>(query).collect());
        assert_eq!(all.await.expect("the query ends").unwrap().len(), rows);
    }
    let wanted = (0..8).map(|n| (format!("key-{n}"), n.to_string()));
    let items = orders.read_many::<Value>(wanted).await.unwrap().items;
    assert_eq!(items.len(), 8);
    assert!(items.iter().all(Option::is_some), "{items:?}");
}

#[tokio::test(start_paused = true)]
async fn a_continuation_token_that_is_not_ascii_is_an_error_and_not_the_last_page() {
    let (_server, orders, _) =
        orders(|_, page| set_continuation(page, HeaderValue::from_bytes(b"t\xc3\xa4").unwrap())).await;
    for query in [in_partition(), merged()] {
        let error = orders.query::<Value>(query).collect().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Answer, "{error}");
    }
}

/// Story of a bug: the service charges for a page that the client cannot read, and no page had the charge.
#[tokio::test(start_paused = true)]
async fn the_charge_of_a_page_that_cannot_be_read_is_part_of_the_cost() {
    let edits: [PageEdit; 2] = [
        |_, page| *page.body_mut() = Bytes::from_static(b"{"),
        |_, page| set_continuation(page, HeaderValue::from_bytes(b"t\xc3\xa4").unwrap()),
    ];
    for edit in edits {
        let (_server, orders, _) = orders(edit).await;
        for query in [in_partition(), merged()] {
            let mut feed = orders.query::<Value>(query);
            let error = feed.next_page().await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Answer, "{error}");
            assert!(feed.rest().is_some_and(|rest| rest.charge() > 0.0), "{error}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn pages_without_rows_that_never_end_are_an_error() {
    let edit: PageEdit = |number, page| {
        without_rows(page);
        set_continuation(page, HeaderValue::from(number % 3));
    };
    let (_server, orders, pages) = orders(edit).await;
    for query in [in_partition(), merged()] {
        pages.store(0, Ordering::Relaxed);
        let mut rows = orders.query::<Value>(query);
        let error = rows.next_page().await.unwrap_err();
        assert!(error.message().contains("10000 pages"), "{error}");
        let count = pages.load(Ordering::Relaxed);
        assert!((10_000..10_010).contains(&count), "{count}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_change_feed_whose_empty_pages_never_end_is_an_error() {
    let edit: PageEdit = |number, page| {
        without_rows(page);
        *page.status_mut() = http::StatusCode::OK;
        page.headers_mut().insert(headers::ETAG, HeaderValue::from_str(&format!("\"{number}\"")).unwrap());
    };
    let (_server, orders, _) = orders(edit).await;
    let mut feed = orders.change_feed::<Value>(ChangeFeedOptions::from_beginning());
    let error = feed.next_page().await.unwrap_err();
    assert!(error.message().contains("10000 pages"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_page_of_a_change_feed_with_an_empty_etag_is_an_error() {
    let edit: PageEdit =
        |_, page| drop(page.headers_mut().insert(headers::ETAG, HeaderValue::from_static("")));
    let (_server, orders, _) = orders(edit).await;
    let mut feed = orders.change_feed::<Value>(ChangeFeedOptions::from_beginning());
    assert_eq!(feed.next_page().await.unwrap_err().kind(), ErrorKind::Answer);
}

const MEGABYTE: usize = 1 << 20;

/// Adds white space to a page.
fn enlarge(page: &mut Response, bytes: usize) {
    let mut body = page.body().to_vec();
    body.resize(body.len() + bytes, b' ');
    *page.body_mut() = body.into();
}

/// The driver accepts 32 MiB of ranges.
#[tokio::test(start_paused = true)]
async fn a_feed_of_ranges_does_not_use_up_the_memory() {
    let edit: PageEdit = |number, page| {
        enlarge(page, 4 * MEGABYTE);
        *page.status_mut() = http::StatusCode::OK;
        page.headers_mut().insert(headers::ETAG, HeaderValue::from(number));
    };
    let (_server, orders, pages) = empty_orders(edit, true).await;
    let error = orders.read::<Value>("k", "1").await.unwrap_err();
    assert!(error.message().contains("bytes"), "{error}");
    assert!(pages.load(Ordering::Relaxed) < 20);
}

/// The client accepts 4 MiB for each document, 32 MiB for eight documents.
#[tokio::test(start_paused = true)]
async fn a_read_of_many_documents_does_not_use_up_the_memory() {
    let edit: PageEdit = |number, page| {
        enlarge(page, 4 * MEGABYTE);
        set_continuation(page, HeaderValue::from(number));
    };
    let (_server, orders, pages) = orders(edit).await;
    let wanted = (0..8).map(|n| (format!("key-{n}"), n.to_string()));
    let error = orders.read_many::<Value>(wanted).await.unwrap_err();
    assert!(error.message().contains("bytes"), "{error}");
    assert!(pages.load(Ordering::Relaxed) < 40);
}
