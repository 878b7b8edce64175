//! The tests of the simulation. The machinery is in the library (`src/`).
//!
//! | module | what it has |
//! |---|---|
//! | `libc_shim` | virtual time and seeded randomness for all code of the binary |
//! | `single_faults` | each request of the small scenarios fails |
//! | `operations` | each request of operations that the runtime does not call fails |
//! | `random` | everything is drawn from a seed |
//! | `contention` | several processes work on the same instances |
//! | `exact_time` | answers, kills and restarts come at their exact moments |
//! | `scale` | small cells of the measurements at scale |
//! | `remote_events` | one process writes to an instance while another is busy with it |
//! | `outages` | outages that last longer than the provider tries |

// `libc_shim` has the numbers of the system calls of these platforms only.
#![cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]

mod contention;
mod exact_time;
#[path = "../../src/libc_shim.rs"]
mod libc_shim;
mod operations;
mod outages;
mod random;
mod remote_events;
mod scale;
mod single_faults;

use perihelion_simulation::virtual_clock;

/// As in the program `sim`: a simulation allocates much.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
