//! The engine's one integration-test binary: a module per subject.

mod containers;
mod costly_writes;
mod differential;
mod distributed;
mod distributed_power_cuts;
mod distributed_regions;
mod earlier_layout;
mod engine_model;
mod engine_power_cuts;
mod failed_reads;
mod expiry;
mod full_disk;
mod index_limits;
mod page_memory;
mod page_time;
mod purge;
mod query_pages;
mod replication;
mod sim_disk;
mod split_by_size;
mod storage_files;
mod storage_log;
mod storage_model;
mod storage_power_cuts;
mod support;
mod version_log;
