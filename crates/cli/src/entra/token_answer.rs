//! Reads the answer to a request for a token. All services answer with almost the same JSON:
//! `access_token` with `expires_on` or `expires_in`, as numbers or as texts. The Azure CLI writes
//! `accessToken`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use perihelion_client::credential::AccessToken;
use serde::Deserialize;
use serde_json::Value;

use super::send::Answer;
use crate::output::text::cut;

/// How long a token without a known expiry is used. Versions of the Azure CLI before 2.54 write the
/// expiry only as a local time without its zone. They keep tokens and return them again, so asking
/// often costs little.
const LIFETIME_IF_UNKNOWN: Duration = Duration::from_secs(5 * 60);

/// The most characters of a service's message in an error.
const MESSAGE_CHARS_MAX: usize = 300;

#[derive(Deserialize)]
struct TokenJson {
    #[serde(alias = "accessToken")]
    access_token: String,
    expires_on: Option<Value>,
    expires_in: Option<Value>,
}

/// The members of refusals. Entra ID has the first two, App Service the third. Any may be null.
#[derive(Default, Deserialize)]
#[serde(default)]
struct RefusalJson {
    error: Value,
    error_description: Option<String>,
    message: Option<String>,
}

/// The token of an answer, or what the service says instead. `secrets` were in the request, and are
/// not repeated if the answer has them.
pub(super) fn read(answer: &Answer, now: SystemTime, secrets: &[&str]) -> Result<AccessToken, String> {
    match answer.status.is_success() {
        true => parse(&answer.body, now),
        false => Err(refusal(answer, secrets)),
    }
}

/// The token in a JSON text. The text is never a part of the error.
pub(super) fn parse(json: &[u8], now: SystemTime) -> Result<AccessToken, String> {
    let parsed: TokenJson =
        serde_json::from_slice(json).map_err(|_| "the answer is not the JSON of a token".to_owned())?;
    let token = parsed.access_token;
    if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err("the answer has an empty or unreadable token".to_owned());
    }
    let expires_on =
        match (parsed.expires_on.as_ref().and_then(seconds), parsed.expires_in.as_ref().and_then(seconds)) {
            (Some(on), _) => UNIX_EPOCH.checked_add(on),
            (None, Some(after)) => now.checked_add(after),
            (None, None) => now.checked_add(LIFETIME_IF_UNKNOWN),
        };
    let expires_on = expires_on.ok_or("the expiry in the answer is too far in the future")?;
    Ok(AccessToken::new(token, expires_on))
}

fn seconds(value: &Value) -> Option<Duration> {
    let number = value.as_u64().or_else(|| value.as_str()?.trim().parse().ok())?;
    Some(Duration::from_secs(number))
}

/// The status and the first line of the service's message.
fn refusal(answer: &Answer, secrets: &[&str]) -> String {
    let json: RefusalJson = serde_json::from_slice(&answer.body).unwrap_or_default();
    let texts = [json.error.as_str(), json.error_description.as_deref(), json.message.as_deref()];
    let lines = texts.map(|text| text.unwrap_or_default().lines().next().unwrap_or_default().trim());
    let lines: Vec<&str> = lines.into_iter().filter(|line| !line.is_empty()).collect();
    let mut message = lines.join(": ");
    for secret in secrets.iter().filter(|secret| !secret.is_empty()) {
        message = message.replace(secret, "(hidden)");
    }
    let colon = if message.is_empty() { "" } else { ": " };
    format!(
        "refused ({}){colon}{}",
        answer.status.as_u16(),
        cut(message.trim_end_matches('.'), MESSAGE_CHARS_MAX)
    )
}

#[cfg(test)]
mod tests {
    use http::StatusCode;

    use super::*;

    #[test]
    fn the_expiry_is_a_time_or_a_duration_as_a_number_or_a_text() {
        let now = UNIX_EPOCH + Duration::from_secs(1_000);
        for (members, expected) in [
            (r#""expires_on":2000"#, 2_000),
            (r#""expires_on":"2000","expires_in":"7""#, 2_000),
            (r#""expires_in":3599"#, 4_599),
            (r#""expires_in":"3599""#, 4_599),
            (r#""expires_on":"2026-11-18 12:00:00.000000""#, 1_300),
            (r#""expiresOn":"2026-11-18 12:00:00.000000""#, 1_300),
        ] {
            let token = parse(format!(r#"{{"access_token":"t",{members}}}"#).as_bytes(), now).unwrap();
            assert_eq!(token.expires_on.duration_since(UNIX_EPOCH).unwrap().as_secs(), expected, "{members}");
        }
        let far = format!(r#"{{"access_token":"t","expires_in":{}}}"#, u64::MAX);
        assert!(parse(far.as_bytes(), now).is_err());
    }

    #[test]
    fn an_unreadable_answer_is_not_repeated_in_the_error() {
        for json in [r#"{"access_token":"s3cret\n"}"#, r#"{"access_token":""}"#, "s3cret", r#"["s3cret"]"#] {
            let error = parse(json.as_bytes(), UNIX_EPOCH).unwrap_err();
            assert!(!error.contains("s3cret"), "{error}");
        }
    }

    #[test]
    fn a_refusal_has_the_first_line_of_the_message_and_no_secret() {
        let body =
            r#"{"error":"invalid_client","error_description":"AADSTS7: s3cret is wrong.\r\nTrace ID: 1"}"#;
        let answer = Answer { status: StatusCode::UNAUTHORIZED, body: body.into() };
        let expected = "refused (401): invalid_client: AADSTS7: (hidden) is wrong";
        assert_eq!(read(&answer, UNIX_EPOCH, &["s3cret", ""]).unwrap_err(), expected);
        let body = r#"{"error":"invalid_scope","error_description":null,"message":null}"#;
        let answer = Answer { status: StatusCode::BAD_REQUEST, body: body.into() };
        assert_eq!(read(&answer, UNIX_EPOCH, &[]).unwrap_err(), "refused (400): invalid_scope");
        let answer = Answer { status: StatusCode::BAD_GATEWAY, body: "<html>".into() };
        assert_eq!(read(&answer, UNIX_EPOCH, &[]).unwrap_err(), "refused (502)");
    }
}
