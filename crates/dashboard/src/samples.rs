//! `Samples`: the server's counters, read every few seconds and kept for an hour, for charts. The
//! counters are in the server's memory and cost no request units. Without them, as on Azure, the page
//! of charts shows only the workflows that ended and the cost of this dashboard's own requests.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tokio::task::JoinHandle;

use crate::source::ReadCounters;
use crate::text::{cut, now_ms};

/// The time between two samples.
pub(crate) const INTERVAL: Duration = Duration::from_secs(5);

/// The most samples that are kept: an hour of them.
const SAMPLES_MAX: usize = 720;

/// How long a sample is kept. If reads fail, there are fewer than [`SAMPLES_MAX`] samples in this time, so
/// the number alone would keep older ones.
const KEPT_FOR: Duration = Duration::from_secs(3600);

/// How long one read of the counters may take.
const READ_TIME_MAX: Duration = Duration::from_secs(10);

/// The longest time between two samples that are compared. The mean over a longer gap would be drawn like
/// the mean of one ordinary interval. This time is enough for one slow read ([`READ_TIME_MAX`]).
pub(crate) const GAP_MAX: Duration = Duration::from_secs(20);

/// The most characters of the reason why a read failed.
const FAILURE_CHARS_MAX: usize = 300;

/// The server's counters at one time. They count from the start of the server.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Sample {
    pub(crate) at_ms: u64,
    pub(crate) requests: u64,
    pub(crate) request_units: f64,
    pub(crate) throttles: u64,
    /// The request units of requests to one partition key; `None` if the server does not count them.
    pub(crate) one_key_units: Option<f64>,
    /// The request units that this dashboard has used for lists, queues and the like.
    pub(crate) own_units: f64,
    /// The numbers of requests by the upper bound of their duration, in microseconds; empty if the
    /// server does not count them.
    pub(crate) latencies: BTreeMap<u64, u64>,
    /// Requests and request units by operation.
    pub(crate) operations: Vec<(String, u64, f64)>,
    /// The partition keys that have used the most request units.
    pub(crate) hottest: Vec<HotPartition>,
}

/// A partition key, and the requests and request units that it has used.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct HotPartition {
    pub(crate) database: String,
    pub(crate) container: String,
    /// The partition key as a client sends it: a JSON list.
    pub(crate) key: String,
    pub(crate) requests: u64,
    pub(crate) request_units: f64,
    pub(crate) throttled: u64,
}

/// The samples, and why the last read failed.
#[derive(Debug, Default)]
pub(crate) struct Samples(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    /// Oldest first.
    samples: VecDeque<Sample>,
    /// When and why the last read failed; `None` after a read that succeeded.
    failure: Option<(u64, String)>,
}

impl Samples {
    /// Reads the counters again and again, and with them the request units of this dashboard. The task
    /// ends when it is aborted.
    pub(crate) fn collect(
        self: &Arc<Self>,
        read: ReadCounters,
        own_units: impl Fn() -> f64 + Send + 'static,
    ) -> JoinHandle<()> {
        let samples = Arc::clone(self);
        tokio::spawn(async move {
            loop {
                let late = |_| Err(format!("no answer within {} seconds", READ_TIME_MAX.as_secs()));
                let json = tokio::time::timeout(READ_TIME_MAX, read()).await.unwrap_or_else(late);
                let unknown =
                    || "the server's report is in a form that this version does not know".to_owned();
                match json.and_then(|json| sample(&json, now_ms()).ok_or_else(unknown)) {
                    Ok(sample) => samples.add(Sample { own_units: own_units(), ..sample }),
                    Err(why) => samples.fail(now_ms(), &why),
                }
                tokio::time::sleep(INTERVAL).await;
            }
        })
    }

    fn add(&self, sample: Sample) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.failure = None;
        let samples = &mut kept.samples;
        // After the counters were set to zero, the earlier samples cannot be compared with new ones.
        if samples.back().is_some_and(|last| last.requests > sample.requests) {
            samples.clear();
        }
        samples.push_back(sample);
        if samples.len() > SAMPLES_MAX {
            samples.pop_front();
        }
    }

    fn fail(&self, at_ms: u64, why: &str) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.failure = Some((at_ms, cut(why, FAILURE_CHARS_MAX)));
    }

    /// The samples of the last hour, oldest first.
    pub(crate) fn of_last_hour(&self, now_ms: u64) -> Vec<Sample> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let oldest = now_ms.saturating_sub(KEPT_FOR.as_millis() as u64);
        kept.samples.retain(|sample| sample.at_ms >= oldest);
        kept.samples.iter().cloned().collect()
    }

    /// When and why the last read failed; `None` if it succeeded.
    pub(crate) fn failure(&self) -> Option<(u64, String)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).failure.clone()
    }
}

