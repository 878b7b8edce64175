//! The first checks of `perihelion doctor`: one read of the account document, without the
//! driver. The answer shows whether the endpoint is reached, whether the certificate is trusted, how
//! much the clocks differ (also if the credential is refused), whether the credential is accepted, and
//! which consistency the account has.

use std::time::{Duration, Instant, SystemTime};

use duroxide_cdb::{Check, CheckResult};
use http::Method;
use http::header::DATE;
use perihelion_driver::transport::HttpOptions;
use perihelion_wire::date;
use perihelion_wire::signature::EMULATOR_KEY;
use perihelion_wire::transport::{Endpoint, FailureKind, Response};
use serde_json::Value;

use super::identity::Identity;
use crate::account::{
    Account, KEYS_ARE_OFF, RawConnection, RawFailure, RawProof, RawRequest, in_own_words, tls_advice,
};
use crate::exit::Failure;

/// The largest difference of the clocks that needs no attention. The measured difference includes
/// the time of the request, and the service tells its time in whole seconds.
const SKEW_SECONDS_OK: u64 = 30;

/// The service refuses a request whose date differs more than this from its own clock.
const SKEW_SECONDS_MAX: u64 = 15 * 60;

/// The longest time to wait for an answer. The driver gives up on a request after a few seconds too.
const TIMEOUT: Duration = Duration::from_secs(10);

/// An answer that takes longer needs attention: the account document is small and in memory.
const SLOW: Duration = Duration::from_secs(1);

/// The pause before the second request, after an answer such as 429 or 503.
const PAUSE: Duration = Duration::from_secs(1);

/// The levels of consistency that a provider can run with.
const CONSISTENCIES: [&str; 3] = ["Session", "BoundedStaleness", "Strong"];

/// The answer to the probe.
struct Answer {
    response: Response,
    took: Duration,
    /// This machine's time half way between request and answer, in seconds since 1970.
    local_seconds: u64,
}

/// Sends the probe and judges its answer. At least one check is a problem if the account cannot be used.
pub(super) async fn run(account: &Account, key: Option<&str>) -> Result<Vec<Check>, Failure> {
    let is_emulator_key = key == Some(EMULATOR_KEY);
    // The client has the same options: the emulators' key is published, so clear text reveals no
    // secret.
    let options = HttpOptions::default()
        .with_allow_cleartext(is_emulator_key)
        .with_accept_unknown_loopback_certificates(is_emulator_key);
    let endpoint = RawConnection::endpoint_of(account)?;
    let identity = match account.is_entra() {
        true => Some(Identity::of_process(&endpoint).await),
        false => None,
    };
    let proof = identity.as_ref().map_or_else(|| RawProof::key(key), |identity| Ok(identity.proof()))?;
    let connection = RawConnection::new(account, proof, options)?;
    let connection = connection.with_timeout(TIMEOUT);
    let answer = match send_twice(&connection).await {
        Ok(answer) => answer,
        Err(failure) => return Ok(unreachable(&endpoint, &failure)),
    };
    let reached = reached(&endpoint, &answer);
    let is_account = reached.result != CheckResult::Problem;
    let mut checks = vec![reached, transport_security(&endpoint, is_emulator_key), clock(&answer)];
    if !is_account {
        return Ok(checks);
    }
    checks.push(match &identity {
        Some(identity) => identity.judge(&answer.response, SystemTime::now()),
        None => credential(&answer, key),
    });
    if answer.response.status().is_success() {
        checks.push(consistency(&answer.response));
        checks.extend(readiness(account, &connection).await);
    }
    Ok(checks)
}

/// Sends the probe, and once more if the answer is a failure that may pass.
async fn send_twice(connection: &RawConnection) -> Result<Answer, RawFailure> {
    let answer = send(connection).await?;
    match is_transient(answer.response.status().as_u16()) {
        true => {
            tokio::time::sleep(PAUSE).await;
            send(connection).await
        }
        false => Ok(answer),
    }
}

/// Whether a status says that the service is busy or fails. Such a status says nothing about the request.
fn is_transient(status: u16) -> bool {
    matches!(status, 408 | 429 | 500..)
}

