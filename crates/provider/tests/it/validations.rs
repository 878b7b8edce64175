//! duroxide's validation suite, one test for each of its functions in each
//! account. The functions are listed once, in `list`; those that duroxide
//! 0.1.29 lacks are in `newer`. `complete` compares the lists with duroxide's
//! source, so that an upgrade cannot add a validation that is not run.
//!
//! Most validations wait until a lock expires. In an account in memory only
//! timers make them wait, and `crates/simulation` runs them there in virtual
//! time. This binary runs them in real time, where a disk or a socket makes
//! them wait too:
//!
//! - on disk, with one physical partition;
//! - over a socket, with four physical partitions. A socket with one partition
//!   would show a validation nothing new: what one partition does is seen on
//!   disk and in memory, and what a socket does is seen with four.
//!
//! `crates/simulation` includes `factory`, `list`, `newer` and `suite`;
//! `compat/duroxide-0.1.29` includes `complete`, `factory`, `list` and `suite`.

mod complete;
mod factory;
mod list;
mod newer;
mod suite;

use std::future::Future;

use list::every_validation;
use newer::{every_newer_validation, stamped_tests_in};
use suite::{names_of, tests_in};

every_validation!(tests_in[on_disk OnDisk in_real_time]);
every_validation!(tests_in[wire_with_four_partitions WireWithFourPartitions in_real_time]);

every_newer_validation!(tests_in[newer_on_disk OnDisk in_real_time]);
every_newer_validation!(tests_in[newer_wire_with_four_partitions WireWithFourPartitions in_real_time]);

stamped_tests_in!(stamped_on_disk OnDisk in_real_time);
stamped_tests_in!(stamped_wire_with_four_partitions WireWithFourPartitions in_real_time);

every_validation!(names_of[NAMES]);
every_newer_validation!(names_of[NEWER]);

#[test]
fn every_public_validation_is_listed_and_no_other() {
    complete::check(&[NAMES, NEWER, newer::STAMPED]);
}

/// Runs a validation as `#[tokio::test]` would.
fn in_real_time(validation: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime starts").block_on(validation);
}
