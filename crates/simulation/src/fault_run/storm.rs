//! A storm of deletions: some instances are started, and a moment later they are deleted while
//! they run, one by one, as trees, or in bulk. Half of the names are used again as soon as the deletion
//! has succeeded, while processes still purge what is deleted.

use std::time::Duration;

use duroxide::providers::InstanceFilter;
use tokio::sync::Mutex;

use crate::checkers::Deleted;
use crate::process::User;
use crate::scenarios::{self, Endings, Scenario};
use crate::stored::INCARNATION;
use crate::virtual_clock;

/// The wait between two attempts at a deletion.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// The most instances of a storm.
const INSTANCES_MAX: usize = 4;

/// The orchestrations of a storm. Those with children are deleted as trees.
const ORCHESTRATIONS: [&str; 9] =
    ["Chain", "Timer", "Parent", "Family", "Family", "Fan", "Eternal", "Session", "Slow"];

/// The scenario that runs under the name of a deleted instance. It has the orchestration of the deleted
/// instance, if that orchestration ends by itself.
fn scenario_after(orchestration: &str) -> Scenario {
    scenarios::by_name(match orchestration {
        "Chain" => "chain",
        "Timer" => "timer",
        "Parent" => "parent",
        "Session" => "session",
        "Slow" => "slow",
        // Its history has chunks and many completions.
        _ => "fan",
    })
}

/// One storm.
#[derive(Debug, Clone)]
pub struct Storm {
    /// The orchestration of each instance.
    orchestrations: Vec<&'static str>,
    begins_at: Duration,
    /// The time from the starts to the deletions.
    deleted_after: Duration,
    /// Whether finished instances are deleted in bulk first.
    is_bulk: bool,
    /// Whether the instances are deleted at the same time.
    is_parallel: bool,
}

/// Draws a storm that begins before the faults end.
pub fn draw(rng: &mut fastrand::Rng, faults_until: Duration) -> Storm {
    let count = rng.usize(1..=INSTANCES_MAX);
    Storm {
        orchestrations: (0..count).map(|_| ORCHESTRATIONS[rng.usize(..ORCHESTRATIONS.len())]).collect(),
        begins_at: faults_until.mul_f64(rng.f64() * 0.9),
        deleted_after: Duration::from_millis(rng.u64(0..8000)),
        is_bulk: rng.bool(),
        is_parallel: rng.bool(),
    }
}

impl Storm {
    /// Starts and deletes the instances, whose names begin with `name`, and starts half of them again.
    /// Returns what was deleted, and how the instances that were started again must end.
    pub async fn run(&self, user: &User, name: &str) -> Result<(Vec<Deleted>, Endings), String> {
        tokio::time::sleep(self.begins_at).await;
        let mut instances = Vec::new();
        for (number, orchestration) in self.orchestrations.iter().enumerate() {
            let instance = format!("{name}victim{number}");
            scenarios::start(user, &instance, orchestration).await?;
            instances.push(instance);
        }
        tokio::time::sleep(self.deleted_after).await;
        if self.is_bulk {
            let filter =
                InstanceFilter { instance_ids: Some(instances.clone()), ..InstanceFilter::default() };
            // Deletes the finished instances. The loop below deletes the others, or all of them if
            // this call fails.
            let _ = user.client.delete_instance_bulk(filter).await;
        }
        // A workflow that is started again may wait for a worker that is busy with an instance that is
        // deleted later. So only the deletions wait for each other.
        let one_by_one = Mutex::new(());
        let order = (!self.is_parallel).then_some(&one_by_one);
        let deletions = instances.iter().zip(&self.orchestrations).enumerate();
        let deletions = deletions.map(|(number, (instance, orchestration))| {
            let scenario = self.is_started_again(number).then(|| scenario_after(orchestration));
            delete_and_start_again(user, instance, scenario, order)
        });
        let done = futures_util::future::join_all(deletions).await;
        let (mut all_deleted, mut all_endings) = (Vec::new(), Endings::new());
        for done in done {
            let (deleted, endings) = done?;
            all_deleted.push(deleted);
            all_endings.extend(endings);
        }
        Ok((all_deleted, all_endings))
    }

    /// Whether the name of this instance is used again. Every second name of a storm is. A time that is
    /// drawn anyway decides whether the first name is one of them.
    fn is_started_again(&self, number: usize) -> bool {
        (self.deleted_after.as_millis() + number as u128).is_multiple_of(2)
    }
}

/// Deletes an instance with its tree, after the earlier deletions if there is an order. Then starts an
/// instance of the same name, if there is a scenario.
async fn delete_and_start_again(
    user: &User,
    instance: &str,
    scenario: Option<Scenario>,
    order: Option<&Mutex<()>>,
) -> Result<(Deleted, Endings), String> {
    let permit = match order {
        Some(order) => Some(order.lock().await),
        None => None,
    };
    let at = delete(user, instance).await;
    drop(permit);
    let mut deleted =
        Deleted { instance: instance.to_owned(), at, started_again: Vec::new(), incarnations: Vec::new() };
    let Some(scenario) = scenario else { return Ok((deleted, Endings::new())) };
    // The instance, and the children that the scenario `parent` starts.
    for name in [instance.to_owned(), format!("{instance}-a"), format!("{instance}-b")] {
        deleted.incarnations.extend(user.state(&name).await[INCARNATION].as_str().map(str::to_owned));
    }
    let endings = (scenario.run)(user, instance.to_owned()).await?;
    deleted.started_again = endings.iter().map(|(name, _)| name.clone()).collect();
    Ok((deleted, endings))
}

/// Deletes an instance with its tree, and tries again until that succeeds. Returns the time at which the
/// deletion was answered. Does not wait for the tombstone: a user may use a name again as soon as the
/// deletion has succeeded.
async fn delete(user: &User, instance: &str) -> Duration {
    loop {
        // An earlier attempt may have deleted the instance although its answer was lost.
        if user.state(instance).await["type"] == "deleted" {
            return virtual_clock::elapsed();
        }
        if user.client.delete_instance(instance, true).await.is_ok() {
            return virtual_clock::elapsed();
        }
        tokio::time::sleep(RETRY_PAUSE).await;
    }
}
