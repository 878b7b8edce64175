//! The events of a run, drawn from the seed.
//!
//! A gentle run has only faults that the driver promises to hide: one region fails at a
//! time, the write region comes back before the driver has used up its failovers, and
//! replication takes less time than the driver waits for the writes of a session. A
//! rough run has longer faults.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use perihelion_testkit::regions::{HOST_LABELS, REGIONS};
use tokio::time::Instant;

use super::fault_transport::{Fault, Rule};
use super::run_record::RunRecord;
use super::setup::Setup;

/// How long the faults of a run are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    Gentle,
    Rough,
}

/// The number of events of one run.
const EVENTS: usize = 10;
/// The most ranges into which the container is split.
const RANGES_MAX: usize = 5;

/// The longest outage of the only write region in a gentle run. An operation has three
/// failovers, and another fault may take one of them. The waits of the other two are
/// together longer than this outage: at least 0.19 s and 0.38 s.
const GENTLE_WRITE_OUTAGE_MS_MAX: u64 = 400;
/// The least time between two outages of the only write region in a gentle run, so that
/// no operation is affected by both.
const GENTLE_WRITE_OUTAGE_GAP: Duration = Duration::from_secs(3);
/// The longest outage of any other region, and the longest time without replication, in
/// a gentle run.
const GENTLE_OUTAGE_MS_MAX: u64 = 2000;
/// The longest replication delay of a gentle run, apart from [`MOVE_DELAY_MS`]. Where all regions
/// take writes, a read that finds the writes of its session in no region waits longer than this: at
/// least 75 ms.
const GENTLE_DELAY_MS_MAX: u64 = 50;
/// The replication delay of a region before it becomes the only write region. Half of
/// the moves of the write region have this delay.
const MOVE_DELAY_MS: u64 = 800;
/// The longest outage of a rough run.
const ROUGH_OUTAGE_MS_MAX: u64 = 6000;
/// The longest replication delay of a rough run.
const ROUGH_DELAY_MS_MAX: u64 = 2000;

/// The refusals of operations on documents: status, sub-status, and the wait that the
/// answer asks for in milliseconds (0 for none).
const REFUSALS: [(u16, u32, u64); 11] = [
    // Too many requests: the budget of request units is used up.
    (429, 3200, 40),
    (429, 0, 0),
    (449, 0, 0),
    (503, 0, 0),
    (500, 0, 0),
    (408, 0, 0),
    (410, 0, 0),
    // The partition key range was split or merged.
    (410, 1002, 0),
    // The replica is out of resources.
    (429, 3092, 0),
    // The region does not have the writes of the session yet.
    (404, 1002, 0),
    // The region does not take writes.
    (403, 3, 0),
];

const DOCUMENT_OPERATIONS: [&str; 10] = [
    "any",
    "create_item",
    "upsert_item",
    "read_item",
    "replace_item",
    "patch_item",
    "delete_item",
    "batch",
    "query",
    "change_feed",
];
const METADATA_OPERATIONS: [&str; 3] = ["read_account", "read_ranges", "container"];

/// Draws the events and executes them one after the other.
pub(super) struct Events<'a> {
    pub(super) setup: &'a Setup,
    pub(super) run_record: &'a Arc<RunRecord>,
    pub(super) rng: fastrand::Rng,
    pub(super) mode: Mode,
    /// The ids of the container's ranges.
    pub(super) ranges: Vec<String>,
    /// The write region, as an index of `REGIONS`.
    pub(super) write_region: usize,
    /// When the only write region was last taken offline in a gentle run.
    pub(super) last_write_outage: Option<Instant>,
    /// The regions that are offline, as indexes of `REGIONS`.
    pub(super) offline: BTreeSet<usize>,
    /// The events, for the report of a failure.
    pub(super) log: Vec<String>,
}

