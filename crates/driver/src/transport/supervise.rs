//! The task of one HTTP/2 connection: drives it, pings the peer, and checks the health of
//! the connection at every tick (`health` has the rules).
//!
//! Each connection checks itself, so the checks run as long as the connection does, on the
//! same runtime.

use std::future::pending;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use h2::{Ping, PingPong};
use tokio::time::{self, Instant};

use super::connections::Connections;
use super::health::{HealthLimits, Reason, Verdict};
use super::http2::NewHttp2;
use super::shard::{ShardCore, streams_allowed, takes_requests};

/// The shortest and the longest time between two checks of a connection with requests.
const TICK_MIN: Duration = Duration::from_millis(5);
const TICK_MAX: Duration = Duration::from_millis(250);

/// The task. It ends when the connection ends or is broken. `owner` is only weak, because
/// the owner's shards own this task.
pub(super) async fn supervise(new: NewHttp2, core: Arc<ShardCore>, owner: Weak<Connections>) {
    let _ended = EndedOnDrop::new(&core, &owner);
    let Some((interval, limits, streams_max)) =
        owner.upgrade().map(|owner| (owner.ping_interval(), owner.health_limits(), owner.streams_max()))
    else {
        return;
    };
    let NewHttp2 { mut sender, pings, connection, .. } = new;
    let update_stream_limit = {
        let (sender, core, owner) = (sender.clone(), Arc::clone(&core), Weak::clone(&owner));
        move || {
            if core.slots.set_limit(streams_allowed(&sender, streams_max))
                && let Some(owner) = owner.upgrade()
            {
                owner.serve_waiters();
            }
        }
    };
    let pinging = keep_alive(pings, interval, &core, &update_stream_limit);
    let checking = async {
        loop {
            let due = Instant::now() + tick(&core, limits);
            core.pulse.expect_at(due);
            time::sleep_until(due).await;
            let now = Instant::now();
            let was_stuck = core.pulse.is_stuck(now);
            core.pulse.expect_at(now + tick(&core, limits));
            let Some(owner) = owner.upgrade() else { return pending().await };
            core.starvation.timer_fired(due, now, &core.vitals);
            update_stream_limit();
            if was_stuck {
                // Requests may wait because this connection seemed to be stuck.
                owner.serve_waiters();
            }
            if !takes_requests(&mut sender) {
                owner.retire(&core, Reason::GoingAway);
            }
            if let Some(reason) = check(&core, &owner, limits, now) {
                return reason;
            }
        }
    };
    tokio::select! {
        // The connection is polled first, so that bytes that have arrived are seen.
        biased;
        ended = connection => tracing::debug!(?ended, number = core.number, "an HTTP/2 connection ended"),
        reason = checking => tracing::info!(?reason, number = core.number, "an HTTP/2 connection was closed"),
        () = pinging => {}
    }
}

/// The time until the next check.
fn tick(core: &ShardCore, limits: HealthLimits) -> Duration {
    let is_busy = core.slots.view().in_use > 0;
    let shortest = limits.read_hang_limit.min(limits.ping_timeout).min(limits.idle_timeout);
    if is_busy { (shortest / 8).clamp(TICK_MIN, TICK_MAX) } else { (shortest / 2).max(TICK_MIN) }
}

/// Judges the connection and acts. The result is the reason if the connection is to be
/// closed at once.
fn check(
    core: &Arc<ShardCore>,
    owner: &Arc<Connections>,
    limits: HealthLimits,
    now: Instant,
) -> Option<Reason> {
    let verdict = owner.judge(core, now);
    // A suspect connection that is taken out of use now stays suspect: otherwise it would get
    // waiting requests.
    let stays_in_use = matches!(verdict, Verdict::Keep | Verdict::Suspect | Verdict::Retire(Reason::Idle));
    if stays_in_use && core.slots.set_suspect(verdict == Verdict::Suspect) {
        tracing::debug!(number = core.number, ?verdict, "an HTTP/2 connection fell silent or recovered");
        owner.serve_waiters();
    }
    match verdict {
        Verdict::Keep | Verdict::Suspect => {}
        Verdict::Retire(Reason::Idle) => owner.retire_if_spare(core),
        Verdict::Retire(reason) => owner.retire(core, reason),
        Verdict::Break(reason) => {
            core.record_break(owner);
            owner.retire(core, reason);
            return Some(reason);
        }
    }
    let signs = core.signs(now);
    if signs.hung_for >= limits.ping_after() && signs.ping_waiting_for.is_none() {
        core.ping_wanted.notify_one();
    }
    None
}

/// Pings the peer: at once, then `interval` after each pong, and whenever a check wants a
/// ping. The first pong comes after the peer's settings, which say how many streams the peer
/// allows. The checks judge whether a pong is missing.
async fn keep_alive(mut pings: PingPong, interval: Option<Duration>, core: &ShardCore, on_pong: impl Fn()) {
    loop {
        core.vitals.ping_sent(Instant::now());
        if pings.ping(Ping::opaque()).await.is_err() {
            // The connection is ending, and its own future reports that.
            return pending().await;
        }
        core.vitals.ping_answered();
        on_pong();
        match interval {
            Some(interval) => {
                // Either way it is time for the next ping.
                let _ = time::timeout(interval, core.ping_wanted.notified()).await;
            }
            None => core.ping_wanted.notified().await,
        }
    }
}

/// Takes the connection out of use when its task ends, also when the runtime is shut down.
struct EndedOnDrop {
    core: Arc<ShardCore>,
    owner: Weak<Connections>,
}

impl EndedOnDrop {
    fn new(core: &Arc<ShardCore>, owner: &Weak<Connections>) -> Self {
        if let Some(owner) = owner.upgrade() {
            owner.supervised.fetch_add(1, Ordering::SeqCst);
        }
        EndedOnDrop { core: Arc::clone(core), owner: Weak::clone(owner) }
    }
}

impl Drop for EndedOnDrop {
    fn drop(&mut self) {
        self.core.slots.close();
        if let Some(owner) = self.owner.upgrade() {
            owner.supervised.fetch_sub(1, Ordering::SeqCst);
            owner.ended(&self.core);
        }
    }
}
