//! Failover of single partitions, in an account with one write region: the driver finds the
//! region that takes the writes of each partition, remembers it, and comes back.

use std::time::Duration;

use bytes::Bytes;
use http::Method;
use perihelion_driver::operation::{Idempotency, Target, Verb, Witness};
use perihelion_driver::options::TopologyOptions;
use perihelion_driver::{Driver, DriverOptions, Error, Operation, OperationOptions, Response};
use perihelion_server::EmbeddedOptions;
use perihelion_testkit::regions::{EAST, NORTH, WEST, three_regions};
use tokio::time::Instant;

use crate::world::{World, customer, document};

/// Three regions, a container with two ranges, and a driver that read the account after
/// partition failover was switched on.
struct Failover {
    world: World,
    driver: Driver,
    /// A customer of range 0, which stays in the write region, and a customer of range 1, which
    /// tests move or make fail.
    customers: [String; 2],
}

impl Failover {
    async fn new() -> Failover {
        Failover::with(DriverOptions::default()).await
    }

    async fn with(options: DriverOptions) -> Failover {
        let server = EmbeddedOptions::default().with_regions(three_regions()).with_partitions(2);
        let world = World::with(server, DriverOptions::default()).await;
        world.manage(Method::POST, "regions/partition-failover", r#"{"enabled":true}"#).await;
        let driver = world.other_driver(options).await;
        let mut failover = Failover { world, driver, customers: [String::new(), String::new()] };
        // Among 40 customers, each range has at least one.
        for number in 0..40 {
            let name = format!("c{number}");
            let response = failover.write(&name).await;
            let range = response.headers.get("x-ms-documentdb-partitionkeyrangeid").unwrap();
            let range: usize = range.to_str().unwrap().parse().unwrap();
            failover.customers[range] = name;
        }
        failover.world.wait_for_replication().await;
        failover
    }

    fn upsert(&self, customer_name: &str) -> Operation {
        let body = format!(r#"{{"id":"1","customer":"{customer_name}"}}"#);
        let orders = self.driver.container("shop", "orders");
        Operation::new(Verb::Upsert, Target::items(&orders), customer(customer_name), Bytes::from(body))
    }

    fn read(&self, customer_name: &str) -> Operation {
        let orders = self.driver.container("shop", "orders");
        Operation::new(Verb::Read, Target::item(&orders, "1"), customer(customer_name), Bytes::new())
    }

    async fn run(&self, operation: &Operation) -> Result<Response, Error> {
        self.driver.execute(operation, &OperationOptions::default()).await
    }

    async fn write(&self, customer_name: &str) -> Response {
        self.run(&self.upsert(customer_name)).await.unwrap()
    }

    /// The regions that a write of this customer goes to, one after the other.
    async fn path_of_a_write(&self, customer_name: &str) -> Vec<String> {
        regions_of(&self.write(customer_name).await)
    }

    async fn path_of_a_read(&self, customer_name: &str) -> Vec<String> {
        regions_of(&self.run(&self.read(customer_name)).await.unwrap())
    }

    /// Moves the writes of range 1 to a region.
    async fn move_range(&self, region: &str) {
        let body = format!(r#"{{"database":"shop","container":"orders","range":"1","region":"{region}"}}"#);
        self.world.manage(Method::POST, "regions/write", &body).await;
    }

    /// Makes range 1 fail in the write region.
    async fn fail_in_west(&self, how: &str) {
        self.world.fault(&format!(r#"{{"container":"orders","range":"1","region":"{WEST}",{how}}}"#)).await;
    }
}

fn regions_of(response: &Response) -> Vec<String> {
    response.diagnostics.attempts().map(|attempt| attempt.region.to_string()).collect()
}

fn witness(id: &str) -> Witness {
    Witness { id: id.to_owned(), pointer: "/stamp".to_owned(), value: "mine".into() }
}

#[tokio::test(start_paused = true)]
async fn a_partition_that_has_moved_is_found_and_the_others_stay() {
    let failover = Failover::new().await;
    let [stays, moves] = &failover.customers;
    assert!(failover.driver.account().has_partition_failover);
    failover.move_range(NORTH).await;
    let started_at = Instant::now();
    assert_eq!(failover.path_of_a_write(moves).await, [WEST, EAST, NORTH]);
    assert!(started_at.elapsed() < Duration::from_millis(500), "no wait until every region was asked");
    assert_eq!(failover.path_of_a_write(moves).await, [NORTH], "the region is remembered");
    assert_eq!(failover.path_of_a_write(stays).await, [WEST]);
    // Reads follow the partition away from the write region.
    assert_eq!(failover.path_of_a_read(moves).await, [NORTH]);
    assert_eq!(failover.path_of_a_read(stays).await, [WEST]);
    let found = document(&failover.run(&failover.read(moves)).await.unwrap());
    assert_eq!(found["customer"], moves.as_str());
}

/// The option switches partition failover off: every write of the partition then asks the
/// write region first.
#[tokio::test(start_paused = true)]
async fn a_driver_that_does_not_follow_partitions_asks_the_write_region_every_time() {
    let topology = TopologyOptions::default().with_partition_failover(false);
    let failover = Failover::with(DriverOptions::default().with_topology(topology)).await;
    let [stays, moves] = &failover.customers;
    failover.move_range(EAST).await;
    assert_eq!(failover.path_of_a_write(moves).await, [WEST, EAST]);
    assert_eq!(failover.path_of_a_write(moves).await, [WEST, EAST], "nothing is remembered");
    assert_eq!(failover.path_of_a_write(stays).await, [WEST]);
}

/// In the write region the partition does not answer, or it answers with 429/3092, 503 or 410. The
/// service has moved its writes to another region. The driver waits 6 s for an answer.
#[tokio::test(start_paused = true)]
async fn a_partition_that_fails_in_the_write_region_is_written_in_another_region() {
    for (how, least_time) in [
        (r#""delayMs":30000"#, Duration::from_secs(6)),
        (r#""status":429,"subStatus":3092"#, Duration::ZERO),
        (r#""status":503"#, Duration::ZERO),
        (r#""status":410"#, Duration::ZERO),
    ] {
        let failover = Failover::new().await;
        let [stays, moves] = &failover.customers;
        failover.move_range(EAST).await;
        failover.fail_in_west(how).await;
        let started_at = Instant::now();
        assert_eq!(failover.path_of_a_write(moves).await, [WEST, EAST], "{how}");
        let elapsed = started_at.elapsed();
        let times = least_time..least_time + Duration::from_millis(500);
        assert!(times.contains(&elapsed), "{how}: {elapsed:?}");
        assert_eq!(failover.path_of_a_write(moves).await, [EAST], "{how}");
        assert_eq!(failover.path_of_a_read(moves).await, [EAST], "{how}");
        assert_eq!(failover.path_of_a_write(stays).await, [WEST], "{how}");
    }
}

/// The partition fails in the write region, but the service has not moved it: the other
/// regions refuse the write, and the driver comes back to the write region.
#[tokio::test(start_paused = true)]
async fn a_partition_that_has_not_moved_is_written_in_the_write_region_again() {
    let failover = Failover::new().await;
    let [_, moves] = &failover.customers;
    failover.fail_in_west(r#""status":503,"count":1"#).await;
    assert_eq!(failover.path_of_a_write(moves).await, [WEST, EAST, NORTH, WEST]);
    assert_eq!(failover.path_of_a_write(moves).await, [WEST]);
}

#[tokio::test(start_paused = true)]
async fn a_partition_comes_back_to_the_write_region() {
    let failover = Failover::new().await;
    let [_, moves] = &failover.customers;
    failover.move_range(EAST).await;
    assert_eq!(failover.path_of_a_write(moves).await, [WEST, EAST]);
    // A write that may be repeated asks the write region again, once in five minutes. A write
    // that may not be repeated does not ask: the partition may still fail there.
    tokio::time::advance(Duration::from_secs(301)).await;
    let unrepeatable = failover.upsert(moves).with_idempotency(Idempotency::NotIdempotent);
    assert_eq!(regions_of(&failover.run(&unrepeatable).await.unwrap()), [EAST]);
    assert_eq!(failover.path_of_a_write(moves).await, [WEST, EAST]);
    assert_eq!(failover.path_of_a_write(moves).await, [EAST]);
    // When the service moves the partition back, the region that had it refuses its writes.
    failover.move_range(WEST).await;
    assert_eq!(failover.path_of_a_write(moves).await, [EAST, WEST]);
    assert_eq!(failover.path_of_a_write(moves).await, [WEST]);
    assert_eq!(failover.path_of_a_read(moves).await, [WEST]);
}

/// The write region of the whole account moves while the writes of a partition go to another
/// region. The driver forgets the region of the partition.
#[tokio::test(start_paused = true)]
async fn after_a_move_of_the_write_region_all_partitions_are_written_there() {
    let failover = Failover::new().await;
    let [stays, moves] = &failover.customers;
    failover.move_range(EAST).await;
    failover.write(moves).await;
    failover.world.manage_region("regions/write", NORTH).await;
    tokio::time::advance(Duration::from_secs(301)).await;
    assert_eq!(failover.write(stays).await.diagnostics.attempts().last().unwrap().region.name(), NORTH);
    failover.write(moves).await;
    assert_eq!(failover.path_of_a_write(stays).await, [NORTH]);
    assert_eq!(failover.path_of_a_write(moves).await, [NORTH]);
}

/// The answer to a create is lost in the write region, after the create was applied. The other
/// regions refuse the repeat with 403/3. The witness shows that the create was applied.
#[tokio::test(start_paused = true)]
async fn a_lost_create_of_a_partition_is_found_by_its_witness() {
    let failover = Failover::new().await;
    let [_, moves] = &failover.customers;
    let orders = failover.driver.container("shop", "orders");
    let body = format!(r#"{{"id":"new","customer":"{moves}","stamp":"mine"}}"#);
    let create = Operation::new(Verb::Create, Target::items(&orders), customer(moves), Bytes::from(body))
        .with_witness(witness("new"));
    failover.fail_in_west(r#""operation":"create_item","drop":"after","count":1"#).await;
    let response = failover.run(&create).await.unwrap();
    assert_eq!(document(&response)["stamp"], "mine");
    assert!(response.diagnostics.resolution().is_some(), "{:?}", response.diagnostics);
    // The create is also found if the partition moves right after it was applied.
    let body = format!(r#"{{"id":"second","customer":"{moves}","stamp":"mine"}}"#);
    let create = Operation::new(Verb::Create, Target::items(&orders), customer(moves), Bytes::from(body))
        .with_witness(witness("second"));
    failover.fail_in_west(r#""operation":"create_item","delayMs":1000,"drop":"after","count":1"#).await;
    let moving = async {
        tokio::time::sleep(Duration::from_millis(1000)).await;
        failover.move_range(EAST).await;
    };
    let (response, ()) = tokio::join!(failover.run(&create), moving);
    assert_eq!(document(&response.unwrap())["stamp"], "mine");
}

/// The account document switches partition failover off again. The driver learns this when it
/// reads the account.
#[tokio::test(start_paused = true)]
async fn the_account_document_switches_partition_failover_off() {
    let failover = Failover::new().await;
    failover.world.manage(Method::POST, "regions/partition-failover", r#"{"enabled":false}"#).await;
    tokio::time::advance(Duration::from_secs(301)).await;
    let [_, moves] = &failover.customers;
    let mut has_learnt = false;
    for _ in 0..100 {
        failover.write(moves).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
        has_learnt |= !failover.driver.account().has_partition_failover;
    }
    assert!(has_learnt);
}

/// A write that may not be repeated ends as soon as it may have been applied, so it cannot ask
/// another region itself. But its failure counts: after five failures the next write begins in
/// another region.
#[tokio::test(start_paused = true)]
async fn after_five_failures_unrepeatable_writes_of_a_partition_begin_in_another_region() {
    for how in [r#""delayMs":30000"#, r#""status":503"#, r#""status":408"#] {
        let failover = Failover::new().await;
        let [stays, moves] = &failover.customers;
        let unrepeatable = failover.upsert(moves).with_idempotency(Idempotency::NotIdempotent);
        failover.move_range(EAST).await;
        failover.fail_in_west(how).await;
        for number in 0..5 {
            let error = failover.run(&unrepeatable).await.unwrap_err();
            assert!(error.is_ambiguous(), "{how}: write {number}: {error}");
        }
        for _ in 0..3 {
            assert_eq!(regions_of(&failover.run(&unrepeatable).await.unwrap()), [EAST], "{how}");
            tokio::time::sleep(Duration::from_secs(10)).await;
        }
        assert_eq!(failover.path_of_a_write(stays).await, [WEST], "{how}");
    }
}

/// The partition fails in the write region for a while, and the service does not move it.
/// Once the partition works again, its writes go directly to the write region.
#[tokio::test(start_paused = true)]
async fn writes_come_back_when_the_write_region_works_again() {
    let failover = Failover::new().await;
    let [_, fails] = &failover.customers;
    let unrepeatable = failover.upsert(fails).with_idempotency(Idempotency::NotIdempotent);
    failover.fail_in_west(r#""status":503,"count":5"#).await;
    for _ in 0..5 {
        assert!(failover.run(&unrepeatable).await.unwrap_err().is_ambiguous());
    }
    assert_eq!(regions_of(&failover.run(&unrepeatable).await.unwrap()), [EAST, NORTH, WEST]);
    assert_eq!(regions_of(&failover.run(&unrepeatable).await.unwrap()), [WEST]);
    // The write region may also recover while a write runs. The write then asks that region
    // again, though the region's breaker is open.
    failover.fail_in_west(r#""status":503"#).await;
    for _ in 0..5 {
        assert!(failover.run(&unrepeatable).await.unwrap_err().is_ambiguous());
    }
    let recovery = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        failover.world.clear_faults().await;
    };
    let started_at = Instant::now();
    let (path, ()) = tokio::join!(failover.path_of_a_write(fails), recovery);
    assert_eq!(path.last().map(String::as_str), Some(WEST), "{path:?}");
    assert!(started_at.elapsed() < Duration::from_secs(8), "{:?}", started_at.elapsed());
}

/// Only writes that may be repeated ask the write region again. This partition gets only writes
/// that may not be repeated, and its move stays known.
#[tokio::test(start_paused = true)]
async fn a_move_stays_known_while_the_partition_is_written() {
    let failover = Failover::new().await;
    let [_, moves] = &failover.customers;
    failover.move_range(EAST).await;
    assert_eq!(failover.path_of_a_write(moves).await, [WEST, EAST]);
    let unrepeatable = failover.upsert(moves).with_idempotency(Idempotency::NotIdempotent);
    for minute in 0..90 {
        tokio::time::sleep(Duration::from_secs(60)).await;
        let path = regions_of(&failover.run(&unrepeatable).await.unwrap());
        assert_eq!(path, [EAST], "minute {minute}");
    }
}

/// A write runs while its partition moves, so that for a moment no region takes the write. The
/// write waits once, and then every region is asked again.
#[tokio::test(start_paused = true)]
async fn a_write_succeeds_soon_after_its_partition_has_moved() {
    let failover = Failover::new().await;
    let [_, moves] = &failover.customers;
    for region in [WEST, EAST, NORTH] {
        let refusal = r#""operation":"upsert_item","status":403,"subStatus":3"#;
        failover.world.fault(&format!(r#"{{"container":"orders","region":"{region}",{refusal}}}"#)).await;
    }
    let moving = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        failover.move_range(NORTH).await;
        failover.world.clear_faults().await;
    };
    let started_at = Instant::now();
    let (path, ()) = tokio::join!(failover.path_of_a_write(moves), moving);
    assert_eq!(path, [WEST, EAST, NORTH, WEST, EAST, NORTH]);
    assert!(started_at.elapsed() < Duration::from_secs(2), "{:?}", started_at.elapsed());
}

/// A create without a witness does not ask the write region again: if its answer were lost
/// there, a refusal by the other region would prove nothing.
#[tokio::test(start_paused = true)]
async fn a_conditional_write_asks_the_write_region_again_only_with_a_witness() {
    let failover = Failover::new().await;
    let [_, moves] = &failover.customers;
    failover.move_range(EAST).await;
    assert_eq!(failover.path_of_a_write(moves).await, [WEST, EAST]);
    failover.fail_in_west(r#""operation":"create_item","delayMs":30000"#).await;
    tokio::time::advance(Duration::from_secs(301)).await;
    let orders = failover.driver.container("shop", "orders");
    let body = format!(r#"{{"id":"1","customer":"{moves}"}}"#);
    let create = Operation::new(Verb::Create, Target::items(&orders), customer(moves), Bytes::from(body));
    let error = failover.run(&create).await.unwrap_err();
    assert_eq!(error.status().map(|status| status.code), Some(409), "{error}");
    assert!(!error.is_ambiguous(), "{error}");
    let path: Vec<_> = error.diagnostics().attempts().map(|attempt| attempt.region.to_string()).collect();
    assert_eq!(path, [EAST]);
    let error = failover.run(&create.with_witness(witness("1"))).await.unwrap_err();
    let path: Vec<_> = error.diagnostics().attempts().map(|attempt| attempt.region.to_string()).collect();
    assert_eq!(path.first().map(String::as_str), Some(WEST), "{path:?}");
}

/// A driver reads with the session token of another driver, which has written to the partition.
/// So far only the region that takes the partition's writes has the write. To find this region,
/// the driver sends the read with a header. The other regions refuse a read with this header.
#[tokio::test(start_paused = true)]
async fn a_read_of_a_session_finds_the_region_of_its_partition() {
    let failover = Failover::new().await;
    let [stays, moves] = &failover.customers;
    failover.move_range(NORTH).await;
    failover.world.manage(Method::POST, "replication/delay", r#"{"milliseconds":60000}"#).await;
    let token = failover.write(moves).await.session_token().unwrap().to_owned();
    let reader = failover.world.other_driver(DriverOptions::default()).await;
    let orders = reader.container("shop", "orders");
    let read = Operation::new(Verb::Read, Target::item(&orders, "1"), customer(moves), Bytes::new());
    let with_token = OperationOptions::default().with_session_token(token.as_str());
    let started_at = Instant::now();
    let response = reader.execute(&read, &with_token).await.unwrap();
    assert!(started_at.elapsed() < Duration::from_millis(200), "{:?}", started_at.elapsed());
    // West does not have the write. Asked with the header, West and East refuse, and North answers.
    assert_eq!(regions_of(&response), [WEST, WEST, EAST, NORTH]);
    assert_eq!(regions_of(&reader.execute(&read, &with_token).await.unwrap()), [NORTH]);
    let other = Operation::new(Verb::Read, Target::item(&orders, "1"), customer(stays), Bytes::new());
    assert_eq!(regions_of(&reader.execute(&other, &OperationOptions::default()).await.unwrap()), [WEST]);
}

/// The options exclude the region that the partition has moved to. The read waits until
/// replication has brought the write to another region.
#[tokio::test(start_paused = true)]
async fn a_read_that_may_not_ask_the_region_of_its_partition_waits_for_replication() {
    let failover = Failover::new().await;
    let [_, moves] = &failover.customers;
    failover.move_range(NORTH).await;
    failover.world.manage(Method::POST, "replication/delay", r#"{"milliseconds":500}"#).await;
    let token = failover.write(moves).await.session_token().unwrap().to_owned();
    let reader = failover.world.other_driver(DriverOptions::default()).await;
    let orders = reader.container("shop", "orders");
    let read = Operation::new(Verb::Read, Target::item(&orders, "1"), customer(moves), Bytes::new());
    let options =
        OperationOptions::default().with_session_token(token.as_str()).with_excluded_regions([NORTH]);
    let response = reader.execute(&read, &options).await.unwrap();
    assert!(regions_of(&response).iter().all(|region| region != NORTH), "{:?}", regions_of(&response));
}