/// The most buckets of latencies, operations and hot partitions that a sample keeps. Our server reports
/// fewer. Another server may report any number, and the samples of an hour must fit into memory.
const LATENCIES_MAX: usize = 512;
const OPERATIONS_MAX: usize = 100;
const HOTTEST_MAX: usize = 20;

/// The most characters of a name in a sample.
const TEXT_CHARS_MAX: usize = 1_000;

/// Makes a sample of the server's report; `None` if the report is in an unknown form.
fn sample(json: &Value, at_ms: u64) -> Option<Sample> {
    let operations = json["operations"].as_object()?;
    let throttled = |operation: &Value| operation["statuses"]["429"].as_u64().unwrap_or(0);
    let list = |name: &str| json[name].as_array().into_iter().flatten();
    Some(Sample {
        at_ms,
        requests: json["requests"].as_u64()?,
        request_units: json["requestUnits"].as_f64()?,
        throttles: operations.values().map(throttled).fold(0, u64::saturating_add),
        one_key_units: json["onePartitionKey"]["requestUnits"].as_f64(),
        own_units: 0.0,
        latencies: list("latencies").take(LATENCIES_MAX).filter_map(bound_and_count).collect(),
        operations: operations
            .iter()
            .take(OPERATIONS_MAX)
            .map(|(name, operation)| {
                (
                    cut(name, TEXT_CHARS_MAX),
                    operation["requests"].as_u64().unwrap_or(0),
                    operation["requestUnits"].as_f64().unwrap_or(0.0),
                )
            })
            .collect(),
        hottest: list("hottestPartitions").take(HOTTEST_MAX).map(hot_partition).collect(),
    })
}

fn bound_and_count(pair: &Value) -> Option<(u64, u64)> {
    Some((pair[0].as_u64()?, pair[1].as_u64()?))
}

fn hot_partition(json: &Value) -> HotPartition {
    let text = |name: &str| cut(json[name].as_str().unwrap_or_default(), TEXT_CHARS_MAX);
    HotPartition {
        database: text("database"),
        container: text("container"),
        key: text("partitionKey"),
        requests: json["requests"].as_u64().unwrap_or(0),
        request_units: json["requestUnits"].as_f64().unwrap_or(0.0),
        throttled: json["throttled"].as_u64().unwrap_or(0),
    }
}

/// The seconds from one sample to the next; `None` if no time has passed, or more than [`GAP_MAX`].
pub(crate) fn seconds_between(before: &Sample, after: &Sample) -> Option<f64> {
    let ms = after.at_ms.checked_sub(before.at_ms)?;
    (ms > 0 && ms <= GAP_MAX.as_millis() as u64).then_some(ms as f64 / 1000.0)
}

/// The increase of a counter per second, from each sample to the next. `None` if no time or too
/// much time has passed between them.
pub(crate) fn rates(samples: &[Sample], of: impl Fn(&Sample) -> f64) -> Vec<Option<f64>> {
    let rate = |pair: &[Sample]| {
        let seconds = seconds_between(&pair[0], &pair[1])?;
        Some(((of(&pair[1]) - of(&pair[0])) / seconds).max(0.0))
    };
    samples.windows(2).map(rate).collect()
}

/// A percentile of the durations of the requests between each sample and the next, in milliseconds. It
/// is at most a quarter too high, because the server rounds durations up to the bounds of its buckets.
/// `None` if there was no request, and for a gap.
pub(crate) fn latencies(samples: &[Sample], percent: u64) -> Vec<Option<f64>> {
    let of = |pair: &[Sample]| {
        seconds_between(&pair[0], &pair[1])?;
        percentile(&pair[0].latencies, &pair[1].latencies, percent)
    };
    samples.windows(2).map(of).collect()
}

