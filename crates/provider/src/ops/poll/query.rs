//! The query of a poll. The query selects work for the waiting fetches (by queue, tags and
//! sessions). It leaves out instances that this process has locked or will claim without the
//! poll. It returns only a few members of a message. It returns all members of an activity that this
//! version knows, so that locking the activity needs no read.
//!
//! Unfinished outboxes and bundles are returned too, from the age at which the reconciler may
//! finish them, and only for [`UNFINISHED_REPORTED_FOR`]. The reconciler itself finds older
//! outboxes and bundles.

use std::collections::BTreeSet;

use perihelion_client::Query;

use super::ingest::FoundWork;
use crate::documents::heartbeat::Tags;
use crate::documents::stamp::Stamp;
use crate::options::config::Options;
use crate::process::hints::Hints;
use crate::process::interest::Interest;
use crate::timing::UNFINISHED_REPORTED_FOR;

/// The most instances, and the most sessions of other workers, that a query excludes. Rows of
/// further instances and sessions are returned, but no fetch takes them.
const EXCLUDED_MAX: usize = 256;

/// Members that are returned for activities only. Together with `_etag` and the members of all
/// rows, these are all members that a lock needs.
const ACTIVITY_MEMBERS: [&str; 6] = ["item", "tag", "sessionId", "lock", "inc", "attemptCount"];

/// Outboxes and bundles that became old enough for the reconciler less than
/// [`UNFINISHED_REPORTED_FOR`] ago.
const UNFINISHED: &str = "((c.type = 'outbox' OR c.type = 'bundle') AND c.visibleAt >= @unfinishedFrom AND \
    c.visibleAt <= @unfinishedUntil)";

/// The work that the query selects: all work that a waiting fetch can take.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct PollQuery {
    /// Whether a fetch waits for instances.
    wants_instances: bool,
    /// The tags of the activities; `None` if no fetch waits for activities.
    activity_tags: Option<Tags>,
    /// The ids under which the waiting workers own sessions. If there are none, activities of
    /// sessions are not selected.
    session_owners: BTreeSet<String>,
}

impl PollQuery {
    /// The query for the work that these fetches can take.
    pub(super) fn of(interests: &[Interest]) -> Self {
        let mut query = PollQuery::default();
        for interest in interests {
            match interest {
                Interest::Instances => query.wants_instances = true,
                Interest::Activities { tags, owner } => {
                    query.activity_tags.get_or_insert_default().extend(tags);
                    query.session_owners.extend(owner.clone());
                }
            }
        }
        query
    }

    /// Whether a poll has left work of every queue that the query selects, because there was no
    /// room for it. Then further pages are of no use.
    pub(super) fn is_full(&self, found: &FoundWork) -> bool {
        let no_room_for = found.no_room_for();
        (no_room_for.instances || !self.wants_instances)
            && (no_room_for.activities || self.activity_tags.is_none())
    }

    /// Builds the query for rows whose `visibleAt` is from `from` to `now`, in the order of
    /// `visibleAt`, in pages of at most `rows_max` rows. Records in the hints which instances
    /// the poll leaves out.
    pub(super) fn build(
        &self,
        hints: &Hints,
        options: &Options,
        now: Stamp,
        from: Stamp,
        rows_max: u32,
        is_only_partition: bool,
    ) -> Query {
        let age = options.reconciler_age;
        let mut query = Query::new(self.statement())
            .with_parameter("@now", now.0)
            .with_parameter("@from", from.0)
            .with_parameter("@unfinishedFrom", now.minus(age.saturating_add(UNFINISHED_REPORTED_FOR)).0)
            .with_parameter("@unfinishedUntil", now.minus(age).0)
            .with_max_items(rows_max)
            .without_plan();
        if self.wants_instances {
            let known =
                hints.instances.with(|hints| hints.leave_out_of_poll(now, EXCLUDED_MAX, is_only_partition));
            query = query.with_parameter("@known", known);
        }
        if let Some(tags) = &self.activity_tags {
            query = query.with_parameter("@tags", Vec::from_iter(tags.names.iter().cloned()));
        }
        if !self.session_owners.is_empty() {
            let owners = &self.session_owners;
            let other_sessions =
                hints.activities.with(|hints| hints.sessions_of_others(owners, now, EXCLUDED_MAX));
            query = query.with_parameter("@otherSessions", other_sessions);
        }
        query
    }

    fn statement(&self) -> String {
        let mut members = "c.id, c.instanceId, c.type, c.visibleAt, c.enq, c.free".to_owned();
        let mut conditions = vec![UNFINISHED.to_owned()];
        if self.wants_instances {
            conditions
                .push("(c.type = 'orch_queue' AND NOT ARRAY_CONTAINS(@known, c.instanceId))".to_owned());
        }
        if let Some(tags) = &self.activity_tags {
            members += ", c._etag";
            for member in ACTIVITY_MEMBERS {
                members += &format!(", (c.type = 'worker_queue' ? c.{member} : undefined) AS {member}");
            }
            let session_condition = if self.session_owners.is_empty() {
                "NOT IS_DEFINED(c.sessionId)"
            } else {
                // An activity that was given back with a delay is read although another process holds its
                // session: that process may have given the session up.
                "(NOT IS_DEFINED(c.sessionId) OR NOT ARRAY_CONTAINS(@otherSessions, c.sessionId) \
                 OR (NOT IS_DEFINED(c.lock) AND c.visibleAt > c.enq))"
            };
            let tag_condition = tag_condition(tags);
            conditions.push(format!("(c.type = 'worker_queue' AND {tag_condition} AND {session_condition})"));
        }
        format!(
            "SELECT {members} FROM c WHERE c.visibleAt >= @from AND c.visibleAt <= @now AND ({}) \
             ORDER BY c.visibleAt",
            conditions.join(" OR ")
        )
    }
}

/// The condition on the tag of an activity.
fn tag_condition(tags: &Tags) -> &'static str {
    match (tags.matches_any, tags.matches_untagged, tags.names.is_empty()) {
        (true, _, _) => "true",
        (false, true, true) => "NOT IS_DEFINED(c.tag)",
        (false, true, false) => "(NOT IS_DEFINED(c.tag) OR ARRAY_CONTAINS(@tags, c.tag))",
        (false, false, _) => "ARRAY_CONTAINS(@tags, c.tag)",
    }
}
