//! Credentials against a server that checks them: signatures of every kind of
//! operation, tokens, and the errors of wrong credentials.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::HeaderValue;
use perihelion_driver::credential::{AccessToken, TokenFuture, TokenSource};
use perihelion_driver::operation::{Scope, Target, Verb};
use perihelion_driver::transport::AnyTransport;
use perihelion_driver::{
    Credential, Driver, DriverOptions, Error, ErrorKind, Operation, OperationOptions, Response, Status,
};
use perihelion_server::{AuthMode, Embedded, EmbeddedOptions, Keys, MasterKey};
use perihelion_wire::headers;

use crate::world::customer;

const KEY: &str = "dsZQi3KtZmCv1ljt3VNWNm7sQUF1y5rJfC6kv5JiwvW0EndXdDku/dkKBp8/ufDToSxLzR4y+O/0H/t4bQtVNw==";

async fn server(auth: AuthMode) -> Embedded {
    let keys = Keys { primary: MasterKey::from_base64(KEY).unwrap() };
    Embedded::open(EmbeddedOptions::default().with_auth(auth, keys)).await.unwrap()
}

async fn open(server: &Embedded, credential: Credential) -> Result<Driver, Error> {
    let transport = AnyTransport::foreign(server.transport());
    Driver::open(server.endpoint(), credential, transport, DriverOptions::default()).await
}

async fn run(driver: &Driver, verb: Verb, target: Target, scope: Scope, body: &str) -> Response {
    let mut operation = Operation::new(verb, target, scope, Bytes::from(body.to_owned()));
    if verb == Verb::Query {
        operation = operation
            .with_header(headers::CONTENT_TYPE, HeaderValue::from_static("application/query+json"))
            .with_header(headers::IS_QUERY, HeaderValue::from_static("True"));
    }
    let result = driver.execute(&operation, &OperationOptions::default()).await;
    result.unwrap_or_else(|error| panic!("{verb:?} {}: {error:?}", operation.target.path))
}

