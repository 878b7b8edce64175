//! duroxide's validation suite, one test for each of its functions in each
//! world. The functions are listed once, in `list` (and in `newer` those that
//! the oldest duroxide we build with lacks); `complete` holds the lists against
//! the crate's source, so that an upgrade cannot add a validation that nobody
//! runs.
//!
//! Two pairs of functions exclude each other: a provider that answers an empty
//! short poll at once, and one that waits it out. Ours does either, by its
//! long-poll threshold, so each pair runs under its own.
//!
//! `compat/duroxide-0.1.29` includes `complete`, `factory`, `list` and `suite`.

mod complete;
mod factory;
mod list;
mod newer;
mod suite;

use list::every_validation;
use newer::every_newer_validation;
use suite::{names_of, tests_in};

every_validation!(tests_in[embedded Embedded]);
every_validation!(tests_in[on_disk OnDisk]);
every_validation!(tests_in[optimistic EmbeddedOptimistic]);
every_validation!(tests_in[wire Wire]);
every_validation!(tests_in[wire_with_four_partitions WireWithFourPartitions]);

every_newer_validation!(tests_in[newer_embedded Embedded]);
every_newer_validation!(tests_in[newer_on_disk OnDisk]);
every_newer_validation!(tests_in[newer_optimistic EmbeddedOptimistic]);
every_newer_validation!(tests_in[newer_wire Wire]);
every_newer_validation!(tests_in[newer_wire_with_four_partitions WireWithFourPartitions]);

every_validation!(names_of[NAMES]);
every_newer_validation!(names_of[NEWER]);

#[test]
fn every_public_validation_is_wired_and_no_other() {
    complete::check(&[NAMES, NEWER, newer::STAMPED]);
}
