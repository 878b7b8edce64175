//! duroxide's validation suite, one test for each of its functions in each kind
//! of account. The functions are listed once, in `list`; those that duroxide
//! 0.1.29 lacks are in `newer`. `complete` compares the lists with duroxide's
//! source, so that an upgrade cannot add a validation that is not run.
//!
//! Many validations wait, for example until a lock expires. In an account in memory
//! only timers make a validation wait, so validations run in virtual time there
//! (`virtual_time`). Where a disk or a socket makes them wait too, they run in real
//! time (`real_time`).
//!
//! `compat/duroxide-0.1.29` includes `complete`, `factory`, `list`, `suite` and
//! `virtual_time/clock.rs`.

mod complete;
mod factory;
// The virtual clock knows the system calls of these platforms.
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
#[path = "../../../simulation/src/libc_shim.rs"]
mod libc_shim;
mod list;
mod newer;
mod real_time;
mod suite;
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
#[allow(dead_code, unreachable_pub, reason = "the library of the simulation needs more of it")]
#[path = "../../../simulation/src/virtual_clock.rs"]
mod virtual_clock;
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod virtual_time;

use list::every_validation;
use newer::every_newer_validation;
use suite::names_of;

every_validation!(names_of[NAMES]);
every_newer_validation!(names_of[NEWER]);

#[test]
fn every_public_validation_is_listed_and_no_other() {
    complete::check(&[NAMES, NEWER, newer::STAMPED]);
}
