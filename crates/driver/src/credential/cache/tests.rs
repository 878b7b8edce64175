//! The token cache: shared fetches, renewal before the expiry, and failures of the token source.

use std::collections::VecDeque;
use std::time::SystemTime;

use super::*;
use crate::credential::TokenFuture;

/// A token source that follows a script, one step per fetch, and records the scopes
/// that it was asked for.
#[derive(Default)]
struct Scripted {
    script: Mutex<VecDeque<Step>>,
    asked_scopes: Mutex<Vec<String>>,
}

/// What the token source does in one fetch.
#[derive(Clone, Copy)]
enum Step {
    /// A token that expires after `lifetime` seconds, given after `after` seconds.
    Token { after: u64, lifetime: u64 },
    /// An error, given after `after` seconds.
    Failure { after: u64 },
    /// The source never answers.
    Silence,
}

impl Scripted {
    fn new(script: impl IntoIterator<Item = Step>) -> Arc<Self> {
        Arc::new(Scripted {
            script: Mutex::new(script.into_iter().collect()),
            asked_scopes: Mutex::default(),
        })
    }

    fn fetch_count(&self) -> usize {
        self.asked_scopes.lock().unwrap().len()
    }
}

impl TokenSource for Scripted {
    fn token<'a>(&'a self, scope: &'a str) -> TokenFuture<'a> {
        let number = {
            let mut asked = self.asked_scopes.lock().unwrap();
            asked.push(scope.to_owned());
            asked.len()
        };
        let answer = self.script.lock().unwrap().pop_front().unwrap_or(Step::Silence);
        Box::pin(async move {
            match answer {
                Step::Token { after, lifetime } => {
                    tokio::time::sleep(Duration::from_secs(after)).await;
                    let expires_on = SystemTime::now() + Duration::from_secs(lifetime);
                    Ok(AccessToken::new(format!("token-{number}"), expires_on))
                }
                Step::Failure { after } => {
                    tokio::time::sleep(Duration::from_secs(after)).await;
                    Err(Error::credential("no identity"))
                }
                Step::Silence => std::future::pending().await,
            }
        })
    }
}

/// A token that is given at once and expires after an hour.
const HOUR_TOKEN: Step = Step::Token { after: 0, lifetime: 3600 };

/// After this many seconds, [`HOUR_TOKEN`] is due for renewal, and still valid.
const RENEWAL_DUE_SECONDS: u64 = 3400;

async fn fetch_token(cache: &TokenCache) -> Result<String, String> {
    let header = cache.header("scope").await.map_err(|error| error.to_string())?;
    assert!(header.is_sensitive());
    let text = header.to_str().unwrap();
    Ok(text.strip_prefix("type%3Daad%26ver%3D1.0%26sig%3D").unwrap().to_owned())
}

/// The tokens that twenty concurrent requests get.
async fn twenty_requests(cache: &Arc<TokenCache>) -> Vec<Result<String, String>> {
    let mut requests = JoinSet::new();
    for _ in 0..20 {
        let cache = Arc::clone(cache);
        requests.spawn(async move { fetch_token(&cache).await });
    }
    requests.join_all().await
}

/// Lets tasks that are ready run.
async fn run_ready_tasks() {
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
}

async fn advance(seconds: u64) {
    tokio::time::advance(Duration::from_secs(seconds)).await;
    run_ready_tasks().await;
}

#[tokio::test(start_paused = true)]
async fn many_requests_share_one_fetch_and_the_token_is_cached() {
    let source = Scripted::new([Step::Token { after: 2, lifetime: 3600 }]);
    let cache = Arc::new(TokenCache::new(source.clone()));
    for token in twenty_requests(&cache).await {
        assert_eq!(token.unwrap(), "token-1");
    }
    advance(3000).await;
    assert_eq!(fetch_token(&cache).await.unwrap(), "token-1");
    assert_eq!(source.fetch_count(), 1);
}

#[tokio::test(start_paused = true)]
async fn waiting_requests_share_a_failure_that_is_not_cached() {
    let source = Scripted::new([Step::Failure { after: 1 }, HOUR_TOKEN]);
    let cache = Arc::new(TokenCache::new(source.clone()));
    for token in twenty_requests(&cache).await {
        assert_eq!(token.unwrap_err(), "no identity");
    }
    assert_eq!(source.fetch_count(), 1);
    advance(1).await;
    assert_eq!(fetch_token(&cache).await.unwrap(), "token-2");
}

