//! The simulation: the whole stack in one thread under virtual time.
//!
//! `world` has the hosts and their common clock, `network` stands between the
//! hosts and the server and lets requests fail as `weather` plans it, `workflows`
//! and `scenarios` are what is run, `audit` is what must hold at the end.
//! `systematic` lets each request of each scenario fail in each way, `operations`
//! does so with the operations that the runtime never calls, `random` draws
//! everything from seeds, `contested` lets several processes meet in the
//! same instances, `foreign` has what one process writes while another is busy.
//! `fences` looks at every write of a run: nobody may have written past another.

// The shim knows the system calls of these.
#![cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]

mod audit;
mod contested;
mod fault;
mod fences;
mod foreign;
mod ledger;
mod libc_shim;
mod network;
mod operations;
mod process;
mod random;
mod scenarios;
mod systematic;
mod weather;
mod workflows;
mod world;
