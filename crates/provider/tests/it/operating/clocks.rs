//! Machines whose clocks differ by two minutes. The service's clock decides.

use duroxide::providers::{Provider, WorkItem};
use duroxide_cdb::CosmosDBProvider;
use perihelion_server::ServerOptions;
use perihelion_testkit::TestServer;

use super::{LOCK, POLL_ONCE, RARELY, event, metadata, start};

const MINUTE_MS: i64 = 60_000;

/// A provider on a machine whose clock is wrong by this much.
async fn provider_with(server: &TestServer, error_ms: i64) -> CosmosDBProvider {
    let client = server.client().await;
    let builder = CosmosDBProvider::builder().with_client(client).with_reconciler(RARELY, RARELY);
    builder.with_clock_error_ms(error_ms).open().await.unwrap()
}

#[tokio::test]
async fn clocks_two_minutes_apart_neither_steal_locks_nor_hide_messages() {
    let server = TestServer::on_socket(ServerOptions::default()).await;
    for holder_error_ms in [-MINUTE_MS, MINUTE_MS] {
        let holder = provider_with(&server, holder_error_ms).await;
        let other = provider_with(&server, -holder_error_ms).await;
        let instance = format!("order-{holder_error_ms}");

        // A message of the other machine is visible to the holder at once.
        other.enqueue_for_orchestrator(start(&instance, None), None).await.unwrap();
        let taken = holder.fetch_orchestration_item(LOCK, POLL_ONCE, None).await.unwrap();
        let (item, token, attempts) = taken.expect("the message is seen");
        assert_eq!((item.instance.as_str(), attempts), (instance.as_str(), 1));

        // The lock has half a minute left, whatever the other machine's clock says.
        let stolen = other.fetch_orchestration_item(LOCK, POLL_ONCE, None).await.unwrap();
        assert!(stolen.is_none(), "{stolen:?}");

        // A timer is set by the holder's machine and fires by the service's clock.
        let machine_ms = now_ms().saturating_add_signed(-holder.metrics().clock_offset_ms);
        let timer = WorkItem::TimerFired {
            instance: instance.clone(),
            execution_id: 1,
            id: 9,
            fire_at_ms: machine_ms + 1,
        };
        let ack = holder.ack_orchestration_item(
            &token,
            1,
            vec![event(&instance, 1)],
            vec![],
            vec![timer],
            metadata("Order", None),
            vec![],
        );
        ack.await.unwrap();
        let wait = std::time::Duration::from_secs(10);
        let fired = holder.fetch_orchestration_item(LOCK, wait, None).await.unwrap();
        assert!(matches!(
            fired.expect("the timer fires").0.messages[..],
            [WorkItem::TimerFired { id: 9, .. }]
        ));

        for (provider, metrics) in [(&holder, holder.metrics()), (&other, other.metrics())] {
            let wrong_by_ms = metrics.clock_offset_ms.abs() - MINUTE_MS;
            assert!(
                wrong_by_ms.abs() <= 2_500,
                "{provider:?}: the measured offset is wrong by {wrong_by_ms} ms"
            );
            assert_eq!(metrics.steals, 0);
        }
        holder.cleanup().await.unwrap();
    }
}

fn now_ms() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    since.as_millis() as u64
}
