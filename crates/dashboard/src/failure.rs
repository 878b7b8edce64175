//! `Failure`: why a page cannot be shown or an action was not done, in words for the person who
//! looks at it, and what to try.

use std::fmt::Display;
use std::future::Future;
use std::time::Duration;

use duroxide::ClientError;
use duroxide::providers::ProviderError;
use http::StatusCode;
use perihelion_client::{Error, ErrorKind};

/// Why a page or an action failed.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    pub(crate) status: StatusCode,
    pub(crate) message: String,
    pub(crate) advice: Option<String>,
    /// Whether the account has given no answer in time.
    pub(crate) is_late: bool,
}

/// How long one part of a page may be read. If a partition does not answer, only this part is missing: the
/// rest of the page, with its forms, is shown.
pub(crate) const PART_TIME_MAX: Duration = Duration::from_secs(8);

/// Gives up reading after some time. Then the requests of the read are cancelled.
pub(crate) async fn within<T, E: Into<Failure>>(
    time_max: Duration,
    reading: impl Future<Output = Result<T, E>>,
) -> Result<T, Failure> {
    match tokio::time::timeout(time_max, reading).await {
        Ok(read) => read.map_err(Into::into),
        Err(_) => {
            let seconds = time_max.as_secs();
            let why = format!("The account has not given an answer within {seconds} seconds.");
            Err(Failure { is_late: true, ..Failure::account(why) })
        }
    }
}

impl Failure {
    fn new(status: StatusCode, message: impl Display) -> Failure {
        Failure { status, message: message.to_string(), advice: None, is_late: false }
    }

    /// A value in the address or the form is missing, not valid or not confirmed.
    pub(crate) fn wrong(message: impl Display) -> Failure {
        Failure::new(StatusCode::BAD_REQUEST, message)
    }

    pub(crate) fn not_found(message: impl Display) -> Failure {
        Failure::new(StatusCode::NOT_FOUND, message)
    }

    /// The state of a workflow or an item does not allow the action.
    pub(crate) fn conflict(message: impl Display) -> Failure {
        Failure::new(StatusCode::CONFLICT, message)
    }

    /// There is too much to show.
    pub(crate) fn too_large(message: impl Display) -> Failure {
        Failure::new(StatusCode::PAYLOAD_TOO_LARGE, message)
    }

    /// The account does not answer, or not as expected.
    pub(crate) fn account(message: impl Display) -> Failure {
        Failure::new(StatusCode::BAD_GATEWAY, message)
    }

    /// There is nothing to show yet, which is not an error.
    pub(crate) fn nothing_yet(message: impl Display) -> Failure {
        Failure::new(StatusCode::OK, message)
    }

    pub(crate) fn read_only() -> Failure {
        Failure::new(StatusCode::FORBIDDEN, "This dashboard is read-only, so nothing was changed.")
            .advise("Start it without --read-only to change something.")
    }

    pub(crate) fn advise(self, advice: impl Display) -> Failure {
        Failure { advice: Some(advice.to_string()), ..self }
    }

    /// The message and the advice.
    pub(crate) fn text(&self) -> String {
        let advice = self.advice.as_deref();
        advice.map_or_else(|| self.message.clone(), |advice| format!("{} {advice}", self.message))
    }

    /// A failed request to a container or an item.
    pub(crate) fn request(what: impl Display, error: &Error) -> Failure {
        let text = format!("{what}: {}.", reason(error).trim_end_matches('.'));
        match error.status().map(|status| status.code) {
            _ if error.kind() == ErrorKind::Input => Failure::wrong(text),
            Some(404) => Failure::not_found(text),
            Some(400) => Failure::wrong(text),
            Some(409 | 412) => Failure::conflict(text),
            Some(_) | None => Failure::account(text),
        }
    }

    /// The failure of a page of a list. The address names the place `after` at which the page begins;
    /// `after` is empty for the first page. A place that the list does not have was typed, or belongs to
    /// another filter or container.
    pub(crate) fn list(error: ProviderError, after: &str) -> Failure {
        let is_about_place = error.message.to_ascii_lowercase().contains("continuation");
        match !after.is_empty() && !error.is_retryable() && is_about_place {
            true => {
                Failure::wrong("The address names a place in the list (after=) that this list does not have.")
                    .advise("Begin again with the first page.")
            }
            false => Failure::from(error),
        }
    }
}

