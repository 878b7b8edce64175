//! What becomes of the rows of a poll: hints. A row that cannot be read stops
//! nothing.

use perihelion_client::Etag;
use serde_json::Value;

use super::interest::Interest;
use crate::clock::Stamp;
use crate::documents::{Activity, kind};
use crate::inner::Inner;
use crate::ops::claim::set_aside;

/// What a poll found that was not known.
#[derive(Debug, Default)]
pub(super) struct Found {
    turns: usize,
    works: usize,
}

impl Found {
    pub(super) fn is_any(&self) -> bool {
        self.turns + self.works > 0
    }

    pub(super) fn has(&self, interest: &Interest) -> bool {
        match interest {
            Interest::Turns => self.turns > 0,
            Interest::Works { .. } => self.works > 0,
        }
    }
}

/// Makes hints of rows and wakes who waits for them; when the last one is seen.
pub(super) async fn absorb(inner: &Inner, rows: Vec<Value>, now: Stamp, found: &mut Found) -> Stamp {
    let mut last = Stamp(0);
    let (mut messages, mut activities, mut unreadable) = (Vec::new(), Vec::new(), Vec::new());
    for row in rows {
        let text = |name: &str| row[name].as_str().unwrap_or_default().to_owned();
        let (instance, id, visible_at) = (text("instanceId"), text("id"), row["visibleAt"].as_u64());
        last = last.max(Stamp(visible_at.unwrap_or_default()));
        if text("type") == kind::MESSAGE {
            messages.push((instance, Stamp(visible_at.unwrap_or_default())));
            continue;
        }
        match Etag::parse(&text("_etag")).ok().zip(serde_json::from_value::<Activity>(row).ok()) {
            Some((etag, activity)) => activities.push((activity, etag)),
            None => unreadable.push((instance, id)),
        }
    }
    let turns = inner.hub.instances.quietly(|hints| {
        let before = found.turns;
        for (instance, visible_at) in messages {
            if !hints.is_known(&instance, now) {
                hints.hint(&instance, visible_at);
                found.turns += 1;
            }
        }
        found.turns - before
    });
    let works = inner.hub.works.quietly(|hints| {
        let before = found.works;
        for offer in activities {
            found.works += usize::from(hints.offer(offer));
        }
        found.works - before
    });
    if turns > 0 {
        inner.hub.instances.wake.notify_waiters();
    }
    if works > 0 {
        inner.hub.works.wake.notify_waiters();
    }
    for (instance, id) in unreadable {
        set_aside(inner, &instance, &id).await;
    }
    last
}
