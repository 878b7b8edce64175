//! The diagnostics of operations over sockets: connection, phases, range and metadata.

use perihelion_driver::DriverOptions;
use perihelion_driver::diagnostics::{Diagnostics, MetadataKind, Protocol, Transfer};
use perihelion_driver::operation::Verb;
use perihelion_server::ServerOptions;
use perihelion_testkit::{TestServer, driver};

use crate::world::World;

fn transfer(diagnostics: &Diagnostics) -> Transfer {
    let attempt = diagnostics.attempts().last().unwrap();
    attempt.transfer.unwrap_or_else(|| panic!("{diagnostics}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn diagnostics_name_the_connection_the_phases_and_the_range() {
    let server = TestServer::on_socket(ServerOptions::default()).await;
    let setup = server.driver(DriverOptions::default()).await;
    driver::create_database(&setup, "shop").await;
    driver::create_container(&setup, "shop", "orders", "/customer").await;
    let driver = server.driver(DriverOptions::default()).await;
    let orders = driver.container("shop", "orders");
    let world = World { server, driver, orders };
    let created = world.run(&world.write(Verb::Create, "1", "a")).await.unwrap();
    let [work] = created.diagnostics.metadata_work() else { panic!("{}", created.diagnostics) };
    assert_eq!(work.kind, MetadataKind::Container);
    assert!(!work.elapsed.is_zero() && work.elapsed <= created.diagnostics.elapsed());
    let first = transfer(&created.diagnostics);
    assert_eq!(first.protocol(), Some(Protocol::Http2));
    assert!(!first.is_new_connection(), "the metadata was read on the same connection: {first:?}");
    assert!(first.first_byte().is_some_and(|time| !time.is_zero()), "{first:?}");
    assert!((1..=20).contains(&first.streams()), "{first:?}");

    let answer = world.run(&world.read("1")).await.unwrap();
    assert!(answer.diagnostics.metadata_work().is_empty(), "{}", answer.diagnostics);
    let second = transfer(&answer.diagnostics);
    assert_eq!(second.connection(), first.connection(), "the connection still has free streams");
    assert_eq!((second.streams(), second.resends()), (1, 0));
    let attempt = answer.diagnostics.attempts().next().unwrap();
    assert_eq!(attempt.range.as_deref(), Some("0"));
    let phases = second.queued() + second.connecting() + second.first_byte().unwrap() + second.body();
    assert!(phases <= attempt.elapsed, "{}", answer.diagnostics);
    world.server.stop().await;
}

#[tokio::test(start_paused = true)]
async fn diagnostics_name_no_connection_of_a_transport_that_the_application_implements() {
    let world = World::new().await;
    let created = world.run(&world.write(Verb::Create, "1", "a")).await.unwrap();
    let attempt = created.diagnostics.attempts().next().unwrap();
    assert_eq!((attempt.transfer, attempt.range.as_deref()), (None, Some("0")));
    world.server.stop().await;
}
