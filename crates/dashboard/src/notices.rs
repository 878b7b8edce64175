//! `Notices`: the outcomes of actions. A notice is shown once, on the next page. The address has only
//! the number of a notice, so nobody can make a link that shows a text of their own.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

/// The most notices that wait to be shown. A notice whose page is never opened stays here until newer
/// notices replace it.
const NOTICES_MAX: usize = 64;

/// The outcome of an action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Notice {
    pub(crate) text: String,
    pub(crate) is_error: bool,
}

/// The number of the last notice, and the notices that wait with their numbers, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Notices(Mutex<(u64, VecDeque<(u64, Notice)>)>);

impl Notices {
    /// Keeps a notice and returns its number.
    pub(crate) fn put(&self, notice: Notice) -> u64 {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.0 += 1;
        let number = kept.0;
        kept.1.push_back((number, notice));
        if kept.1.len() > NOTICES_MAX {
            kept.1.pop_front();
        }
        number
    }

    /// Removes the notice with this number and returns it; `None` if it was shown or replaced.
    pub(crate) fn take(&self, number: u64) -> Option<Notice> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let index = kept.1.iter().position(|(known, _)| *known == number)?;
        kept.1.remove(index).map(|(_, notice)| notice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notice_is_shown_once_and_old_notices_are_removed() {
        let notices = Notices::default();
        let notice = Notice { text: "done".to_owned(), is_error: false };
        let first = notices.put(notice.clone());
        assert_eq!(notices.take(first), Some(notice.clone()));
        assert_eq!(notices.take(first), None);
        let old = notices.put(notice.clone());
        for _ in 0..NOTICES_MAX {
            notices.put(notice.clone());
        }
        assert_eq!(notices.take(old), None);
    }
}
