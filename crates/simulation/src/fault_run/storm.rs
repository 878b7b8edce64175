//! A storm of deletions: some instances are started, and a moment later they are deleted while
//! they run, one by one, as trees, or in bulk.

use std::time::Duration;

use duroxide::providers::InstanceFilter;

use crate::process::User;
use crate::virtual_clock;

/// The wait between two attempts at a deletion.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// The most instances of a storm.
const INSTANCES_MAX: usize = 4;

/// The orchestrations of a storm. Those with children are deleted as trees.
const ORCHESTRATIONS: [&str; 9] =
    ["Chain", "Timer", "Parent", "Family", "Family", "Fan", "Eternal", "Session", "Slow"];

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
    /// Starts and deletes the instances, whose names begin with `name`. Returns each instance with
    /// the time at which its deletion was answered.
    pub async fn run(&self, user: &User, name: &str) -> Result<Vec<(String, Duration)>, String> {
        tokio::time::sleep(self.begins_at).await;
        let mut instances = Vec::new();
        for (number, orchestration) in self.orchestrations.iter().enumerate() {
            let instance = format!("{name}victim{number}");
            let started = user.client.start_orchestration(&instance, *orchestration, &instance).await;
            started.map_err(|error| format!("start of {instance}: {error}"))?;
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
        let deletions: Vec<_> = instances.iter().map(|instance| delete(user, instance)).collect();
        let mut deleted = Vec::new();
        if self.is_parallel {
            deleted.extend(futures_util::future::join_all(deletions).await);
        } else {
            for deletion in deletions {
                deleted.push(deletion.await);
            }
        }
        Ok(instances.into_iter().zip(deleted).collect())
    }
}

/// Deletes an instance with its tree, and tries again until that succeeds and the tombstone of the
/// instance exists. Returns the time at which the deletion was answered.
async fn delete(user: &User, instance: &str) -> Duration {
    loop {
        // An earlier attempt whose answer was lost has deleted it.
        if user.state(instance).await["type"] == "deleted" {
            return virtual_clock::elapsed();
        }
        let deleted = user.client.delete_instance(instance, true).await;
        if deleted.is_ok() && user.state(instance).await["type"] == "deleted" {
            return virtual_clock::elapsed();
        }
        tokio::time::sleep(RETRY_PAUSE).await;
    }
}
