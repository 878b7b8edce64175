//! The query of a poll. It selects work for the waiting fetches (by queue, tags and
//! sessions), and leaves out instances that this process knows. Messages are returned as
//! a few members; activities are returned whole, because locking one needs no other
//! read. Unfinished outboxes and bundles are returned too, for a short time after they
//! became due; the reconciler finds older ones itself.

use std::collections::BTreeSet;

use perihelion_client::Query;

use crate::documents::heartbeat::Tags;
use crate::documents::stamp::Stamp;
use crate::options::config::Options;
use crate::process::hints::Hints;
use crate::process::interest::Interest;
use crate::timing::UNFINISHED_REPORTED_FOR;

/// The most instances, and the most sessions of other workers, that a query excludes.
/// Rows of any others are filtered out after the query.
const EXCLUDED_MAX: usize = 256;

/// Members of an activity that messages do not have.
const ACTIVITY_MEMBERS: [&str; 6] = ["item", "tag", "sessionId", "lock", "inc", "attemptCount"];

/// Outboxes and bundles that their process should have finished by now.
const UNFINISHED: &str = "((c.type = 'outbox' OR c.type = 'bundle') AND c.visibleAt >= @unfinishedFrom AND \
    c.visibleAt <= @unfinishedUntil)";

/// The work that the query selects: the union of what the waiting fetches can take.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct PollQuery {
    instances: bool,
    activities: Option<Tags>,
    /// The owner ids of the workers that take activities of sessions.
    owners: BTreeSet<String>,
}

impl PollQuery {
    pub(super) fn of(interests: &[Interest]) -> Self {
        let mut query = PollQuery::default();
        for interest in interests {
            match interest {
                Interest::Instances => query.instances = true,
                Interest::Activities { tags, owner } => {
                    query.activities.get_or_insert_default().extend(tags);
                    query.owners.extend(owner.clone());
                }
            }
        }
        query
    }

    /// The query for rows visible at `now`, starting at `from`, ordered by visibility.
    pub(super) fn query(
        &self,
        hints: &Hints,
        options: &Options,
        now: Stamp,
        from: Stamp,
        rows_max: u32,
    ) -> Query {
        let age = options.reconciler_age;
        let mut query = Query::new(self.text())
            .with_parameter("@now", now.0)
            .with_parameter("@from", from.0)
            .with_parameter("@unfinishedFrom", now.minus(age.saturating_add(UNFINISHED_REPORTED_FOR)).0)
            .with_parameter("@unfinishedUntil", now.minus(age).0)
            .with_max_items(rows_max)
            .without_plan();
        if self.instances {
            let known = hints.instances.with(|hints| hints.leave_out_of_poll(now, EXCLUDED_MAX));
            query = query.with_parameter("@known", known);
        }
        if let Some(tags) = &self.activities {
            query = query.with_parameter("@tags", Vec::from_iter(tags.names.iter().cloned()));
        }
        if !self.owners.is_empty() {
            let other_sessions =
                hints.activities.with(|hints| hints.sessions_of_others(&self.owners, now, EXCLUDED_MAX));
            query = query.with_parameter("@otherSessions", other_sessions);
        }
        query
    }

    fn text(&self) -> String {
        let mut members = "c.id, c.instanceId, c.type, c.visibleAt, c.enq".to_owned();
        let mut conditions = vec![UNFINISHED.to_owned()];
        if self.instances {
            conditions
                .push("(c.type = 'orch_queue' AND NOT ARRAY_CONTAINS(@known, c.instanceId))".to_owned());
        }
        if let Some(tags) = &self.activities {
            members += ", c._etag";
            for member in ACTIVITY_MEMBERS {
                members += &format!(", (c.type = 'worker_queue' ? c.{member} : undefined) AS {member}");
            }
            let in_session = if self.owners.is_empty() {
                "NOT IS_DEFINED(c.sessionId)"
            } else {
                "(NOT IS_DEFINED(c.sessionId) OR NOT ARRAY_CONTAINS(@otherSessions, c.sessionId))"
            };
            let tagged = tagged(tags);
            conditions.push(format!("(c.type = 'worker_queue' AND {tagged} AND {in_session})"));
        }
        format!(
            "SELECT {members} FROM c WHERE c.visibleAt >= @from AND c.visibleAt <= @now AND ({}) \
             ORDER BY c.visibleAt",
            conditions.join(" OR ")
        )
    }
}

fn tagged(tags: &Tags) -> &'static str {
    match (tags.any, tags.untagged, tags.names.is_empty()) {
        (true, _, _) => "true",
        (false, true, true) => "NOT IS_DEFINED(c.tag)",
        (false, true, false) => "(NOT IS_DEFINED(c.tag) OR ARRAY_CONTAINS(@tags, c.tag))",
        (false, false, _) => "ARRAY_CONTAINS(@tags, c.tag)",
    }
}
