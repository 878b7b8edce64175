//! `SentForms`: the outcomes of forms that were sent. A form may come twice, because a person clicks twice or
//! a browser sends it again after its connection broke. Each page has a random number in its forms. A
//! form with the number and the content of an earlier form gets the outcome of the earlier form, so a
//! form that comes twice acts once.
//!
//! A live page is the same for all its viewers, so a page is made without the number: [`numbered`] puts
//! a number into each answer. When a browser gets a newer version of the page, the script makes the
//! number of a form itself.

use std::collections::VecDeque;
use std::future::Future;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use crate::access::Secret;
use crate::failure::Failure;
use crate::html::{Html, tag};
use crate::http::Parameters;

/// The name of the field that has the number.
const FIELD: &str = "once";

/// The most forms that are remembered. A form that comes again comes within seconds or minutes.
const FORMS_MAX: usize = 256;

/// How often `ended` checks whether an action still runs.
const ENDED_PAUSE: Duration = Duration::from_millis(20);

/// The longest number that a form may have. The numbers of pages and of the script are shorter.
const NUMBER_BYTES_MAX: usize = 100;

/// What identifies a form that was sent: its number, and a hash of its page and its fields. A browser may
/// show an old page again, with its number. If a person then fills in the form differently, it counts as
/// another form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Key(String, u64);

/// The outcome of a form; `None` while it is acted on.
type Outcome<T> = Option<T>;

/// The forms that were sent, oldest first.
#[derive(Debug)]
pub(crate) struct SentForms<T>(Mutex<VecDeque<(Key, watch::Receiver<Outcome<T>>)>>);

impl<T> Default for SentForms<T> {
    fn default() -> Self {
        SentForms(Mutex::default())
    }
}

impl Key {
    /// The key of a form of the page at this path; `None` if the form has no number.
    pub(crate) fn of(path: &str, form: &Parameters) -> Option<Key> {
        let number = form.get(FIELD);
        let content = (path, form.text_without(FIELD));
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(content);
        (!number.is_empty() && number.len() <= NUMBER_BYTES_MAX).then(|| Key(number.to_owned(), hash))
    }
}

impl<T: Clone + Send + Sync + 'static> SentForms<T> {
    /// Acts on a form, or waits for the outcome if the form came before. The action goes on if the
    /// caller is dropped.
    pub(crate) async fn act(
        &self,
        key: Key,
        action: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, Failure> {
        let mut outcome = self.find_or_begin(key, action)?;
        let ended = outcome.wait_for(Option::is_some).await.ok().and_then(|outcome| outcome.clone());
        ended.ok_or_else(|| Failure::account("The action ended before it was done."))
    }

    /// Forgets a form whose action was refused. If the form is sent again, its action runs again,
    /// because the reason of the refusal may have passed. A form whose action still runs is kept.
    pub(crate) fn forget(&self, key: &Key) {
        let mut forms = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        forms.retain(|(known, outcome)| known != key || outcome.borrow().is_none());
    }

    /// Waits until no action runs.
    pub(crate) async fn ended(&self) {
        let is_running = |(_, outcome): &(Key, watch::Receiver<Outcome<T>>)| {
            // If the channel is closed and has no outcome, the action panicked.
            outcome.borrow().is_none() && outcome.has_changed().is_ok()
        };
        while self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().any(is_running) {
            tokio::time::sleep(ENDED_PAUSE).await;
        }
    }

    fn find_or_begin(
        &self,
        key: Key,
        action: impl Future<Output = T> + Send + 'static,
    ) -> Result<watch::Receiver<Outcome<T>>, Failure> {
        let mut forms = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, outcome)) = forms.iter().find(|(known, _)| *known == key) {
            return Ok(outcome.clone());
        }
        if forms.len() >= FORMS_MAX {
            let oldest = forms.iter().position(|(_, outcome)| outcome.borrow().is_some());
            let too_many = || Failure::conflict("Too many actions run. Wait for one of them.");
            forms.remove(oldest.ok_or_else(too_many)?);
        }
        let (sender, outcome) = watch::channel(None);
        forms.push_back((key, outcome.clone()));
        tokio::spawn(async move { sender.send_replace(Some(action.await)) });
        Ok(outcome)
    }
}

