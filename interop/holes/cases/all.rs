//! Ways in which a provider can lose, double or block work, each as one small
//! story told through duroxide's public traits and the published crate's
//! surface. Two programs compile these files: the product's tests, where every
//! case must hold, and `interop/holes`, where the same cases run against the
//! published duroxide-cdb 0.1.10 and must not, so that they are known to bite.
//!
//! What always holds: a case knows nothing of how documents are laid out beyond
//! what the published crate's own tests read, and faults come from the server.

pub(crate) mod delivery;
pub(crate) mod drop_in;
pub(crate) mod finding;
pub(crate) mod locks;
pub(crate) mod managing;
pub(crate) mod names;
pub(crate) mod outages;
pub(crate) mod sessions;
pub(crate) mod steps;
pub(crate) mod turns;
pub(crate) mod world;

/// Calls a macro with every case: where it is, and what 0.1.10 does with it.
/// `fails` quotes what the case says there; `passes` says why it does.
macro_rules! each_case {
    ($call:ident) => {
        $call! {
            turns::a_large_turn_outlives_one_refusal: fails "was not committed",
            turns::a_turn_of_two_hundred_sub_orchestrations_outlives_one_refusal: fails "was not committed",
            turns::a_turn_of_a_hundred_and_fifty_cancellations_is_one_commit: fails "was not committed",
            turns::a_turn_of_two_megabytes_is_committed: fails "was not committed",
            turns::a_refused_turn_changes_nothing: fails "a refused turn left",
            turns::a_refused_turn_says_what_was_wrong_with_it: passes
                "it does not ask for atomic batches, so our server stops at the culprit, which is then the first",
            turns::a_cancelled_activity_is_never_handed_out: fails "a cancelled activity was handed out",
            turns::a_turn_whose_message_is_gone_is_not_committed: fails "was committed",
            turns::a_continued_execution_begins_before_two_hundred_messages: passes
                "it fetches all messages of an instance at once, whatever their number",
            turns::a_history_changed_behind_its_back_is_noticed: passes
                "it keeps nothing in memory between two fetches",
            outages::a_turn_is_not_lost_to_throttling: fails "429",
            outages::a_turn_outlives_every_passing_refusal: fails "449",
            outages::a_throttled_fetch_costs_no_attempt: fails "attempt",
            outages::a_message_is_consumed_once_although_its_fetch_was_throttled: fails "came twice",
            outages::a_commit_whose_answer_is_lost_is_made_once: fails "lock token",
            outages::an_event_whose_enqueue_lost_its_answer_arrives_once: fails "came twice",
            outages::an_activity_that_was_acked_does_not_come_back: fails "came back",
            outages::an_activity_abandoned_with_a_delay_keeps_it: fails "before its delay",
            outages::a_held_request_does_not_hold_the_caller: fails "was held",
            outages::an_unknown_certificate_is_refused: fails "took an unknown certificate",
            locks::a_stale_holder_cannot_undo_a_finished_workflow: fails "the stale commit",
            locks::a_late_commit_does_not_make_a_deleted_instance_again: fails "was accepted",
            locks::whoever_cannot_take_an_instance_frees_no_foreign_lock: fails "was freed by another",
            locks::an_activity_renewed_while_it_is_acked_completes: passes
                "its ack is unconditional, so a renewal in between does not matter to it",
            locks::the_work_of_a_holder_that_is_gone_is_taken_over: passes
                "its locks carry their end, and whoever looks after it takes over",
            locks::a_dropped_fetch_leaves_no_more_than_a_lock_that_ends: passes
                "it leaves a lock as well, and that lock ends",
            delivery::two_turns_send_two_messages: fails "turn 2 was not committed",
            delivery::a_late_message_is_not_taken_for_an_old_one: fails "turn 2 was not committed",
            delivery::a_deleted_parent_still_starts_what_it_detached: fails "was never started",
            delivery::a_finished_and_deleted_child_is_not_started_again: fails "was started again",
            delivery::one_message_that_cannot_be_sent_stops_no_other: fails "never arrived",
            delivery::a_source_that_is_made_again_is_heard: passes
                "its messages have random ids, which never meet",
            delivery::a_start_that_collides_is_delivered: passes "it deduplicates by message id only",
            sessions::a_session_belongs_to_one_worker_across_instances: fails "two workers",
            sessions::foreign_sessions_do_not_hide_what_is_behind_them: fails "was not found",
            finding::fewer_dispatchers_than_configured_find_all_instances: fails "never dispatched",
            finding::instances_of_other_versions_do_not_hide_what_is_behind_them: fails "was not found",
            finding::an_unreadable_message_stops_no_other_instance: fails "could not be fetched",
            finding::a_timer_comes_after_what_came_before_it_fired: fails "the timer came first",
            finding::a_timer_of_the_far_future_waits: passes
                "a range filter on the time of visibility is all that timers need",
            finding::a_busy_instance_does_not_hide_another: passes
                "it reads the whole backlog at every fetch, at a price",
            finding::tagged_work_is_found_behind_untagged: passes "its query names the tags",
            finding::a_reader_sees_what_another_node_finished: passes "it caches nothing",
            managing::a_fetched_instance_does_not_exist_before_its_first_turn: fails "a phantom",
            managing::a_message_to_nobody_makes_no_instance: fails "a phantom",
            managing::a_continued_workflow_is_listed_as_running: fails "not listed as running",
            managing::a_continued_workflow_is_not_deleted_without_force: fails "was deleted",
            managing::a_bulk_deletion_spares_continued_workflows: fails "were deleted",
            managing::pruning_keeps_what_is_younger_than_asked: fails "were pruned",
            managing::a_deletion_counts_every_execution: fails "executions",
            managing::an_execution_tells_its_own_output: fails "output",
            managing::metrics_count_executions: fails "executions",
            managing::a_child_that_is_only_queued_keeps_its_parent: fails "an orphan",
            managing::a_deletion_that_was_throttled_is_whole: fails "left behind",
            managing::appended_events_keep_their_order_and_repeat_nothing: fails "appended twice",
            managing::executions_of_many_events_are_listed_once: passes
                "our server, as the service, sends the rows of one partition without repetition",
            managing::an_unknown_token_cannot_abandon: fails "was accepted",
            managing::values_of_an_execution_are_merged_at_its_end: passes
                "base and delta are documents of their own there",
            names::a_name_with_a_quote_works: fails "400",
            names::a_name_with_a_backslash_works: fails "400",
            names::a_name_with_a_control_character_works: fails "panicked",
            names::a_name_with_slashes_works: fails "400",
            names::a_name_with_question_marks_and_hashes_works: passes
                "they are escaped in paths, and our server takes them",
            names::a_name_with_an_apostrophe_is_deleted_with_its_history: fails "events",
            names::a_name_beyond_ascii_works: passes
                "its header carries the bytes of UTF-8, and our server takes them",
            names::a_name_of_two_kilobytes_works: fails "2 KB",
            names::an_instance_may_be_called_like_a_system_document: passes
                "it has no system documents that an instance could be called like",
            names::a_key_with_slashes_works: fails "400",
        }
    };
}
pub(crate) use each_case;
