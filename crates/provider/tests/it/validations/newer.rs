//! Validations that duroxide has had since 0.1.31 only, so that the build
//! against 0.1.29 (`compat/duroxide-0.1.29`) does without them. One of them is
//! told which version of duroxide wrote the history that it makes.

/// Calls the macro `$then` with its arguments in brackets and the list.
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
            stamped {
                test_continue_as_new_transition_delivery
            }
        }
    };
}

/// The stamps of the duroxide versions on both sides of the change that
/// `test_continue_as_new_transition_delivery` guards.
pub(super) const STAMP_BEFORE: &str = "0.1.30";
pub(super) const STAMP_AFTER: &str = "0.1.31";

/// Makes a module of tests out of the list: one world, every newer validation.
macro_rules! newer_tests_in {
    ([$world:ident $place:ident]
     factory { $($module:ident { $($name:ident)* })* }
     stamped { $($stamped:ident)* }) => {
        mod $world {
            use duroxide::provider_validation as validation;

            use crate::place::{Place, Polls};
            use crate::validations::factory::Factory;
            use crate::validations::newer::{STAMP_AFTER, STAMP_BEFORE};

            $(mod $module {
                use super::*;

                $(#[tokio::test]
                async fn $name() {
                    let factory = Factory::open(Place::$place, Polls::AnswerAtOnce).await;
                    validation::$module::$name(&factory).await;
                    factory.close().await;
                })*
            })*

            mod stamped_before {
                use super::*;

                $(#[tokio::test]
                async fn $stamped() {
                    let factory = Factory::open(Place::$place, Polls::AnswerAtOnce).await;
                    validation::race_replay::$stamped(&factory, STAMP_BEFORE).await;
                    factory.close().await;
                })*
            }

            mod stamped_after {
                use super::*;

                $(#[tokio::test]
                async fn $stamped() {
                    let factory = Factory::open(Place::$place, Polls::AnswerAtOnce).await;
                    validation::race_replay::$stamped(&factory, STAMP_AFTER).await;
                    factory.close().await;
                })*
            }
        }
    };
}

/// The list as pairs of a module and a name.
macro_rules! newer_names_of {
    ([$names:ident]
     factory { $($module:ident { $($name:ident)* })* }
     stamped { $($stamped:ident)* }) => {
        pub(super) const $names: &[(&str, &str)] = &[
            $($((stringify!($module), stringify!($name)),)*)*
            $(("race_replay", stringify!($stamped)),)*
        ];
    };
}

every_newer_validation!(newer_names_of[NAMES]);

every_newer_validation!(newer_tests_in[embedded Embedded]);
every_newer_validation!(newer_tests_in[optimistic EmbeddedOptimistic]);
every_newer_validation!(newer_tests_in[on_disk OnDisk]);
every_newer_validation!(newer_tests_in[wire Wire]);
every_newer_validation!(newer_tests_in[wire_with_four_partitions WireWithFourPartitions]);
