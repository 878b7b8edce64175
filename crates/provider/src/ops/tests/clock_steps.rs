//! Wall clocks of machines are set forward or back while their processes run turns and activities.
//! The answers of the service contain its time.

use std::time::Duration;

use duroxide::providers::{Provider, TagFilter};

use super::{LOCK, NEVER, NO_WAIT, World, ack, enqueue_activities, event, fetch_first_turn};
use crate::CosmosDBProvider;

/// Story of a bug: when its clock was set forward, a process took running activities, even its own.
#[tokio::test(start_paused = true)]
async fn running_turns_and_activities_are_not_taken_over_when_clocks_step() {
    for step in [Duration::from_secs(15 * 60), Duration::from_secs(40)] {
        for sign in [1, -1] {
            let world = World::open().await;
            let holder = world.provider_with_reconciler(NEVER).await;
            let other = world.provider_with_reconciler(NEVER).await;
            let both = [&holder, &other];
            for provider in both {
                // The engine in this process sends no dates, so the test reports the time.
                let clock = &provider.core.clock;
                clock.observe_date(clock.now_ms() / 1000, Duration::ZERO);
            }
            let turn = fetch_first_turn(&holder, "a").await;
            enqueue_activities(&holder, [7]).await;
            let (activity, attempt) = fetch_activity(&holder).await.expect("the activity");
            assert_eq!(attempt, 1);
            let step_ms = sign * i64::try_from(step.as_millis()).unwrap();
            both.iter().for_each(|provider| provider.core.clock.step_wall_clock(step_ms));
            for _ in 0..3 {
                for provider in both {
                    assert!(fetch_activity(provider).await.is_none(), "{step_ms} ms");
                    let instance = provider.fetch_orchestration_item(LOCK, NO_WAIT, None).await.unwrap();
                    assert!(instance.is_none(), "{step_ms} ms");
                }
                tokio::time::sleep(LOCK / 2).await;
                holder.renew_work_item_lock(&activity, LOCK).await.unwrap();
                holder.renew_orchestration_item_lock(&turn, LOCK).await.unwrap();
            }
            ack(&holder, &turn, vec![event("a", 1, String::new())], vec![], vec![]).await.unwrap();
            holder.ack_work_item(&activity, None).await.unwrap();
            assert_eq!(both.map(|provider| provider.metrics().steals), [0, 0]);
        }
    }
}

/// Fetches an activity. Returns its token and the attempt.
async fn fetch_activity(provider: &CosmosDBProvider) -> Option<(String, u32)> {
    let fetched = provider.fetch_work_item(LOCK, NO_WAIT, None, &TagFilter::default()).await.unwrap();
    fetched.map(|(_, token, attempt)| (token, attempt))
}
