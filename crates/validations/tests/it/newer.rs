//! Validations that duroxide 0.1.32 has and 0.1.29 lacks. The build against 0.1.29
//! (`compat/duroxide-0.1.29`) leaves them out.
//!
//! One validation is not in the list, because it takes an additional argument: the version of
//! duroxide that is stamped on the history it creates. duroxide replays a history by new rules
//! if its stamp is 0.1.31 or higher. The macro `version_stamp_tests_in` creates one test with a
//! version before this change and one with a version after it.

use duroxide::provider_validation::race_replay::test_continue_as_new_transition_delivery;
use perihelion_testkit::provider::{AccountKind, ShortPolls};

use crate::factory::Factory;

/// Calls the macro `$then` with two things: the given arguments in brackets, and the list.
macro_rules! every_newer_validation {
    ($then:ident [$($argument:tt)*]) => {
        $then! {
            [$($argument)*]
            factory {
                poison_message {
                    orchestration_delayed_abandon_preserves_unlocked_rows
                    orchestration_ignore_attempt_preserves_hidden_start
                }
                race_replay {
                    test_duplicate_start_preserves_pinned_handler
                    test_continue_as_new_unregistered_backoff
                    test_continue_as_new_poisoned_successor_is_own_execution
                    test_continue_as_new_duplicate_start
                    test_queue_race_cancellation_replay
                    test_continue_as_new_queue_race_replay
                    test_queue_replay_version_stamp_roundtrip
                    test_positional_wait_race_replay
                    test_legacy_queue_race_decision_preserved
                }
            }
            short_polls {}
            long_polls {}
            any_polls {}
        }
    };
}

pub(crate) use every_newer_validation;

/// The validation with the additional argument, in the form of the lists.
pub(crate) const STAMPED: &[(&str, &str)] = &[("race_replay", "test_continue_as_new_transition_delivery")];

/// The last version of duroxide before the change of the replay rules, and the first version
/// after it. (0.1.31 was never published. Histories of 0.1.32 are replayed by the new rules too.)
pub(crate) const STAMP_BEFORE: &str = "0.1.30";
pub(crate) const STAMP_AFTER: &str = "0.1.31";

/// Runs the validation with a history that has this version stamped on it.
pub(crate) async fn run_transition(kind: AccountKind, stamp: &str) {
    let factory = Factory::open(kind, ShortPolls::ReturnAtOnce).await;
    test_continue_as_new_transition_delivery(&factory, stamp).await;
    factory.close().await;
}

/// Creates a module with the two tests of the validation with the additional argument.
/// `module kind time` are those of `tests_in` in `suite`.
macro_rules! version_stamp_tests_in {
    ($module:ident $kind:ident $time:ident) => {
        mod $module {
            use perihelion_testkit::provider::AccountKind;

            use crate::newer::{STAMP_AFTER, STAMP_BEFORE, run_transition};
            use crate::$time::run;

            #[test]
            fn a_history_from_before_the_change_continues() {
                run(run_transition(AccountKind::$kind, STAMP_BEFORE));
            }

            #[test]
            fn a_history_from_after_the_change_continues() {
                run(run_transition(AccountKind::$kind, STAMP_AFTER));
            }
        }
    };
}

pub(crate) use version_stamp_tests_in;