/// Databases, containers, documents, ranges and offers. Some names have characters that
/// must be escaped in a path but not in a signature.
#[tokio::test]
async fn every_kind_of_operation_is_signed_as_the_server_checks() {
    let server = server(AuthMode::Key).await;
    let driver = open(&server, Credential::key(KEY).unwrap()).await.unwrap();
    let unpartitioned = || Scope::Unpartitioned;
    for (database, container, id) in
        [("shop", "orders", "1"), ("My Shop", "Bestellungen für +1%", "hé l+%2F&=1")]
    {
        let body = format!(r#"{{"id":"{database}"}}"#);
        run(&driver, Verb::Create, Target::databases(), unpartitioned(), &body).await;
        let body = format!(
            r#"{{"id":"{container}","partitionKey":{{"paths":["/customer"],"kind":"Hash","version":2}}}}"#
        );
        run(&driver, Verb::Create, Target::containers(database), unpartitioned(), &body).await;
        run(&driver, Verb::Read, Target::database(database), unpartitioned(), "").await;
        run(&driver, Verb::ReadFeed, Target::databases(), unpartitioned(), "").await;
        run(&driver, Verb::ReadFeed, Target::containers(database), unpartitioned(), "").await;
        let container = driver.container(database, container);
        run(&driver, Verb::Read, Target::container(&container), unpartitioned(), "").await;
        run(&driver, Verb::ReadFeed, Target::ranges(&container), unpartitioned(), "").await;
        let document = format!(r#"{{"id":"{id}","customer":"ada"}}"#);
        run(&driver, Verb::Create, Target::items(&container), customer("ada"), &document).await;
        run(&driver, Verb::Upsert, Target::items(&container), customer("ada"), &document).await;
        run(&driver, Verb::Read, Target::item(&container, id), customer("ada"), "").await;
        run(&driver, Verb::Replace, Target::item(&container, id), customer("ada"), &document).await;
        let query = r#"{"query":"SELECT * FROM c","parameters":[]}"#;
        run(&driver, Verb::Query, Target::items(&container), customer("ada"), query).await;
        run(&driver, Verb::Delete, Target::item(&container, id), customer("ada"), "").await;
        run(&driver, Verb::Delete, Target::container(&container), unpartitioned(), "").await;
        run(&driver, Verb::Delete, Target::database(database), unpartitioned(), "").await;
    }
    run(&driver, Verb::ReadFeed, Target::offers(), unpartitioned(), "").await;
    server.close().await;
}

#[tokio::test]
async fn the_wrong_key_is_refused_at_once() {
    let server = server(AuthMode::Key).await;
    let error = open(&server, Credential::emulator()).await.unwrap_err();
    assert_eq!((error.kind(), error.status()), (ErrorKind::Service, Some(Status::new(401, 0))), "{error}");
    assert_eq!(error.diagnostics().attempts().count(), 1, "a wrong key stays wrong");
    // The emulator's key begins with this text.
    assert!(!format!("{error:?}").contains("C2y6yDjf"), "{error:?}");
    server.close().await;
}

/// A token source that gives tokens of one hour, or an error if it is signed out.
#[derive(Default)]
struct Identity {
    is_signed_out: bool,
    /// How often a token was requested.
    requests: AtomicUsize,
}

impl TokenSource for Identity {
    fn token<'a>(&'a self, scope: &'a str) -> TokenFuture<'a> {
        assert_eq!(scope, "https://account.perihelion.internal/.default");
        self.requests.fetch_add(1, Ordering::Relaxed);
        let expires_on = SystemTime::now() + Duration::from_secs(3600);
        let outcome = match self.is_signed_out {
            true => Err(Error::credential("no user is signed in")),
            false => Ok(AccessToken::new("hidden.token.text", expires_on)),
        };
        Box::pin(std::future::ready(outcome))
    }
}

#[tokio::test]
async fn a_token_is_fetched_once_and_opens_the_account() {
    let identity = Arc::new(Identity::default());
    let server = server(AuthMode::Any).await;
    let driver = open(&server, Credential::token_source(identity.clone())).await.unwrap();
    run(&driver, Verb::Create, Target::databases(), Scope::Unpartitioned, r#"{"id":"shop"}"#).await;
    run(&driver, Verb::Read, Target::database("shop"), Scope::Unpartitioned, "").await;
    assert_eq!(identity.requests.load(Ordering::Relaxed), 1);
    server.close().await;
}

#[tokio::test]
async fn a_token_that_the_server_refuses_gives_the_servers_error() {
    let server = server(AuthMode::Key).await;
    let identity = Credential::token_source(Arc::new(Identity::default()));
    let error = open(&server, identity).await.unwrap_err();
    assert_eq!(error.status(), Some(Status::new(401, 0)), "{error}");
    assert!(!format!("{error:?}").contains("hidden"), "{error:?}");
    server.close().await;
}

#[tokio::test]
async fn without_a_token_nothing_is_sent() {
    let server = server(AuthMode::Any).await;
    let identity = Arc::new(Identity { is_signed_out: true, ..Identity::default() });
    let error = open(&server, Credential::token_source(identity)).await.unwrap_err();
    assert_eq!((error.kind(), error.message()), (ErrorKind::Credential, "no user is signed in"));
    assert_eq!(error.diagnostics().attempts().count(), 0);
    server.close().await;
}

/// A token source that never answers.
struct Silent;

impl TokenSource for Silent {
    fn token<'a>(&'a self, _scope: &'a str) -> TokenFuture<'a> {
        Box::pin(std::future::pending())
    }
}

#[tokio::test(start_paused = true)]
async fn an_operation_waits_for_a_token_only_until_its_timeout() {
    let server = server(AuthMode::Any).await;
    let options = OperationOptions::default().with_timeout(Duration::from_secs(1));
    let options = DriverOptions::default().with_operation(options);
    let transport = AnyTransport::foreign(server.transport());
    let before = tokio::time::Instant::now();
    let credential = Credential::token_source(Arc::new(Silent));
    let error = Driver::open(server.endpoint(), credential, transport, options).await.unwrap_err();
    assert_eq!((error.kind(), before.elapsed()), (ErrorKind::Timeout, Duration::from_secs(1)), "{error}");
    server.close().await;
}

/// A token source that answers after some seconds, such as a command line tool.
struct Slow(Duration);

impl TokenSource for Slow {
    fn token<'a>(&'a self, _scope: &'a str) -> TokenFuture<'a> {
        Box::pin(async move {
            tokio::time::sleep(self.0).await;
            Ok(AccessToken::new("text", SystemTime::now() + Duration::from_secs(3600)))
        })
    }
}

/// A region has 5 s to answer a read of the account. The token takes longer.
#[tokio::test(start_paused = true)]
async fn a_driver_opens_with_a_slow_token_source() {
    let server = server(AuthMode::Any).await;
    for seconds in [6, 25] {
        let credential = Credential::token_source(Arc::new(Slow(Duration::from_secs(seconds))));
        open(&server, credential).await.unwrap();
    }
    server.close().await;
}

/// A token may be revoked, or have expired by the service's clock. A token that is refused within
/// 30 s after it was fetched is not replaced.
#[tokio::test(start_paused = true)]
async fn a_refused_token_is_replaced_once() {
    let identity = Arc::new(Identity::default());
    let server = server(AuthMode::Any).await;
    let driver = open(&server, Credential::token_source(identity.clone())).await.unwrap();
    let create = |id: &str| {
        let body = format!(r#"{{"id":"{id}"}}"#);
        Operation::new(Verb::Create, Target::databases(), Scope::Unpartitioned, Bytes::from(body))
    };
    let refuse = async |count: u32| {
        let rule = format!(r#"{{"operation":"database","count":{count},"status":401}}"#);
        assert!(server.manage(http::Method::POST, "faults", &rule).await.unwrap().status().is_success());
    };
    let options = OperationOptions::default();
    let requests = || identity.requests.load(Ordering::Relaxed);

    tokio::time::advance(Duration::from_secs(60)).await;
    refuse(1).await;
    driver.execute(&create("a"), &options).await.unwrap();
    assert_eq!(requests(), 2, "the refused token and its replacement");

    refuse(1).await;
    let error = driver.execute(&create("b"), &options).await.unwrap_err();
    assert_eq!((error.status(), requests()), (Some(Status::new(401, 0)), 2), "a fresh token is not replaced");

    tokio::time::advance(Duration::from_secs(60)).await;
    refuse(2).await;
    let error = driver.execute(&create("c"), &options).await.unwrap_err();
    assert_eq!((error.status(), requests()), (Some(Status::new(401, 0)), 3), "there is only one retry");
    server.close().await;
}
