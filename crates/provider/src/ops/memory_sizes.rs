//! `memory_sizes`: how much a provider has in its memory, structure by structure.

use tokio::time::Instant;

use crate::ops::core::Core;
use crate::process::memory_size::MemorySize;

/// The sizes of all structures of a provider that grow with its work.
pub(crate) fn of(core: &Core) -> Vec<MemorySize> {
    let hints = &core.hints;
    let (cached, cached_max) = core.store.state_cache.bytes();
    let bytes = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
    let mut sizes = vec![
        core.sessions.memory_size(),
        core.costs.memory_size(),
        hints.left_instances.memory_size("instances left to others"),
        hints.left_activities.memory_size("activities left to others"),
        hints.paused_activities.memory_size(),
        hints.paused_partitions.memory_size("paused partitions"),
        hints.paused_session_partitions.memory_size("paused partitions of sessions"),
        core.membership.load.memory_size(),
        core.poller.memory_size(),
        core.failing_causes.memory_size(),
        MemorySize::kept("bytes of cached states", bytes(cached), bytes(cached_max)),
    ];
    let (now, service_now) = (Instant::now(), core.clock.now());
    let names = ["locks of instances", "ended locks of instances", "nonces of ended locks of instances"];
    sizes.extend(core.instance_locks.memory_sizes(names, |held| held.until <= now));
    let names = ["locks of activities", "ended locks of activities", "nonces of ended locks of activities"];
    // The runtime may end a cancelled activity without a call to the provider. Then the ended lock stays
    // until the table is full. So no ended locks are reported here, and only the limit of the table is
    // checked.
    sizes.extend(core.activity_locks.memory_sizes(names, |_| false));
    sizes.extend(hints.instances.with(|hints| hints.memory_sizes(service_now)));
    // Workers may still run cancelled activities. Then due activities wait until a lock ends, and are
    // not reported.
    let is_working = core.activity_locks.any(|held| held.until > now);
    sizes.extend(hints.activities.with(|hints| hints.memory_sizes(service_now, is_working)));
    sizes.extend(core.sequencer.memory_sizes());
    sizes.extend(core.background.memory_sizes());
    sizes
}