/// The check of an endpoint that answers: whether it is an account, and how fast it is.
fn reached(endpoint: &Endpoint, answer: &Answer) -> Check {
    let subject = "endpoint";
    let status = answer.response.status().as_u16();
    let is_account = || default_consistency(&answer.response).is_some();
    let answers = format!("{endpoint} answers in {:.1} ms", answer.took.as_secs_f64() * 1000.0);
    match status {
        status if is_transient(status) => Check::problem(
            subject,
            format!("{endpoint} answers {status}, twice"),
            "Try again later. If it stays, look at the health of the region, or at the log of the server",
        ),
        404 => Check::problem(
            subject,
            format!("the program at {endpoint} is not a Cosmos DB account (404)"),
            "Check the host and the port",
        ),
        200 if !is_account() => Check::problem(
            subject,
            format!("the program at {endpoint} is not a Cosmos DB account: its answer is another document"),
            "Check the host and the port",
        ),
        _ if answer.took > SLOW => Check::warning(
            subject,
            answers,
            "Run near the account, and check proxies: a step of a workflow takes several requests",
        ),
        _ => Check::ok(subject, answers),
    }
}

/// The most characters of an answer's body that a check shows.
const BODY_CHARS_MAX: usize = 300;

/// A server of ours that cannot write its data says so at `/ready`. `None` if it is ready, or if the
/// endpoint is another kind of account.
async fn readiness(account: &Account, connection: &RawConnection) -> Option<Check> {
    if account.is_azure() {
        return None;
    }
    let request = RawRequest { method: Method::GET, path: "/ready", signed: ("", ""), body: String::new() };
    let response = connection.send(request).await.ok()?;
    (response.status().as_u16() == 503).then(|| {
        let body: String = String::from_utf8_lossy(response.body()).chars().take(BODY_CHARS_MAX).collect();
        Check::problem(
            "server",
            format!("it is not ready (503): {body}"),
            "Its disk is full or has failed: look at its log, and start it again when the disk has room",
        )
    })
}

async fn send(connection: &RawConnection) -> Result<Answer, RawFailure> {
    let started = Instant::now();
    let request = RawRequest { method: Method::GET, path: "/", signed: ("", ""), body: String::new() };
    let response = connection.send(request).await?;
    let took = started.elapsed();
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Ok(Answer { response, took, local_seconds: now.saturating_sub(took / 2).as_secs() })
}

/// The checks of an endpoint that does not answer.
fn unreachable(endpoint: &Endpoint, failure: &RawFailure) -> Vec<Check> {
    let kind = match failure {
        RawFailure::NoAnswer(failure) => failure.kind,
        RawFailure::Path => FailureKind::Protocol,
    };
    let text = match failure {
        RawFailure::NoAnswer(failure) => failure.to_string(),
        RawFailure::Path => failure.to_string(),
    };
    let advice = match kind {
        FailureKind::Connect => {
            "Check the name and the port of the endpoint, the firewall, and that the server runs"
        }
        FailureKind::Tls => {
            let reached = Check::ok("endpoint", format!("{endpoint} is reached"));
            let advice =
                tls_advice(&text).unwrap_or_else(|| "check the certificate of the server".to_owned());
            return vec![reached, Check::problem("TLS", in_own_words(&text), advice)];
        }
        FailureKind::Closed | FailureKind::Protocol => {
            "The program at this endpoint is not a Cosmos DB account. Check the port, and http or https"
        }
        FailureKind::Timeout => {
            "The endpoint takes connections but does not answer. Check proxies, and try again"
        }
    };
    vec![Check::problem("endpoint", in_own_words(&text), advice)]
}

fn transport_security(endpoint: &Endpoint, is_emulator_key: bool) -> Check {
    match (endpoint.is_tls(), endpoint.is_loopback()) {
        (true, true) if is_emulator_key => {
            Check::ok("TLS", "on; the certificate is not checked on this machine with the emulators' key")
        }
        (true, _) => Check::ok("TLS", "on, the certificate is trusted"),
        (false, true) => Check::ok("TLS", "off, and the endpoint is on this machine"),
        (false, false) => Check::warning(
            "TLS",
            "off: everyone on the way can read and change requests",
            "Use https; servers of ours answer both on one port",
        ),
    }
}

fn clock(answer: &Answer) -> Check {
    let header = answer.response.headers().get(DATE).and_then(|value| value.to_str().ok());
    let Some(service_seconds) = header.and_then(date::parse) else {
        return Check::warning(
            "clock",
            "the answer has no date",
            "Check that no proxy removes the header Date",
        );
    };
    // The service tells its time in whole seconds, and may have read its clock at any time during
    // the request.
    let tolerance_seconds = 2 + answer.took.as_secs();
    match answer.local_seconds.abs_diff(service_seconds) <= tolerance_seconds {
        true => Check::ok("clock", "agrees with that of the service"),
        false => judge_clock(answer.local_seconds, service_seconds),
    }
}