/// Why a request failed, in our words for the reasons that are known. If the outcome of a write is not
/// known, its status may belong to an earlier attempt, so the error is shown as it is.
fn reason(error: &Error) -> String {
    let status = error.status().filter(|_| error.kind() == ErrorKind::Service);
    let status = status.map(|status| (status.code, status.sub));
    let known = match status {
        _ if error.is_container_not_found() => "there is no such container",
        _ if error.is_not_found() => "it does not exist",
        Some(PARTITION_KEY_MISMATCH) => "the partition key does not fit the container or the item",
        Some((409, _)) => "there is another item with this id or with the same unique key",
        Some((412, _)) => "it was changed meanwhile",
        Some((400, _)) if error.message().starts_with(INVALID_ADDRESS) => {
            "a name or an id in the address cannot exist"
        }
        _ => return without_json(first_line(&error.to_string())),
    };
    known.to_owned()
}

/// The status of a request whose partition key does not have the form that the container needs, or differs
/// from the partition key in the item.
const PARTITION_KEY_MISMATCH: (u16, u32) = (400, 1001);

/// The service's message for a request whose address has an invalid name or id.
const INVALID_ADDRESS: &str = "Request url is invalid";

/// The text with the service's sentences in place of the JSON that the service wraps around them:
/// `400: Message: {"Errors":["The input ttl is invalid."]}`.
fn without_json(text: &str) -> String {
    let Some((before, rest)) = text.split_once("Message: {") else { return text.to_owned() };
    let json = format!("{{{rest}");
    // Something may follow the JSON.
    let first = serde_json::Deserializer::from_str(&json).into_iter::<serde_json::Value>().next();
    let Some(Ok(value)) = first else { return text.to_owned() };
    let errors = value["Errors"].as_array().or_else(|| value["errors"].as_array());
    let sentences: Vec<&str> = errors
        .into_iter()
        .flatten()
        .filter_map(|error| error.as_str().or_else(|| error["message"].as_str()))
        .collect();
    match sentences.is_empty() {
        true => text.to_owned(),
        false => format!("{before}{}", sentences.join(" ")),
    }
}

impl From<ProviderError> for Failure {
    fn from(error: ProviderError) -> Failure {
        Failure::account(without_json(first_line(&error.message)))
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Failure {
        Failure::account(without_json(first_line(&error.to_string())))
    }
}

/// The first line of a message. The service's messages go on with details of the request.
pub(crate) fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default().trim_end_matches([',', ' ', '\r'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn reading_is_given_up_after_some_time() {
        let slow = std::future::pending::<Result<(), Failure>>();
        let failure = within(Duration::from_millis(10), slow).await.unwrap_err();
        assert_eq!((failure.status, failure.is_late), (StatusCode::BAD_GATEWAY, true));
        let ready = std::future::ready(Ok::<_, Failure>(1));
        assert!(within(Duration::from_secs(5), ready).await.is_ok());
    }

    #[test]
    fn the_sentences_of_the_service_are_shown_without_their_json() {
        for (text, expected) in [
            (r#"400: Message: {"Errors":["The ttl is invalid.","b"]}"#, "400: The ttl is invalid. b"),
            (
                r#"list: 400: Message: {"errors":[{"message":"near 'x'."}]} (attempt 1)"#,
                "list: 400: near 'x'.",
            ),
            (r#"400: Message: {"Errors":7}"#, r#"400: Message: {"Errors":7}"#),
            ("Message: {broken", "Message: {broken"),
            ("429: Request rate is large", "429: Request rate is large"),
        ] {
            assert_eq!(without_json(text), expected);
        }
    }

    #[test]
    fn only_a_place_that_the_list_does_not_have_is_a_bad_request() {
        let status = |message: &str, after: &str, is_retryable: bool| {
            let error = match is_retryable {
                true => ProviderError::retryable("list", message),
                false => ProviderError::permanent("list", message),
            };
            Failure::list(error, after).status
        };
        let wrong_place = "400: Invalid Continuation Token";
        assert_eq!(status(wrong_place, "x", false), StatusCode::BAD_REQUEST);
        assert_eq!(status(wrong_place, "", false), StatusCode::BAD_GATEWAY, "the address names no place");
        assert_eq!(status(wrong_place, "x", true), StatusCode::BAD_GATEWAY);
        assert_eq!(status("401: wrong key", "x", false), StatusCode::BAD_GATEWAY);
    }
}
