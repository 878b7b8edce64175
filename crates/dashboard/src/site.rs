//! The site: makes the answer to a request. The checks come first. Then the answer is a file, the
//! login, a page, the events of a page, or the result of an action.

use std::sync::Arc;
use std::time::Duration;

use http::{Method, Response, StatusCode};
use hyper::body::Incoming;
use tokio::time::Instant;

use crate::access::Refusal;
use crate::app::{Acted, App};
use crate::failure::{Failure, within};
use crate::html::Link;
use crate::http::{Answer, Body, FORM_BYTES_MAX, Parameters, Request};
use crate::live::{Hub, Look, Made};
use crate::notices::Notice;
use crate::once;
use crate::pages::{self, Outcome, Page, View};
use crate::text::cut;
use crate::{assets, frame, metrics};

/// The addresses of texts for programs. Without a session they are refused, and the answer is not the
/// login form.
const FILES: [&str; 2] = ["/history.json", METRICS];

/// The address of the metrics. Prometheus reads them with the token in place of a session.
const METRICS: &str = "/metrics";

/// The largest login form: two tokens. Everybody who can connect to the dashboard may send it.
const LOGIN_BYTES_MAX: usize = 4 * 1024;

/// The page for an unknown address repeats at most this many characters of the address.
const PATH_CHARS_MAX: usize = 80;

/// How long a page, or a form that only reads, may take. A filter that matches little makes the
/// account read all workflows. If no connection to the account can be opened, the driver's own error
/// comes earlier, after about 22 seconds: it makes four attempts, each with a connect timeout of 5
/// seconds, and pauses between them.
const READ_TIME_MAX: Duration = Duration::from_secs(25);

/// Answers a request.
pub(crate) async fn answer(app: Arc<App>, request: http::Request<Incoming>) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let answered = match Request::head(parts) {
        Ok(request) => dispatch(app, request, body).await,
        Err(status) => Err(status),
    };
    let refused = |status: StatusCode| {
        let reason = status.canonical_reason().unwrap_or("The request was refused.");
        Answer::text(status, reason)
    };
    answered.unwrap_or_else(refused).into_response()
}

async fn dispatch(app: Arc<App>, mut request: Request, body: Incoming) -> Result<Answer, StatusCode> {
    if let Err(refusal) = app.access.check(&request) {
        return Ok(Answer::text(StatusCode::FORBIDDEN, refusal.message()));
    }
    if app.access.needs_login() && app.access.check_session(&request).is_ok() {
        request.peer.trust();
    }
    if request.method == Method::POST {
        let is_login = request.path == "/login";
        // A person who is not signed in may send the small login form, and no other form.
        if !is_login && app.access.check_session(&request).is_err() {
            return Ok(Answer::text(StatusCode::UNAUTHORIZED, Refusal::NoSession.message()));
        }
        request.read_form(body, if is_login { LOGIN_BYTES_MAX } else { FORM_BYTES_MAX }).await?;
        let checked = match is_login {
            true => app.access.check_login_form(&request),
            false => app.access.check_form(&request),
        };
        if let Err(refusal) = checked {
            return Ok(Answer::text(StatusCode::FORBIDDEN, refusal.message()));
        }
        return match request.path.as_str() {
            "/login" => Ok(login(&app, &request).await),
            "/logout" => {
                let cookie = app.access.sign_out(&request);
                Ok(Answer::redirect(&Link::to("/workflows")).with_cookie(cookie))
            }
            path => {
                let page = pages::find(path).ok_or(StatusCode::NOT_FOUND)?;
                Ok(act(app, page, request.form).await)
            }
        };
    }
    if request.method != Method::GET {
        return Err(StatusCode::METHOD_NOT_ALLOWED);
    }
    get(app, request).await
}

async fn get(app: Arc<App>, request: Request) -> Result<Answer, StatusCode> {
    if let Some(file) = assets::answer(&request.path, &request.query) {
        return Ok(file);
    }
    if app.access.check_session(&request).is_err() {
        if request.path == METRICS && request.bearer_token().is_some() {
            return Ok(scrape(&app, &request).await);
        }
        let is_page = !request.wants_events() && !FILES.contains(&request.path.as_str());
        return Ok(match is_page {
            true => {
                Answer::html(StatusCode::UNAUTHORIZED, frame::login(app.access.login_form_token(), false))
            }
            false => Answer::text(StatusCode::UNAUTHORIZED, Refusal::NoSession.message()),
        });
    }
    if request.path == "/history.json" {
        return Ok(history(&app, &request.query).await);
    }
    let page = match request.path.as_str() {
        METRICS => return Ok(Answer::metrics(metrics::text(&app))),
        "/login" => return Ok(Answer::redirect(&Link::to("/workflows"))),
        path => match pages::find(path) {
            Some(page) => page,
            None if request.wants_events() => return Err(StatusCode::NOT_FOUND),
            None => return Ok(failed(&app, &pages::MISSING, &no_such_page(path), false)),
        },
    };
    match request.wants_events() {
        true => watch(app, page, request),
        false => Ok(show(app, page, request).await),
    }
}

