//! The validation suite of duroxide 0.1.29, on the engine in this process.
//! The list is the provider's, without what came later, and is held against
//! that version's source.

#[path = "../../../../crates/provider/tests/it/validations/complete.rs"]
mod complete;
#[path = "../../../../crates/provider/tests/it/validations/factory.rs"]
mod factory;
#[path = "../../../../crates/provider/tests/it/validations/list.rs"]
mod list;
#[path = "../../../../crates/provider/tests/it/validations/suite.rs"]
mod suite;

use list::every_validation;
use suite::{names_of, tests_in};

every_validation!(tests_in[embedded Embedded]);

every_validation!(names_of[NAMES]);

#[test]
fn every_validation_of_this_version_is_wired_and_no_other() {
    complete::check(&[NAMES]);
}