#[tokio::test(start_paused = true)]
async fn a_token_due_for_renewal_stays_in_use_until_it_is_renewed() {
    let source = Scripted::new([HOUR_TOKEN, Step::Token { after: 7, lifetime: 7200 }]);
    let cache = TokenCache::new(source.clone());
    assert_eq!(fetch_token(&cache).await.unwrap(), "token-1");
    advance(RENEWAL_DUE_SECONDS).await;
    for _ in 0..5 {
        assert_eq!(fetch_token(&cache).await.unwrap(), "token-1");
        advance(1).await;
    }
    assert_eq!(source.fetch_count(), 2, "all requests share one renewal");
    advance(5).await;
    assert_eq!(fetch_token(&cache).await.unwrap(), "token-2");
}

#[tokio::test(start_paused = true)]
async fn a_failed_renewal_keeps_the_valid_token_and_is_tried_again_after_a_pause() {
    let source = Scripted::new([HOUR_TOKEN, Step::Failure { after: 0 }, Step::Silence, HOUR_TOKEN]);
    let cache = TokenCache::new(source.clone());
    fetch_token(&cache).await.unwrap();
    advance(RENEWAL_DUE_SECONDS).await;
    // 29 s in all. `RENEWAL_PAUSE` is 30 s.
    for seconds in [0, 1, 10, 18] {
        advance(seconds).await;
        assert_eq!(fetch_token(&cache).await.unwrap(), "token-1");
        run_ready_tasks().await;
        assert_eq!(source.fetch_count(), 2, "after {seconds} more seconds");
    }
    advance(2).await;
    assert_eq!(fetch_token(&cache).await.unwrap(), "token-1");
    run_ready_tasks().await;
    assert_eq!(source.fetch_count(), 3, "the pause is over");
    // The third fetch gets no answer, and fails after 30 s (`WAIT_MAX`). The fourth fetch begins after
    // another pause of 30 s.
    advance(31).await;
    advance(31).await;
    fetch_token(&cache).await.unwrap();
    run_ready_tasks().await;
    assert_eq!(fetch_token(&cache).await.unwrap(), "token-4");
}

#[tokio::test(start_paused = true)]
async fn an_expired_token_is_never_sent() {
    let source =
        Scripted::new([HOUR_TOKEN, Step::Failure { after: 0 }, Step::Failure { after: 0 }, HOUR_TOKEN]);
    let cache = TokenCache::new(source.clone());
    fetch_token(&cache).await.unwrap();
    // The token has 5 s left (`EXPIRY_MARGIN`) after this time, so it counts as expired.
    advance(3595).await;
    assert_eq!(fetch_token(&cache).await.unwrap_err(), "no identity");
    advance(1).await;
    assert_eq!(fetch_token(&cache).await.unwrap_err(), "no identity");
    advance(1).await;
    assert_eq!(fetch_token(&cache).await.unwrap(), "token-4");
}

#[tokio::test(start_paused = true)]
async fn waiting_for_a_silent_source_is_bounded() {
    let cache = TokenCache::new(Scripted::new([Step::Silence, HOUR_TOKEN]));
    let began = Instant::now();
    let error = fetch_token(&cache).await.unwrap_err();
    assert_eq!(began.elapsed(), WAIT_MAX);
    assert!(error.contains("no token for scope within 30 s"), "{error}");
    assert_eq!(fetch_token(&cache).await.unwrap(), "token-2");
}

#[tokio::test(start_paused = true)]
async fn a_renewal_ends_when_its_cache_is_dropped() {
    let source = Scripted::new([HOUR_TOKEN, Step::Silence]);
    let cache = TokenCache::new(source.clone());
    fetch_token(&cache).await.unwrap();
    advance(RENEWAL_DUE_SECONDS).await;
    fetch_token(&cache).await.unwrap();
    run_ready_tasks().await;
    // The test, the cache and the task of the renewal each have a reference to the source.
    assert_eq!((source.fetch_count(), Arc::strong_count(&source)), (2, 3));
    drop(cache);
    run_ready_tasks().await;
    assert_eq!(Arc::strong_count(&source), 1, "the renewal task dropped its source");
}