/// Signs a person in. The wait comes before the token is compared, so that a client that closes the
/// connection saves no time.
async fn login(app: &App, request: &Request) -> Answer {
    tokio::time::sleep_until(app.access.login_compared_at(Instant::now())).await;
    match app.access.sign_in(request, Instant::now()) {
        Ok(cookie) => Answer::redirect(&Link::to("/workflows")).with_cookie(cookie),
        Err(answered_at) => {
            tracing::warn!("somebody tried to sign in to the dashboard with a wrong token");
            tokio::time::sleep_until(answered_at).await;
            Answer::html(StatusCode::UNAUTHORIZED, frame::login(app.access.login_form_token(), true))
        }
    }
}

/// The metrics for a program that sends the token. As in [`login`], the wait comes first.
async fn scrape(app: &App, request: &Request) -> Answer {
    tokio::time::sleep_until(app.access.login_compared_at(Instant::now())).await;
    let given_token = request.bearer_token().unwrap_or_default();
    match app.access.check_bearer(given_token, Instant::now()) {
        Ok(()) => {
            request.peer.trust();
            Answer::metrics(metrics::text(app))
        }
        Err(answered_at) => {
            tracing::warn!("a program tried to read the metrics of the dashboard with a wrong token");
            tokio::time::sleep_until(answered_at).await;
            Answer::text(StatusCode::UNAUTHORIZED, Refusal::NoSession.message())
        }
    }
}

/// Answers with a page.
async fn show(app: Arc<App>, page: &'static Page, request: Request) -> Answer {
    let notice = request.query.number("notice").and_then(|number| app.notices.take(number));
    let key = live_key(page, &request);
    if let Some((title, html)) = app.hub.fresh(&key) {
        let view = View { title: title.to_string(), html };
        return Answer::html(StatusCode::OK, frame::page(&app, page, view, notice, true));
    }
    let begun = app.hub.begin();
    let made = within(READ_TIME_MAX, (page.view)(Arc::clone(&app), request.query)).await;
    match made.map_err(|failure| page.advise_if_late(failure)) {
        Ok(view) => {
            app.hub.offer(&key, begun, &view.title, &view.html);
            Answer::html(StatusCode::OK, frame::page(&app, page, view, notice, true))
        }
        Err(failure) => failed(&app, page, &failure, true),
    }
}

fn no_such_page(path: &str) -> Failure {
    Failure::not_found(format!("There is no page {}.", cut(path, PATH_CHARS_MAX)))
        .advise("The navigation above has all pages.")
}

/// The answer for a page that could not be made. A live page still asks for newer versions.
fn failed(app: &App, page: &'static Page, failure: &Failure, is_live: bool) -> Answer {
    Answer::html(failure.status, frame::failed_page(app, page, failure, is_live))
}

/// The events of a live page.
fn watch(app: Arc<App>, page: &'static Page, request: Request) -> Result<Answer, StatusCode> {
    let interval = page.interval.ok_or(StatusCode::NOT_ACCEPTABLE)?;
    let key = live_key(page, &request);
    let hub = Arc::clone(&app.hub);
    let look = move || look(Arc::clone(&app), page, request.query.clone());
    let events = hub.watch(key, interval, look).map_err(|_| StatusCode::SERVICE_UNAVAILABLE)?;
    Ok(Answer::events(events))
}

/// The key of a live page. A notice is shown once and is not a part of the page, so the key is that of
/// the address without the notice. The script watches that address.
fn live_key(page: &Page, request: &Request) -> String {
    format!("{}?{}", page.path, request.query.text_without("notice"))
}

/// One look of a live page, with its cost. The cost includes what other pages used at the same time.
async fn look(app: Arc<App>, page: &'static Page, query: Parameters) -> Look {
    let before = app.source.request_units_so_far();
    let made = within(READ_TIME_MAX, (page.view)(Arc::clone(&app), query)).await;
    let made = match made.map_err(|failure| page.advise_if_late(failure)) {
        Ok(view) => Made::Page { title: Arc::from(view.title), html: view.html },
        Err(failure) => Made::Failure(frame::not_up_to_date(&failure)),
    };
    Look { made, charge: app.source.request_units_so_far() - before }
}

