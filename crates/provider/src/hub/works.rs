//! Activities on offer, each with its document and version, so that taking one
//! is one conditional write.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use duroxide::providers::TagFilter;

use crate::clock::Stamp;
use crate::held::Offered;

/// Activities remembered. Beyond it hints are dropped and polls find them.
const WORKS_MAX: usize = 8192;

/// Order of the queue, then which document.
type Key = (Stamp, Stamp, String, String);

/// Activities by when they can be taken.
#[derive(Debug, Default)]
pub(crate) struct Works {
    offers: BTreeMap<Key, Offered>,
    keys: HashMap<(String, String), Key>,
    /// Sessions of other workers, until when.
    foreign: HashMap<String, (String, Stamp)>,
}

/// Who asks for work.
pub(crate) struct Claimant<'a> {
    pub(crate) tags: &'a TagFilter,
    /// `None` takes nothing that belongs to a session.
    pub(crate) owner: Option<&'a str>,
}

impl Works {
    /// Puts an activity on offer, in its newest version; whether it was not.
    pub(crate) fn offer(&mut self, (activity, etag): Offered) -> bool {
        let name = (activity.instance_id.clone(), activity.id.clone());
        if self.offers.len() >= WORKS_MAX && !self.keys.contains_key(&name) {
            return false;
        }
        let key = (activity.visible_at, activity.enq, name.0.clone(), name.1.clone());
        let before = self.keys.insert(name, key.clone()).and_then(|before| self.offers.remove(&before));
        let is_news = before.is_none_or(|(_, version)| version != etag);
        self.offers.insert(key, (activity, etag));
        is_news
    }

    pub(crate) fn forget(&mut self, instance: &str, id: &str) {
        if let Some(key) = self.keys.remove(&(instance.to_owned(), id.to_owned())) {
            self.offers.remove(&key);
        }
    }

    /// The next activity that this claimant may have. It is off the list: a
    /// failed attempt need not put it back, the poll would.
    pub(crate) fn take(&mut self, now: Stamp, claimant: &Claimant<'_>) -> Option<Offered> {
        let mut ready = self.offers.iter().take_while(|(key, _)| key.0 <= now);
        let key = ready.find(|(_, offer)| self.suits(offer, now, claimant)).map(|(key, _)| key.clone())?;
        self.keys.remove(&(key.2.clone(), key.3.clone()));
        self.offers.remove(&key)
    }

    /// When something comes that this claimant may have.
    pub(crate) fn next(&self, now: Stamp, claimant: &Claimant<'_>) -> Option<Stamp> {
        self.offers.iter().find(|(_, offer)| self.suits(offer, now, claimant)).map(|(key, _)| key.0)
    }

    /// A session belongs to another worker until then.
    pub(crate) fn foreign(&mut self, session: &str, owner: String, until: Stamp) {
        self.foreign.insert(session.to_owned(), (owner, until));
    }

    /// Sessions that a poll need not name for these owners.
    pub(crate) fn foreign_to(&mut self, owners: &BTreeSet<String>, now: Stamp, most: usize) -> Vec<String> {
        self.foreign.retain(|_, (_, until)| *until > now);
        let others = self.foreign.iter().filter(|(_, (holder, _))| !owners.contains(holder));
        others.map(|(session, _)| session.clone()).take(most).collect()
    }

    fn suits(&self, (activity, _): &Offered, now: Stamp, claimant: &Claimant<'_>) -> bool {
        let is_reachable = match (&activity.session_id, claimant.owner) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(session), Some(owner)) => {
                let foreign = self.foreign.get(session);
                foreign.is_none_or(|(holder, until)| holder == owner || *until <= now)
            }
        };
        is_reachable && claimant.tags.matches(activity.tag.as_deref())
    }
}
