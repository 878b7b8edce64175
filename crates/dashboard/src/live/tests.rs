//! Tests of live pages with looks that a test makes itself.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::*;

const INTERVAL: Duration = Duration::from_millis(100);

/// The longest wait for something that a test expects.
const LIMIT: Duration = Duration::from_secs(20);

/// A charge so high that the pause after the look is the longest pause.
const EXPENSIVE: f64 = 1e9;

fn page(text: &str, charge: f64) -> Look {
    Look { made: Made::Page { title: "".into(), html: Html::default().add(text) }, charge }
}

/// Looks that end at once. Each adds 1 to the counter.
fn counted_looks(counter: &Arc<AtomicUsize>, charge: f64) -> impl Fn() -> std::future::Ready<Look> + use<> {
    let counter = Arc::clone(counter);
    move || {
        let number = counter.fetch_add(1, Ordering::Relaxed);
        std::future::ready(page(&format!("page {number}"), charge))
    }
}

/// Looks that do not end until the test ends them one by one.
struct HeldLooks {
    /// A sender for each look that has begun. It ends the look.
    begun: UnboundedReceiver<tokio::sync::oneshot::Sender<Look>>,
}

type BeginLook = UnboundedSender<tokio::sync::oneshot::Sender<Look>>;

fn held_looks() -> (HeldLooks, impl Fn() -> std::pin::Pin<Box<dyn Future<Output = Look> + Send>> + use<>) {
    let (begin, begun): (BeginLook, _) = unbounded_channel();
    let look = move || -> std::pin::Pin<Box<dyn Future<Output = Look> + Send>> {
        let (end, ended) = tokio::sync::oneshot::channel();
        begin.send(end).expect("the test goes on");
        Box::pin(async move { ended.await.expect("the test ends each look") })
    };
    (HeldLooks { begun }, look)
}

impl HeldLooks {
    /// The next look, when it has begun.
    async fn next(&mut self) -> tokio::sync::oneshot::Sender<Look> {
        tokio::time::timeout(LIMIT, self.begun.recv()).await.expect("a look begins").expect("a poller")
    }
}

/// The next event of a viewer that is not a greeting and not the age of a page.
async fn event(viewer: &mut Receiver<Bytes>) -> Bytes {
    loop {
        let event = tokio::time::timeout(LIMIT, viewer.recv()).await.expect("an event").expect("a stream");
        if event != events::greeting() && !event.starts_with(b"event: seen") {
            return event;
        }
    }
}

async fn until(what: &str, is_so: impl Fn() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < LIMIT, "{what}");
        tokio::time::sleep(INTERVAL / 10).await;
    }
}

#[tokio::test(start_paused = true)]
async fn many_viewers_of_a_page_cost_what_one_costs() {
    let (hub, looks) = (Arc::new(Hub::default()), Arc::new(AtomicUsize::new(0)));
    let mut viewers: Vec<_> =
        (0..50).map(|_| hub.watch("/a".into(), INTERVAL, counted_looks(&looks, 0.1)).unwrap()).collect();
    for _ in 0..20 {
        tokio::time::sleep(INTERVAL / 2).await;
        viewers.iter_mut().for_each(|viewer| while viewer.try_recv().is_ok() {});
    }
    let made = looks.load(Ordering::Relaxed);
    assert!((2..=14).contains(&made), "{made} looks in the time of ten");
    drop(viewers);
    until("the poller ends", || hub.pollers.lock().unwrap().is_empty()).await;
    let after = looks.load(Ordering::Relaxed);
    tokio::time::sleep(INTERVAL * 5).await;
    assert_eq!(looks.load(Ordering::Relaxed), after, "there are no viewers");
}

#[tokio::test(start_paused = true)]
async fn the_numbers_of_viewers_and_watched_pages_are_bounded() {
    let (hub, looks) = (Arc::new(Hub::default()), Arc::new(AtomicUsize::new(0)));
    let watch = |key: String| hub.watch(key, INTERVAL, counted_looks(&looks, 0.0));
    let same: Vec<_> = (0..VIEWERS_MAX).map(|_| watch("/a".into()).unwrap()).collect();
    assert!(watch("/a".into()).is_err());
    drop(same);
    until("the viewers leave", || hub.viewers.available_permits() == VIEWERS_MAX).await;
    until("the poller ends", || hub.pollers.lock().unwrap().is_empty()).await;
    let others: Vec<_> = (0..POLLERS_MAX).map(|n| watch(format!("/{n}")).unwrap()).collect();
    assert!(watch("/more".into()).is_err());
    drop(others);
}

