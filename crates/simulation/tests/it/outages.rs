//! Outages that last longer than the provider tries. The call of a user then fails, and the user
//! does not know whether it was applied.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use perihelion_simulation::activity_log::ActivityLog;
use perihelion_simulation::process::{Handoff, Settings, User, worker_program};
use perihelion_simulation::process_run::Role;
use perihelion_simulation::scenarios::{self, Ending, Endings};
use perihelion_simulation::virtual_clock;
use perihelion_simulation::weather::{Episode, Scope, Trouble, Weather};
use perihelion_simulation::world::{self, Program};

/// When every request begins to get 503. The container is open by then.
const OUTAGE_FROM: Duration = Duration::from_secs(5);

/// The outage lasts longer than the 20 seconds of one call, and ends within the second call.
const OUTAGE_UNTIL: Duration = Duration::from_secs(35);

/// The limit of a run's virtual time.
const TIME_LIMIT: Duration = Duration::from_secs(120);

/// What the user saw.
struct UserResult {
    /// When the start of the workflow succeeded.
    started_at: Duration,
    /// How the workflow must have ended.
    expected: Endings,
    /// How it has ended, by its output.
    endings: Endings,
}

/// The user's program: starts a workflow in the outage, and waits for its end. The scenario calls the
/// provider again when a start has failed.
fn user_program(result: &Handoff<UserResult>) -> Program {
    let result = result.clone();
    Arc::new(move |connection| {
        let result = result.clone();
        Box::pin(async move {
            let user = User::open(connection).await;
            tokio::time::sleep(OUTAGE_FROM.saturating_sub(virtual_clock::elapsed())).await;
            let scenario = scenarios::by_name("chain");
            let expected = (scenario.run)(&user, "chain".to_owned()).await.expect("a started workflow");
            let started_at = virtual_clock::elapsed();
            scenarios::wait_until_ended(&user, &expected).await;
            let mut endings = Endings::new();
            for (instance, _) in &expected {
                let state = user.state(instance).await;
                let output = state["output"].as_str().unwrap_or_default().to_owned();
                endings.push((instance.clone(), Ending::Output(output)));
            }
            result.put(UserResult { started_at, expected, endings });
        })
    })
}

#[test]
fn a_start_that_failed_in_a_long_outage_may_be_repeated() {
    let (activity_log, result) = (ActivityLog::default(), Handoff::empty());
    world::simulate(7, 1, |world| {
        let worker = worker_program(Settings::default(), activity_log.clone(), &Handoff::empty());
        world.add_host(Role::Worker, 0, Duration::ZERO, worker);
        world.add_host(Role::User, 0, Duration::ZERO, user_program(&result));
        let outage =
            Episode { trouble: Trouble::Outage, scope: Scope::All, from: OUTAGE_FROM, until: OUTAGE_UNTIL };
        world.network().set_weather(Weather { episodes: vec![outage], ..Weather::default() });
        world.run(TIME_LIMIT, |_| result.has_value());
    });
    let UserResult { started_at, expected, endings } = result.take().expect("the workflow ends");
    assert!(started_at >= OUTAGE_UNTIL, "the outage did not reach the start: {started_at:?}");
    assert_eq!(endings, expected);
    assert_eq!(endings.len(), 1);
    let runs = BTreeMap::from([("chain/1", 1), ("chain/2", 1)]);
    assert_eq!(
        activity_log.runs(),
        runs.into_iter().map(|(input, count)| (input.to_owned(), count)).collect()
    );
}
