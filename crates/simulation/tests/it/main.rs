//! The simulation: duroxide's runtime, the provider, the driver and the engine in
//! one thread, in virtual time, with faults.
//!
//! | module | what it has |
//! |---|---|
//! | `world` | the hosts and their common clock |
//! | `libc_shim` | virtual time and seeded randomness for all code of the binary |
//! | `network` | the transport between hosts and server: numbers requests, injects faults, keeps a log |
//! | `fault`, `fault_plan` | the faults, and which request gets which |
//! | `process` | the programs of the hosts |
//! | `workflows`, `scenarios` | what is run |
//! | `activity_log`, `audit`, `fences` | what is checked afterwards |
//! | `stored` | stored names in the provider's documents that the checks read |
//! | `single_faults` | each request of each small scenario fails, in many ways |
//! | `operations` | each request of each operation that the runtime does not call fails, in many ways |
//! | `random` | everything is drawn from a seed |
//! | `contention` | several processes work on the same instances |
//! | `remote_events` | one process writes to an instance while another is busy with it |

// The shim knows the system calls of these platforms.
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