/// The second viewer once got the older page of the poller instead of the page that was just opened.
#[tokio::test(start_paused = true)]
async fn a_viewer_first_gets_the_page_that_was_just_opened() {
    let hub = Arc::new(Hub::default());
    let (mut looks, look) = held_looks();
    let mut first = hub.watch("/a".into(), INTERVAL, look).unwrap();
    looks.next().await.send(page("old", 0.0)).unwrap();
    assert_eq!(event(&mut first).await, events::page("old"));
    // A look begins, and then a person opens the page. Looks that begin at the same time have no order.
    let running = looks.next().await;
    tokio::time::sleep(INTERVAL / 10).await;
    let begun = hub.begin();
    hub.offer("/a", begun, "", &Html::default().add("opened"));
    let mut second = hub.watch("/a".into(), INTERVAL, std::future::pending).unwrap();
    assert_eq!(event(&mut second).await, events::page("opened"));
    assert_eq!(event(&mut first).await, events::page("opened"), "other viewers see it too");
    running.send(page("older", 0.0)).unwrap();
    looks.next().await.send(page("newest", 0.0)).unwrap();
    assert_eq!(event(&mut second).await, events::page("newest"), "the older page is left out");
}

/// The poller once showed a page from before the action for up to a minute, until its pause ended.
#[tokio::test(start_paused = true)]
async fn a_change_during_a_look_causes_another_look() {
    let hub = Arc::new(Hub::default());
    let (mut looks, look) = held_looks();
    let mut viewer = hub.watch("/a".into(), INTERVAL, look).unwrap();
    let running = looks.next().await;
    hub.refresh();
    running.send(page("before", EXPENSIVE)).unwrap();
    assert_eq!(event(&mut viewer).await, events::page("before"));
    assert!(hub.fresh("/a").is_none(), "the page is from before the change");
    looks.next().await.send(page("after", 0.0)).unwrap();
    assert_eq!(event(&mut viewer).await, events::page("after"));
    assert!(hub.fresh("/a").is_some());
}

/// A change once removed the content of a page that waited to be sent.
#[tokio::test(start_paused = true)]
async fn a_change_sends_no_empty_page() {
    let hub = Arc::new(Hub::default());
    let (mut looks, look) = held_looks();
    let mut viewer = hub.watch("/a".into(), INTERVAL, look).unwrap();
    looks.next().await.send(page("a", 0.0)).unwrap();
    hub.refresh();
    assert_eq!(event(&mut viewer).await, events::page("a"));
    let mut late = hub.watch("/a".into(), INTERVAL, std::future::pending).unwrap();
    hub.refresh();
    assert_eq!(event(&mut late).await, events::page("a"));
}

#[tokio::test(start_paused = true)]
async fn a_page_without_viewers_gives_back_its_slot_during_its_pause() {
    let (hub, looks) = (Arc::new(Hub::default()), Arc::new(AtomicUsize::new(0)));
    let mut viewer = hub.watch("/a".into(), INTERVAL, counted_looks(&looks, EXPENSIVE)).unwrap();
    event(&mut viewer).await;
    drop(viewer);
    until("the slot is free", || hub.pollers.lock().unwrap().is_empty()).await;
    assert_eq!(looks.load(Ordering::Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn a_look_that_panics_ends_its_stream_and_gives_back_its_slot() {
    let hub = Arc::new(Hub::default());
    let (mut looks, look) = held_looks();
    let mut viewer = hub.watch("/a".into(), INTERVAL, look).unwrap();
    // When its sender is dropped, the look panics.
    drop(looks.next().await);
    until("the slot is free", || hub.pollers.lock().unwrap().is_empty()).await;
    assert_eq!(viewer.recv().await, Some(events::greeting()));
    assert_eq!(viewer.recv().await, None, "the stream has ended, so the browser connects again");
}
