//! Access control of the dashboard: four checks, each against another kind of attack.
//!
//! - *Host.* A dashboard on loopback answers only requests that name a loopback host. Otherwise an
//!   attacker could let the name of his own site resolve to 127.0.0.1, and his page could read the
//!   dashboard (DNS rebinding). With a token this check is not needed, because the browser sends no
//!   session cookie to the attacker's name.
//! - *Site.* A browser tells which site a request comes from. A request from another site may only
//!   open a page; it may not load the page as an image, a script or a frame.
//! - *Token.* If there is a token, a request needs the session cookie that the login form gives
//!   for it. Browsers do not send the cookie with requests of other sites. A program that reads the
//!   metrics sends the token itself.
//! - *Form.* A POST needs the origin of the dashboard itself and the form token that only its own
//!   pages contain. With a token the origin may have another port than the `Host`, because a proxy
//!   with TLS listens on its own port.
//!
//! The checks change nothing, except that a program's wrong token is recorded as a wrong login. Only
//! the check of the session reads the clock.

mod secret;
mod sessions;
mod wrong_logins;

use http::Method;
use perihelion_wire::transport::is_loopback;
use tokio::time::Instant;

pub(crate) use secret::Secret;

use self::sessions::{SESSION_TIME, Sessions};
use self::wrong_logins::WrongLogins;
use crate::http::Request;

/// What the checks need: the secrets of this run of the dashboard, the sessions of people who have
/// signed in, and the wrong logins.
#[derive(Debug)]
pub(crate) struct Access {
    /// Whether only this machine can reach the dashboard.
    is_loopback: bool,
    /// The token that a person types into the login form; `None` if no login is needed.
    token: Option<Secret>,
    /// The values of the session cookies.
    sessions: Sessions,
    /// The token in every form of a page.
    form: Secret,
    /// The token in the login form. People who are not signed in see it, so it differs from `form`.
    login_form: Secret,
    /// The name of the session cookie. A browser sends a cookie to all ports of a host, so the name
    /// contains the port of the dashboard.
    cookie_name: String,
    /// Slows down people who guess the token.
    wrong_logins: WrongLogins,
}

/// Why a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The host is not this machine.
    ForeignHost,
    /// Another site sent the request.
    ForeignSite,
    /// The session cookie is missing.
    NoSession,
    /// The form was not made by this dashboard.
    ForeignForm,
}

impl Refusal {
    /// The text for the person who gets the refusal, with what to do.
    pub(crate) fn message(self) -> &'static str {
        match self {
            Refusal::ForeignHost => {
                "This dashboard listens on loopback, and the address names another host. Open it as \
                 http://127.0.0.1 or http://localhost with its port."
            }
            Refusal::ForeignSite => "Another site sent this request. Open the dashboard by its own address.",
            Refusal::NoSession => "You are not signed in. Open the dashboard and sign in with its token.",
            Refusal::ForeignForm => {
                "The form does not belong to this run of the dashboard. Go back, reload the page and try again."
            }
        }
    }
}

impl Access {
    pub(crate) fn new(
        is_loopback: bool,
        token: Option<Secret>,
        port: u16,
    ) -> Result<Access, getrandom::Error> {
        Ok(Access {
            is_loopback,
            token,
            sessions: Sessions::default(),
            form: Secret::random()?,
            login_form: Secret::random()?,
            cookie_name: format!("perihelion-{port}"),
            wrong_logins: WrongLogins::default(),
        })
    }

    /// Checks a request without its form.
    pub(crate) fn check(&self, request: &Request) -> Result<(), Refusal> {
        self.check_host(request)?;
        check_site(request)?;
        if request.method != Method::GET && !self.is_own_origin(request) {
            return Err(Refusal::ForeignForm);
        }
        Ok(())
    }

    pub(crate) fn check_session(&self, request: &Request) -> Result<(), Refusal> {
        let has_session = || {
            request.cookie(&self.cookie_name).is_some_and(|value| self.sessions.has(value, Instant::now()))
        };
        if !self.needs_login() || has_session() { Ok(()) } else { Err(Refusal::NoSession) }
    }

    /// Whether people must sign in.
    pub(crate) fn needs_login(&self) -> bool {
        self.token.is_some()
    }

    /// Checks the token of a form that was sent.
    pub(crate) fn check_form(&self, request: &Request) -> Result<(), Refusal> {
        check_token(&self.form, request)
    }

    /// Checks the token of a login form that was sent.
    pub(crate) fn check_login_form(&self, request: &Request) -> Result<(), Refusal> {
        check_token(&self.login_form, request)
    }

    /// The token that the login form contains.
    pub(crate) fn login_form_token(&self) -> &str {
        self.login_form.reveal()
    }

