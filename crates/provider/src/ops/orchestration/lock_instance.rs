//! Locks an instance for a dispatcher. The lock is written to the state document, or kept
//! in this process only, as the commit tiers `Optimistic` and `Cached` allow. The lock
//! table keeps the state, so that most acks need no read.
//!
//! Invariant: a lock is the same in every tier: the state with the lock in it, and the
//! etag that the commit is conditional on. Without a written lock other processes may
//! take the instance too; one commit wins.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use duroxide::Event;
use duroxide::providers::{KvEntry, OrchestrationItem, WorkItem};
use perihelion_client::Etag;

use crate::documents::lock_token::{LockKind, LockToken, nonce};
use crate::documents::stamp::{Stamp, deadline_ms};
use crate::documents::{Lock, Message, STATE_ID, StartedBy, State, Versioned};
use crate::failure::Failure;
use crate::ops::core::Core;
use crate::process::lock_table::{self, LockedInstance};

/// The item, its lock token, and the number of this attempt.
pub(crate) type LockedItem = (OrchestrationItem, String, u32);

/// Name, version and execution of an instance.
pub(crate) struct Identity {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) execution: u64,
}

/// The instance to lock, with all that its turn needs.
pub(crate) struct LockRequest<'a> {
    pub(crate) instance: &'a str,
    /// The stored state. Of a tombstone only the etag, the dedup record and the commit
    /// number are used.
    pub(crate) before: Option<Versioned<State>>,
    pub(crate) identity: Identity,
    /// The history of the current execution, or the reason why the turn cannot have it.
    pub(crate) history: Result<Arc<Vec<Event>>, String>,
    /// The key-value pairs as the last execution that has ended left them.
    pub(crate) kv_snapshot: HashMap<String, KvEntry>,
    pub(crate) messages: Vec<(Message, WorkItem)>,
    /// There may be more messages than this turn takes.
    pub(crate) has_more_messages: bool,
    /// The attempts of an earlier turn of this process that did not end with a commit, by
    /// message id. They may be in no document.
    pub(crate) attempts: &'a BTreeMap<String, u32>,
}

impl LockRequest<'_> {
    /// Writes the lock. `None` when another process was faster.
    pub(crate) async fn lock_durably(
        self,
        core: &Core,
        lock_timeout: Duration,
    ) -> Result<Option<LockedItem>, Failure> {
        let (state, attempt) = self.locked_state(lock_timeout, core.clock.now_ms());
        let nonce = state.lock.as_ref().map(|lock| lock.nonce.clone()).unwrap_or_default();
        let etag = self.before.as_ref().map(|before| &before.etag);
        match core.store.put_state(&state, etag, "/lock/n", nonce.into()).await {
            Ok(etag) => {
                let expired = self.before.as_ref().and_then(|before| before.value.lock.as_ref());
                if expired.is_some_and(|lock| core.instance_locks.get(&lock.nonce).is_none()) {
                    core.metrics.count_steal();
                }
                Ok(Some(self.into_locked_item(core, state, Some(etag), true, attempt)))
            }
            Err(Failure::Storage(error))
                if error.is_conflict() || error.is_precondition_failed() || error.is_not_found() =>
            {
                Ok(None)
            }
            Err(failure) => Err(failure),
        }
    }

    /// Keeps the lock in this process only. Needs no request.
    pub(crate) fn lock_in_memory(self, core: &Core, lock_timeout: Duration) -> LockedItem {
        let (state, attempt) = self.locked_state(lock_timeout, core.clock.now_ms());
        let etag = self.before.as_ref().map(|before| before.etag.clone());
        self.into_locked_item(core, state, etag, false, attempt)
    }

    /// The state with the lock in it, and the largest count of attempts of all messages. The
    /// count of a message is one more than the largest that the message, an expired lock or
    /// this process has for it.
    fn locked_state(&self, lock_timeout: Duration, now_ms: u64) -> (State, u32) {
        let mut state = match &self.before {
            Some(before) if !before.value.is_deleted() => before.value.clone(),
            Some(before) => State {
                dedup_record: before.value.dedup_record.clone(),
                commit_number: before.value.commit_number,
                ..State::blank(self.instance, nonce())
            },
            None => State::blank(self.instance, nonce()),
        };
        let expired = state.lock.take().map(|lock| lock.attempts).unwrap_or_default();
        let next_attempt = |message: &Message| {
            let counts =
                [&expired, self.attempts].map(|counts| counts.get(&message.id).copied().unwrap_or(0));
            let so_far = counts.into_iter().fold(message.attempt_count, u32::max);
            (message.id.clone(), so_far.saturating_add(1))
        };
        let attempts: BTreeMap<String, u32> =
            self.messages.iter().map(|(message, _)| next_attempt(message)).collect();
        let most = attempts.values().copied().max().unwrap_or(1);
        // The lease begins now, not when the fetch began.
        let until = deadline_ms(now_ms, lock_timeout);
        let parts = self.messages.iter().filter_map(|(message, _)| message.item.parts().cloned()).collect();
        state.lock = Some(Lock { nonce: nonce(), until, attempts, parts });
        state.started_by = started_by(&state, &self.messages);
        (state, most)
    }

    /// Puts the lock into the lock table and returns the item with its token.
    fn into_locked_item(
        self,
        core: &Core,
        state: State,
        etag: Option<Etag>,
        is_durable: bool,
        attempt: u32,
    ) -> LockedItem {
        let LockRequest { identity, history, kv_snapshot, messages, has_more_messages, .. } = self;
        let Lock { nonce, until, attempts, .. } = state.lock.clone().unwrap_or_default();
        let token = LockToken {
            kind: LockKind::Orchestration,
            instance: state.instance_id.clone(),
            incarnation: state.incarnation.clone(),
            execution: identity.execution,
            nonce: nonce.clone(),
            id: STATE_ID.to_owned(),
        };
        let turn = LockedInstance {
            dedup_entries: messages.iter().filter_map(|(message, _)| message.dedup_entry()).collect(),
            until: lock_table::deadline(until, core.clock.now_ms()),
            has_more_messages,
            is_durable,
            state,
            etag,
            history: history.as_ref().ok().map(Arc::clone),
        };
        core.instance_locks.insert(&nonce, turn);
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

/// The parent that started an instance, with its incarnation, from the messages of the first
/// turn; `None` for an instance without a parent. If another or an unknown incarnation of
/// the same parent starts it too, in any turn, the runtime answers both, and nothing shows
/// which answer is for which incarnation. Then this is `None`, and both answers go to the
/// parent's current incarnation.
fn started_by(state: &State, messages: &[(Message, WorkItem)]) -> Option<StartedBy> {
    let starts = messages.iter().filter_map(|(message, _)| {
        let parent = message.start_parent.as_deref()?;
        Some((parent, message.parent_incarnation.as_deref()))
    });
    let is_first = state.execution.number == 0 && !state.is_created;
    let by = match is_first {
        true => starts.clone().find_map(|(parent, incarnation)| {
            Some(StartedBy { instance: parent.to_owned(), incarnation: incarnation?.to_owned() })
        }),
        false => state.started_by.clone(),
    }?;
    let mut others = starts.filter(|(parent, _)| *parent == by.instance);
    others.all(|(_, incarnation)| incarnation == Some(by.incarnation.as_str())).then_some(by)
}
