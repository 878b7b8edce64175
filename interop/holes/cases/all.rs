//! Test cases: ways in which a provider can lose, duplicate or block work. Each case uses
//! duroxide's public traits and the public items of the published crate. Two programs compile
//! these files. The tests of our provider run the cases, and every case has to pass. The
//! program `interop/holes` runs the same cases against the published duroxide-cdb 0.1.10,
//! where most of them fail. That shows that the cases detect the defects.
//!
//! A case relies on the layout of documents only as far as the published crate's own tests do.
//! The server injects the faults.
//!
//! `world` (the container and the server of a case) and `steps` (work items, turns,
//! fetches, acks) are helpers and have no cases. Both programs include this file with
//! `#[path]`, so its modules are beside it.

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

/// Calls a macro with every case and its outcome with 0.1.10: `fails` with a part of the
/// failure's message, or `passes` with the reason. The case of `drop_in` is not in the list:
/// both programs add it themselves.
macro_rules! each_case {
    ($call:ident) => {
        $call! {
            turns::a_large_turn_survives_one_refused_batch: fails "was not committed",
            turns::a_turn_of_two_hundred_sub_orchestrations_survives_one_refused_batch: fails "was not committed",
            turns::a_turn_of_a_hundred_and_fifty_cancellations_is_one_commit: fails "was not committed",
            turns::a_turn_of_two_megabytes_is_committed: fails "was not committed",
            turns::a_refused_turn_changes_nothing: fails "a refused turn left",
            turns::a_refused_turn_reports_the_cause: passes
                "it does not request atomic batches, so our server stops at the operation that failed and reports it",
            turns::a_cancelled_activity_is_never_delivered: fails "a cancelled activity was handed out",
            turns::a_turn_whose_message_is_gone_is_not_committed: fails "was committed",
            turns::a_continued_execution_begins_before_two_hundred_messages: passes
                "it fetches all messages of an instance at once, whatever their number",
            turns::a_history_changed_by_another_program_is_noticed: passes
                "it keeps nothing in memory between two fetches",
            outages::a_turn_is_not_lost_to_throttling: fails "429",
            outages::a_turn_survives_every_transient_status: fails "449",
            outages::a_throttled_fetch_costs_no_attempt: fails "attempt",
            outages::a_message_is_consumed_once_although_its_fetch_was_throttled: fails "came twice",
            outages::a_commit_whose_answer_is_lost_is_applied_once: fails "lock token",
            outages::an_event_whose_enqueue_lost_its_answer_arrives_once: fails "came twice",
            outages::an_acked_activity_is_not_delivered_again: fails "came back",
            outages::an_abandoned_activity_comes_after_its_delay: fails "before its delay",
            outages::a_request_without_an_answer_does_not_block_the_caller: fails "was held",
            outages::an_unknown_certificate_is_refused: fails "took an unknown certificate",
            locks::a_stale_holder_cannot_undo_a_finished_workflow: fails "the stale commit",
            locks::a_late_commit_does_not_recreate_a_deleted_instance: fails "was accepted",
            locks::a_dispatcher_that_cannot_run_an_instance_releases_no_lock_of_another: fails "was freed by another",
            locks::an_activity_renewed_while_it_is_acked_completes: passes
                "its ack is unconditional, so a concurrent renewal does not disturb it",
            locks::the_work_of_a_dead_process_is_taken_over: passes
                "its locks carry their expiry, and the next fetch after it takes over",
            locks::a_dropped_fetch_leaves_at_most_a_lock_that_expires: passes
                "it leaves a lock too, and that lock expires",
            delivery::two_turns_send_two_messages: fails "turn 2 was not committed",
            delivery::a_late_message_is_not_treated_as_a_duplicate: fails "turn 2 was not committed",
            delivery::a_deleted_parent_still_starts_its_detached_orchestrations: fails "was never started",
            delivery::a_finished_and_deleted_child_is_not_started_again: fails "was started again",
            delivery::a_message_that_cannot_be_delivered_does_not_stop_others: fails "never arrived",
            delivery::messages_of_a_recreated_source_are_delivered: passes
                "its messages have random ids, which never collide",
            delivery::a_start_of_an_existing_instance_is_delivered: passes "it deduplicates by message id only",
            sessions::a_session_belongs_to_one_worker_across_instances: fails "two workers",
            sessions::sessions_of_other_workers_do_not_hide_later_activities: fails "was not found",
            finding::fewer_dispatchers_than_configured_find_all_instances: fails "never dispatched",
            finding::instances_of_other_versions_do_not_hide_later_instances: fails "was not found",
            finding::an_unreadable_message_does_not_block_other_instances: fails "could not be fetched",
            finding::a_timer_comes_after_messages_that_arrived_before_it_fired: fails "the timer came first",
            finding::a_timer_in_the_far_future_waits: passes
                "a range filter on the time of visibility is all that timers need",
            finding::a_busy_instance_does_not_hide_another: passes
                "it reads the whole backlog at every fetch, which is expensive",
            finding::tagged_work_is_found_behind_untagged: passes "its query names the tags",
            finding::a_reader_sees_a_turn_of_another_process: passes "it caches nothing",
            managing::a_fetched_instance_does_not_exist_before_its_first_turn: fails "a phantom",
            managing::a_message_without_a_start_creates_no_instance: fails "a phantom",
            managing::a_continued_workflow_is_listed_as_running: fails "not listed as running",
            managing::a_continued_workflow_is_not_deleted_without_force: fails "was deleted",
            managing::a_bulk_deletion_spares_continued_workflows: fails "were deleted",
            managing::pruning_keeps_younger_executions: fails "were pruned",
            managing::a_deletion_counts_every_execution: fails "executions",
            managing::an_execution_reports_its_own_output: fails "output",
            managing::metrics_count_executions: fails "executions",
            managing::a_child_that_is_only_queued_keeps_its_parent: fails "an orphan",
            managing::a_throttled_deletion_is_complete: fails "left behind",
            managing::appended_events_keep_their_order_and_are_not_duplicated: fails "appended twice",
            managing::executions_of_many_events_are_listed_once: passes
                "its query is a DISTINCT in one partition, where our server, as the service, repeats no value",
            managing::an_unknown_token_cannot_abandon: fails "was accepted",
            managing::values_of_an_execution_are_merged_at_its_end: passes
                "it stores base and change in separate documents",
            names::a_name_with_a_quote_works: fails "400",
            names::a_name_with_a_backslash_works: fails "400",
            names::a_name_with_a_control_character_works: fails "panicked",
            names::a_name_with_slashes_works: fails "400",
            names::a_name_with_question_marks_and_hashes_works: passes
                "they are escaped in paths, and our server takes them",
            names::a_name_with_an_apostrophe_is_deleted_with_its_history: fails "events",
            names::a_name_with_non_ascii_characters_works: passes
                "its header carries the bytes of UTF-8, and our server takes them",
            names::a_name_of_two_kilobytes_works: fails "2 KB",
            names::an_instance_may_have_the_name_of_a_system_document: passes
                "it has no system documents whose name an instance could have",
            names::a_key_with_slashes_works: fails "400",
        }
    };
}
pub(crate) use each_case;