#[tokio::test(start_paused = true)]
async fn each_scope_has_its_token_and_scopes_are_bounded() {
    let source = Scripted::new([HOUR_TOKEN; SCOPES_MAX + 3]);
    let cache = TokenCache::new(source.clone());
    let first = cache.header("a").await.unwrap();
    assert_ne!(first, cache.header("b").await.unwrap());
    assert_eq!(first, cache.header("a").await.unwrap());
    assert_eq!(*source.asked_scopes.lock().unwrap(), ["a", "b"]);
    for number in 0..SCOPES_MAX {
        cache.header(&number.to_string()).await.unwrap();
    }
    assert_eq!(cache.scopes.load().len(), SCOPES_MAX);
    // Scope "a" was removed from the full cache, so it gets a new token.
    assert_ne!(first, cache.header("a").await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_token_ages_by_tokios_clock_and_by_the_wall_clock() {
    let (now, unix) = (Instant::now(), 1_000_000);
    let seconds = Duration::from_secs;
    let cached = |lifetime: u64| {
        let token = AccessToken::new("t", UNIX_EPOCH + seconds(unix + lifetime));
        CachedToken::new(&token, now, unix)
    };
    // A token is used until 5 s before its expiry (`EXPIRY_MARGIN`): this one for 3600 s. Its renewal is
    // due 300 s earlier (`RENEW_BEFORE_EXPIRY`).
    let hour = cached(3605).unwrap();
    for (tokio_after, wall_after, expected) in [
        (0, 0, TokenAge::Fresh),
        (3299, 3299, TokenAge::Fresh),
        (3300, 3300, TokenAge::RenewalDue),
        (3599, 3599, TokenAge::RenewalDue),
        (3600, 3600, TokenAge::Expired),
        // A machine that slept: only one of the clocks advanced.
        (10, 3600, TokenAge::Expired),
        (3600, 10, TokenAge::Expired),
    ] {
        let age = hour.age(now + seconds(tokio_after), unix + wall_after);
        assert_eq!(age, expected, "{tokio_after} {wall_after}");
    }
    // A token that is used for 60 s is renewed after half of this time.
    let short = cached(65).unwrap();
    assert_eq!(short.age(now + seconds(29), unix), TokenAge::Fresh);
    assert_eq!(short.age(now + seconds(30), unix), TokenAge::RenewalDue);
    let eternal = cached(u64::MAX / 2 - unix).unwrap();
    assert_eq!(eternal.age(now + LIFETIME_MAX, unix), TokenAge::Expired);
    // A token with no time left before `EXPIRY_MARGIN`, an empty token and a long token are refused.
    for lifetime in [0, 5] {
        assert!(cached(lifetime).is_err(), "{lifetime}");
    }
    for text in [String::new(), "x".repeat(40_000)] {
        let token = AccessToken::new(text, UNIX_EPOCH + seconds(unix + 3600));
        assert!(CachedToken::new(&token, now, unix).is_err());
    }
}

#[tokio::test(start_paused = true)]
async fn a_fetch_goes_on_when_the_request_that_started_it_ends() {
    let source = Scripted::new([Step::Token { after: 6, lifetime: 3600 }]);
    let cache = TokenCache::new(source.clone());
    for _ in 0..3 {
        assert!(timeout(Duration::from_secs(1), fetch_token(&cache)).await.is_err());
    }
    assert_eq!(timeout(Duration::from_secs(4), fetch_token(&cache)).await.unwrap().unwrap(), "token-1");
    assert_eq!(source.fetch_count(), 1);
}

/// A future of a caller may be kept without being polled, as in a `select!` loop.
#[tokio::test(start_paused = true)]
async fn a_request_that_is_not_polled_does_not_block_other_requests() {
    let source = Scripted::new([Step::Token { after: 1, lifetime: 3600 }]);
    let cache = TokenCache::new(source.clone());
    let mut kept = std::pin::pin!(fetch_token(&cache));
    assert!(timeout(Duration::ZERO, &mut kept).await.is_err());
    assert_eq!(timeout(Duration::from_secs(2), fetch_token(&cache)).await.unwrap().unwrap(), "token-1");
    assert_eq!(kept.await.unwrap(), "token-1");
}

/// A runtime that started a renewal is not run any more, so the renewal never ends.
#[test]
fn a_renewal_on_a_runtime_that_makes_no_progress_does_not_block_other_requests() {
    let runtime =
        || tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let source =
        Scripted::new([HOUR_TOKEN, Step::Token { after: 1, lifetime: 3600 }, HOUR_TOKEN, HOUR_TOKEN]);
    let cache = TokenCache::new(source.clone());
    let (stuck, live) = (runtime(), runtime());
    live.block_on(async { assert_eq!(fetch_token(&cache).await.unwrap(), "token-1") });
    stuck.block_on(async {
        tokio::time::advance(Duration::from_secs(RENEWAL_DUE_SECONDS)).await;
        assert_eq!(fetch_token(&cache).await.unwrap(), "token-1", "the renewal is due");
    });
    live.block_on(async {
        tokio::time::advance(Duration::from_secs(3600)).await;
        let token = timeout(Duration::from_secs(5), fetch_token(&cache)).await.unwrap().unwrap();
        assert_ne!(token, "token-1");
    });
    drop(stuck);
}

/// Lets time pass while the runtime is not run.
fn pass_time_without_running(runtime: &tokio::runtime::Runtime, time: Duration) {
    let _entered = runtime.enter();
    let mut advance = std::pin::pin!(tokio::time::advance(time));
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    // The clock advances at the first poll.
    let _ = advance.as_mut().poll(&mut context);
}

/// The renewal takes 30 s. Its runtime is run for a tenth of a second, once in every five seconds.
#[test]
fn a_renewal_goes_on_when_its_runtime_is_run_only_during_calls() {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let source = Scripted::new([HOUR_TOKEN, Step::Token { after: 30, lifetime: 7200 }]);
    let cache = TokenCache::new(source.clone());
    assert_eq!(runtime.block_on(fetch_token(&cache)).unwrap(), "token-1");
    pass_time_without_running(&runtime, Duration::from_secs(RENEWAL_DUE_SECONDS));
    let mut tokens = Vec::new();
    for _ in 0..9 {
        pass_time_without_running(&runtime, Duration::from_secs(5));
        tokens.push(runtime.block_on(async {
            let token = fetch_token(&cache).await.unwrap();
            tokio::time::sleep(Duration::from_millis(100)).await;
            token
        }));
    }
    assert_eq!(source.fetch_count(), 2, "{tokens:?}");
    assert_eq!(tokens.last().unwrap(), "token-2");
}

#[tokio::test(start_paused = true)]
async fn tokens_of_many_scopes_stay_cached() {
    let source = Scripted::new([HOUR_TOKEN; 3 * 65]);
    let cache = TokenCache::new(source.clone());
    for number in (0..65).cycle().take(3 * 65) {
        cache.header(&number.to_string()).await.unwrap();
    }
    assert_eq!(source.fetch_count(), 65);
}

#[tokio::test(start_paused = true)]
async fn a_full_cache_drops_an_expired_token_or_else_the_token_unused_for_the_longest_time() {
    let mut script = vec![HOUR_TOKEN; SCOPES_MAX + 5];
    script[1] = Step::Token { after: 0, lifetime: 60 };
    let source = Scripted::new(script);
    let cache = TokenCache::new(source.clone());
    let fetches_for = async |scope: &str| {
        let before = source.fetch_count();
        cache.header(scope).await.unwrap();
        source.fetch_count() - before
    };
    for number in 0..SCOPES_MAX {
        assert_eq!(fetches_for(&number.to_string()).await, 1);
    }
    advance(100).await;
    // The token of scope 1 has expired.
    assert_eq!((fetches_for("new").await, fetches_for("0").await), (1, 0));
    advance(100).await;
    assert_eq!(fetches_for("newer").await, 1);
    // Scope 2 was unused for the longest time, so its token was dropped.
    assert_eq!((fetches_for("0").await, fetches_for("3").await, fetches_for("2").await), (0, 0, 1));
}

/// A source whose first fetch blocks its thread until the sender of `released` is dropped.
struct Blocking {
    released: Mutex<std::sync::mpsc::Receiver<()>>,
    fetch_count: std::sync::atomic::AtomicUsize,
}

impl TokenSource for Blocking {
    fn token<'a>(&'a self, _: &'a str) -> TokenFuture<'a> {
        Box::pin(async move {
            if self.fetch_count.fetch_add(1, Ordering::Relaxed) == 0 {
                // An error means that the test has ended.
                let _ = self.released.lock().unwrap().recv();
            }
            Ok(AccessToken::new("token", SystemTime::now() + Duration::from_secs(3600)))
        })
    }
}

/// The fetch and the caller have the same runtime, and the thread of the fetch is blocked. The test
/// runs in real time: it needs a second thread, and tokio's clock can be paused only on a runtime
/// with a single thread.
#[test]
fn a_fetch_that_blocks_its_thread_is_replaced_on_the_same_runtime() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let (release, released) = std::sync::mpsc::channel();
    let source = Arc::new(Blocking { released: Mutex::new(released), fetch_count: 0.into() });
    let cache = Arc::new(TokenCache::new(Arc::clone(&source) as Arc<dyn TokenSource>));
    let token =
        runtime.block_on(async { tokio::spawn(async move { fetch_token(&cache).await }).await.unwrap() });
    assert_eq!(token.as_deref(), Ok("token"));
    assert_eq!(source.fetch_count.load(Ordering::Relaxed), 2);
    drop(release);
}
