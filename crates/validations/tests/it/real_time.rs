//! Validations in real time, where a disk or a socket makes them wait:
//!
//! - on disk, with one physical partition;
//! - over a socket, with four physical partitions. A socket with one partition would test
//!   nothing new: one partition is tested on disk and in memory.
//!
//! The modules `newer_*` have the validations that duroxide 0.1.29 lacks. The modules
//! `version_stamp_*` have the one validation with an additional argument: the version of duroxide
//! that is stamped on its history.

use std::future::Future;

use crate::list::every_validation;
use crate::newer::{every_newer_validation, version_stamp_tests_in};
use crate::suite::tests_in;

every_validation!(tests_in[on_disk OnDisk real_time]);
every_validation!(tests_in[wire_with_four_partitions WireWithFourPartitions real_time]);

every_newer_validation!(tests_in[newer_on_disk OnDisk real_time]);
every_newer_validation!(tests_in[newer_wire_with_four_partitions WireWithFourPartitions real_time]);

version_stamp_tests_in!(version_stamp_on_disk OnDisk real_time);
version_stamp_tests_in!(version_stamp_wire_with_four_partitions WireWithFourPartitions real_time);

/// Runs a validation as `#[tokio::test]` would.
pub(crate) fn run(validation: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime starts").block_on(validation);
}
