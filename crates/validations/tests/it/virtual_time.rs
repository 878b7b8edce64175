//! Validations in virtual time, on an account in memory: when every task waits for a
//! timer, the clock advances to the next timer at once.
//!
//! In memory the whole stack runs on the thread of the test, so that the clock
//! never advances while a request is in flight. On disk a thread of the engine
//! commits, and virtual time would pass while the test waits for that thread.
//!
//! The modules `newer_*` have the validations that duroxide 0.1.29 lacks. The modules
//! `version_stamp_*` have the one validation with an additional argument: the version of duroxide
//! that is stamped on its history. `AccountKind` explains `embedded`, `optimistic` and
//! `transactions`.

mod clock;

use crate::list::every_validation;
use crate::newer::{every_newer_validation, version_stamp_tests_in};
use crate::suite::tests_in;

pub(crate) use clock::run;

every_validation!(tests_in[embedded Embedded virtual_time]);
every_validation!(tests_in[optimistic EmbeddedOptimistic virtual_time]);
every_validation!(tests_in[transactions EmbeddedTransactions virtual_time]);

every_newer_validation!(tests_in[newer_embedded Embedded virtual_time]);
every_newer_validation!(tests_in[newer_optimistic EmbeddedOptimistic virtual_time]);

version_stamp_tests_in!(version_stamp_embedded Embedded virtual_time);
version_stamp_tests_in!(version_stamp_optimistic EmbeddedOptimistic virtual_time);
