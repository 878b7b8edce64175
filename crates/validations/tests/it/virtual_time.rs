//! Validations in virtual time, on an account in memory: when every task waits for a
//! timer, the clock advances to the next timer at once.
//!
//! In memory the whole stack runs on the thread of the test, so that the clock
//! never advances while a request is in flight. On disk a thread of the engine
//! commits, and virtual time would pass while the test waits for that thread.
//!
//! `newer` validations are those that duroxide 0.1.31 added; `version_stamp` is one of them, which
//! also takes the version that is stamped on a history. An `optimistic` account commits without
//! writing locks.

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
