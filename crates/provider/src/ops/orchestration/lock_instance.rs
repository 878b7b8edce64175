//! Locks an instance for a dispatcher. The lock is written to the state document. In the
//! commit tiers `Optimistic` and `Cached` it may be kept in this process only. The lock table
//! keeps the state, so that most acks need no read.
//!
//! Invariant: a lock has the same form in every tier: the state with the lock in it, and the
//! etag that the commit is conditional on. If the lock is not written, other processes may
//! take the instance too, and only one commit succeeds.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use duroxide::Event;
use duroxide::providers::{KvEntry, OrchestrationItem, WorkItem};
use perihelion_client::Etag;

use crate::documents::lock_nonce::{is_of, lock_nonce};
use crate::documents::lock_token::{LockKind, LockToken, nonce};
use crate::documents::stamp::{Stamp, deadline_ms};
use crate::documents::{Charge, Lock, Message, STATE_ID, StartedBy, State, Versioned};
use crate::failure::Failure;
use crate::ops::core::Core;
use crate::process::lock_table::{self, LockedInstance};

/// The result of `fetch_orchestration_item`: the item, the lock token, and the number of this
/// attempt.
pub(crate) type FetchedInstance = (OrchestrationItem, String, u32);

/// Name, version and execution of an instance.
pub(crate) struct Identity {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) execution: u64,
}

/// The instance to lock, with everything that its turn needs.
pub(crate) struct LockRequest<'a> {
    pub(crate) instance: &'a str,
    /// `None` if there is no state document. If the state is a tombstone, only its etag, dedup
    /// record and commit number are used.
    pub(crate) stored_state: Option<Versioned<State>>,
    pub(crate) identity: Identity,
    /// The history of the current execution, or the reason why the turn cannot have it.
    pub(crate) history: Result<Arc<Vec<Event>>, String>,
    /// The key-value pairs at the end of the last execution that has ended.
    pub(crate) kv_snapshot: HashMap<String, KvEntry>,
    pub(crate) messages: Vec<(Message, WorkItem)>,
    /// The etags of messages that were read, by message id.
    pub(crate) message_etags: HashMap<String, Etag>,
    /// Whether there may be more messages than this turn takes.
    pub(crate) has_more_messages: bool,
    /// The attempt counts of messages, by message id, if an earlier turn of this process with these
    /// messages ended without a commit. Perhaps no document has these counts.
    pub(crate) attempts: &'a BTreeMap<String, u32>,
}

