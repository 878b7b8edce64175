//! The driver's integration tests, in one binary, because linking a binary takes long.

mod account_metadata;
mod ambiguous_writes;
mod change_feed_regions;
mod chaos;
mod chaos_cases;
mod container_metadata;
mod credentials;
mod hedging;
mod hedging_costs;
mod metadata_writes;
mod multi_region;
mod partition_failover;
mod pipeline;
mod region_health;
mod runtimes;
mod telemetry;
mod transport;
mod transport_deadlines;
mod transport_failures;
mod transport_limits;
mod transport_peers;
mod transport_shards;
mod world;
mod write_region_reads;
