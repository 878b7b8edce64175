//! Validations that duroxide has had since 0.1.31 only, so that the build
//! against 0.1.29 (`compat/duroxide-0.1.29`) does without them. One of them is
//! told which version of duroxide wrote the history that it makes, and so is not
//! in the list but run here, with a version of either side.

use duroxide::provider_validation::race_replay::test_continue_as_new_transition_delivery;

use super::factory::Factory;
use crate::place::{Place, Polls};

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
            short_polls {}
            long_polls {}
            any_polls {}
        }
    };
}

pub(super) use every_newer_validation;

/// What is run here, as the list would have it.
pub(super) const STAMPED: &[(&str, &str)] = &[("race_replay", "test_continue_as_new_transition_delivery")];

/// The stamps of the duroxide versions on both sides of the change that the
/// validation guards.
const STAMP_BEFORE: &str = "0.1.30";
const STAMP_AFTER: &str = "0.1.31";

async fn transition(place: Place, stamp: &str) {
    let factory = Factory::open(place, Polls::AnswerAtOnce).await;
    test_continue_as_new_transition_delivery(&factory, stamp).await;
    factory.close().await;
}

macro_rules! stamped_tests {
    ($($world:ident $place:ident)*) => {
        $(mod $world {
            use super::*;

            #[tokio::test]
            async fn a_history_from_before_the_change_continues() {
                transition(Place::$place, STAMP_BEFORE).await;
            }

            #[tokio::test]
            async fn a_history_from_after_the_change_continues() {
                transition(Place::$place, STAMP_AFTER).await;
            }
        })*
    };
}

stamped_tests! {
    embedded Embedded
    on_disk OnDisk
    optimistic EmbeddedOptimistic
    wire Wire
    wire_with_four_partitions WireWithFourPartitions
}