impl LockRequest<'_> {
    /// Writes the lock into the state document. `None` if another writer has changed the state
    /// first.
    pub(crate) async fn lock_durably(
        self,
        core: &Core,
        lock_timeout: Duration,
    ) -> Result<Option<FetchedInstance>, Failure> {
        let (state, attempt) =
            self.locked_state(core.membership.process_id(), lock_timeout, core.clock.now_ms());
        let nonce = state.lock.as_ref().map(|lock| lock.nonce.clone()).unwrap_or_default();
        let etag = self.stored_state.as_ref().map(|stored| &stored.etag);
        match core.store.put_state(&state, etag, "/lock/n", nonce.into()).await {
            Ok(etag) => {
                // The lock that this lock replaces. If another process held it, this is a takeover.
                let expired = self.stored_state.as_ref().and_then(|stored| stored.value.lock.as_ref());
                // This process may have held the lock itself: then it was not taken over.
                if expired.is_some_and(|lock| !is_of(&lock.nonce, core.membership.process_id())) {
                    core.metrics.count_steal();
                }
                Ok(Some(self.into_fetched_instance(core, state, Some(etag), lock_timeout, true, attempt)))
            }
            Err(Failure::Storage(error))
                if error.is_conflict() || error.is_precondition_failed() || error.is_document_not_found() =>
            {
                Ok(None)
            }
            Err(failure) => Err(failure),
        }
    }

    /// Keeps the lock in this process only. Needs no request.
    pub(crate) fn lock_in_memory(self, core: &Core, lock_timeout: Duration) -> FetchedInstance {
        let (state, attempt) =
            self.locked_state(core.membership.process_id(), lock_timeout, core.clock.now_ms());
        let etag = self.stored_state.as_ref().map(|stored| stored.etag.clone());
        self.into_fetched_instance(core, state, etag, lock_timeout, false, attempt)
    }

    /// The state with the lock in it, and the number of this attempt: the largest of the
    /// messages' attempt counts. The attempt count of a message is one more than the largest
    /// count that the message document, an expired lock or this process has for the message.
    fn locked_state(&self, process: &str, lock_timeout: Duration, now_ms: u64) -> (State, u32) {
        let mut state = match &self.stored_state {
            Some(stored) if !stored.value.is_deleted() => stored.value.clone(),
            Some(stored) => State {
                dedup_record: stored.value.dedup_record.clone(),
                commit_number: stored.value.commit_number,
                ..State::blank(self.instance, nonce())
            },
            None => State::blank(self.instance, nonce()),
        };
        let expired_attempts = state.lock.take().map(|lock| lock.attempts).unwrap_or_default();
        let next_attempt = |message: &Message| {
            let known = [&expired_attempts, self.attempts];
            let counts = known.map(|attempts| attempts.get(&message.id).copied().unwrap_or(0));
            let so_far = counts.into_iter().fold(message.attempt_count, u32::max);
            (message.id.clone(), so_far.saturating_add(1))
        };
        let attempts: BTreeMap<String, u32> =
            self.messages.iter().map(|(message, _)| next_attempt(message)).collect();
        let attempt = attempts.values().copied().max().unwrap_or(1);
        // The lease begins now, not when the fetch began.
        let until = deadline_ms(now_ms, lock_timeout);
        let parts = self.messages.iter().filter_map(|(message, _)| message.item.parts().cloned()).collect();
        state.lock = Some(Lock { nonce: lock_nonce(process, now_ms), until, attempts, parts });
        state.started_by = started_by(&state, &self.messages);
        (state, attempt)
    }

    /// Puts the lock into the lock table and the hints, and returns the item with its token.
    fn into_fetched_instance(
        self,
        core: &Core,
        state: State,
        etag: Option<Etag>,
        lease: Duration,
        is_durable: bool,
        attempt: u32,
    ) -> FetchedInstance {
        let LockRequest {
            identity, history, kv_snapshot, messages, message_etags, has_more_messages, ..
        } = self;
        let Lock { nonce, until, attempts, .. } = state.lock.clone().unwrap_or_default();
        let token = LockToken {
            kind: LockKind::Orchestration,
            instance: state.instance_id.clone(),
            incarnation: state.incarnation.clone(),
            execution: identity.execution,
            nonce: nonce.clone(),
            id: STATE_ID.to_owned(),
        };
        let locked = LockedInstance {
            dedup_entries: messages.iter().filter_map(|(message, _)| message.dedup_entry()).collect(),
            message_etags,
            charge_in_messages: messages
                .iter()
                .fold(Charge::default(), |sum, (message, _)| sum.plus(message.cost)),
            until: lock_table::deadline(until, core.clock.now_ms()),
            lease,
            has_more_messages,
            is_durable,
            is_optimistic: !is_durable,
            state,
            etag,
            history: history.as_ref().ok().map(Arc::clone),
        };
        core.instance_locks.insert(&nonce, locked);
        core.hints.instances.with(|hints| hints.record_lock(&token.instance, Stamp::at_ms(until), attempts));
        let (history, history_error) = match history {
            Ok(history) => (Vec::clone(&history), None),
            Err(error) => (Vec::new(), Some(error)),
        };
        let item = OrchestrationItem {
            instance: token.instance.clone(),
            orchestration_name: identity.name,
            execution_id: identity.execution,
            version: identity.version,
            history,
            messages: messages.into_iter().map(|(_, item)| item).collect(),
            history_error,
            kv_snapshot,
        };
        (item, token.encode(), attempt)
    }
}

/// The parent that started an instance, and the parent's incarnation, from a start among the
/// messages of the first turn. `None` if the instance has no parent.
///
/// Also `None` if, in any turn, another start comes from the same parent with another or an
/// unknown incarnation. The runtime answers both starts, and nothing shows which answer is for
/// which incarnation. So both answers go to the parent's current incarnation.
fn started_by(state: &State, messages: &[(Message, WorkItem)]) -> Option<StartedBy> {
    let starts = messages.iter().filter_map(|(message, _)| {
        let parent = message.start_parent.as_deref()?;
        Some((parent, message.parent_incarnation.as_deref()))
    });
    let is_first_turn = state.execution.number == 0 && !state.is_created;
    let started_by = match is_first_turn {
        true => starts.clone().find_map(|(parent, incarnation)| {
            Some(StartedBy { instance: parent.to_owned(), incarnation: incarnation?.to_owned() })
        }),
        false => state.started_by.clone(),
    }?;
    let mut same_parent = starts.filter(|(parent, _)| *parent == started_by.instance);
    same_parent
        .all(|(_, incarnation)| incarnation == Some(started_by.incarnation.as_str()))
        .then_some(started_by)
}
