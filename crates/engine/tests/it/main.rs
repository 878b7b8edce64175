//! The engine's one integration-test binary: a module per subject.

mod distributed;
mod distributed_power_cuts;
mod distributed_regions;
mod engine_model;
mod engine_power_cuts;
mod failed_reads;
mod purge;
mod replication;
mod sim_disk;
mod split_by_size;
mod storage_files;
mod storage_log;
mod storage_model;
mod storage_power_cuts;
mod support;
