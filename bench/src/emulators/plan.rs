//! The plan of a run, fixed before the run starts: targets, windows, repeats, queues.

use std::time::Duration;

use super::Options;
use crate::documents::Queue;
use crate::load::Limits;
use crate::targets::Target;

/// The largest queue over which the peer gets the query repeatedly. Over a larger queue it gets the
/// query once: one query over 100,000 documents takes the peer more than a minute, because its
/// engine copies an array per document, and blocks all other requests.
const PEER_QUEUE_MAX: u64 = 14_000;
/// The largest queue on which the peer gets a warm-up: up to this size its query takes about
/// 20 ms. With a larger queue, a warm-up hardly changes the result.
const PEER_WARM_MAX: u64 = 4_000;

/// How long one workload is warmed up and measured on one target.
#[derive(Clone, Copy)]
pub struct Window {
    pub warm_up: Duration,
    pub measured: Limits,
}

pub struct Plan {
    pub targets: Vec<Target>,
    pub repeats: usize,
    /// How often each target is started to measure its start-up.
    pub starts: usize,
    pub concurrency: Vec<u64>,
    pub window: Window,
    /// The window of repeat 0, the round whose figures are dropped.
    pub first_window: Window,
    /// The queues, the largest first: memory is read when only the largest is loaded.
    pub queues: Vec<Queue>,
    /// The time for a server to release memory before its memory is read.
    pub settle_time: Duration,
}

impl Plan {
    pub fn new(options: &Options) -> Self {
        let is_quick = options.quick;
        let time = Duration::from_millis(if is_quick { 1_000 } else { 3_000 });
        let warm_up = Duration::from_millis(if is_quick { 200 } else { 500 });
        let window = Window { warm_up, measured: Limits { time, requests_max: u64::MAX } };
        let mut targets = options.targets.clone();
        targets.sort_unstable();
        targets.dedup();
        let mut sizes = options.documents.clone();
        if sizes.is_empty() {
            sizes = if is_quick { vec![20_000, 4_000] } else { vec![100_000, 10_000] };
        }
        sizes.sort_unstable_by(|a, b| b.cmp(a));
        sizes.dedup();
        Self {
            targets,
            repeats: options.repeats.unwrap_or(if is_quick { 3 } else { 5 }),
            starts: if is_quick { 3 } else { 7 },
            concurrency: vec![1, 16],
            window,
            first_window: Window { warm_up: Duration::ZERO, ..window },
            queues: sizes.into_iter().map(|size| Queue { size }).collect(),
            settle_time: Duration::from_secs(2),
        }
    }

    /// The window of one request without a warm-up.
    pub fn one_request_window(&self) -> Window {
        Window { warm_up: Duration::ZERO, measured: Limits { requests_max: 1, ..self.window.measured } }
    }

    /// The window of the ordered query on a target in one repeat. `None` if the target is left
    /// out in this repeat: over a long queue the peer is so slow that it gets fewer queries, or
    /// only the first one. Repeat 0 is a warm-up, whose figures are dropped.
    pub fn query_window(&self, target: Target, queue: Queue, repeat: usize) -> Option<Window> {
        let window = if repeat == 0 { self.first_window } else { self.window };
        if target != Target::Vercel || queue.size <= PEER_WARM_MAX {
            return Some(window);
        }
        // Every target has answered one query before, which is enough warm-up here.
        let without_warm_up = Window { warm_up: Duration::ZERO, ..self.window };
        (repeat > 0 && queue.size <= PEER_QUEUE_MAX).then_some(without_warm_up)
    }

    /// The reason why a target has no figures for the ordered query.
    pub fn query_note(&self, queue: Queue) -> Option<String> {
        let is_left_out = queue.size > PEER_QUEUE_MAX && self.targets.contains(&Target::Vercel);
        is_left_out.then(|| {
            "vercel gets this query only once, because it takes too long; the ratios use that query".into()
        })
    }
}