/// The field of a form for its number, still empty. No text from outside can look like it, because the
/// quotes of texts are escaped.
pub(crate) fn field() -> Html {
    field_with("")
}

fn field_with(number: &str) -> Html {
    // Without `autocomplete`, a browser may put the number of an earlier page into a new page.
    let input = tag("input").attr("type", "hidden").attr("name", FIELD).attr("value", number);
    input.attr("autocomplete", "off").done()
}

/// The page with a new number in its forms. If the system gives no random number, the forms have none.
/// Such a form acts as often as it is sent.
pub(crate) fn numbered(page: Html) -> Html {
    match Secret::random() {
        Ok(number) => page.with_replaced(&field(), &field_with(number.reveal())),
        Err(_) => page,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    fn key(fields: &str) -> Option<Key> {
        Key::of("/workflow", &Parameters::parse(fields))
    }

    #[tokio::test(start_paused = true)]
    async fn a_form_that_comes_again_waits_for_the_first_outcome() {
        let (forms, count) = (SentForms::default(), Arc::new(AtomicU32::new(0)));
        let act = |fields: &str| {
            let count = Arc::clone(&count);
            forms.act(key(fields).expect("a key"), async move {
                tokio::time::sleep(Duration::from_secs(1)).await;
                count.fetch_add(1, Ordering::Relaxed) + 1
            })
        };
        let (one, two) = tokio::join!(act("once=7&id=a"), act("id=a&once=7"));
        assert_eq!((one.ok(), two.ok()), (Some(1), Some(1)));
        assert_eq!(act("once=7&id=a").await.ok(), Some(1), "also afterwards");
        assert_eq!(act("once=8&id=a").await.ok(), Some(2), "another page");
        assert_eq!(act("once=7&id=b").await.ok(), Some(3), "the content has changed");
        assert_eq!((key("id=a"), key(&format!("once={}", "7".repeat(101)))), (None, None));
        forms.forget(&key("once=7&id=a").expect("a key"));
        assert_eq!(act("once=7&id=a").await.ok(), Some(4), "it was forgotten");
    }

    #[tokio::test]
    async fn a_form_that_is_acted_on_is_not_forgotten() {
        let sent = SentForms::default();
        let slow = sent.act(key("once=0").expect("a key"), std::future::pending::<u32>());
        assert!(tokio::time::timeout(Duration::from_millis(1), slow).await.is_err());
        for number in 1..=FORMS_MAX as u32 * 2 {
            let act = sent.act(key(&format!("once={number}")).expect("a key"), async move { number });
            assert_eq!(act.await.ok(), Some(number));
        }
        let forms = sent.0.lock().unwrap();
        assert_eq!((forms.len(), &forms[0].0), (FORMS_MAX, &key("once=0").expect("a key")));
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_of_all_actions_can_be_waited_for() {
        let (forms, begin) = (SentForms::default(), tokio::time::Instant::now());
        let slow = forms.act(key("once=1").expect("a key"), tokio::time::sleep(Duration::from_secs(2)));
        assert!(tokio::time::timeout(Duration::from_millis(1), slow).await.is_err(), "the browser is gone");
        forms.ended().await;
        assert!(begin.elapsed() >= Duration::from_secs(2));
        let panics = forms.act(key("once=2").expect("a key"), async { panic!("an action that panics") });
        assert!(panics.await.is_err());
        tokio::time::timeout(Duration::from_secs(1), forms.ended()).await.expect("nothing runs");
    }

    #[test]
    fn each_answer_has_its_own_number_and_texts_get_none() {
        let text = field();
        let page = || tag("p").add(text.as_str()).add(field()).done();
        let (one, other) = (numbered(page()), numbered(page()));
        assert_ne!(one, other);
        assert!(!one.as_str().contains(field().as_str()), "{one:?}");
        assert!(one.as_str().contains("name=&quot;once&quot; value=&quot;&quot;"), "{one:?}");
    }
}
