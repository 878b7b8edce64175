//! The simulation: duroxide's runtime, the provider, the driver and the engine in
//! one thread, in virtual time, with faults.
//!
//! | module | what it has |
//! |---|---|
//! | `world` | the hosts and their common clock |
//! | `libc_shim` | virtual time and seeded randomness for all code of the binary |
//! | `network` | the transport between hosts and server, with faults and a log |
//! | `fault`, `fault_plan` | the faults, and which request gets which |
//! | `process` | the programs of the hosts |
//! | `workflows` | the orchestrations and activities that the workers run |
//! | `scenarios` | what a user does with the workflows |
//! | `activity_log` | counts the runs of each activity |
//! | `audit`, `fences` | the checks after a run: of the final state, and of every write |
//! | `stored` | stored names in the provider's documents that the checks read |
//! | `single_faults` | each request of the small scenarios fails |
//! | `operations` | each request of operations that the runtime does not call fails |
//! | `random` | everything is drawn from a seed |
//! | `contention` | several processes work on the same instances |
//! | `remote_events` | one process writes to an instance while another is busy with it |

// `libc_shim` has the numbers of the system calls of these platforms only.
#![cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]

mod activity_log;
mod audit;
mod contention;
mod fault;
mod fault_plan;
mod fences;
mod libc_shim;
mod network;
mod operations;
mod process;
mod random;
mod remote_events;
mod scenarios;
mod single_faults;
mod stored;
mod workflows;
mod world;