impl Events<'_> {
    /// Executes all events of the run.
    pub(super) async fn execute_all(&mut self) {
        for _ in 0..EVENTS {
            self.sleep(20, 300).await;
            match self.rng.u32(..12) {
                0..=4 => self.add_document_fault(),
                5 => self.add_metadata_fault(),
                6 | 7 => self.take_offline().await,
                8 if self.setup.has_partition_failover => self.move_range().await,
                8 => self.move_write_region().await,
                9 => self.disturb_replication().await,
                10 => self.split().await,
                _ => self.recreate_scratch_container().await,
            }
        }
        self.sleep(20, 300).await;
    }

    pub(super) async fn end_faults(&mut self) {
        self.log_event("end".to_owned());
        self.setup.clear_faults().await;
        for region in REGIONS {
            self.setup.manage("regions/online", &region_body(region)).await;
        }
        self.setup.manage("replication/heal", "{}").await;
        self.setup.manage("replication/delay", r#"{"milliseconds":5}"#).await;
    }

    async fn sleep(&mut self, least_ms: u64, most_ms: u64) {
        tokio::time::sleep(Duration::from_millis(self.rng.u64(least_ms..=most_ms))).await;
    }

    fn log_event(&mut self, what: String) {
        let at = Instant::now();
        self.log.push(format!("{at:?} {what}"));
    }

    fn is_gentle(&self) -> bool {
        self.mode == Mode::Gentle
    }

    fn add_document_fault(&mut self) {
        let operation = DOCUMENT_OPERATIONS[self.rng.usize(..DOCUMENT_OPERATIONS.len())];
        let fault = match self.rng.u32(..10) {
            0..=4 => {
                // The last refusal is 403/3. In a gentle run a region answers 403/3 only when
                // the write region has moved.
                let refusals = if self.is_gentle() { &REFUSALS[..REFUSALS.len() - 1] } else { &REFUSALS[..] };
                let (status, sub_status, retry_after_ms) = refusals[self.rng.usize(..refusals.len())];
                Fault::Refuse { status, sub_status, retry_after_ms }
            }
            5 => Fault::RefuseAfter { status: [500, 503, 408][self.rng.usize(..3)] },
            6 => Fault::DropBefore,
            7 => Fault::DropAfter,
            8 => Fault::Unreachable,
            _ => self.delay_fault(),
        };
        // The status 403/3 refuses only writes.
        let operation = match fault {
            Fault::Refuse { status: 403, .. } => {
                ["upsert_item", "replace_item", "patch_item", "batch"][self.rng.usize(..4)]
            }
            _ => operation,
        };
        self.add_fault(operation, fault);
    }

    fn delay_fault(&mut self) -> Fault {
        let ms = if self.is_gentle() { self.rng.u64(30..=900) } else { self.rng.u64(30..=12_000) };
        if self.rng.bool() { Fault::DelayBefore { ms } } else { Fault::DelayAfter { ms } }
    }

    fn add_metadata_fault(&mut self) {
        let operation = METADATA_OPERATIONS[self.rng.usize(..METADATA_OPERATIONS.len())];
        let fault = match self.rng.u32(..4) {
            0 => Fault::Refuse { status: 503, sub_status: 0, retry_after_ms: 0 },
            1 => Fault::DropBefore,
            2 => Fault::Unreachable,
            _ => self.delay_fault(),
        };
        self.add_fault(operation, fault);
    }

    fn add_fault(&mut self, operation: &'static str, fault: Fault) {
        let region = self.rng.bool().then(|| HOST_LABELS[self.rng.usize(..HOST_LABELS.len())]);
        let remaining = if self.is_gentle() { self.rng.u32(1..=6) } else { self.rng.u32(1..=60) };
        let rule = Rule { operation, region, remaining, fault };
        self.log_event(format!("{rule:?}"));
        self.setup.fault_transport.add_rule(rule);
    }

    async fn take_offline(&mut self) {
        let region = self.rng.usize(..REGIONS.len());
        // With partition failover, each region may be the only one that takes the writes of a range.
        let is_only_writer =
            (region == self.write_region && !self.setup.is_multi_write) || self.setup.has_partition_failover;
        if is_only_writer && self.is_gentle() {
            if self.last_write_outage.is_some_and(|last| last.elapsed() < GENTLE_WRITE_OUTAGE_GAP) {
                return;
            }
            self.last_write_outage = Some(Instant::now());
        }
        let outage = match (self.mode, self.rng.u32(..3)) {
            (_, 0) => "drop",
            (Mode::Rough, 1) => "hang",
            (_, _) => "refuse",
        };
        self.log_event(format!("{} offline: {outage}", REGIONS[region]));
        let body = format!(r#"{{"region":"{}","mode":"{outage}"}}"#, REGIONS[region]);
        self.offline.insert(region);
        self.setup.manage("regions/offline", &body).await;
        let most_ms = match (self.mode, is_only_writer) {
            (Mode::Gentle, true) => GENTLE_WRITE_OUTAGE_MS_MAX,
            (Mode::Gentle, false) => GENTLE_OUTAGE_MS_MAX,
            (Mode::Rough, _) => ROUGH_OUTAGE_MS_MAX,
        };
        self.sleep(1, most_ms).await;
        // In a rough run the region may stay offline during further events.
        if self.is_gentle() || self.rng.bool() {
            self.log_event(format!("{} online", REGIONS[region]));
            self.setup.manage("regions/online", &region_body(REGIONS[region])).await;
            self.offline.remove(&region);
        }
    }

    async fn move_write_region(&mut self) {
        let to = self.rng.usize(..REGIONS.len());
        let is_behind = !self.setup.is_multi_write && self.rng.bool();
        if is_behind {
            // The delay lets the region fall behind. Until the move, reads that need newer
            // writes find them in the current write region.
            self.set_replication_delay(REGIONS[to], MOVE_DELAY_MS).await;
            self.sleep(1, MOVE_DELAY_MS).await;
        }
        let (status, _) = self.setup.manage("regions/write", &region_body(REGIONS[to])).await;
        self.log_event(format!("write region to {}: {status}", REGIONS[to]));
        if status < 300 {
            self.write_region = to;
        }
        if is_behind {
            self.set_replication_delay(REGIONS[to], GENTLE_DELAY_MS_MAX).await;
        }
    }

    /// Moves the writes of one range to another region.
    async fn move_range(&mut self) {
        let region = REGIONS[self.rng.usize(..REGIONS.len())];
        let range = &self.ranges[self.rng.usize(..self.ranges.len())];
        let body =
            format!(r#"{{"database":"shop","container":"orders","range":"{range}","region":"{region}"}}"#);
        let event = format!("range {range} to {region}");
        let (status, _) = self.setup.manage("regions/write", &body).await;
        self.log_event(format!("{event}: {status}"));
    }

    async fn disturb_replication(&mut self) {
        let region = REGIONS[self.rng.usize(..REGIONS.len())];
        let most_ms = if self.is_gentle() { GENTLE_DELAY_MS_MAX } else { ROUGH_DELAY_MS_MAX };
        // A gentle run does not stop replication where all regions take writes, because a
        // session may need writes that only the region without replication has.
        if self.rng.bool() || (self.is_gentle() && self.setup.is_multi_write) {
            let ms = self.rng.u64(0..=most_ms);
            return self.set_replication_delay(region, ms).await;
        }
        self.log_event(format!("{region} cut"));
        self.setup.manage("replication/cut", &region_body(region)).await;
        self.sleep(1, if self.is_gentle() { GENTLE_OUTAGE_MS_MAX } else { ROUGH_OUTAGE_MS_MAX }).await;
        if self.is_gentle() || self.rng.bool() {
            self.log_event(format!("{region} healed"));
            self.setup.manage("replication/heal", &region_body(region)).await;
        }
    }

    async fn set_replication_delay(&mut self, region: &str, ms: u64) {
        self.log_event(format!("replication delay to {region}: {ms} ms"));
        let body = format!(r#"{{"region":"{region}","milliseconds":{ms}}}"#);
        self.setup.manage("replication/delay", &body).await;
    }

    async fn split(&mut self) {
        if self.ranges.len() >= RANGES_MAX {
            return;
        }
        let range = self.ranges.swap_remove(self.rng.usize(..self.ranges.len()));
        self.log_event(format!("split of {range}"));
        let body = format!(r#"{{"database":"shop","container":"orders","range":"{range}"}}"#);
        let (_, children) = self.setup.manage("split", &body).await;
        let children = children["children"].as_array().cloned().unwrap_or_default();
        assert_eq!(children.len(), 2, "a split has two children");
        self.ranges.extend(children.iter().map(|id| id.as_str().map_or(id.to_string(), str::to_owned)));
    }

    async fn recreate_scratch_container(&mut self) {
        // Creating a container needs the write region.
        if !self.offline.is_empty() {
            return;
        }
        self.log_event("scratch container replaced".to_owned());
        self.run_record.epoch.fetch_add(1, Ordering::SeqCst);
        self.setup.delete_container(&self.setup.scratch).await;
        self.sleep(1, 100).await;
        self.setup.create_container("scratch").await;
        self.run_record.epoch.fetch_add(1, Ordering::SeqCst);
    }
}

fn region_body(region: &str) -> String {
    format!(r#"{{"region":"{region}"}}"#)
}
