//! The query of a poll: the roles, tags and sessions of the fetches under way,
//! without what is known here. Messages come as a few members, activities
//! whole, because taking one needs nothing more. What a process left behind it
//! after a commit comes too, while it is not much older than it should be; what
//! is older the reconciler has met by itself.

use std::collections::BTreeSet;
use std::time::Duration;

use perihelion_client::Query;

use crate::documents::node::Tags;
use crate::documents::stamp::Stamp;
use crate::options::config::Options;
use crate::process::hints::Hints;
use crate::process::interest::Interest;

/// Instances, and sessions of others, that a poll is told to leave out; more
/// are recognised when they come.
const EXCLUDED_MAX: usize = 256;

/// How long polls tell of what was left behind: a little longer than a
/// reconciler rests that has nothing to do.
const LEFT_FOR: Duration = Duration::from_secs(15);

/// Members of an activity that are not in a message too.
const OF_ACTIVITIES: [&str; 6] = ["item", "tag", "sessionId", "lock", "inc", "attemptCount"];

/// What nobody may be at work on any more.
const LEFT: &str =
    "((c.type = 'outbox' OR c.type = 'bundle') AND c.visibleAt >= @left AND c.visibleAt <= @old)";

/// What is asked for: the sum of some interests.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct PollQuery {
    turns: bool,
    works: Option<Tags>,
    /// Who asks for activities of sessions.
    owners: BTreeSet<String>,
}

impl PollQuery {
    pub(super) fn of(interests: &[Interest]) -> Self {
        let mut question = PollQuery::default();
        for interest in interests {
            match interest {
                Interest::Turns => question.turns = true,
                Interest::Works { tags, owner } => {
                    question.works.get_or_insert_default().extend(tags);
                    question.owners.extend(owner.clone());
                }
            }
        }
        question
    }

    /// What is seen at `now`, from a moment on, in that order.
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
            .with_parameter("@left", now.before(age.saturating_add(LEFT_FOR)).0)
            .with_parameter("@old", now.before(age).0)
            .with_max_items(rows_max)
            .without_plan();
        if self.turns {
            let known = hints.instances.quietly(|hints| hints.pass_over(now, EXCLUDED_MAX));
            query = query.with_parameter("@known", known);
        }
        if let Some(tags) = &self.works {
            query = query.with_parameter("@tags", Vec::from_iter(tags.names.iter().cloned()));
        }
        if !self.owners.is_empty() {
            let foreign = hints.activities.quietly(|hints| hints.foreign_to(&self.owners, now, EXCLUDED_MAX));
            query = query.with_parameter("@foreign", foreign);
        }
        query
    }

    fn text(&self) -> String {
        let mut members = "c.id, c.instanceId, c.type, c.visibleAt, c.enq".to_owned();
        let mut kinds = vec![LEFT.to_owned()];
        if self.turns {
            kinds.push("(c.type = 'orch_queue' AND NOT ARRAY_CONTAINS(@known, c.instanceId))".to_owned());
        }
        if let Some(tags) = &self.works {
            members += ", c._etag";
            for member in OF_ACTIVITIES {
                members += &format!(", (c.type = 'worker_queue' ? c.{member} : undefined) AS {member}");
            }
            let in_session = if self.owners.is_empty() {
                "NOT IS_DEFINED(c.sessionId)"
            } else {
                "(NOT IS_DEFINED(c.sessionId) OR NOT ARRAY_CONTAINS(@foreign, c.sessionId))"
            };
            let tagged = tagged(tags);
            kinds.push(format!("(c.type = 'worker_queue' AND {tagged} AND {in_session})"));
        }
        format!(
            "SELECT {members} FROM c WHERE c.visibleAt >= @from AND c.visibleAt <= @now AND ({}) \
             ORDER BY c.visibleAt",
            kinds.join(" OR ")
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