fn percentile(before: &BTreeMap<u64, u64>, after: &BTreeMap<u64, u64>, percent: u64) -> Option<f64> {
    let new = |bound: &u64, count: &u64| count.saturating_sub(before.get(bound).copied().unwrap_or(0));
    let total = after.iter().map(|(bound, count)| new(bound, count)).fold(0, u64::saturating_add);
    let rank = total.saturating_mul(percent).div_ceil(100);
    let mut seen = 0_u64;
    let bound = after.iter().find(|(bound, count)| {
        seen = seen.saturating_add(new(bound, count));
        total > 0 && seen >= rank
    });
    bound.map(|(bound, _)| *bound as f64 / 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_becomes_a_sample_and_samples_become_rates() {
        let report = |requests: u64| {
            let statuses = serde_json::json!({"200": requests - 1, "429": 1});
            serde_json::json!({"requests": requests, "requestUnits": 2.5 * requests as f64,
                "operations": {"query": {"requests": requests, "requestUnits": 1.0, "statuses": statuses}}})
        };
        let samples: Vec<Sample> =
            [(10, 0), (30, 5000), (30, 5000)].map(|(n, at)| sample(&report(n), at).unwrap()).to_vec();
        assert_eq!(samples[0].throttles, 1);
        let requests = rates(&samples, |sample| sample.requests as f64);
        assert_eq!(requests, [Some(4.0), None], "no time passed between the last two");
        assert_eq!(sample(&serde_json::json!({"requests": "many"}), 0), None);
        assert_eq!(samples[0].one_key_units, None, "an earlier server does not count them");
        let kept = Samples::default();
        samples.into_iter().for_each(|sample| kept.add(sample));
        kept.add(Sample::default());
        assert_eq!(kept.of_last_hour(0).len(), 1, "the counters were set to zero");
    }

    #[test]
    fn latencies_are_those_of_the_requests_between_two_samples() {
        let report = |at_ms: u64, pairs: &[(u64, u64)]| {
            let json = serde_json::json!({"requests": 1, "requestUnits": 1.0, "operations": {},
                "onePartitionKey": {"requests": 1, "requestUnits": 0.5}, "latencies": pairs});
            sample(&json, at_ms).unwrap()
        };
        let samples = [
            report(0, &[(4000, 7)]),
            report(5000, &[(1000, 98), (4000, 7), (9000, 2)]),
            report(10_000, &[(1000, 98)]),
        ];
        assert_eq!(samples[0].one_key_units, Some(0.5));
        assert_eq!(latencies(&samples, 50), [Some(1.0), None], "no request came between the last two");
        assert_eq!(latencies(&samples, 99), [Some(9.0), None]);
        assert_eq!(latencies(&samples, 98), [Some(1.0), None]);
    }

    /// Story of a bug: after ten minutes in which the counters could not be read, the mean of these minutes
    /// was drawn as one interval of five seconds, and samples stayed for longer than an hour.
    #[test]
    fn a_gap_is_not_an_interval_and_old_samples_are_removed() {
        let at = |seconds: u64, requests: u64| Sample {
            at_ms: seconds * 1000,
            requests,
            latencies: BTreeMap::from([(1000, requests)]),
            ..Sample::default()
        };
        let samples = [at(0, 0), at(5, 10), at(605, 1210), at(610, 1220)];
        assert_eq!(rates(&samples, |sample| sample.requests as f64), [Some(2.0), None, Some(2.0)]);
        assert_eq!(latencies(&samples, 50), [Some(1.0), None, Some(1.0)]);
        let kept = Samples::default();
        samples.into_iter().for_each(|sample| kept.add(sample));
        assert_eq!(kept.of_last_hour(3_600_000).len(), 4);
        assert_eq!(kept.of_last_hour(3_606_000).len(), 2);
    }

    /// Story of a bug: errors were discarded. The charts did not change any more, and the page did not say
    /// why.
    #[tokio::test(start_paused = true)]
    async fn the_last_error_is_kept_until_a_read_succeeds() {
        let samples = Arc::<Samples>::default();
        let reads = Arc::new(Mutex::new(0));
        let read: ReadCounters = Arc::new(move || {
            let number = {
                let mut reads = reads.lock().unwrap();
                *reads += 1;
                *reads
            };
            Box::pin(async move {
                match number {
                    1 => Err("connection refused".to_owned()),
                    2 => std::future::pending().await,
                    3 => Ok(serde_json::json!({"requests": "many"})),
                    _ => Ok(serde_json::json!({"requests": 1, "requestUnits": 1.0, "operations": {}})),
                }
            })
        });
        let reading = samples.collect(read, || 0.0);
        let mut seen = Vec::new();
        for _ in 0..40 {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let why = samples.failure().map(|(_, why)| why).unwrap_or_default();
            if seen.last() != Some(&why) {
                seen.push(why);
            }
        }
        reading.abort();
        let expected = ["connection refused", "no answer within 10 seconds", "the server's report", ""];
        assert_eq!(seen.len(), expected.len(), "{seen:?}");
        assert!(seen.iter().zip(expected).all(|(why, begin)| why.starts_with(begin)), "{seen:?}");
    }
}