/// Does what a form asks for.
async fn act(app: Arc<App>, page: &'static Page, form: Parameters) -> Answer {
    let Some(run) = page.act else {
        return failed(&app, page, &Failure::wrong("This page has no forms."), false);
    };
    if app.is_read_only && pages::changes_something(&form) {
        return failed(&app, page, &Failure::read_only(), false);
    }
    let acted = match pages::changes_something(&form) {
        false => {
            let read = within(READ_TIME_MAX, run(Arc::clone(&app), form)).await;
            keep_notice(&app, read.map_err(|failure| page.advise_if_late(failure)))
        }
        true => {
            let (key, app) = (once::Key::of(page.path, &form), Arc::clone(&app));
            let action = run(Arc::clone(&app), form);
            let app_of_action = Arc::clone(&app);
            let changing = async move {
                let outcome = change(Arc::clone(&app_of_action.hub), action).await;
                keep_notice(&app_of_action, outcome)
            };
            match key {
                Some(key) => {
                    let acted = app.sent_forms.act(key.clone(), changing).await.unwrap_or_else(Acted::Failed);
                    // After a failure with any other status, the action may have been done, so it must not
                    // run again.
                    if matches!(&acted, Acted::Failed(failure) if failure.status.is_client_error()) {
                        app.sent_forms.forget(&key);
                    }
                    acted
                }
                None => changing.await,
            }
        }
    };
    match acted {
        Acted::Show { status, title, html } => {
            Answer::html(status, frame::page(&app, page, View { title, html }, None, false))
        }
        Acted::Go(link) => Answer::redirect(&link),
        Acted::Failed(failure) => failed(&app, page, &failure, false),
    }
}

/// Keeps the notice of an action for the next page. Returns what the action did.
fn keep_notice(app: &App, outcome: Result<Outcome, Failure>) -> Acted {
    match outcome {
        Ok(Outcome::Show(View { title, html })) => Acted::Show { status: StatusCode::OK, title, html },
        Ok(Outcome::AskAgain(View { title, html })) => {
            Acted::Show { status: StatusCode::CONFLICT, title, html }
        }
        Ok(Outcome::Go { to, notice }) => {
            let number = app.notices.put(Notice { text: notice, is_error: false });
            Acted::Go(to.with("notice", number))
        }
        Err(failure) => Acted::Failed(failure),
    }
}

/// Runs an action to its end, also if the browser that asked for it disconnects. After an action that
/// succeeded, live pages are made anew.
async fn change(hub: Arc<Hub>, action: pages::Task<Outcome>) -> Result<Outcome, Failure> {
    let running = tokio::spawn(async move {
        let outcome = action.await;
        if outcome.is_ok() {
            hub.refresh();
        }
        outcome
    });
    let panicked = |error| Failure::account(format!("The action ended before it was done: {error}"));
    running.await.unwrap_or_else(|error| Err(panicked(error)))
}

/// The whole history of an execution, as duroxide stores it.
async fn history(app: &App, query: &Parameters) -> Answer {
    let read = async {
        let (row, _, detail) = pages::read_workflow(app, query).await?;
        Ok::<_, Failure>(serde_json::to_string_pretty(detail.record.events(&row)?).unwrap_or_default())
    };
    match within(READ_TIME_MAX, read).await {
        Ok(json) => Answer::json(json),
        Err(failure) => Answer::text(failure.status, &failure.text()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_action_goes_on_when_the_browser_disconnects() {
        let (sender, ended) = tokio::sync::oneshot::channel();
        let action = Box::pin(async move {
            tokio::time::sleep(Duration::from_millis(100)).await;
            let _ = sender.send(());
            Ok(Outcome::Go { to: Link::to("/"), notice: String::new() })
        });
        let asked = tokio::time::timeout(Duration::from_millis(10), change(Arc::default(), action)).await;
        assert!(asked.is_err(), "the browser has disconnected");
        ended.await.expect("the action has ended");
    }

    #[tokio::test]
    async fn live_pages_are_made_anew_after_an_action_that_succeeded() {
        let hub = Arc::<Hub>::default();
        let refused = Box::pin(async { Err(Failure::wrong("no")) });
        assert!(change(Arc::clone(&hub), refused).await.is_err());
        assert_eq!(hub.begin().changes, 0, "nothing was changed");
        let done = Box::pin(async { Ok(Outcome::Go { to: Link::to("/"), notice: String::new() }) });
        assert!(change(Arc::clone(&hub), done).await.is_ok());
        assert_eq!(hub.begin().changes, 1);
    }

    /// The script takes the notice out of the address and encodes the rest in its own way.
    #[test]
    fn a_page_with_a_notice_is_the_same_live_page() {
        let page = pages::find("/workflow").expect("a page");
        let key = |query: &str| {
            let parts = http::Request::get(format!("/workflow?{query}")).body(()).unwrap().into_parts().0;
            live_key(page, &Request::head(parts).unwrap())
        };
        assert_eq!(key("id=a%20b&zoom=2&notice=7"), key("id=a+b&zoom=2"));
        assert_ne!(key("id=a%20b&zoom=2"), key("id=a%20b"));
        assert_ne!(key("id=a&type=b"), key("id=a%26type%3Db"));
    }
}