/// Judges the difference between this machine's clock and the service's clock.
fn judge_clock(local_seconds: u64, service_seconds: u64) -> Check {
    let skew = local_seconds.abs_diff(service_seconds);
    let direction = if local_seconds < service_seconds { "behind" } else { "ahead of" };
    let finding = format!("this machine's clock is {skew} s {direction} the service's");
    match skew {
        skew if skew <= SKEW_SECONDS_OK => Check::ok("clock", finding),
        skew if skew <= SKEW_SECONDS_MAX => Check::warning(
            "clock",
            finding,
            "Set the clock (NTP): the service refuses requests whose date is 15 minutes off",
        ),
        _ => Check::problem(
            "clock",
            format!("{finding}: the service refuses dates that are more than 15 minutes off"),
            "Set the clock (NTP)",
        ),
    }
}

fn credential(answer: &Answer, key: Option<&str>) -> Check {
    let subject = "credential";
    let body = String::from_utf8_lossy(answer.response.body());
    let are_keys_off = body.contains(KEYS_ARE_OFF);
    match answer.response.status().as_u16() {
        200 if key == Some(EMULATOR_KEY) => Check::ok(subject, "the emulators' well-known key"),
        200 => Check::ok(subject, "the key is right"),
        401 | 403 if are_keys_off => Check::problem(
            subject,
            "the account accepts Entra ID only: keys are off (disableLocalAuth)",
            "Give --entra, and log in with `az login`; programs use Credential::azure (docs/azure.md)",
        ),
        401 if key.is_none() => Check::problem(
            subject,
            "no key is given",
            "Set COSMOS_KEY or --key-file, or give --entra to use Entra ID (docs/azure.md)",
        ),
        401 => Check::problem(
            subject,
            "the account refuses the key",
            "Check that the key belongs to this account and was not regenerated",
        ),
        403 => Check::problem(
            subject,
            "the account refuses this key or this machine (403)",
            "Check the clock above, the account's firewall and its private endpoints",
        ),
        status => Check::problem(subject, format!("the account answers {status}"), "Try again later"),
    }
}

/// The default consistency in the document of an account; `None` if the body is not such a document.
fn default_consistency(response: &Response) -> Option<String> {
    let document: Value = serde_json::from_slice(response.body()).ok()?;
    document["userConsistencyPolicy"]["defaultConsistencyLevel"].as_str().map(str::to_owned)
}

fn consistency(response: &Response) -> Check {
    let subject = "consistency";
    match default_consistency(response) {
        Some(level) if CONSISTENCIES.contains(&level.as_str()) => Check::ok(subject, level),
        Some(level) => Check::problem(
            subject,
            format!("{level}: a process may not see its own writes, so no provider opens on this account"),
            "Set the account's default consistency to Session",
        ),
        None => Check::problem(
            subject,
            "the answer is not the document of an account",
            "Check the endpoint: another program answers there",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_skewed_clock_is_a_warning_and_beyond_fifteen_minutes_a_problem() {
        let now = 1_800_000_000;
        for (skew, result) in [
            (0, CheckResult::Ok),
            (30, CheckResult::Ok),
            (31, CheckResult::Warning),
            (900, CheckResult::Warning),
            (901, CheckResult::Problem),
        ] {
            assert_eq!(judge_clock(now + skew, now).result, result, "{skew} s ahead");
            assert_eq!(judge_clock(now, now + skew).result, result, "{skew} s behind");
        }
        assert!(judge_clock(now, now + 60).finding.contains("60 s behind"));
        assert!(judge_clock(now + 60, now).finding.contains("60 s ahead of"));
    }

    #[test]
    fn a_slow_answer_is_a_warning() {
        let endpoint = Endpoint::parse("http://127.0.0.1:1/").unwrap();
        for (took, result) in [(SLOW, CheckResult::Ok), (SLOW * 2, CheckResult::Warning)] {
            let response = http::Response::builder().status(401).body("{}".into()).unwrap();
            let answer = Answer { response, took, local_seconds: 0 };
            assert_eq!(reached(&endpoint, &answer).result, result, "{took:?}");
        }
    }
}