    /// Returns the session cookie if the login has the right token. Otherwise records a wrong login, and
    /// returns the time until which the caller holds back the refusal.
    pub(crate) fn sign_in(&self, request: &Request, now: Instant) -> Result<String, Instant> {
        let is_right = self.is_token(request.form.get("token").trim());
        // If the system gives no random numbers, no session can begin, and the login counts as wrong.
        match is_right.then(|| self.sessions.begin(now)) {
            Some(Ok(session)) => Ok(self.cookie(session.reveal(), SESSION_TIME.as_secs(), request)),
            Some(Err(_)) | None => Err(self.wrong_logins.record(now)),
        }
    }

    /// Checks the token that a program sends with each of its requests. A wrong token counts as a wrong
    /// login; the error is then the time until which the caller holds back the refusal.
    pub(crate) fn check_bearer(&self, given_token: &str, now: Instant) -> Result<(), Instant> {
        if self.is_token(given_token) { Ok(()) } else { Err(self.wrong_logins.record(now)) }
    }

    fn is_token(&self, given_token: &str) -> bool {
        self.token.as_ref().is_some_and(|token| token.equals(given_token))
    }

    /// Ends the session of a person. Returns the empty cookie that replaces the session cookie.
    pub(crate) fn sign_out(&self, request: &Request) -> String {
        self.sessions.end(request.cookie(&self.cookie_name).unwrap_or_default());
        self.cookie("", 0, request)
    }

    /// The value of the header `Set-Cookie`. If the page of the form was opened with HTTPS, the cookie is
    /// `Secure`: the browser never sends it without TLS.
    fn cookie(&self, value: &str, seconds: u64, request: &Request) -> String {
        let secure = if request.header("origin").starts_with("https://") { "; Secure" } else { "" };
        let name = &self.cookie_name;
        format!("{name}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}")
    }

    /// A login has just arrived: returns the time at which the caller may compare its token. After a wrong
    /// login, only one login per second is compared.
    pub(crate) fn login_compared_at(&self, now: Instant) -> Instant {
        self.wrong_logins.compared_at(now)
    }

    /// The token that forms contain.
    pub(crate) fn form_token(&self) -> &str {
        self.form.reveal()
    }

    fn check_host(&self, request: &Request) -> Result<(), Refusal> {
        let host = host_of(request.header("host"));
        if !self.is_loopback || self.token.is_some() || is_loopback(host) {
            Ok(())
        } else {
            Err(Refusal::ForeignHost)
        }
    }

    /// Whether the form comes from a page of this dashboard. Its origin must have the same host as the
    /// request. If no login is needed, it must have the same port too.
    fn is_own_origin(&self, request: &Request) -> bool {
        let (origin, host) = (request.header("origin"), request.header("host"));
        let authority = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
        let is_own = |authority: &str| match self.token {
            Some(_) => host_of(authority) == host_of(host),
            None => authority == host,
        };
        authority.is_some_and(|authority| !host_of(authority).is_empty() && is_own(authority))
    }
}

fn check_token(token: &Secret, request: &Request) -> Result<(), Refusal> {
    if token.equals(request.form.get("form")) { Ok(()) } else { Err(Refusal::ForeignForm) }
}

/// The host of an authority, without its port and brackets.
fn host_of(authority: &str) -> &str {
    match authority.strip_prefix('[') {
        Some(bracketed) => bracketed.split(']').next().unwrap_or_default(),
        None => authority.split(':').next().unwrap_or_default(),
    }
}

