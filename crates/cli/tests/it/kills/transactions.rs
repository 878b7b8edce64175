//! Distributed transactions of the real program: SIGKILL while clients move money between
//! accounts. After each kill every transaction took effect as a whole or not at all, and every
//! token has one outcome. A token that is sent again gets the same answer, or its transaction runs
//! for the first time.

use std::net::SocketAddr;

use perihelion_model::json::{Value, parse_str};
use perihelion_testkit::http_client::{HttpClient, HttpRequest, HttpResponse};
use perihelion_testkit::{Random, ScratchDirectory};

use super::{kill, setting};
use crate::program::{RunningServer, command};

const CLIENTS: usize = 4;
const ACCOUNTS: u64 = 12;
/// The balance of each account at the beginning.
const BALANCE: i64 = 1000;
/// The longest run of a server under load.
const RUN_MICROSECONDS_MAX: u64 = 250_000;

/// The last transaction of one client, and its answer if there was one.
struct Sent {
    call: HttpRequest,
    answer: Option<HttpResponse>,
}

/// A transfer of one unit between two accounts, which are in different partitions and may be in different
/// containers. It also creates a receipt document, so the number of these documents is the number of
/// transfers that took effect.
fn transfer(token: u128, from: u64, to: u64) -> HttpRequest {
    let change = |account: u64, by: i64| {
        format!(
            r#"{{"operationType":"Patch","databaseName":"d","collectionName":"c{}","partitionKey":["p{account}"],"id":"{account}","resourceBody":{{"operations":[{{"op":"incr","path":"/n","value":{by}}}]}}}}"#,
            account % 2
        )
    };
    let receipt = format!(
        r#"{{"operationType":"Create","databaseName":"d","collectionName":"c0","partitionKey":["receipt"],"id":"{token}","resourceBody":{{"id":"{token}","pk":"receipt"}}}}"#
    );
    let body = format!(r#"{{"operations":[{},{},{receipt}]}}"#, change(from, -1), change(to, 1));
    HttpRequest::new("POST", "/operations/dtc")
        .header("x-ms-cosmos-idempotency-token", format!("{token:032x}"))
        .header("x-ms-cosmos-operation-type", "CommitDistributedTransaction")
        .body(body)
}

fn start(scratch: &ScratchDirectory) -> (RunningServer, SocketAddr) {
    let data = scratch.path().join("data").display().to_string();
    let arguments = ["server", "--port", "0", "--data", &data, "--partitions", "3", "--log", "error"];
    let server = RunningServer::start(&mut command(scratch, &arguments));
    let address = SocketAddr::from(([127, 0, 0, 1], server.port()));
    (server, address)
}

async fn set_up(client: &HttpClient) {
    let post = async |path: &str, body: String| {
        let call = HttpRequest::new("POST", path).json(&parse_str(&body).expect("JSON"));
        let created = client.send(&call).await.expect("an answer");
        assert_eq!(created.status, 201, "{}", created.text());
    };
    post("/dbs", r#"{"id":"d"}"#.to_owned()).await;
    for name in ["c0", "c1"] {
        let body =
            format!(r#"{{"id":"{name}","partitionKey":{{"paths":["/pk"],"kind":"Hash","version":2}}}}"#);
        post("/dbs/d/colls", body).await;
    }
    for account in 0..ACCOUNTS {
        let body = format!(r#"{{"id":"{account}","pk":"p{account}","n":{BALANCE}}}"#);
        let call = HttpRequest::new("POST", format!("/dbs/d/colls/c{}/docs", account % 2))
            .header("x-ms-documentdb-partitionkey", format!(r#"["p{account}"]"#))
            .body(body);
        assert_eq!(client.send(&call).await.expect("an answer").status, 201);
    }
}

/// Sends transfers until the server is killed. Sometimes ends earlier, so that the answer to the last
/// transfer is known. Returns the number of acknowledged transfers, and the last transfer.
async fn send_until_killed(address: SocketAddr, client_number: usize, round: u64, seed: u64) -> (u64, Sent) {
    let (client, mut random, mut acknowledged) = (HttpClient::new(address), Random::new(seed), 0u64);
    loop {
        let from = random.below(ACCOUNTS);
        let to = (from + 1 + random.below(ACCOUNTS - 1)) % ACCOUNTS;
        let token = ((client_number as u128) << 96) | (u128::from(round) << 64) | u128::from(acknowledged);
        let call = transfer(token, from, to);
        match client.send(&call).await {
            Ok(answer) => {
                assert_eq!(answer.status, 200, "{}", answer.text());
                acknowledged += 1;
                if acknowledged.is_multiple_of(16) && random.one_in(4) {
                    // After the kill, the test compares this answer with the answer to a replay.
                    return (acknowledged, Sent { call, answer: Some(answer) });
                }
            }
            Err(_) => return (acknowledged, Sent { call, answer: None }),
        }
    }
}

/// The sum of all balances in one read transaction, and the number of receipt documents.
async fn totals(client: &HttpClient) -> (i64, u64) {
    let read = |account: u64| {
        format!(
            r#"{{"operationType":"Read","databaseName":"d","collectionName":"c{}","partitionKey":["p{account}"],"id":"{account}"}}"#,
            account % 2
        )
    };
    let body = format!(r#"{{"operations":[{}]}}"#, (0..ACCOUNTS).map(read).collect::<Vec<_>>().join(","));
    let answer =
        client.send(&HttpRequest::new("POST", "/operations/dtc").body(body)).await.expect("an answer");
    assert_eq!(answer.status, 200, "{}", answer.text());
    let results = answer.json().expect("JSON");
    let results = results.get("operationResponses").and_then(Value::as_array).expect("results").to_vec();
    let balance = |result: &Value| result.get("resourceBody")?.get("n")?.as_i64();
    let sum = results.iter().map(|result| balance(result).expect("a balance")).sum();
    let count = HttpRequest::new("POST", "/dbs/d/colls/c0/docs")
        .header("content-type", "application/query+json")
        .header("x-ms-documentdb-partitionkey", r#"["receipt"]"#)
        .body(r#"{"query":"SELECT VALUE COUNT(1) FROM c"}"#);
    let counted = client.send(&count).await.expect("an answer").json().expect("JSON");
    let counted = counted.get("Documents").and_then(Value::as_array).and_then(|rows| rows[0].as_i64());
    (sum, counted.expect("a count") as u64)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sigkill_leaves_every_transaction_whole_and_every_token_with_one_outcome() {
    let (kills, seed) = (setting("TRANSACTION_KILLS", 8), setting("KILLS_SEED", 1));
    let scratch = ScratchDirectory::new();
    let (server, address) = start(&scratch);
    set_up(&HttpClient::new(address)).await;
    kill(server);
    let (mut random, mut transfers, mut replayed) = (Random::new(seed), 0, 0);
    for round in 1..=kills {
        let (server, address) = start(&scratch);
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| tokio::spawn(send_until_killed(address, number, round, random.bits())))
            .collect();
        tokio::time::sleep(std::time::Duration::from_micros(random.below(RUN_MICROSECONDS_MAX))).await;
        kill(server);
        let mut sent = Vec::new();
        for client in clients {
            let (acknowledged, last) = client.await.expect("a client ends without a panic");
            transfers += acknowledged;
            sent.push(last);
        }
        let (server, address) = start(&scratch);
        let client = HttpClient::new(address);
        assert_eq!(
            totals(&client).await.0,
            BALANCE * ACCOUNTS as i64,
            "kill {round}: money was made or lost"
        );
        for Sent { call, answer } in &sent {
            let again = client.send(call).await.expect("an answer");
            let third = client.send(call).await.expect("an answer");
            assert_eq!((again.status, &again.body), (200, &third.body), "kill {round}: {}", again.text());
            match answer {
                Some(answer) => {
                    assert_eq!(again.body, answer.body, "kill {round}: another answer than before the kill");
                    replayed += 1;
                }
                // The transaction in flight was committed once, before the kill or now.
                None => transfers += 1,
            }
        }
        let (sum, receipts) = totals(&client).await;
        assert_eq!((sum, receipts), (BALANCE * ACCOUNTS as i64, transfers), "kill {round}");
        kill(server);
    }
    println!("{kills} kills, {transfers} transfers, {replayed} answers replayed after a kill");
    assert!(transfers > kills, "the clients made no progress");
}
