//! The simulation: duroxide's runtime, the provider, the driver, the server and the engine in
//! one thread, in virtual time, with faults.
//!
//! | module | what it has |
//! |---|---|
//! | [`world`] | the hosts and their common clock |
//! | [`host_runtime`], [`horizon`] | the tokio runtime of a host, and how far it may run alone |
//! | [`virtual_clock`] | virtual time and seeded randomness of a thread |
//! | [`network`] | the transport between hosts and server, with faults and a log |
//! | [`fault`], [`fault_plan`] | the faults, and which request gets which fault |
//! | [`weather`], [`request_kind`] | episodes of trouble, and which requests they affect |
//! | [`process`], [`process_run`] | the programs of the hosts, and one run of a program |
//! | [`workflows`] | the orchestrations and activities that the workers run |
//! | [`scenarios`] | what a user does with the workflows |
//! | [`traffic`] | counts of requests, request units and lost commits, in runs that log no requests |
//! | [`scale`] | measurements of many processes and partitions under load |
//! | [`fault_run`] | a run in which everything is drawn from a seed, with all faults |
//! | [`checkers`], [`write_log`] | one checker per property of such a run, and the log of writes for them |
//! | [`planted`] | bugs that show that each checker can fail |
//! | [`activity_log`] | counts the runs of each activity |
//! | [`audit`], [`fences`] | the checks after a run with one fault: of the final state, and of every write |
//! | [`stored`] | stored names in the provider's documents that the checks read |
//!
//! A program that simulates must replace two functions of libc. It does so by declaring a
//! module with the file `src/libc_shim.rs`, as `src/bin/sim/main.rs` and `tests/it/main.rs` do. The
//! library itself replaces nothing, so that a crate may depend on it and keep real time.
//! Without the module, [`world::simulate`] panics and says so.

// `libc_shim.rs` has the numbers of the system calls of these platforms only.
#![cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]

pub mod activity_log;
pub mod audit;
pub mod checkers;
pub mod fault;
pub mod fault_plan;
pub mod fault_run;
pub mod fences;
pub mod horizon;
pub mod host_runtime;
pub mod network;
pub mod planted;
pub mod process;
pub mod process_run;
pub mod request_kind;
pub mod scale;
pub mod scenarios;
pub mod stored;
pub mod traffic;
pub mod virtual_clock;
pub mod weather;
pub mod workflows;
pub mod world;
pub mod write_log;