/// Refuses a request that another site embeds in its own page. A person may follow a link to a page
/// of the dashboard. Programs other than browsers do not send these headers.
fn check_site(request: &Request) -> Result<(), Refusal> {
    let is_foreign = matches!(request.header("sec-fetch-site"), "cross-site" | "same-site");
    let is_opened = request.method == Method::GET
        && request.header("sec-fetch-mode") == "navigate"
        && request.header("sec-fetch-dest") == "document";
    if is_foreign && !is_opened { Err(Refusal::ForeignSite) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::Parameters;

    fn request(method: Method, headers: &[(&'static str, &str)]) -> Request {
        let headers = headers.iter().map(|(name, value)| {
            (http::HeaderName::from_static(name), http::HeaderValue::from_str(value).unwrap())
        });
        Request { method, headers: headers.collect(), ..Request::default() }
    }

    fn check(method: Method, headers: &[(&'static str, &str)]) -> Result<(), Refusal> {
        Access::new(true, None, 8082).unwrap().check(&request(method, headers))
    }

    #[test]
    fn on_loopback_only_loopback_hosts_are_answered() {
        for host in
            ["127.0.0.1:8082", "localhost:8082", "[::1]:8082", "127.9.9.9", "localhost", "LocalHost:1"]
        {
            assert_eq!(check(Method::GET, &[("host", host)]), Ok(()), "{host}");
        }
        for host in ["evil.example:8082", "", "127.0.0.1.evil.example", "localhost.evil", "[::2]:8082"] {
            assert_eq!(check(Method::GET, &[("host", host)]), Err(Refusal::ForeignHost), "{host}");
        }
        let open = Access::new(false, Some(Secret::random().unwrap()), 8082).unwrap();
        assert_eq!(open.check(&request(Method::GET, &[("host", "ops.example")])), Ok(()));
    }

    #[test]
    fn a_form_needs_the_origin_of_the_dashboard() {
        let host = ("host", "127.0.0.1:8082");
        assert_eq!(check(Method::POST, &[host, ("origin", "http://127.0.0.1:8082")]), Ok(()));
        for origin in
            ["", "null", "http://evil.example", "http://127.0.0.1:9999", "http://", "ftp://127.0.0.1:8082"]
        {
            assert_eq!(
                check(Method::POST, &[host, ("origin", origin)]),
                Err(Refusal::ForeignForm),
                "{origin}"
            );
        }
    }

    #[test]
    fn with_a_token_the_dashboard_may_be_behind_a_tls_proxy() {
        let access = Access::new(true, Some(Secret::random().unwrap()), 8082).unwrap();
        let post = |host, origin| access.check(&request(Method::POST, &[("host", host), ("origin", origin)]));
        assert_eq!(access.check(&request(Method::GET, &[("host", "ops.example")])), Ok(()));
        assert_eq!(post("ops.example", "https://ops.example"), Ok(()));
        assert_eq!(post("ops.example", "https://ops.example:8443"), Ok(()));
        assert_eq!(post("ops.example:8082", "https://ops.example"), Ok(()));
        for origin in
            ["https://evil.example", "null", "", "https://", "https://:443", "https://ops.example.evil"]
        {
            assert_eq!(post("ops.example", origin), Err(Refusal::ForeignForm), "{origin}");
        }
        assert_eq!(post("", "https://"), Err(Refusal::ForeignForm));
    }

    #[test]
    fn another_site_may_only_open_a_page() {
        let host = ("host", "127.0.0.1:8082");
        let with = |mode, dest| {
            let fetch =
                [("sec-fetch-site", "cross-site"), ("sec-fetch-mode", mode), ("sec-fetch-dest", dest)];
            check(Method::GET, &[&[host], fetch.as_slice()].concat())
        };
        assert_eq!(with("navigate", "document"), Ok(()));
        assert_eq!(with("navigate", "iframe"), Err(Refusal::ForeignSite));
        assert_eq!(with("no-cors", "image"), Err(Refusal::ForeignSite));
        assert_eq!(with("cors", "empty"), Err(Refusal::ForeignSite));
    }

    #[test]
    fn the_session_is_given_for_the_token_only() {
        let token = Secret::random().unwrap();
        let right_token = token.reveal().to_owned();
        let (access, now) = (Access::new(false, Some(token), 8082).unwrap(), Instant::now());
        let sign_in = |given_token: &str, origin: &str| {
            let form = Parameters::parse(&format!("token={given_token}"));
            access.sign_in(&Request { form, ..request(Method::POST, &[("origin", origin)]) }, now).ok()
        };
        let origin = "http://127.0.0.1:8082";
        assert_eq!(sign_in("wrong", origin), None);
        assert_eq!(sign_in("", origin), None);
        // A token that was copied may have a space or a line break at its ends.
        let cookie = sign_in(&format!("+{right_token}%0A"), origin).expect("a cookie");
        assert!(!cookie.contains("Secure"), "the dashboard speaks HTTP");
        assert!(sign_in(&right_token, "https://ops.example").expect("a cookie").ends_with("; Secure"));
        let pair = cookie.split(';').next().unwrap();
        assert!(!cookie.contains(&right_token), "the cookie is not the token");
        assert_eq!(access.check_session(&request(Method::GET, &[("cookie", pair)])), Ok(()));
        let others = format!("a=b; {pair}");
        assert_eq!(access.check_session(&request(Method::GET, &[("cookie", &others)])), Ok(()));
        for cookie in ["", "perihelion-8082=", "perihelion-8082=x"] {
            let checked = access.check_session(&request(Method::GET, &[("cookie", cookie)]));
            assert_eq!(checked, Err(Refusal::NoSession));
        }
    }

    #[test]
    fn a_wrong_token_of_a_program_delays_the_next_login() {
        let token = Secret::random().unwrap();
        let right_token = token.reveal().to_owned();
        let (access, now) = (Access::new(false, Some(token), 8082).unwrap(), Instant::now());
        let bearer = |header: &str| {
            let request = request(Method::GET, &[("authorization", header)]);
            request.bearer_token().map(|given| access.check_bearer(given, now))
        };
        assert_eq!(bearer(&format!("Bearer {right_token}")), Some(Ok(())));
        assert_eq!(bearer(&format!("bearer  {right_token} ")), Some(Ok(())));
        assert_eq!(access.login_compared_at(now), now, "nothing was wrong yet");
        assert_eq!(bearer(&format!("Basic {right_token}")), None);
        assert_eq!(bearer(&right_token), None);
        let held_back = bearer("Bearer wrong").expect("a token").expect_err("it is wrong");
        assert!(held_back > now, "the refusal is held back");
        assert!(access.login_compared_at(now) > now, "the next login waits");
    }
}
