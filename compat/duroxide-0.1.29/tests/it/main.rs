//! The provider on duroxide 0.1.29: the validations of that version, and the workflows of the
//! provider's own tests on the runtime of that version. The list of validations comes from
//! `crates/validations`, without the validations that later versions added. A test compares
//! the list with the source of 0.1.29.

// `libc_shim` has the numbers of the system calls of these platforms only.
#![cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]

#[path = "../../../../crates/validations/tests/it/complete.rs"]
mod complete;
#[path = "../../../../crates/validations/tests/it/factory.rs"]
mod factory;
#[path = "../../../../crates/simulation/src/libc_shim.rs"]
mod libc_shim;
#[path = "../../../../crates/validations/tests/it/list.rs"]
mod list;
#[path = "../../../../crates/validations/tests/it/suite.rs"]
mod suite;
#[allow(dead_code, unreachable_pub, reason = "the library of the simulation needs more of it")]
#[path = "../../../../crates/simulation/src/virtual_clock.rs"]
mod virtual_clock;
#[path = "../../../../crates/validations/tests/it/virtual_time/clock.rs"]
mod virtual_time;
#[path = "../../../../crates/provider/tests/it/workflow.rs"]
mod workflow;

use list::every_validation;
use suite::{names_of, tests_in};

every_validation!(tests_in[embedded Embedded virtual_time]);

every_validation!(names_of[NAMES]);

#[test]
fn every_validation_of_this_version_is_listed_and_no_other() {
    complete::check(&[NAMES]);
}
